"""The built-in policies: by time, by size, by both, and one that keeps room on the disk.

Promised: what each docstring says, of segments that may go at all (`Partition.may_go`).
Not promised: that the active segment ever goes; it is closed when it is full or `segment.ms` old.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from krust.plugins import Plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.retention.spec import Disk, Expired, Partition, RetentionPolicy


class Time:
    """Segments whose newest record is older than `retention.ms`, as Kafka does."""

    name = "time"

    def expired(self, disk: Disk, partitions: Sequence[Partition], now_ms: int) -> Expired:
        """Oldest first, up to the first that is young enough."""
        return {each.key: _too_old(each, now_ms) for each in partitions}


class Size:
    """The oldest segments without which `retention.bytes` still remain, as Kafka does."""

    name = "size"

    def expired(self, disk: Disk, partitions: Sequence[Partition], now_ms: int) -> Expired:
        """Oldest first, as long as what stays is not below the limit."""
        return {each.key: _too_many(each) for each in partitions}


class TimeAndSize:
    """What either of the two lets go: Kafka's own policy, and the default."""

    name = "time_and_size"

    def expired(self, disk: Disk, partitions: Sequence[Partition], now_ms: int) -> Expired:
        """The larger number of both."""
        return {each.key: max(_too_old(each, now_ms), _too_many(each)) for each in partitions}


class KeepFreeDiskSpace:
    """`time_and_size`, and of what is left the oldest, wherever it lies, until the disk has room.

    share  of the disk that is to be free; make a subclass for another
    """

    name = "keep_free_disk_space"
    share = 0.1

    def expired(self, disk: Disk, partitions: Sequence[Partition], now_ms: int) -> Expired:
        """No more goes than is needed; nothing beyond the limits while there is room."""
        gone = dict(TimeAndSize().expired(disk, partitions, now_ms))
        freed = sum(one.size for each in partitions for one in each.segments[: gone[each.key]])
        missing = int(disk.total * self.share) - disk.free - freed
        oldest = [
            (each.segments[gone[each.key]].largest_timestamp_ms, place)
            for place, each in enumerate(partitions)
            if gone[each.key] < len(each.may_go)
        ]
        heapify(oldest)
        while missing > 0 and oldest:
            each = partitions[heappop(oldest)[1]]
            missing -= each.segments[gone[each.key]].size
            gone[each.key] += 1
            if (count := gone[each.key]) < len(each.may_go):
                place = partitions.index(each)
                heappush(oldest, (each.segments[count].largest_timestamp_ms, place))
        return gone


def _too_old(partition: Partition, now_ms: int) -> int:
    """How many of the oldest are beyond `retention_ms`."""
    if partition.retention_ms < 0:
        return 0
    for count, segment in enumerate(partition.may_go):
        if now_ms - segment.largest_timestamp_ms <= partition.retention_ms:
            return count
    return len(partition.may_go)


def _too_many(partition: Partition) -> int:
    """How many of the oldest are beyond `retention_bytes`."""
    if partition.retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in partition.segments) - partition.retention_bytes
    for count, segment in enumerate(partition.may_go):
        if segment.size > excess:
            return count
        excess -= segment.size
    return len(partition.may_go)


BUILT_IN: dict[str, type[RetentionPolicy]] = {
    kind.name: kind for kind in (TimeAndSize, Time, Size, KeepFreeDiskSpace)
}
"""THE table of built-in policies."""

POLICIES: Plugins[RetentionPolicy] = Plugins(
    "retention policy",
    "krust.retention",
    BUILT_IN,
    "expired",
    "`name` and `expired(disk, partitions, now_ms)`",
)
"""With those of installed packages (entry points of `krust.retention`) and `module:Class`."""
