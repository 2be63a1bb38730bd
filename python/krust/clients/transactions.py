"""Transactions of `krust.Producer`: records and offsets that take effect together, or not at all.

    producer = krust.Producer(bootstrap_servers=..., transactional_id="copy-1")
    with producer.transaction():
        producer.produce("orders", b"paid")
        producer.send_offsets(consumer)

The commit is at the end of the block. An exception in the block aborts. One process at a time may
use a `transactional.id`: a new producer with it fences the earlier one.
Not promised: a commit that was not answered in time may have happened. Then `commit_transaction`
can be called again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krust import _krust
from krust.clients.coordinator_client import GroupMetadata
from krust.errors import ConfigError, KrustError, TransactionError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from krust.clients.consumer import Consumer


class WrittenRange(NamedTuple):
    """Where records of a transaction are. Records of others may be between them."""

    topic: str
    partition: int
    first: int
    last: int
    records: int


class PreparedTransaction(NamedTuple):
    """A transaction whose records are delivered, and which another process ends."""

    producer_id: int
    epoch: int
    is_v2: bool
    """whether EndTxn 5 ends it; otherwise EndTxn 4 or less"""
    written: tuple[WrittenRange, ...]


class TransactionalSender(_krust.Sender):
    """The calls of a producer on its transaction.

    Each raises  ConfigError: the producer has no `transactional.id`, or the call does not fit the
                 state; UnreachableError: no answer within max.block.ms; AbortableTransactionError,
                 FatalTransactionError, ProducerFencedError (see `krust.errors`)
    """

    delivery_ms: int
    """delivery.timeout.ms"""

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction: committed at the end of the block, aborted by an exception in it.

        raises  what the commit raises. An UnreachableError of the commit leaves its outcome
                unknown: call `commit_transaction` again.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._abort_because_of(error)
            raise
        try:
            self.commit_transaction()
        except TransactionError as error:
            self._abort_because_of(error)
            raise

    def commit_transaction(self) -> None:
        """Send what remains, and commit the transaction."""
        try:
            self.end_transaction(True, 2 * self.delivery_ms)
        finally:
            self.serve()

    def abort_transaction(self) -> None:
        """Drop what is not sent, and abort the transaction."""
        try:
            self.end_transaction(False, 2 * self.delivery_ms)
        finally:
            self.serve()
            self.take_failures()  # the records of an aborted transaction

    def prepare_transaction(self, timeout_ms: int | None = None) -> PreparedTransaction:
        """Deliver the records and leave the transaction open, for another process to end.

        This producer can have no further transaction. `close` leaves it open too.
        raises  KafkaError, UnreachableError: records without `on_delivery` were not written
        """
        wait_ms = 2 * self.delivery_ms if timeout_ms is None else timeout_ms
        try:
            identity, written = self.hand_over(wait_ms)
        finally:
            self.serve()
        return PreparedTransaction(*identity, tuple(WrittenRange(*one) for one in written))

    def send_offsets(
        self,
        offsets: Consumer | Mapping[tuple[str, int], int],
        group: GroupMetadata | str | None = None,
    ) -> None:
        """Commit offsets of a group when the transaction commits.

        offsets  a consumer: its positions. Or the offset of the next record to read, by
                 (topic, partition)
        group    `consumer.group_metadata()`, or a group id; not needed with a consumer
        """
        self.add_offsets(*group_offsets(offsets, group))

    def _abort_because_of(self, error: BaseException) -> None:
        """Abort. A failure of that is a note at `error`; the next transaction raises it again."""
        if not self.in_transaction():
            return
        try:
            self.abort_transaction()
        except KrustError as failed:
            error.add_note(f"the abort failed too: {failed}")


def group_offsets(
    offsets: Consumer | Mapping[tuple[str, int], int], group: GroupMetadata | str | None
) -> tuple[tuple[str, int, str, str | None], list[tuple[str, int, int]]]:
    """The arguments of `add_offsets`. ConfigError: no group is named."""
    if isinstance(offsets, Mapping):
        found: Mapping[tuple[str, int], int] = offsets
    else:
        found, group = dict(offsets.positions().items()), group or offsets.group_metadata()
    if group is None:
        raise ConfigError(
            "offsets belong to a group", hint="give consumer.group_metadata(), or the group's id"
        )
    member = GroupMetadata(group) if isinstance(group, str) else GroupMetadata(*group)
    return member, [(*place, offset) for place, offset in found.items()]
