"""Reads what `krust cluster replace-plan` checks, from a cluster's brokers and its ZooKeeper.

It writes nothing. A broker that does not answer has an `error` instead of settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.cli import replica_health, session
from krust.cli.brokers import BROKER, LogDirBytes, log_dir_of
from krust.cli.describe_topic import is_own
from krust.cli.zookeeper import configured_connect
from krust.errors import ConfigError, KrustError
from krust.metadata import znodes
from krust.metadata.contents import BrokerRegistration as Registration
from krust.metadata.contents import ClusterId, Features
from krust.metadata.ensemble import Ensemble
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust import _krust
    from krust.cli.options import Options
    from krust.cli.replica_health import PartitionHealth
    from krust.clients.zookeeper.tree import GroupTree

KAFKA, KRUST = "Kafka", "krust"
TRANSACTIONS = "__transaction_state"
LIST_OFFSETS = 2
_STATIC = 4
"""DescribeConfigs' number of a value from the broker's file"""
_READ_MS, _READ_RECORDS = 5000, 10_000
_MIGRATION = "/migration"
_ACLS = ("/kafka-acl", "/kafka-acl-extended")
_TOKENS = "/delegation_token/tokens"


class BrokerDescription(NamedTuple):
    """One broker."""

    node: int
    host: str
    port: int
    kind: str
    """KAFKA or KRUST; "" where it does not answer"""
    settings: Mapping[str, str | None]
    """all, with their defaults"""
    own: frozenset[str]
    """those that its file sets"""
    directories: Sequence[LogDirBytes]
    list_offsets: int
    """its newest version of ListOffsets, which tells Kafka's releases apart"""
    endpoints: Sequence[tuple[str, str, str]]
    """(listener, protocol, host:port), as registered"""
    error: str | None = None


class ClusterDescription(NamedTuple):
    """The cluster."""

    cluster_id: str | None
    zookeeper: str
    controller: int
    brokers: Sequence[BrokerDescription]
    partitions: Sequence[PartitionHealth]
    topic_settings: Mapping[str, Mapping[str, str]]
    """settings of topics that matter here, where they are not at the default"""
    features: Mapping[str, int]
    """features that are finalized (KIP-584)"""
    acls: Sequence[str]
    delegation_tokens: int
    is_migrating: bool
    """towards KRaft"""
    deletions: Sequence[str]
    """topics that are being deleted"""
    registered: Sequence[int]
    zookeeper_cluster_id: str | None


def read_cluster(options: Options, zookeeper: str | None) -> ClusterDescription:
    """Ask all brokers and the ZooKeeper.

    raises  KrustError: no broker or no ZooKeeper answers, or there is none
    """
    asked = session.client(options)
    found = session.metadata(asked)
    connect = zookeeper or configured_connect(asked)
    if connect is None:
        raise ConfigError(
            "this cluster uses no ZooKeeper, or does not say which",
            hint="a cluster of KRaft cannot be taken over; else: --zookeeper HOSTS/CHROOT",
        )
    tree = _tree(options, connect)
    try:
        registrations = _registrations(tree)
        brokers = [
            _broker(asked, broker, registrations.get(int(broker["node_id"])))
            for broker in sorted(found["brokers"], key=lambda broker: int(broker["node_id"]))
        ]
        topics = [topic for topic in found["topics"] if not topic["error_code"]]
        return ClusterDescription(
            found.get("cluster_id"),
            connect,
            int(found.get("controller_id", -1)),
            brokers,
            replica_health.partition_health(asked, topics),
            _topic_settings(asked, [str(topic["name"]) for topic in topics]),
            _features(tree),
            [f"{kind}:{name}" for root in _ACLS for kind, name in _acls(tree, root)],
            len(tree.children(_TOKENS)),
            bool(tree.read([_MIGRATION])),
            tree.children(znodes.DELETE_TOPICS),
            sorted(registrations),
            _cluster_id(tree),
        )
    finally:
        tree.close()


def _tree(options: Options, connect: str) -> GroupTree:
    from krust.clients.zookeeper.tree import GroupTree

    def bad(path: str, error: object) -> None:
        session.note(options, f"{path} is passed over: {error}")

    return GroupTree(Ensemble(connect, connection_timeout_ms=options.timeout_ms), bad)


def _registrations(tree: GroupTree) -> dict[int, Registration]:
    numbers = [each for each in tree.children(znodes.BROKERS) if each.isdecimal()]
    nodes = tree.read(f"{znodes.BROKERS}/{each}" for each in numbers)
    found = {}
    for path, node in nodes.items():
        each = tree.decoded(path, node.data, Registration.decode)
        if isinstance(each, Registration):
            found[int(path.rpartition("/")[2])] = each
    return found


def _broker(
    asked: _krust.Client, broker: Mapping[str, Any], registered: Registration | None
) -> BrokerDescription:
    node = int(broker["node_id"])
    endpoints = [
        (each.listener, each.protocol, f"{each.host}:{each.port}")
        for each in (registered.endpoints if registered is not None else ())
    ]
    resource = {"resource_type": BROKER, "resource_name": str(node), "configuration_keys": None}
    try:
        [described] = asked.request("DescribeConfigs", {"resources": [resource]}, broker=node)[
            "results"
        ]
        session.check(described, f"settings of broker {node}")
        dirs = asked.request("DescribeLogDirs", {"topics": None}, broker=node)["results"]
        versions = {key: last for key, _, _, last in asked.versions(node)}
    except KrustError as error:
        place = (node, broker["host"], broker["port"])
        return BrokerDescription(*place, "", {}, frozenset(), (), -1, endpoints, str(error))
    settings = {each["name"]: each["value"] for each in described["configs"]}
    return BrokerDescription(
        node,
        broker["host"],
        broker["port"],
        KRUST if any(name.startswith("krust.") for name in settings) else KAFKA,
        settings,
        frozenset(
            each["name"] for each in described["configs"] if each.get("config_source") == _STATIC
        ),
        [log_dir_of(each) for each in dirs],
        versions.get(LIST_OFFSETS, -1),
        endpoints,
    )


def _topic_settings(asked: _krust.Client, names: Sequence[str]) -> dict[str, dict[str, str]]:
    keys = ("remote.storage.enable", "unclean.leader.election.enable")
    resources = [
        {
            "resource_type": replica_health.TOPIC,
            "resource_name": name,
            "configuration_keys": list(keys),
        }
        for name in names
    ]
    results = asked.request("DescribeConfigs", {"resources": resources})["results"] if names else []
    return {
        result["resource_name"]: {
            each["name"]: str(each["value"]) for each in result["configs"] if is_own(each)
        }
        for result in results
        if result["configs"]
    }


def _features(tree: GroupTree) -> Mapping[str, int]:
    node = tree.read([znodes.FEATURE]).get(znodes.FEATURE)
    found = tree.decoded(znodes.FEATURE, node.data, Features.decode) if node is not None else None
    return found.levels if isinstance(found, Features) else {}


def _acls(tree: GroupTree, root: str) -> list[tuple[str, str]]:
    """The resources with access lists, as `/kafka-acl/Topic/orders` names them; those of prefixes
    have one level more.
    """
    paths = [f"{root}/{kind}" for kind in tree.children(root)]
    if root.endswith("-extended"):
        paths = [f"{path}/{kind}" for path in paths for kind in tree.children(path)]
    return [(path.rpartition("/")[2], name) for path in paths for name in tree.children(path)]


def _cluster_id(tree: GroupTree) -> str | None:
    node = tree.read([znodes.CLUSTER_ID]).get(znodes.CLUSTER_ID)
    found = None
    if node is not None:
        found = tree.decoded(znodes.CLUSTER_ID, node.data, ClusterId.decode)
    return found.id if isinstance(found, ClusterId) else None
