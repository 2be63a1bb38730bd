"""WriteTxnMarkers (API 27), versions 0-2.

Ends transactions in partitions that the receiver leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class WritableTxnMarkerTopic(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class WritableTxnMarker(TypedDict):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: NotRequired[int]


class WriteTxnMarkersRequest(TypedDict):
    markers: Sequence[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(TypedDict):
    partition_index: int
    error_code: int


class WritableTxnMarkerTopicResult(TypedDict):
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(TypedDict):
    producer_id: int
    topics: Sequence[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(TypedDict):
    markers: Sequence[WritableTxnMarkerResult]
