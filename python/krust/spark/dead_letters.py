"""Handles records that cannot be decoded: write them to a file or a topic, drop them, or fail.

    file   <table>/_bad/<job>-<batch>-<task>-<12 hex>.parquet, the record's columns and `reason`
    topic  the unchanged record, with headers krust.reason, .topic, .partition, .offset, .timestamp

Both at least once: a repeated task writes them again. Topic, partition and offset show duplicates.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust.decode import options
from krust.decode.rows import REASON
from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

FOLDER = "_bad"


class BadRecordError(KrustError):
    """A record cannot be decoded, and with `badRecords=fail` that fails the task."""


class BadRecords:
    """Writes the bad records of one task, at the end of its `with`.

    chosen  the options of decoding
    folder  the folder of the table; stem: the name of the task
    client  settings of a producer by Kafka's keys, including `bootstrap.servers`
    """

    def __init__(
        self, chosen: Mapping[str, str], folder: str, stem: str, client: Mapping[str, object]
    ) -> None:
        self.count = 0
        self._how = options.bad_records(chosen) if chosen else "drop"
        self._topic = chosen.get("deadLetterTopic", "")
        self._path = Path(folder) / FOLDER / f"{stem}-{secrets.token_hex(6)}.parquet"
        self._client = client
        self._producer: Any = None
        self._writer: Any = None

    def take(self, batch: pa.RecordBatch) -> None:
        """Add bad records with their reasons. BadRecordError: `badRecords=fail`."""
        self.count += batch.num_rows
        if self._how == "fail":
            first = batch.slice(0, 1).to_pylist()[0]
            raise BadRecordError(
                f"{first.get('topic')}/{first.get('partition')} offset {first.get('offset')} "
                f"cannot be decoded: {first[REASON]}",
                hint="badRecords=file keeps such records apart and goes on",
            )
        if self._how == "file":
            self._write(batch)
        elif self._how == "topic":
            self._send(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, batch.schema, compression="zstd")
        self._writer.write_batch(batch)

    def _send(self, batch: pa.RecordBatch) -> None:
        if self._producer is None:
            from krust.clients.producer import Producer

            self._producer = Producer(dict(self._client), linger_ms=20)
        for row in batch.to_pylist():
            self._producer.produce(self._topic, row["value"], row.get("key"), headers=_headers(row))

    def __enter__(self) -> BadRecords:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with producer:
                pass
        if self._writer is not None:
            self._writer.close()
            if kind is None:
                with self._path.open("rb") as file:
                    os.fsync(file.fileno())
            else:
                self._path.unlink(missing_ok=True)


def _headers(row: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    own = [(str(one["key"]), one["value"]) for one in row.get("headers") or ()]
    stamp = row.get("timestamp")
    headers = {
        "reason": row[REASON],
        "topic": row.get("topic"),
        "partition": row.get("partition"),
        "offset": row.get("offset"),
        "timestamp": None if stamp is None else int(stamp.timestamp() * 1000),
    }
    return own + [(f"krust.{name}", str(text).encode()) for name, text in headers.items()]
