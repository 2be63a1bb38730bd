"""TransactionLogValue, versions 0-1.

The present or last transaction of a transactional id, in `__transaction_state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class PartitionsSchema(TypedDict):
    topic: str
    partition_ids: Sequence[int]


class TransactionLogValue(TypedDict):
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: Sequence[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    previous_producer_id: NotRequired[int]
    next_producer_id: NotRequired[int]
    client_transaction_version: NotRequired[int]
    next_producer_epoch: NotRequired[int]
