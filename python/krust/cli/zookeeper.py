"""Groups in a ZooKeeper, for `krust group`.

The ZooKeeper is the one of `--zookeeper`, or the one that a broker uses. If `--zookeeper` is absent
and the ZooKeeper cannot be reached, the command writes a note and continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import session
from krust.cli.coordinator import DEAD, GroupDescription
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import KrustError
from krust.metadata import znodes
from krust.metadata.contents import ConsumerRegistration
from krust.metadata.ensemble import Ensemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust import _krust
    from krust.cli.coordinator import PartitionKey
    from krust.cli.options import Options

ZOOKEEPER = "zookeeper"
"""The type of such a group."""
NOWHERE = -1
"""The coordinator of such a group."""
NONE = "none"
MOMENT_MS = 2000
_BROKER = 4

option = click.option(
    "--zookeeper",
    "connect",
    metavar="HOSTS[/CHROOT]",
    help=f"Where old groups live; {NONE}: look at none. [what the broker uses]",
)


class ZooKeeperGroups:
    """The groups of one ZooKeeper."""

    def __init__(self, options: Options, connect: str, timeout_ms: int) -> None:
        from krust.clients.zookeeper.tree import GroupTree

        def bad(path: str, error: object) -> None:
            session.note(options, f"{path} is passed over: {error}")

        self.connect = connect
        self._tree = GroupTree(Ensemble(connect, connection_timeout_ms=timeout_ms), bad)
        click.get_current_context().call_on_close(self._tree.close)

    def groups(self, states: Sequence[str] = ()) -> list[dict[str, Any]]:
        """All groups, sorted, in the form of `Coordinators.groups`."""
        wanted = {state.lower() for state in states}
        found = []
        for name in self._tree.children(znodes.CONSUMERS):
            state = self._state(self._tree.children(znodes.consumer_members(name)))
            if not wanted or state.lower() in wanted:
                described = {"group_id": name, "group_state": state, "group_type": ZOOKEEPER}
                found.append({**described, "protocol_type": "", "coordinator": None})
        return found

    def describe(self, name: str) -> GroupDescription:
        """State and members with their partitions; DEAD: there is no such group."""
        there = name in self._tree.children(znodes.CONSUMERS)
        folder = znodes.consumer_members(name)
        ids = self._tree.children(folder) if there else ()
        nodes = self._tree.read(f"{folder}/{each}" for each in ids)
        owned: dict[str, list[PartitionKey]] = {each: [] for each in ids}
        for place, thread in self._owners(name).items():
            owned.setdefault(thread.rpartition("-")[0], []).append(place)
        members = []
        for each in sorted(owned):
            node = nodes.get(f"{folder}/{each}")
            registered = None
            if node is not None:
                registered = self._tree.decoded(
                    f"{folder}/{each}", node.data, ConsumerRegistration.decode
                )
            member = {"member_id": each, "instance_id": None, "client_id": None, "host": None}
            topics = (
                sorted(registered.subscription)
                if isinstance(registered, ConsumerRegistration)
                else None
            )
            members.append({**member, "subscribed": topics, "rack": None, "assigned": owned[each]})
        state = self._state(ids) if there else DEAD
        return GroupDescription(name, NOWHERE, state, "", "range", members, type=ZOOKEEPER)

    def committed(self, name: str) -> dict[PartitionKey, int]:
        """All offsets of a group."""
        places = self._places(znodes.consumer_offsets(name))
        return {(*place,): at for place, at in sorted(self._tree.offsets(name, places).items())}

    def commit(self, name: str, offsets: Mapping[PartitionKey, int]) -> None:
        """Store offsets."""
        self._tree.commit(name, {TopicPartition(*place): at for place, at in offsets.items()})

    def _owners(self, name: str) -> dict[PartitionKey, str]:
        paths = {
            znodes.consumer_owner(name, *place): (*place,)
            for place in self._places(znodes.consumer_owners(name))
        }
        nodes = self._tree.read(paths)
        return {paths[path]: node.data.decode(errors="replace") for path, node in nodes.items()}

    def _places(self, folder: str) -> list[TopicPartition]:
        """The partitions of the paths `folder`/T/P."""
        return [
            TopicPartition(topic, int(number))
            for topic in self._tree.children(folder)
            for number in self._tree.children(f"{folder}/{topic}")
            if number.isascii() and number.isdecimal() and len(number) < 10
        ]

    @staticmethod
    def _state(ids: Sequence[str]) -> str:
        return "Stable" if ids else "Empty"


def open_groups(
    options: Options, asked: _krust.Client, named: str | None
) -> ZooKeeperGroups | None:
    """The groups of the ZooKeeper; None: there is none, or an unnamed one does not answer."""
    if named == NONE:
        return None
    if named is not None:
        return ZooKeeperGroups(options, named, options.timeout_ms)
    connect = configured_connect(asked)
    if connect is None:
        return None
    try:
        return ZooKeeperGroups(options, connect, min(options.timeout_ms, MOMENT_MS))
    except KrustError as error:
        session.note(options, f"groups in the ZooKeeper {connect} are not shown: {error}")
        return None


def configured_connect(asked: _krust.Client) -> str | None:
    """The ZooKeeper that a broker uses; None: it uses none, or does not tell."""
    brokers = session.metadata(asked, [])["brokers"]
    if not brokers:
        return None
    node = min(int(broker["node_id"]) for broker in brokers)
    resource = {"resource_type": _BROKER, "resource_name": str(node)}
    resource |= {"configuration_keys": ["zookeeper.connect"]}
    try:
        answer = asked.request("DescribeConfigs", {"resources": [resource]}, broker=node)
    except KrustError:
        return None
    configs = [each for result in answer["results"] for each in result["configs"] or ()]
    return next((each["value"] or None for each in configs), None)
