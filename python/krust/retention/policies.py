"""The built-in policies: by time, by size, by both, and one that keeps the disk from filling up.

Promised: what each docstring says, for segments that may be deleted (`PartitionLog.may_go`). Not
promised: the deletion of the active segment, which is sealed when it is full or `segment.ms` old.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from krust.plugins import RETENTION_GROUP, RETENTION_POLICIES, Plugins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.retention.policy import Disk, Expired, PartitionLog, RetentionPolicy


class Time:
    """Deletes segments whose newest record is older than `retention.ms`, as Kafka does."""

    name = "time"

    def expired(self, disk: Disk, partitions: Sequence[PartitionLog], now_ms: int) -> Expired:
        """The oldest segments up to the first one that is young enough."""
        return {each.key: _too_old(each, now_ms) for each in partitions}


class Size:
    """Deletes the oldest segments while `retention.bytes` remain without them, as Kafka does."""

    name = "size"

    def expired(self, disk: Disk, partitions: Sequence[PartitionLog], now_ms: int) -> Expired:
        """The oldest segments, as long as the rest is not below the limit."""
        return {each.key: _too_many(each) for each in partitions}


class TimeAndSize:
    """Deletes by time and by size: Kafka's policy, and the default."""

    name = "time_and_size"

    def expired(self, disk: Disk, partitions: Sequence[PartitionLog], now_ms: int) -> Expired:
        """The larger number of the two."""
        return {each.key: max(_too_old(each, now_ms), _too_many(each)) for each in partitions}


class KeepFreeDiskSpace:
    """Deletes by time and size, then the oldest segments of all partitions until the disk has room.

    share  a parameter: the free share of the disk, 0.1 by default:
           krust.retention.policy.keep_free_disk_space.share=0.2
    """

    name = "keep_free_disk_space"
    share = 0.1

    def configure(self, configs: Mapping[str, str]) -> None:
        """Set the free share of the disk."""
        if unknown := sorted(set(configs) - {"share"}):
            raise ValueError(f"there is no parameter {unknown[0]}; there is share")
        share = float(configs.get("share", self.share))
        if not 0 <= share < 1:
            raise ValueError(f"share = {share:g} must be at least 0 and below 1")
        self.share = share

    def expired(self, disk: Disk, partitions: Sequence[PartitionLog], now_ms: int) -> Expired:
        """The segments beyond the limits, and the oldest others as far as needed."""
        gone = dict(TimeAndSize().expired(disk, partitions, now_ms))
        freed = sum(one.size for each in partitions for one in each.segments[: gone[each.key]])
        missing = int(disk.total * self.share) - disk.free - freed
        if missing <= 0:
            return gone
        may_go = [each.may_go for each in partitions]
        oldest = [
            (may_go[index][gone[each.key]].largest_timestamp_ms, index)
            for index, each in enumerate(partitions)
            if gone[each.key] < len(may_go[index])
        ]
        heapify(oldest)
        while missing > 0 and oldest:
            index = heappop(oldest)[1]
            key = partitions[index].key
            missing -= may_go[index][gone[key]].size
            gone[key] += 1
            if gone[key] < len(may_go[index]):
                heappush(oldest, (may_go[index][gone[key]].largest_timestamp_ms, index))
        return gone


def _too_old(partition: PartitionLog, now_ms: int) -> int:
    """The number of the oldest segments beyond `retention_ms`."""
    if partition.retention_ms < 0:
        return 0
    may_go = partition.may_go
    for count, segment in enumerate(may_go):
        if now_ms - segment.largest_timestamp_ms <= partition.retention_ms:
            return count
    return len(may_go)


def _too_many(partition: PartitionLog) -> int:
    """The number of the oldest segments beyond `retention_bytes`."""
    if partition.retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in partition.segments) - partition.retention_bytes
    for count, segment in enumerate(partition.may_go):
        if segment.size > excess:
            return count
        excess -= segment.size
    return len(partition.may_go)


BUILT_IN: dict[str, type[RetentionPolicy]] = dict(
    zip(RETENTION_POLICIES, (TimeAndSize, Time, Size, KeepFreeDiskSpace), strict=True)
)
"""The table of built-in policies."""

POLICIES: Plugins[RetentionPolicy] = Plugins(
    "retention policy",
    RETENTION_GROUP,
    BUILT_IN,
    "expired",
    "`name` and `expired(disk, partitions, now_ms)`",
)
"""All policies: built-in, of packages (entry points of `krust.retention`), and by import path."""
