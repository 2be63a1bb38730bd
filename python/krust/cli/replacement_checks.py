"""Whether a broker of a cluster may be replaced now: the checks of `krust cluster replace-plan`.

problem  replacing a broker now would cost records, writes or clients: fix it first
warning  a feature stops working, or works differently; the operator decides
ok       the check found no problem
Pure: from `ClusterFacts` to findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust import authorizer, foreign
from krust.cli.cluster_description import KAFKA
from krust.listeners import OFFERED, base_name
from krust.named_tuple import NamedTuple
from krust.quantities import counted
from krust.settings import BROKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krust.cli.cluster_description import BrokerDescription, ClusterDescription

OK, WARNING, PROBLEM = "ok", "warning", "problem"
OLDEST_LIST_OFFSETS = 9
"""Kafka 3.9 was the first to have it, and is the last with ZooKeeper."""
PROTOCOL = "inter.broker.protocol.version"
NEWEST_PROTOCOL = "3.9"
_NAMED = 5
_TOKEN_KEYS = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})
_HARMLESS = frozenset({"zookeeper.connect", "broker.id", "node.id", "log.dirs", "log.dir"})


class Finding(NamedTuple):
    """The result of a check."""

    check: str
    status: str
    detail: str


def findings(cluster: ClusterDescription) -> list[Finding]:
    """The result of each check, in the order in which to fix them."""
    return [Finding(name, *(check(cluster) or (OK, well))) for name, check, well in _CHECKS]


def _some(names: Iterable[object]) -> str:
    """The first few of a list."""
    listed = [str(name) for name in names]
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _kafkas(cluster: ClusterDescription) -> list[BrokerDescription]:
    return [each for each in cluster.brokers if each.kind == KAFKA]


Outcome = tuple[str, str] | None
"""Status and detail; None: all is well."""


def _brokers(cluster: ClusterDescription) -> Outcome:
    silent = [each for each in cluster.brokers if each.error is not None]
    if silent:
        return PROBLEM, f"broker {silent[0].node} does not answer: {silent[0].error}"
    if cluster.controller < 0:
        return PROBLEM, "nobody is the controller"
    alive = {each.node for each in cluster.brokers}
    away = {node for each in cluster.partitions for node in each.replicas} - alive
    if away:
        return PROBLEM, f"brokers with replicas are away: {_some(sorted(away))}"
    return None


def _zookeeper(cluster: ClusterDescription) -> Outcome:
    if cluster.zookeeper_cluster_id != cluster.cluster_id:
        return PROBLEM, (
            f"the ZooKeeper {cluster.zookeeper} has cluster {cluster.zookeeper_cluster_id}, "
            f"the brokers are of {cluster.cluster_id}"
        )
    away = sorted({each.node for each in cluster.brokers} - set(cluster.registered))
    if away:
        return PROBLEM, f"brokers that are not registered in {cluster.zookeeper}: {_some(away)}"
    migrating = [
        each.node
        for each in cluster.brokers
        if each.settings.get("zookeeper.metadata.migration.enable") == "true"
    ]
    if cluster.is_migrating or migrating:
        return PROBLEM, "a migration to KRaft has begun; krust has no KRaft"
    return None


def _versions(cluster: ClusterDescription) -> Outcome:
    old = [each.node for each in _kafkas(cluster) if each.list_offsets < OLDEST_LIST_OFFSETS]
    if old:
        return PROBLEM, f"brokers older than Kafka 3.9, to be updated first: {_some(old)}"
    spoken = {str(each.settings.get(PROTOCOL)) for each in _kafkas(cluster)}
    if len(spoken) > 1:
        return PROBLEM, f"brokers differ in {PROTOCOL}: {_some(sorted(spoken))}"
    older = [each for each in spoken if not each.startswith(NEWEST_PROTOCOL)]
    if older:
        return WARNING, f"{PROTOCOL} is {older[0]}; krust is tested with {NEWEST_PROTOCOL}"
    return None


def _features(cluster: ClusterDescription) -> Outcome:
    if cluster.features:
        named = (f"{name} {level}" for name, level in sorted(cluster.features.items()))
        return PROBLEM, f"features are finalized that krust does not know: {_some(named)}"
    return None


def _in_sync(cluster: ClusterDescription) -> Outcome:
    bad = [each for each in cluster.partitions if each.problem() not in ("", "moving")]
    if bad:
        places = (f"{each.topic}:{each.partition} ({each.problem()})" for each in bad)
        return PROBLEM, f"{counted(len(bad), 'partition')}: {_some(places)}"
    return None


def _changes(cluster: ClusterDescription) -> Outcome:
    moving = [each for each in cluster.partitions if each.adding or each.removing]
    if moving:
        places = (f"{each.topic}:{each.partition}" for each in moving)
        return PROBLEM, f"partitions move: {_some(places)}"
    if cluster.deletions:
        return PROBLEM, f"topics are being deleted: {_some(cluster.deletions)}"
    return None


def _directories(cluster: ClusterDescription) -> Outcome:
    bad = [
        f"broker {each.node} {directory.path}"
        for each in cluster.brokers
        for directory in each.directories
        if directory.error_code
    ]
    return (PROBLEM, f"log directories are offline: {_some(bad)}") if bad else None


def _redundancy(cluster: ClusterDescription) -> Outcome:
    alone = {each.topic for each in cluster.partitions if len(each.replicas) < 2}
    if alone:
        return WARNING, (
            f"topics with one replica are away while their broker is replaced: "
            f"{_some(sorted(alone))}"
        )
    tight = {
        each.topic
        for each in cluster.partitions
        if each.min_isr is not None and each.min_isr >= len(each.replicas)
    }
    if tight:
        return WARNING, (
            "acks=all is refused while a broker is replaced, as min.insync.replicas wants every "
            f"replica: {_some(sorted(tight))}"
        )
    return None


def _settings_of(cluster: ClusterDescription, name: str, value: str) -> list[int]:
    return [each.node for each in cluster.brokers if each.settings.get(name) == value]


def _shutdown(cluster: ClusterDescription) -> Outcome:
    abrupt = _settings_of(cluster, "controlled.shutdown.enable", "false")
    if abrupt:
        return WARNING, (
            "controlled.shutdown.enable is false, so writes wait for an election when these "
            f"brokers stop: {_some(abrupt)}"
        )
    unclean = _settings_of(cluster, "unclean.leader.election.enable", "true")
    topics = [
        name
        for name, settings in sorted(cluster.topic_settings.items())
        if settings.get("unclean.leader.election.enable") == "true"
    ]
    if unclean or topics:
        where = f"brokers {_some(unclean)}" if unclean else f"topics {_some(topics)}"
        return WARNING, (
            f"unclean.leader.election.enable is true on {where}: a second loss meanwhile may cost "
            "acknowledged records"
        )
    return None


def _access(cluster: ClusterDescription) -> Outcome:
    classes = {
        each.node: each.settings.get(authorizer.CLASS) or ""
        for each in cluster.brokers
        if each.error is None
    }
    obeying = sorted(node for node, name in classes.items() if name)
    open_to_all = sorted(classes.keys() - set(obeying))
    unknown = {
        name
        for name in classes.values()
        if name not in authorizer.CLASSES and not authorizer.is_plug_in(name)
    }
    found = []
    if obeying and open_to_all:
        found.append(
            f"{authorizer.CLASS} is set on brokers {_some(obeying)} and not on {_some(open_to_all)}"
        )
    if unknown:
        found.append(f"authorizers that krust does not have: {_some(sorted(unknown))}")
    keyless = [
        each.node for each in cluster.brokers if each.error is None and not _TOKEN_KEYS & each.own
    ]
    if cluster.delegation_tokens and keyless:
        tokens = counted(cluster.delegation_tokens, "delegation token")
        found.append(f"{tokens}, and no delegation.token.secret.key on brokers {_some(keyless)}")
    if found:
        return PROBLEM, "; ".join(found)
    if cluster.acls and not obeying:
        return WARNING, f"no broker has an authorizer that obeys the ACLs: {_some(cluster.acls)}"
    return None


def _listeners(cluster: ClusterDescription) -> Outcome:
    other = [
        f"broker {each.node} {listener} ({protocol})"
        for each in cluster.brokers
        for listener, protocol, _ in each.endpoints
        if protocol not in OFFERED
    ]
    return (PROBLEM, f"krust serves {' and '.join(OFFERED)}: {_some(other)}") if other else None


def _tiered(cluster: ClusterDescription) -> Outcome:
    brokers = _settings_of(cluster, "remote.log.storage.system.enable", "true")
    topics = [
        name
        for name, settings in sorted(cluster.topic_settings.items())
        if settings.get("remote.storage.enable") == "true"
    ]
    if topics:
        return PROBLEM, f"topics have segments in tiered storage: {_some(topics)}"
    if brokers:
        return PROBLEM, f"tiered storage is enabled on brokers {_some(brokers)}"
    return None


def _settings(cluster: ClusterDescription) -> Outcome:
    refused, idle = set(), set()
    for each in _kafkas(cluster):
        for name in each.own - _HARMLESS:
            known = BROKER.get(name) or BROKER.get(base_name(name) or "")
            if known is not None and each.settings.get(name) in (known.default, ""):
                continue
            if known is not None and known.support == "yes":
                continue
            if foreign.is_security(name) or (known is not None and known.support == "refused"):
                refused.add(name)
            else:
                idle.add(name)
    if refused:
        return PROBLEM, f"krust refuses these settings: {_some(sorted(refused))}"
    if idle:
        return WARNING, f"these settings do nothing in krust: {_some(sorted(idle))}"
    return None


_CHECKS: Sequence[tuple[str, Callable[[ClusterDescription], Outcome], str]] = (
    ("brokers", _brokers, "all answer, and there is a controller"),
    ("ZooKeeper", _zookeeper, "the brokers are registered there"),
    ("versions", _versions, f"Kafka {NEWEST_PROTOCOL} or krust"),
    ("features", _features, "none is finalized"),
    ("replicas", _in_sync, "every replica is in sync"),
    ("changes", _changes, "nothing moves or is being deleted"),
    ("directories", _directories, "all are online"),
    ("redundancy", _redundancy, "every partition can spare a broker"),
    ("shutdown", _shutdown, "leaders leave a broker before it stops"),
    ("access", _access, "krust obeys the same ACLs and accepts the same delegation tokens"),
    ("listeners", _listeners, "krust serves their protocols"),
    ("tiered storage", _tiered, "none"),
    ("settings", _settings, "krust knows those that the brokers' files set"),
)


def may_go_on(found: Iterable[Finding]) -> bool:
    """Whether the next broker may be replaced."""
    return all(each.status != PROBLEM for each in found)
