"""`logDir`: reads topics from segment files, with or without a running broker.

A partition is a folder `topic-0`, and it ends with its last whole batch. Offsets are the broker's,
so a checkpoint works with both. Planner and workers must see the same folders. Not promised: that
`read_uncommitted` ends before records that are not replicated yet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from krust.errors import KafkaError
from krust.spark.offset_reader import UNKNOWN_TOPIC, OffsetReader, bytes_per_offset
from krust.spark.plan import EARLIEST, LATEST, EndOffsets, Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


class LogDirOffsetReader(OffsetReader):
    """Log directories of brokers."""

    @property
    def where(self) -> str:
        """The directories."""
        return ", ".join(self._source.log_dirs)

    def bytes_per_offset(
        self, spans: Mapping[TopicPartition, EndOffsets]
    ) -> dict[TopicPartition, float]:
        """Computed from the sizes of segments."""
        sizes: dict[TopicPartition, int] = {}
        for topic, partition in spans:
            for folder in self._source.log_dirs:
                for path in Path(folder).glob(f"{topic}-{partition}/*.log"):
                    size = path.stat().st_size
                    sizes[topic, partition] = sizes.get((topic, partition), 0) + size
        return bytes_per_offset(spans, sizes)

    def _partitions(self, topics: Iterable[str] | None) -> tuple[list[TopicPartition], set[str]]:
        names = (path.name for folder in self._source.log_dirs for path in Path(folder).iterdir())
        found = filter(None, map(_FOLDER.fullmatch, names))
        there = {(one["topic"], int(one["partition"])) for one in found}
        if topics is None:
            return sorted(place for place in there if place[0] not in INTERNAL), set()
        wanted = set(topics)
        chosen = sorted(place for place in there if place[0] in wanted)
        return chosen, wanted - {topic for topic, _ in chosen}

    def _at(self, moments: list[tuple[str, int, int]]) -> Offsets:
        from krust import _krust

        directories, committed = self._source.log_dirs, self._source.read_committed
        spans: dict[TopicPartition, EndOffsets] = {}
        for topic in {topic for topic, _, _ in moments}:
            bounds = _krust.partitions(directories, topic, read_committed=committed)
            spans |= {(topic, number): EndOffsets(first, last) for number, first, last in bounds}
        found: Offsets = {}
        for topic, partition, moment in moments:
            span = spans.get((topic, partition))
            if span is None:
                raise KafkaError(f"{topic}-{partition} is gone", code=UNKNOWN_TOPIC)
            if moment in (EARLIEST, LATEST):
                offset = span.earliest if moment == EARLIEST else span.latest
            else:
                offset = _krust.offset_at(directories, topic, partition, moment)
            found[topic, partition] = offset
        return found

    def _forget(self) -> None:
        """Nothing: it has no cache."""
