"""The contract of a retention policy: its arguments, its result, and the check of the result.

A policy is any object with a `name` and an `expired`. It needs no base class:

    class Nothing:
        name = "nothing"

        def expired(self, disk, partitions, now_ms):
            return {}

It depends only on its arguments: no clock, no files, no memory of the last call. It may raise.
`validate` checks its result. All types here are plain data and can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from krust.plugins import shown

Expired: TypeAlias = Mapping[tuple[str, int], int]
"""(topic, number) -> the number of its oldest segments to delete. A partition that is absent keeps
all."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The age and size of a segment.

    base_offset           the offset of its first record; the next segment begins at `next_offset`
    largest_timestamp_ms  of its records; without timestamps, the time of the last write
    """

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """A partition of a topic with `cleanup.policy=delete`.

    segments         oldest first; the last one is the active segment
    high_watermark   no record at or above it may be deleted
    retention_ms     `retention.ms` of its topic, -1: no limit
    retention_bytes  `retention.bytes` of its topic, -1: no limit
    """

    topic: str
    number: int
    segments: tuple[Segment, ...]
    high_watermark: int
    retention_ms: int = -1
    retention_bytes: int = -1

    @property
    def key(self) -> tuple[str, int]:
        """Its key in the result."""
        return self.topic, self.number

    @property
    def may_go(self) -> tuple[Segment, ...]:
        """The segments that may be deleted: not the active one, none above the high watermark."""
        sealed = self.segments[:-1]
        count = sum(segment.next_offset <= self.high_watermark for segment in sealed)
        return sealed[:count]


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of one log directory, in bytes."""

    free: int
    total: int


@runtime_checkable
class RetentionPolicy(Protocol):
    """Decides which segments to delete now."""

    name: str

    def expired(self, disk: Disk, partitions: Sequence[PartitionLog], now_ms: int) -> Expired:
        """The number of the oldest segments of each partition to delete.

        disk        the disk of these partitions; each log directory has a call of its own
        partitions  all partitions of that directory that the policy decides for
        now_ms      the wall clock
        """


class ExpiryError(ValueError):
    """A result breaks a rule; the message names the rule and the partition."""


def validate(partitions: Sequence[PartitionLog], answer: object) -> None:
    """Check a result of user code.

    A valid result names only oldest segments, never the active one, none above the high watermark.
    raises  ExpiryError
    """
    if not isinstance(answer, Mapping):
        raise ExpiryError(f"not a mapping of partitions but {shown(answer)}")
    known = {partition.key: partition for partition in partitions}
    for key, count in answer.items():
        partition = known.get(key) if isinstance(key, tuple) else None
        if partition is None:
            raise ExpiryError(f"there is no partition {shown(key)} here")
        name = f"{partition.topic}-{partition.number}"
        if type(count) is not int or count < 0:
            raise ExpiryError(f"{name}: {shown(count)} is no number of segments")
        if count >= len(partition.segments) and count:
            raise ExpiryError(
                f"{name}: {count} of {len(partition.segments)} segments, the active one among them"
            )
        if count > len(partition.may_go):
            end = partition.segments[count - 1].next_offset
            mark = partition.high_watermark
            raise ExpiryError(f"{name}: up to {end}, above the high watermark {mark}")
