"""The retention of the core (`rust/src/storage/log/retention.rs`) as arithmetic.

The core deletes whole segments below the log start offset of every partition; for a compacted topic
that is all. It also applies the limits of time and size, unless a policy decides for the topic. In
contrast to a policy it can delete the active segment: if all its records are too old, a new segment
begins first. Tests compare this module with a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.retention.policy import PartitionLog, Segment


def dropped(partition: PartitionLog, log_start: int, now_ms: int, *, deletes: bool) -> int:
    """The number of the oldest segments that the core deletes now.

    deletes  whether `cleanup.policy` has `delete` and no policy decides for the topic
    """
    segments = partition.segments
    keep_from = log_start
    if deletes:
        by_time = _by_time(segments, partition.retention_ms, now_ms)
        by_size = _by_size(segments, partition.retention_bytes)
        keep_from = max(keep_from, by_time, by_size)
    end = segments[-1].next_offset
    nexts = [segment.next_offset for segment in segments]
    high = partition.high_watermark
    restarts_empty = log_start < keep_from >= end <= high and segments[-1].size > 0
    if not restarts_empty:
        nexts.pop()
    return sum(each <= min(keep_from, high) for each in nexts)


def _by_time(segments: tuple[Segment, ...], retention_ms: int, now_ms: int) -> int:
    """The first offset of the segments that are young enough."""
    keep_from = 0
    if retention_ms < 0:
        return keep_from
    for segment in segments if segments[-1].size else segments[:-1]:
        if now_ms - segment.largest_timestamp_ms <= retention_ms:
            break
        keep_from = segment.next_offset
    return keep_from


def _by_size(segments: tuple[Segment, ...], retention_bytes: int) -> int:
    """The first offset of the segments that fit into the limit."""
    keep_from = 0
    if retention_bytes < 0:
        return keep_from
    excess = max(sum(segment.size for segment in segments) - retention_bytes, 0)
    for segment in segments[:-1]:
        if segment.size > excess:
            break
        excess -= segment.size
        keep_from = segment.next_offset
    return keep_from
