"""The offset reader: partitions, offsets and sizes of topics for the planner.

The planner process (a child of Spark's driver) creates it when it needs it; tasks do not use it.
Pipelines use it too, without Spark. Subclasses: `broker_offsets` asks brokers, `log_dirs` reads
segment files. A request is repeated up to `fetchOffset.numRetries` times, because topics are
created and deleted meanwhile. Threads: one at a time.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from krust.errors import KafkaError, UnreachableError
from krust.spark.errors import LOG, PlanError
from krust.spark.options import python_pattern
from krust.spark.plan import EARLIEST, LATEST, EndOffsets, Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from krust.spark.options import SourceOptions

_Answer = TypeVar("_Answer")
UNKNOWN_TOPIC = 3
GUESS_BYTES = 1000
"""The bytes of an offset if they are not known."""


class OffsetReader(ABC):
    """Partitions and offsets of the topics that a source's options choose."""

    def __init__(self, source: SourceOptions) -> None:
        self._source = source

    @property
    @abstractmethod
    def where(self) -> str:
        """The source, for messages."""

    @abstractmethod
    def _partitions(self, topics: Iterable[str] | None) -> tuple[list[TopicPartition], set[str]]:
        """The partitions of topics, in order, and the topics that do not exist.

        topics  None: all except internal ones
        """

    @abstractmethod
    def _at(self, moments: list[tuple[str, int, int]]) -> Offsets:
        """The offsets of times, including EARLIEST and LATEST."""

    @abstractmethod
    def bytes_per_offset(
        self, spans: Mapping[TopicPartition, EndOffsets]
    ) -> dict[TopicPartition, float]:
        """The average bytes of an offset in the log; not known: GUESS_BYTES."""

    def survey(self) -> tuple[dict[TopicPartition, EndOffsets], set[str]]:
        """The offsets of each chosen partition, and named topics that do not exist.

        The end is the end of the records that the isolation level can read.
        """

        def ask() -> tuple[dict[TopicPartition, EndOffsets], set[str]]:
            places, missing = self._places()
            first, last = self._at(_each(places, EARLIEST)), self._at(_each(places, LATEST))
            return {place: EndOffsets(first[place], last[place]) for place in places}, missing

        return self._patiently(ask)

    def ends(self) -> tuple[Offsets, set[str]]:
        """The end of each chosen partition, and named topics that do not exist."""

        def ask() -> tuple[Offsets, set[str]]:
            places, missing = self._places()
            return self._at(_each(places, LATEST)), missing

        return self._patiently(ask)

    def earliest_there(self, places: Iterable[TopicPartition]) -> Offsets:
        """The first offset of each partition. Missing ones are left out."""
        wanted = set(places)

        def ask() -> Offsets:
            there, _ = self._places()
            return self._at(_each([place for place in there if place in wanted], EARLIEST))

        return self._patiently(ask)

    def at(self, moments: Iterable[tuple[str, int, int]]) -> Offsets:
        """The first offset at or after a time; -1: there is none."""
        asked = list(moments)
        return self._patiently(lambda: self._at(asked))

    def unknown_topics(self, missing: Iterable[str]) -> PlanError:
        """The error for topics that do not exist."""
        words = ", ".join(sorted(missing))
        return PlanError(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"There is no topic or partition {words} at {self.where}. Correct the option "
            "'subscribe' or 'assign', or make the topic first.",
        )

    def _places(self) -> tuple[list[TopicPartition], set[str]]:
        """The partitions that the options choose, and topics that do not exist."""
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
        """Drop the cache, which may be old."""


def bytes_per_offset(
    spans: Mapping[TopicPartition, EndOffsets], sizes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """The average bytes of an offset, from the sizes of partitions; not known: GUESS_BYTES."""
    return {
        place: max(1.0, sizes[place] / max(1, span.latest - span.earliest))
        if place in sizes
        else float(GUESS_BYTES)
        for place, span in spans.items()
    }


def _each(places: Iterable[TopicPartition], moment: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, moment) for topic, partition in places]
