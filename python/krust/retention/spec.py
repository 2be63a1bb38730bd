"""What a retention policy is given, what it gives back, and the check of what it gave back.

A policy is any object with a `name` and an `expired`; it inherits nothing:

    class Nothing:
        name = "nothing"

        def expired(self, disk, partitions, now_ms):
            return {}

It is a function of its arguments alone: no clock, no files, no memory of the last call. It may
raise. What it returns is checked by `validate`. Everything here is plain data and can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from krust.plugins import shown

Expired: TypeAlias = Mapping[tuple[str, int], int]
"""(topic, number) -> how many of its oldest segments may go; who is not named keeps all."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment, as far as its age and size go.

    base_offset           of its first record; the next segment begins at `next_offset`
    largest_timestamp_ms  of its records; when it was last written, where they have none
    """

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic that is cleaned by deletion.

    segments         oldest first; the last one is written to
    high_watermark   nothing at or above it may go
    retention_ms     `retention.ms` of its topic, -1: for ever
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
        """Its name in the answer."""
        return self.topic, self.number

    @property
    def may_go(self) -> tuple[Segment, ...]:
        """The segments that may go at all: not the active one, none above the high watermark."""
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
    """A way to say which segments may go now."""

    name: str

    def expired(self, disk: Disk, partitions: Sequence[Partition], now_ms: int) -> Expired:
        """How many of the oldest segments of each partition may go.

        disk        where these partitions lie; of several log directories one call each
        partitions  all of that directory that the policy rules
        now_ms      wall clock; handed in, never read here
        """


class ExpiryError(ValueError):
    """An answer that breaks a rule; the message says which, for whom."""


def validate(partitions: Sequence[Partition], answer: object) -> None:
    """Check an answer from code that is not trusted.

    Holds after it: the oldest segments only, never the active one, none above the high watermark.
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
