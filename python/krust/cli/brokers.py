"""What the brokers of a cluster say of themselves, and what is wrong with it: for `krust cluster`.

Every broker that the metadata names is asked; one that does not answer costs a line, not the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from krust import _krust
from krust.cli import session
from krust.errors import KafkaError, KrustError, UnreachableError
from krust.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.cli.options import Options

BROKER = 4
"""Kafka's number of what has settings."""
NOBODY = -1
_MOMENT_MS = 2000
_ASKED = ("advertised.listeners", "listeners", "krust.disk.reserve.bytes")


class Directory(NamedTuple):
    """A log directory."""

    path: str
    error_code: int
    bytes: int
    """of the partitions in it"""
    usable_bytes: int
    """of its disk; -1: the broker is too old to say"""


class BrokerAnswers(NamedTuple):
    """What one broker says; `why` it does not."""

    settings: Mapping[str, str | None]
    directories: tuple[Directory, ...]
    why: str | None = None


class View:
    """One look at a cluster. As `krust._krust.Client.request` raises where nobody answers."""

    def __init__(self, options: Options) -> None:
        self._asked = session.client(options)
        own = {"request.timeout.ms": min(options.timeout_ms, _MOMENT_MS)}
        own["socket.connection.setup.timeout.ms"] = own["request.timeout.ms"]
        self._each = _krust.Client(options.bootstrap, session.properties(options) | own)
        found = session.metadata(self._asked)
        self.cluster_id: str | None = found.get("cluster_id")
        self.controller = int(found.get("controller_id", NOBODY))
        self.brokers = sorted(found["brokers"], key=lambda broker: int(broker["node_id"]))
        self.partitions: list[dict[str, Any]] = [
            {"topic": topic["name"], **partition}
            for topic in sorted(found["topics"], key=lambda topic: str(topic["name"]))
            if not topic["error_code"]
            for partition in topic["partitions"]
        ]

    def answers(self, node: int) -> BrokerAnswers:
        """What a broker says."""
        resource = {"resource_type": BROKER, "resource_name": str(node)}
        resource |= {"configuration_keys": list(_ASKED)}
        try:
            response = self._ask(node, "DescribeConfigs", {"resources": [resource]})
            dirs = self._ask(node, "DescribeLogDirs", {"topics": None})
        except UnreachableError as error:
            return BrokerAnswers({}, (), str(error))
        configs = [each for result in response for each in result["configs"] or ()]
        settings = {each["name"]: each["value"] for each in configs}
        return BrokerAnswers(settings, tuple(map(_directory, dirs)))

    def _ask(self, node: int, api: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The results; none where the broker refuses, or is too old for that."""
        try:
            results: list[dict[str, Any]] = self._each.request(api, body, broker=node)["results"]
        except KafkaError:
            return []
        return results

    def row(self, broker: Mapping[str, Any]) -> dict[str, Any]:
        """A broker, as `krust cluster brokers` shows it."""
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
            "leads": sum(each["leader_id"] == node for each in self.partitions),
            "replicas": sum(node in each["replica_nodes"] for each in self.partitions),
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
        """What is wrong: `problem` in a word, `subject`, and `detail` for people."""
        found = []
        if self.controller == NOBODY:
            found.append(_problem("no controller", "cluster", "nobody is the controller"))
        elif (why := self.controller_error()) is not None:
            found.append(_problem("no controller", f"broker {self.controller}", why))
        for broker in self.brokers:
            found += self._of_broker(int(broker["node_id"]))
        alive = {int(broker["node_id"]) for broker in self.brokers}
        led = [each for each in self.partitions if each["leader_id"] >= 0]
        found += _without_leader((p for p in self.partitions if p["leader_id"] < 0), alive)
        for each in led:
            found += _behind(each)
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


def _directory(response: Mapping[str, Any]) -> Directory:
    sizes = [each["partition_size"] for topic in response["topics"] for each in topic["partitions"]]
    usable = int(response.get("usable_bytes", -1))
    return Directory(response["log_dir"], response["error_code"], sum(sizes), usable)


def _without_leader(
    partitions: Iterable[Mapping[str, Any]], alive: set[int]
) -> list[dict[str, Any]]:
    """One problem for all partitions that miss the same brokers."""
    by_away: dict[tuple[int, ...], list[str]] = {}
    for each in partitions:
        away = tuple(sorted(set(each["replica_nodes"]) - alive))
        by_away.setdefault(away, []).append(_place(each))
    found = []
    for away, places in sorted(by_away.items()):
        count = counted(len(places), "partition")
        has = "has" if len(places) == 1 else "have"
        who = ", ".join(map(str, away))
        why = f"broker{'s' * (len(away) > 1)} {who} {'are' if len(away) > 1 else 'is'} away: "
        text = f"{why if away else ''}{count} {has} no leader"
        subject = places[0] if len(places) == 1 else count
        found.append({**_problem("no leader", subject, text), "partitions": places})
    return found


def _place(each: Mapping[str, Any]) -> str:
    return f"{each['topic']}:{each['partition_index']}"


def _behind(each: Mapping[str, Any]) -> list[dict[str, Any]]:
    subject = _place(each)
    replicas, isr = each["replica_nodes"], each["isr_nodes"]
    if len(isr) < len(replicas):
        return [_problem("under-replicated", subject, f"{isr} of {replicas} are in sync")]
    return []


def _problem(problem: str, subject: str, detail: str) -> dict[str, Any]:
    return {"problem": problem, "subject": subject, "detail": detail}
