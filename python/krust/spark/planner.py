"""Shared by the planning of batches and streams: the offset reader, and the division into tasks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from krust.spark import plan
from krust.spark.broker_offsets import BrokerOffsetReader
from krust.spark.errors import LOG
from krust.spark.log_dirs import LogDirOffsetReader

if TYPE_CHECKING:
    from krust.spark.offset_reader import OffsetReader
    from krust.spark.options import SourceOptions


def offset_reader(source: SourceOptions) -> OffsetReader:
    """The offset reader of a source's options: log directories if they name some, else brokers."""
    return LogDirOffsetReader(source) if source.log_dirs else BrokerOffsetReader(source)


def tasks(
    source: SourceOptions,
    offsets: OffsetReader,
    spans: dict[plan.TopicPartition, plan.EndOffsets],
    ranges: list[plan.PartitionRange],
    *,
    streaming: bool = False,
) -> list[plan.PartitionRange]:
    """Divide ranges into tasks, by the options. Without options a batch uses all processors."""
    least = source.min_partitions
    if source.max_bytes is not None and ranges:
        weights = offsets.bytes_per_offset(spans)
        ranges = [
            part
            for one in ranges
            for part in plan.split([one], None, int(max(1, source.max_bytes // weights[one.place])))
        ]
    elif least is None and source.max_records is None and not streaming:
        least = plan.default_tasks(ranges, os.cpu_count() or 1)
    found = plan.split(ranges, least, source.max_records)
    LOG.debug("%d tasks: %s", len(found), found)
    return found
