"""What the planner asks of a cluster: partitions, offsets, sizes; and commits for tools of lag.

Made in the process that plans (a child of Spark's driver), when it is first needed; nothing here
runs in a task. Pipelines ask it too, without Spark. Where topics lie is a subclass: brokers here,
segment files in `log_dirs`. Each question is asked `fetchOffset.numRetries` times, because topics
come and go while they are asked about.
Threads: one at a time.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from krust.errors import KafkaError, KrustError, UnreachableError
from krust.spark.errors import LOG, PlanError
from krust.spark.options import CLIENT, python_pattern
from krust.spark.plan import EARLIEST, LATEST, Offsets, Place, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from krust.spark.options import Source

_Answer = TypeVar("_Answer")
UNKNOWN_TOPIC = 3
GUESS_BYTES = 1000
"""What an offset takes where nobody says it."""


def of(source: Source) -> Cluster:
    """The cluster that a source's options name."""
    if source.log_dirs:
        from krust.spark.log_dirs import LogDirs

        return LogDirs(source)
    return Brokers(source)


class Cluster(ABC):
    """Topics, wherever they lie."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    @abstractmethod
    def where(self) -> str:
        """As people call it."""

    @abstractmethod
    def _partitions(self, topics: Iterable[str] | None) -> tuple[list[Place], set[str]]:
        """The partitions of topics, in order, and topics that are not there.

        topics  None: all but Kafka's own
        """

    @abstractmethod
    def _at(self, moments: list[tuple[str, int, int]]) -> Offsets:
        """The offsets of times, EARLIEST and LATEST among them."""

    @abstractmethod
    def bytes_an_offset(self, spans: Mapping[Place, Span]) -> dict[Place, float]:
        """How many bytes of the log an offset takes, on average; unknown: GUESS_BYTES."""

    def survey(self) -> tuple[dict[Place, Span], set[str]]:
        """What each chosen partition holds, and named topics that are not there.

        The end is as far as the isolation level lets it be read.
        """

        def ask() -> tuple[dict[Place, Span], set[str]]:
            places, missing = self._places()
            first, last = self._at(_each(places, EARLIEST)), self._at(_each(places, LATEST))
            return {place: Span(first[place], last[place]) for place in places}, missing

        return self._patiently(ask)

    def ends(self) -> tuple[Offsets, set[str]]:
        """The end of each chosen partition, and named topics that are not there."""

        def ask() -> tuple[Offsets, set[str]]:
            places, missing = self._places()
            return self._at(_each(places, LATEST)), missing

        return self._patiently(ask)

    def earliest_there(self, places: Iterable[Place]) -> Offsets:
        """The first offset of each of these; one that is not there is left out."""
        wanted = set(places)

        def ask() -> Offsets:
            there, _ = self._places()
            return self._at(_each([place for place in there if place in wanted], EARLIEST))

        return self._patiently(ask)

    def at(self, moments: Iterable[tuple[str, int, int]]) -> Offsets:
        """The first offset at or after a time, -1 where nothing is as late."""
        asked = list(moments)
        return self._patiently(lambda: self._at(asked))

    def unknown_topics(self, missing: Iterable[str]) -> PlanError:
        """The error of topics that are not there."""
        words = ", ".join(sorted(missing))
        return PlanError(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"There is no topic or partition {words} at {self.where}. Correct the option "
            "'subscribe' or 'assign', or make the topic first.",
        )

    def _places(self) -> tuple[list[Place], set[str]]:
        """The partitions that the options choose; topics not there."""
        topics = self._source.topics
        if topics.subscribe is not None:
            return self._partitions(topics.subscribe)
        if topics.assign is not None:
            found, _ = self._partitions({topic for topic, _ in topics.assign})
            wanted = set(topics.assign)
            there = [place for place in found if place in wanted]
            return there, {f"{topic}-{number}" for topic, number in wanted - set(there)}
        found, _ = self._partitions(None)
        pattern = re.compile(python_pattern(topics.pattern or ""))
        return [place for place in found if pattern.search(place[0])], set()

    def _patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        left = self._source.retries
        while True:
            try:
                return ask()
            except (KafkaError, UnreachableError) as error:
                left -= 1
                if left <= 0 or not (error.retriable or error.code == UNKNOWN_TOPIC):
                    raise
                LOG.warning("Offsets are asked for again: %s", error)
                self._forget()
                time.sleep(self._source.retry_ms / 1000)

    @abstractmethod
    def _forget(self) -> None:
        """Ask anew: what is remembered of topics may be old."""


class Brokers(Cluster):
    """The brokers that the options name."""

    @property
    def where(self) -> str:
        """Their addresses."""
        return self._source.bootstrap

    @cached_property
    def _client(self) -> Any:
        from krust import _krust

        given: dict[str, object] = {
            name: text for name, text in self._source.client.items() if name in CLIENT
        }
        return _krust.Client(self._source.bootstrap, given)

    def bytes_an_offset(self, spans: Mapping[Place, Span]) -> dict[Place, float]:
        """By DescribeLogDirs."""
        sizes: dict[Place, int] = {}
        for broker in self._client.request("Metadata", {"topics": []})["brokers"]:
            topics: dict[str, list[int]] = {}
            for topic, partition in spans:
                topics.setdefault(topic, []).append(partition)
            wanted = [{"topic": name, "partitions": ps} for name, ps in topics.items()]
            try:
                answer = self._client.request(
                    "DescribeLogDirs", {"topics": wanted}, broker=broker["node_id"]
                )
            except KrustError as error:
                LOG.warning("Sizes of partitions are guessed: %s", error)
                continue
            for directory in answer["results"]:
                for topic in directory["topics"]:
                    for one in topic["partitions"]:
                        place = (topic["name"], one["partition_index"])
                        sizes[place] = max(sizes.get(place, 0), one["partition_size"])
        return weights(spans, sizes)

    def _partitions(self, topics: Iterable[str] | None) -> tuple[list[Place], set[str]]:
        wanted = None if topics is None else [{"name": name} for name in sorted(set(topics))]
        body = {"topics": wanted, "allow_auto_topic_creation": False}
        found, missing = [], set()
        for topic in self._client.request("Metadata", body)["topics"]:
            if topic["error_code"] == UNKNOWN_TOPIC:
                missing.add(topic["name"])
            elif topic["error_code"]:
                raise _refused(topic["error_code"], f"topic {topic['name']!r}")
            elif topics is not None or not topic["is_internal"]:
                found += [(topic["name"], one["partition_index"]) for one in topic["partitions"]]
        return sorted(found), missing

    def _at(self, moments: list[tuple[str, int, int]]) -> Offsets:
        if not moments:
            return {}
        committed = self._source.read_committed
        answers = self._client.list_offsets(moments, read_committed=committed)
        return {(topic, partition): offset for topic, partition, _, offset, _ in answers}

    def _forget(self) -> None:
        self.__dict__.pop("_client", None)


class Commits:
    """Offsets into a group that has no members, for tools that show lag."""

    def __init__(self, bootstrap: str, group_id: str, client: Mapping[str, str]) -> None:
        self._bootstrap, self._group_id = bootstrap, group_id
        self._options = {name: text for name, text in client.items() if name in CLIENT}

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit. KafkaError, UnreachableError: it was not; lag is shown wrongly, nothing else."""
        from krust.clients.coordinator import Coordinator, Standing
        from krust.coordinator.consumer_protocol import TopicPartition

        if not offsets:
            return
        named = {**self._options, "bootstrap.servers": self._bootstrap}
        patience_ms = int(self._options.get("request.timeout.ms", 10_000))
        coordinator = Coordinator(self._group_id, named, patience_ms, patience_ms)
        coordinator.commit(
            {TopicPartition(*place): offset for place, offset in offsets.items()}, Standing()
        )


def weights(spans: Mapping[Place, Span], sizes: Mapping[Place, int]) -> dict[Place, float]:
    """Bytes of an offset, from the bytes that partitions have."""
    return {
        place: max(1.0, sizes[place] / max(1, span.latest - span.earliest))
        if place in sizes
        else float(GUESS_BYTES)
        for place, span in spans.items()
    }


def _each(places: Iterable[Place], moment: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, moment) for topic, partition in places]


def _refused(code: int, subject: str) -> KafkaError:
    from krust.clients.coordinator import refused

    return refused(code, subject)
