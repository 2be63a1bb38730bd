"""AddPartitionsToTxn (API 24), versions 0-5.

Adds partitions to a transaction, or asks whether it has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class AddPartitionsToTxnTopic(TypedDict):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnTransaction(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnTopic]


class V3AndBelowTopic(TypedDict):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequest(TypedDict):
    transactions: NotRequired[Sequence[AddPartitionsToTxnTransaction]]
    v3_and_below_transactional_id: NotRequired[str]
    v3_and_below_producer_id: NotRequired[int]
    v3_and_below_producer_epoch: NotRequired[int]
    v3_and_below_topics: NotRequired[Sequence[V3AndBelowTopic]]


class AddPartitionsToTxnPartitionResult(TypedDict):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnTopicResult(TypedDict):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(TypedDict):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResult]


class V3AndBelowPartitionResult(TypedDict):
    partition_index: int
    partition_error_code: int


class V3AndBelowTopicResult(TypedDict):
    name: str
    results_by_partition: Sequence[V3AndBelowPartitionResult]


class AddPartitionsToTxnResponse(TypedDict):
    throttle_time_ms: int
    error_code: NotRequired[int]
    results_by_transaction: NotRequired[Sequence[AddPartitionsToTxnResult]]
    results_by_topic_v3_and_below: NotRequired[Sequence[V3AndBelowTopicResult]]
