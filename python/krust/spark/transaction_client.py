"""Requests about transactions that another process has opened, and about their rows in the log.

Threads: one at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from krust import _krust
from krust.clients.coordinator_client import MOVING, check, find, newest_at, refused
from krust.closing import Closing
from krust.errors import Code, KafkaError, UnreachableError
from krust.spark.client_options import common_options
from krust.spark.decisions import query_transactional_id
from krust.spark.errors import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust._krust import Record
    from krust.spark.decisions import RowRange, TaskTransaction
    from krust.spark.options import SinkOptions

_END_TXN, _FETCH_BY_NAME, _OF_TRANSACTIONS = 26, 12, 1
_PAUSE_S, _SHORT_PAUSE_S = 0.1, 0.01
_FETCH_BYTES = 8 << 20
_CONTROL = 0x20


class TransactionClient(Closing):
    """The coordinators of transactions, and the leaders of the partitions they wrote to."""

    def __init__(self, sink: SinkOptions) -> None:
        self._client = _krust.Client(sink.bootstrap, common_options(sink.client))
        self._patience_s = int(sink.client.get("delivery.timeout.ms", 120_000)) / 1000
        self._coordinators: dict[str, int] = {}

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def end(self, one: TaskTransaction, commit: bool) -> int:
        """Commit or abort. Returns the code of the answer, 0 also if that was done before.

        raises  UnreachableError: no coordinator answered in time
        """
        body = {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "committed": commit,
        }
        return self._ask(one.transactional_id, "EndTxn", body, 5 if one.is_v2 else 4)

    def fence(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id; its producer can do nothing more."""
        body = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        code = self._ask(transactional_id, "InitProducerId", body, None)
        check(code, f"transactional id {transactional_id!r}")

    def open_of(self, query: str) -> list[str]:
        """The transactional ids of a query's tasks that have an open transaction."""
        prefix = query_transactional_id(query) + ":"
        found = []
        for broker in self._client.request("Metadata", {"topics": []})["brokers"]:
            body = {"state_filters": ["Ongoing"]}
            answer = self._client.request("ListTransactions", body, broker=broker["node_id"])
            found += [one["transactional_id"] for one in answer["transaction_states"]]
        return [name for name in found if name.startswith(prefix)]

    def was_aborted(self, one: TaskTransaction) -> bool:
        """Whether an ended transaction was aborted, as the log has it.

        Partitions whose rows are deleted do not tell. If none tells, it counts as committed: what a
        commit would have shown is not there any more.
        """
        for span in one.ranges:
            found = self._aborted_in(one, span)
            if found is not None:
                return found
        LOG.info("The log does not tell how %s ended; its rows are deleted.", one)
        return False

    def rows(self, one: TaskTransaction, span: RowRange) -> Iterator[Record]:
        """The rows of a transaction in one partition, whether it was aborted or not."""
        offset = span.first
        while offset <= span.last:
            answer = self._fetch(span, offset, committed=False)
            if answer is None:  # the start of the log is behind this offset
                offset = max(offset + 1, self.log_start(span))
                continue
            got = answer["records"] or b""
            end = offset
            for base, after, batch in _batches(got):
                end = after
                if after > offset and base <= span.last and _is_of(batch, one):
                    yield from _krust.records(span.topic, span.partition, offset, batch)
            offset = max(end, offset + 1)

    def log_start(self, span: RowRange) -> int:
        """Where the log of a partition begins."""
        moments = [(span.topic, span.partition, _krust.EARLIEST)]
        [(*_, offset, _)] = self._client.list_offsets(moments)
        return offset

    def _aborted_in(self, one: TaskTransaction, span: RowRange) -> bool | None:
        """None: the rows are deleted."""
        end = time.monotonic() + self._patience_s
        while True:
            answer = self._fetch(span, span.first, committed=True)
            if answer is None:
                return None
            if answer["last_stable_offset"] > span.last:
                aborted = answer["aborted_transactions"] or ()
                key = (one.producer_id, span.first)
                return any((each["producer_id"], each["first_offset"]) == key for each in aborted)
            if time.monotonic() > end:
                raise UnreachableError(f"{one.transactional_id!r} is still open in the log")
            time.sleep(_PAUSE_S)

    def _fetch(self, span: RowRange, offset: int, *, committed: bool) -> Any:
        """One answer of the leader. None: the offset or the topic is not there."""
        wanted = {
            "partition": span.partition,
            "fetch_offset": offset,
            "partition_max_bytes": 1 if committed else _FETCH_BYTES,
        }
        body = {
            "max_wait_ms": 100,
            "max_bytes": 1 if committed else _FETCH_BYTES,
            "isolation_level": int(committed),
            "topics": [{"topic": span.topic, "partitions": [wanted]}],
        }
        end = time.monotonic() + self._patience_s
        while True:
            code, answer = self._leader(span)
            if code == 0:
                found = self._client.request("Fetch", body, _FETCH_BY_NAME, broker=answer)
                answer = found["responses"][0]["partitions"][0]
                code = found["error_code"] or answer["error_code"]
            if code == Code.NONE:
                return answer
            if code == Code.OFFSET_OUT_OF_RANGE:
                return None
            error = refused(code, f"{span.topic}:{span.partition} from offset {offset}")
            if not error.retriable:
                raise error
            if time.monotonic() > end:
                if code == Code.UNKNOWN_TOPIC_OR_PARTITION:  # a broker that starts says so, too
                    return None
                raise error
            time.sleep(_PAUSE_S)

    def _leader(self, span: RowRange) -> tuple[int, int]:
        """An error code, and the leader."""
        body = {"topics": [{"name": span.topic}], "allow_auto_topic_creation": False}
        [topic] = self._client.request("Metadata", body)["topics"]
        for one in topic["partitions"]:
            if one["partition_index"] == span.partition:
                return one["error_code"], one["leader_id"]
        return topic["error_code"] or Code.UNKNOWN_TOPIC_OR_PARTITION, -1

    def _ask(
        self, transactional_id: str, api: str, body: dict[str, Any], newest: int | None
    ) -> int:
        """Ask a coordinator until it has done it or refused it."""
        end = time.monotonic() + self._patience_s
        while True:
            pause_s, error = _PAUSE_S, None
            try:
                node = self._coordinator(transactional_id)
                version = None
                if newest is not None:
                    version = newest_at(self._client, node, _END_TXN, newest)
                answer = self._client.request(api, body, version, broker=node)
                code = int(answer["error_code"])
            except (UnreachableError, KafkaError) as failed:
                code, error = getattr(failed, "code", 0), failed
            if error is None and code not in MOVING and code != Code.CONCURRENT_TRANSACTIONS:
                return code
            if isinstance(error, KafkaError) and not error.retriable:
                raise error
            if code == Code.CONCURRENT_TRANSACTIONS:
                pause_s = _SHORT_PAUSE_S
            else:
                self._coordinators.pop(transactional_id, None)
            if time.monotonic() > end:
                raise error or refused(code, f"{api} of {transactional_id!r}")
            time.sleep(pause_s)

    def _coordinator(self, transactional_id: str) -> int:
        node = self._coordinators.get(transactional_id)
        if node is None:
            found = find(self._client, transactional_id, _OF_TRANSACTIONS)
            check(found["error_code"], f"the coordinator of {transactional_id!r}")
            node = self._coordinators[transactional_id] = int(found["node_id"])
        return node


def _batches(fetched: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The whole batches of an answer to Fetch: first offset, offset after the last, bytes."""
    at = 0
    while at + 61 <= len(fetched):
        base = int.from_bytes(fetched[at : at + 8], "big")
        size = 12 + int.from_bytes(fetched[at + 8 : at + 12], "big")
        if at + size > len(fetched):
            return
        last_delta = int.from_bytes(fetched[at + 23 : at + 27], "big")
        yield base, base + last_delta + 1, fetched[at : at + size]
        at += size


def _is_of(batch: bytes, one: TaskTransaction) -> bool:
    """Whether a batch has rows of this transaction. Its producer id and epoch are its alone."""
    is_control = int.from_bytes(batch[21:23], "big") & _CONTROL
    producer_id = int.from_bytes(batch[43:51], "big", signed=True)
    epoch = int.from_bytes(batch[51:53], "big", signed=True)
    return not is_control and (producer_id, epoch) == (one.producer_id, one.epoch)
