"""The state and the problems of a cluster's brokers, for `krust cluster`.

It asks every broker in the metadata. A broker that does not answer is reported in a line. A problem
costs records, writes or safety now. A notice is something that an operator should know: leaders
that are not evenly spread, partitions that move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust import _krust
from krust.cli import replica_health, session
from krust.errors import KafkaError, KrustError, UnreachableError
from krust.named_tuple import NamedTuple
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust.cli.options import Options
    from krust.cli.replica_health import PartitionHealth

BROKER = 4
"""Kafka's number of the config resource."""
NO_BROKER = -1
IMBALANCE_PERCENT = 10
"""The share of its preferred leaderships that a broker may lack, as
leader.imbalance.per.broker.percentage."""
_MOMENT_MS = 2000
_LISTED = 3
"""the most topics that a notice names"""
_SETTINGS_READ = ("advertised.listeners", "listeners", "krust.disk.reserve.bytes")


class LogDirBytes(NamedTuple):
    """A log directory."""

    path: str
    error_code: int
    bytes: int
    """the size of its partitions"""
    usable_bytes: int
    """of its disk; -1: the broker is too old to tell"""


class BrokerAnswers(NamedTuple):
    """The answers of one broker; `why`: the reason if it does not answer."""

    settings: Mapping[str, str | None]
    directories: tuple[LogDirBytes, ...]
    why: str | None = None


class ClusterState:
    """The state of a cluster at one moment. Raises as `krust._krust.Client.request`."""

    def __init__(self, options: Options) -> None:
        self._asked = session.client(options)
        own = {"request.timeout.ms": min(options.timeout_ms, _MOMENT_MS)}
        own["socket.connection.setup.timeout.ms"] = own["request.timeout.ms"]
        self._each = _krust.Client(options.bootstrap, session.properties(options) | own)
        found = session.metadata(self._asked)
        self.cluster_id: str | None = found.get("cluster_id")
        self.controller = int(found.get("controller_id", NO_BROKER))
        self.brokers = sorted(found["brokers"], key=lambda broker: int(broker["node_id"]))
        topics = [topic for topic in found["topics"] if not topic["error_code"]]
        self.partitions: Sequence[PartitionHealth] = replica_health.partition_health(
            self._each, topics
        )

    def answers(self, node: int) -> BrokerAnswers:
        """The answers of a broker."""
        resource = {"resource_type": BROKER, "resource_name": str(node)}
        resource |= {"configuration_keys": list(_SETTINGS_READ)}
        try:
            response = self._ask(node, "DescribeConfigs", {"resources": [resource]})
            dirs = self._ask(node, "DescribeLogDirs", {"topics": None})
        except UnreachableError as error:
            return BrokerAnswers({}, (), str(error))
        configs = [each for result in response for each in result["configs"] or ()]
        settings = {each["name"]: each["value"] for each in configs}
        return BrokerAnswers(settings, tuple(map(log_dir_of, dirs)))

    def _ask(self, node: int, api: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The results; empty: the broker refuses, or is too old."""
        try:
            results: list[dict[str, Any]] = self._each.request(api, body, broker=node)["results"]
        except KafkaError:
            return []
        return results

    def row(self, broker: Mapping[str, Any]) -> dict[str, Any]:
        """A broker's row in `krust cluster brokers`."""
        node = int(broker["node_id"])
        answers = self.answers(node)
        listeners = answers.settings.get("advertised.listeners") or answers.settings.get(
            "listeners"
        )
        return {
            "node_id": node,
            "host": broker["host"],
            "port": broker["port"],
            "rack": broker.get("rack"),
            "controller": node == self.controller,
            "leads": sum(each.leader == node for each in self.partitions),
            "replicas": sum(node in each.replicas for each in self.partitions),
            "listeners": listeners,
            "log_bytes": sum(each.bytes for each in answers.directories)
            if not answers.why
            else None,
            "log_dirs": [each._asdict() for each in answers.directories],
            "error": answers.why,
        }

    def controller_error(self) -> str | None:
        """Why the controller does not answer; None: it does."""
        try:
            answer = self._each.request("ListPartitionReassignments", {"topics": []})
            session.check(answer, "the controller")
        except KrustError as error:
            return str(error)
        return None

    def problems(self) -> list[dict[str, Any]]:
        """The problems: `problem` is a word, `subject` its subject, `detail` a text."""
        found = []
        if self.controller == NO_BROKER:
            found.append(_problem("no controller", "cluster", "nobody is the controller"))
        elif (why := self.controller_error()) is not None:
            found.append(_problem("no controller", f"broker {self.controller}", why))
        for broker in self.brokers:
            found += self._of_broker(int(broker["node_id"]))
        alive = {int(broker["node_id"]) for broker in self.brokers}
        for problem in ("no leader", "under min ISR", "at min ISR", "under-replicated"):
            concerned = [each for each in self.partitions if each.problem() == problem]
            found += _of_partitions(problem, concerned, alive)
        return found

    def notices(self) -> list[dict[str, Any]]:
        """The notices, in the same form."""
        found = []
        prefer: dict[int, list[PartitionHealth]] = {}
        for each in self.partitions:
            prefer.setdefault(each.replicas[0], []).append(each)
        for node, preferring in sorted(prefer.items()):
            elsewhere = [e for e in preferring if not e.is_unavailable and e.leader != node]
            could_lead = [each for each in elsewhere if node in each.isr]
            if could_lead and 100 * len(elsewhere) > IMBALANCE_PERCENT * len(preferring):
                text = (
                    f"it leads {len(preferring) - len(elsewhere)} of the "
                    f"{counted(len(preferring), 'partition')} that prefer it"
                )
                found.append(_problem("unbalanced leaders", f"broker {node}", text))
        moving = [each for each in self.partitions if each.adding or each.removing]
        if moving:
            text = f"{counted(len(moving), 'partition')} of {_topics(moving)} {_are(moving)} moving"
            found.append(_problem("reassignment", _subject(moving), text))
        return found

    def _of_broker(self, node: int) -> list[dict[str, Any]]:
        answers, subject = self.answers(node), f"broker {node}"
        if answers.why is not None:
            return [_problem("broker does not answer", subject, answers.why)]
        reserve = int(answers.settings.get("krust.disk.reserve.bytes") or 0)
        found = []
        for each in answers.directories:
            where = f"{subject} {each.path}"
            if each.error_code:
                name = _krust.error_info(each.error_code)[0]
                found.append(_problem("log directory offline", where, name))
            elif 0 <= each.usable_bytes <= reserve:
                text = f"{each.usable_bytes:,} bytes are free, {reserve:,} are its reserve"
                found.append(_problem("disk full", where, text))
        return found


def log_dir_of(response: Mapping[str, Any]) -> LogDirBytes:
    """A log directory of a DescribeLogDirs answer."""
    sizes = [each["partition_size"] for topic in response["topics"] for each in topic["partitions"]]
    usable = int(response.get("usable_bytes", -1))
    return LogDirBytes(response["log_dir"], response["error_code"], sum(sizes), usable)


_PROBLEM_TEXTS = {
    "no leader": "{count} {has} no leader",
    "under min ISR": "{count} {has} too few in-sync replicas: acks=all is refused",
    "at min ISR": "{count} {has} only as many in-sync replicas as acks=all needs",
    "under-replicated": "{count} {is_} under-replicated",
}


def _of_partitions(
    problem: str, partitions: Iterable[PartitionHealth], alive: set[int]
) -> list[dict[str, Any]]:
    """One problem for all partitions that lack the same brokers."""
    by_lacking: dict[tuple[int, ...], list[PartitionHealth]] = {}
    for each in partitions:
        lacking = each.lacking
        if each.is_unavailable:  # its ISR is not up to date
            lacking = tuple(sorted(set(each.replicas) - alive))
        by_lacking.setdefault(lacking, []).append(each)
    found = []
    for lacking, each_of in sorted(by_lacking.items()):
        is_one = len(each_of) == 1
        text = _PROBLEM_TEXTS[problem].format(
            count=counted(len(each_of), "partition"),
            has="has" if is_one else "have",
            is_="is" if is_one else "are",
        )
        why = _why(lacking, alive)
        detail = f"{why}: {text}" if why else text
        places = [f"{each.topic}:{each.partition}" for each in each_of]
        found.append({**_problem(problem, _subject(each_of), detail), "partitions": places})
    return found


def _why(lacking: Sequence[int], alive: set[int]) -> str:
    """Which brokers are down, and which are alive and behind."""
    parts = []
    for nodes, how in (
        ([node for node in lacking if node not in alive], "away"),
        ([node for node in lacking if node in alive], "behind"),
    ):
        if nodes:
            who = "broker" if len(nodes) == 1 else "brokers"
            be = "is" if len(nodes) == 1 else "are"
            parts.append(f"{who} {', '.join(map(str, nodes))} {be} {how}")
    return " and ".join(parts)


def _subject(partitions: Sequence[PartitionHealth]) -> str:
    if len(partitions) == 1:
        return f"{partitions[0].topic}:{partitions[0].partition}"
    return counted(len(partitions), "partition")


def _are(partitions: Sequence[PartitionHealth]) -> str:
    return "is" if len(partitions) == 1 else "are"


def _topics(partitions: Sequence[PartitionHealth]) -> str:
    """The number of topics, and the first names."""
    names = list(dict.fromkeys(each.topic for each in partitions))
    if len(names) > _LISTED:
        return counted(len(names), "topic")
    return ", ".join(names)


def _problem(problem: str, subject: str, detail: str) -> dict[str, Any]:
    return {"problem": problem, "subject": subject, "detail": detail}
