"""Registration of a broker: persistent nodes, the cluster id, the controller, its own node.

Order: persistent nodes and `/cluster/id`; `/controller_epoch` and `/controller`; then the broker
reads everything else into the state (`loading.py`); last, when it listens, it writes
`/brokers/ids/N`. If that id is taken, the start fails. One transaction creates and sets a
registration, so that the answer contains its epoch (the czxid). It also writes `/brokers/ids`, so
that the controller writes no state before it has read the registration (`brokers.py`).

After the end of a session the broker takes `/controller` if it is free, reads what may have
changed, and then registers again (`ControllerJobs.recover`). If the session survived, the broker
finds its own nodes and keeps them. An ephemeral node is this broker's only if it has the session of
this broker. A node with its id and another session belongs to another broker, or to an earlier
session of this one that ZooKeeper has not ended yet.
`claim` and `register_again` are for a tree that only this broker uses; for a shared tree `jobs.py`
does both.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from krust.controller import (
    acl_changes,
    adoption,
    controller_election,
    delegation_token_changes,
    features,
    loading,
)
from krust.controller.entities import LiveBroker
from krust.controller.state import BrokerRequest
from krust.errors import ServerError
from krust.metadata import znodes
from krust.metadata.contents import BrokerRegistration, ClusterId, Endpoint, Features
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Create, Node, Read, Refusal, SetData, Stat
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.controller.state import ControllerState, Steps
    from krust.messages.controlled_shutdown import ControlledShutdownRequest

_ATTEMPTS = 5
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 (compared)
"""Addresses that a listener can be bound to and no client can connect to."""


class Registration(NamedTuple):
    """The contents of a broker's registration."""

    endpoints: Sequence[tuple[str, str, int]]
    """(listener, host, port) for clients"""
    rack: str | None
    now_ms: int
    protocols: Mapping[str, str] = MappingProxyType({})
    """the security protocols of listeners; the others are PLAINTEXT"""

    def content(self, kept_epoch: int | None) -> bytes:
        """Its bytes: one endpoint a listener, because Kafka refuses more."""
        by_name: dict[str, Endpoint] = {}
        for name, host, port in self.endpoints:
            protocol = self.protocols.get(name, "PLAINTEXT")
            by_name.setdefault(name, Endpoint(name, protocol, host, port))
        endpoints = tuple(by_name.values())
        return BrokerRegistration(endpoints, self.rack, self.now_ms, kept_epoch=kept_epoch).encode()


def advertised(
    endpoints: Sequence[tuple[str, str, int]], host_name: str
) -> list[tuple[str, str, int]]:
    """The endpoints with an address that clients can connect to: the name of this host instead of
    an address that stands for all addresses.
    """
    return [
        (name, host_name if host in _ANY_ADDRESS else host, port) for name, host, port in endpoints
    ]


def controlled_shutdown(state: ControllerState) -> BrokerRequest | None:
    """The request that has the controller move this broker's leaderships before it stops.

    It names the registration that ends. A request without a broker epoch that arrives late would
    count for the next registration, and keep that broker out of every ISR.

    returns  None: this broker is not registered, there is no other broker, or
             `controlled.shutdown.enable` is false
    """
    others = state.brokers.keys() - {state.node_id}
    is_registered = state.broker_epoch >= 0
    if not (is_registered and others and state.config.true("controlled.shutdown.enable")):
        return None
    message: ControlledShutdownRequest = {
        "broker_id": state.node_id,
        "broker_epoch": state.broker_epoch,
    }
    return BrokerRequest(state.controller_id, "ControlledShutdown", message)


def check_cluster_id(state: ControllerState, id_on_disk: str | None, store_name: str) -> None:
    """Refuse a start with the log directories of one cluster and the metadata of another.

    id_on_disk  None: the directories belong to no cluster yet
    """
    if id_on_disk is not None and id_on_disk != state.cluster_id:
        raise ServerError(
            f"the directory belongs to cluster {id_on_disk}, {store_name} to cluster "
            f"{state.cluster_id}",
            hint="put back what belongs there, or start in an empty --data-dir",
        )


def create_cluster(state: ControllerState, cluster_id: str) -> Steps:
    """Create the persistent nodes. Read the cluster id, or create it."""
    path_of_id = znodes.CLUSTER_ID
    in_zookeeper = bool(state.config.text("zookeeper.connect"))
    at_first = Features({}) if in_zookeeper else features.NEW_CLUSTER
    (read,) = yield [[Read(path_of_id)]]
    node = read.results[0]
    if not isinstance(node, Node):
        done = yield [[Create(path)] for path in znodes.PERSISTENT]
        done += yield [
            [Create(znodes.FEATURE, at_first.encode())],
            [Create(path_of_id, ClusterId(cluster_id).encode())],
        ]
        for each in done:
            if each.refused not in (None, Refusal.NODE_EXISTS):
                raise ServerError(
                    f"the metadata store refuses its first nodes: {each.refused}",
                    hint="look at the store's own log",
                )
        state.is_new_cluster = done[-1].refused is None
        (read,) = yield [[Read(path_of_id)]]
        node = read.results[0]
    try:
        state.cluster_id = ClusterId.decode(node.data if isinstance(node, Node) else b"").id
    except BadZnodeError as error:
        raise ServerError(
            f"{path_of_id} holds no cluster id: {error}", hint="remove that node, or fix it"
        ) from None


def check_id_free(state: ControllerState) -> Steps:
    """Check that no other broker has this broker's id, before the start continues."""
    path = f"{znodes.BROKERS}/{state.node_id}"
    (read,) = yield [[Read(path)]]
    if isinstance(read.results[0], Node):
        _check_own(state, read.results[0])


def claim(state: ControllerState, now_ms: int) -> Steps:
    """Become the controller in a tree that only this broker uses. It then counts as alive."""
    try:
        ours = yield from controller_election.elect(state, now_ms)
    except controller_election.RetryLaterError as error:
        raise ServerError(str(error), hint="look at the metadata store") from None
    if not ours:
        known = state.controller_id >= 0
        who = f"broker {state.controller_id}" if known else "something that is no broker"
        raise ServerError(
            f"{who} is the controller of this cluster",
            hint="stop the other broker, or wait until its session has ended",
        )
    state.serve_as_controller()
    if state.node_id not in state.brokers:
        state.add_broker(state.node_id, LiveBroker())


def claim_and_load(state: ControllerState, now_ms: int) -> Steps:
    """Become the controller in a tree that only this broker uses, and read it."""
    yield from claim(state, now_ms)
    yield from acl_changes.load_alone(state)
    yield from delegation_token_changes.load_alone(state)
    yield from loading.load(state)


def announce(state: ControllerState, registration: Registration) -> Steps:
    """Register this broker, after its listeners are bound."""
    yield from _announced(state, registration)
    if state.kept_epoch < 0:
        state.kept_epoch = state.broker_epoch


def _announced(state: ControllerState, registration: Registration) -> Steps:
    path = f"{znodes.BROKERS}/{state.node_id}"
    data = registration.content(state.kept_epoch if state.shared else None)
    for _ in range(_ATTEMPTS):
        registered = Create(path, data, ephemeral=True), SetData(path, data)
        (done,) = yield [[*registered, SetData(znodes.BROKERS, b"")]]
        stat = done.results[1]
        if isinstance(stat, Stat):
            state.broker_epoch = stat.czxid
            return
        if done.refused not in (Refusal.NODE_EXISTS, Refusal.UNKNOWN):
            break
        (read,) = yield [[Read(path)]]
        node = read.results[0]
        if not isinstance(node, Node):
            continue
        _check_own(state, node)
        state.broker_epoch = node.stat.czxid
        return
    raise ServerError(
        f"broker {state.node_id} cannot be registered: {done.refused and done.refused.value}",
        hint="look at the metadata store",
    )


def register_again(state: ControllerState, registration: Registration) -> Steps:
    """Register again in a tree that only this broker uses, and read it again.

    raises  ServerError: this failed, and may be tried again
    """
    yield from claim_and_load(state, registration.now_ms)
    yield from adoption.lead_local_partitions(state, {})
    yield from announce(state, registration)


def _check_own(state: ControllerState, node: Node) -> None:
    """Raises ServerError if the registration belongs to another broker."""
    if node.stat.owner != state.session:
        raise ServerError(
            f"broker id {state.node_id} is taken in this cluster by {_address_of(node)}",
            hint="give this broker another broker.id, or wait until the other one's session ends",
        )


def _address_of(node: Node) -> str:
    try:
        at = BrokerRegistration.decode(node.data).endpoints[0]
    except BadZnodeError:
        return "something that is no broker"
    return f"the one at {at.host}:{at.port}"
