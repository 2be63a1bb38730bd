"""ControlledShutdown (API 7), versions 0-3.

A broker asks the controller to take its leaders away before it stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ControlledShutdownRequest(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]


class RemainingPartition(TypedDict):
    topic_name: str
    partition_index: int


class ControlledShutdownResponse(TypedDict):
    error_code: int
    remaining_partitions: Sequence[RemainingPartition]
