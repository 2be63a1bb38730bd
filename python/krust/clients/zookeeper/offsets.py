"""The offsets of a group in ZooKeeper: stored there, in Kafka's offsets topic, or in both.

With `dual.commit.enabled` both are written, and the larger offset is read. So a group can move from
ZooKeeper to Kafka (and back): its members are restarted one by one, first with both stores, then
with the new one only.
Threads: the connector's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.clients import options
from krust.clients.coordinator_client import CoordinatorClient, MemberIdentity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from krust.clients.zookeeper.settings import ConnectorSettings
    from krust.clients.zookeeper.tree import GroupTree
    from krust.coordinator.consumer_protocol import TopicPartition

PATIENCE_MS = 5000
"""how long to look for the group's coordinator"""


class GroupOffsets:
    """The offsets of one group; see the module."""

    def __init__(self, settings: ConnectorSettings, tree: GroupTree) -> None:
        self._settings = settings
        self._tree = tree
        self._coordinator: CoordinatorClient | None = None
        self._known: dict[TopicPartition, int] = {}

    def connect(self, bootstrap: str) -> None:
        """Use other brokers from now on."""
        self.close()
        if self._settings.in_kafka:
            given = {**self._settings.given, options.BOOTSTRAP: bootstrap}
            self._coordinator = CoordinatorClient(
                self._settings.group, given, PATIENCE_MS, PATIENCE_MS
            )

    def fetch(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets. Partitions without an offset are left out.

        raises  AwayError, UnreachableError, KafkaError: they cannot be read now
        """
        found: dict[TopicPartition, int] = {}
        if self._coordinator is not None and places:
            found = self._coordinator.committed(places)
        if self._settings.in_zookeeper:
            for place, offset in self._tree.offsets(self._settings.group, places).items():
                found[place] = max(offset, found.get(place, offset))
        self._known |= found
        return found

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the positions that have changed. Raises as `fetch`."""
        new = {place: at for place, at in positions.items() if self._known.get(place) != at}
        if not new:
            return
        if self._coordinator is not None:
            self._coordinator.commit(new, MemberIdentity())
        if self._settings.in_zookeeper:
            self._tree.commit(self._settings.group, new)
        self._known |= new

    def close(self) -> None:
        """End the connections. `connect` makes new ones."""
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    def forget(self, places: Collection[TopicPartition]) -> None:
        """Forget partitions that another member has."""
        for place in places:
            self._known.pop(place, None)
