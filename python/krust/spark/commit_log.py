"""The decisions of queries, in the compacted topic `__krust_spark_commits`.

A query's decisions are in one partition, by its id; so the number of partitions must not change.
Each decision is written in a transaction. `claim` fences every other process that decides for the
query and ends what it left open. What is read after that stays true until the next claim.
Cost: a reader reads its partition from where this process has read it before.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import TYPE_CHECKING, Any

from krust import _krust
from krust.closing import Closing
from krust.errors import Code, KafkaError, UnreachableError
from krust.spark.client_options import common_options
from krust.spark.decisions import TOPIC, Decision, query_transactional_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.clients.producer import Producer
    from krust.spark.options import SinkOptions

_PARTITIONS = 8
_MOST_REPLICAS = 3
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": 16 << 20, "max.message.bytes": 16 << 20}
"""A decision takes about 40 bytes for each task and partition, before compression."""
_TIMEOUT_MS = 10_000
"""transaction.timeout.ms of a decision; another query's decision may wait for its end"""
_read_before: dict[tuple[int, str, str], tuple[int, Decision | None]] = {}
"""By process, brokers and query: where to read on, and the last decision before that."""


class CommitLog(Closing):
    """The decisions of one query."""

    def __init__(self, sink: SinkOptions, query: str) -> None:
        self._sink, self.query = sink, query
        self._producer: Producer | None = None
        self._common = common_options(sink.client)
        self._client = _krust.Client(sink.bootstrap, dict(self._common))
        self._patience_s = int(sink.client.get("delivery.timeout.ms", 120_000)) / 1000

    def close(self) -> None:
        """End the connections."""
        self._client.close()
        if self._producer is not None:
            self._producer.close()

    def last(self) -> Decision | None:
        """The last decision that is committed. A decision in progress is left out."""
        return self._read(committed=True)

    def claim(self, timeout_ms: int = _TIMEOUT_MS) -> Decision | None:
        """Become the only process that decides for the query. Returns the last decision.

        timeout_ms  how long the transaction of the next decision may take
        """
        from krust.clients.producer import Producer

        self._create_topic()
        if self._producer is not None:
            self._producer.close()
        self._producer = Producer(
            {
                **self._sink.client,
                "bootstrap.servers": self._sink.bootstrap,
                "transactional.id": query_transactional_id(self.query),
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "compression.type": "gzip",
            }
        )
        self._producer.init_transactions()
        return self._read(committed=False)

    def decide(
        self, decision: Decision, write: Callable[[Producer], None] = lambda _: None
    ) -> None:
        """Write the decision, and rows in the same transaction. Needs a claim.

        raises  ProducerFencedError: another process has claimed the query since; UnreachableError:
                the decision may be written or not, which the next claim tells
        """
        producer = self._producer
        if producer is None:
            raise RuntimeError("decide needs claim")
        with producer.transaction():
            write(producer)
            producer.produce(TOPIC, decision.to_json(), self.query, self._partition())

    def _partition(self) -> int:
        [topic] = self._client.request("Metadata", _metadata_of(TOPIC))["topics"]
        if topic["error_code"]:
            from krust.clients.coordinator_client import refused

            raise refused(topic["error_code"], f"topic {TOPIC!r}")
        return zlib.crc32(self.query.encode()) % len(topic["partitions"])

    def _read(self, *, committed: bool) -> Decision | None:
        """Read up to the end of committed records, or wait until all records are settled."""
        try:
            partition = self._partition()
        except KafkaError as error:
            if committed and error.code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
        moments = [(TOPIC, partition, _krust.LATEST)]
        [(*_, end, _)] = self._client.list_offsets(moments, read_committed=committed)
        key = (os.getpid(), self._sink.bootstrap, self.query)
        start, found = _read_before.get(key, (0, None))
        if start > end:
            start, found = 0, None
        if start < end:
            found = self._read_range(partition, start, end) or found
            _read_before[key] = (end, found)
        return found

    def _read_range(self, partition: int, start: int, end: int) -> Decision | None:
        from krust.clients.consumer import Consumer

        given: dict[str, Any] = {**self._common, "bootstrap.servers": self._sink.bootstrap}
        given |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        found = None
        until = time.monotonic() + self._patience_s
        with Consumer(given) as consumer:
            consumer.assign([(TOPIC, partition, start)])
            while consumer.position(TOPIC, partition) < end:
                for record in consumer.poll(100):
                    if record.key == self.query.encode() and record.value is not None:
                        found = Decision.of_json(self.query, record.value)
                if time.monotonic() > until:
                    raise UnreachableError(f"{TOPIC}:{partition} has an open transaction")
        return found

    def _create_topic(self) -> None:
        from krust.clients.admin import Admin

        topics = self._client.request("Metadata", _metadata_of(TOPIC))
        if topics["topics"][0]["error_code"] != Code.UNKNOWN_TOPIC_OR_PARTITION:
            return
        replicas = min(_MOST_REPLICAS, len(topics["brokers"]))
        config = {**_CONFIG, "min.insync.replicas": max(1, replicas - 1)}
        with Admin({**self._common, "bootstrap.servers": self._sink.bootstrap}) as admin:
            try:
                admin.create_topic(TOPIC, _PARTITIONS, replication_factor=replicas, config=config)
            except KafkaError as error:
                if error.code != Code.TOPIC_ALREADY_EXISTS:
                    raise


def _metadata_of(topic: str) -> dict[str, Any]:
    return {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
