"""Deltas of the core's cluster image: the controller's changes as `_krust.Server.apply` takes them.

Invariant: versions rise by one. A topic's delta has the partitions that changed since its last one.
Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import acls, quotas, scram
from krust.controller.state import INTERNAL, NO_TOPIC_ID
from krust.runtime.core_settings import broker_values

if TYPE_CHECKING:
    from typing import TypedDict

    from krust.config import Config
    from krust.controller.changes import Changes
    from krust.controller.entities import Topic
    from krust.controller.state import ControllerState
    from krust.runtime.retention_rules import RetentionRules
    from krust.settings import Values

    class PartitionDelta(TypedDict):
        """A partition that changed."""

        partition: int
        leader: int
        leader_epoch: int
        isr: list[int]
        replicas: list[int]
        partition_epoch: int

    class TopicDelta(TypedDict):
        """A topic that changed."""

        id: str
        internal: bool
        config: Values
        partitions: list[PartitionDelta]

    class BrokerEntry(TypedDict):
        """A broker of the cluster."""

        id: int
        rack: str | None
        endpoints: list[tuple[str, str, int]]
        """(listener, host, port)"""

    class ImageDelta(TypedDict, total=False):
        """What changed in the image. An absent key means no change."""

        version: int
        topics: dict[str, TopicDelta | None]
        """None: the topic is deleted"""
        cluster_id: str
        controller_id: int
        brokers: list[BrokerEntry]
        broker_epoch: int
        """the registration of this broker"""
        waits: bool
        """whether this broker still waits to learn who leads what"""
        settings: Values
        quotas: list[tuple[dict[str, str | None], dict[str, float]]]
        scram: list[tuple[str, str, tuple[bytes, bytes, bytes, int]]]
        """user, mechanism, and its salt, stored key, server key and iterations"""
        acls: list[tuple[int, int, str, str, str, int, int]]
        """all ACLs: the fields of `AclBinding`"""
        tokens: list[tuple[str, tuple[str, bytes, int] | None]]
        """delegation tokens that changed: the owner, the HMAC, when it expires; None: it is gone"""
        strays: list[tuple[str, int]]
        """partitions whose files are kept as stray directories"""


class ImageDeltas:
    """Makes the deltas of one broker, and remembers what the core knows."""

    def __init__(
        self, config: Config, state: ControllerState, retention: RetentionRules, *, alone: bool
    ) -> None:
        self._config, self._state, self._retention = config, state, retention
        self._alone = alone
        self._version = 0
        self._given: dict[str, Topic] = {}
        self._last_controller = -1
        self._broker_epoch = -1
        self.advertised: list[tuple[str, str, int]] = []
        """name, host and port of each advertised listener of this broker"""

    def delta(self, changes: Changes, cluster_id: str | None = None) -> ImageDelta | None:
        """The delta of these changes; None: the image stays.

        cluster_id  set at the start; None: unchanged
        """
        topics: dict[str, Topic | None] = dict(changes.topics)
        delta: ImageDelta = {}
        if cluster_id is not None:
            delta["cluster_id"] = cluster_id
        if changes.brokers:
            topics = {**self._state.topics, **topics}
            delta["settings"] = broker_values(self._config, self._state, alone=self._alone)
        if changes.live or changes.controller:
            self._add_cluster(delta)
        if self._state.broker_epoch != self._broker_epoch:
            self._broker_epoch = delta["broker_epoch"] = self._state.broker_epoch
        if changes.quotas:
            delta["quotas"] = quotas.enforced_by_core(self._state.quotas)
        if changes.credentials:
            delta["scram"] = scram.rows(self._state.credentials)
        if changes.acls:
            delta["acls"] = acls.rows(self._state.acl_bindings())
        if changes.tokens:
            delta["tokens"] = self._state.tokens.rows(changes.tokens)
        if changes.strays:
            delta["strays"] = sorted(changes.strays)
        if not topics and not delta:
            return None
        self._version += 1
        delta["version"] = self._version
        delta["topics"] = {name: self._topic(name, topic) for name, topic in topics.items()}
        return delta

    def _add_cluster(self, delta: ImageDelta) -> None:
        """Add the brokers and the controller. If nothing is advertised, clients of this broker see
        the address that they connected to. While there is no controller they see the last one,
        which refuses them: if they saw none, librdkafka would wait and not ask again.
        """
        state = self._state
        if state.controller_id >= 0:
            self._last_controller = state.controller_id
        brokers: list[BrokerEntry] = [
            {
                "id": number,
                "rack": live.rack,
                "endpoints": [(at.listener, at.host, at.port) for at in live.endpoints],
            }
            for number, live in state.brokers.items()
            if number != state.node_id
        ]
        rack = self._config.text("broker.rack")
        brokers.append({"id": state.node_id, "rack": rack, "endpoints": self.advertised})
        delta["controller_id"] = self._last_controller
        delta["brokers"] = brokers
        delta["waits"] = not state.knows_leaders

    def _topic(self, name: str, topic: Topic | None) -> TopicDelta | None:
        """The delta of a topic; None: it is deleted."""
        if topic is None:
            self._retention.forget(name)
            self._given.pop(name, None)
            return None
        values = self._retention.values_for_core(topic.name, self._state.topic_values(topic))
        known, self._given[name] = self._given.get(name), topic
        return topic_delta(topic, values, known)


def topic_delta(topic: Topic, values: Values, known: Topic | None) -> TopicDelta:
    """The delta of a topic, with the partitions that changed.

    values  the values of its settings
    known   the topic that the core knows; None: none
    """
    before = known.partitions if known is not None and known.id == topic.id else ()
    return {
        "id": topic.id or NO_TOPIC_ID,
        "internal": topic.name in INTERNAL,
        "config": values,
        "partitions": [
            {
                "partition": number,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "isr": list(each.isr),
                "replicas": list(each.replicas),
                "partition_epoch": each.version,
            }
            for number, each in enumerate(topic.partitions)
            if number >= len(before) or each != before[number]
        ],
    }
