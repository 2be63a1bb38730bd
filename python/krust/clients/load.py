"""Writes and reads many records with the core's clients, to measure a broker.

`krust bench` and the throughput benchmarks use it. A client is one thread that makes real batches
and reads real records, so its own cost is part of the measurement. It does not measure time: each
step returns what it did, and the caller decides when to stop.
Threads: one for each client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust import _krust

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STEP = 2000
"""The records of a step. Between steps the caller shows progress and handles Ctrl-C."""
_PATTERN = b"krust measures 0123456789 "
_FETCHED = 8 << 20

OffsetSpan = tuple[str, int, int, int]
"""Topic, partition, first offset, end."""


def value(size: int) -> bytes:
    """A value of `size` bytes that compresses well."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]


class Writer:
    """Writes one value many times, in full batches."""

    def __init__(self, bootstrap: str, properties: dict[str, object], topic: str) -> None:
        self._producer = _krust.Producer(bootstrap, properties | {"linger.ms": 1000})
        self._topic = topic

    def warm(self, data: bytes) -> None:
        """Write one record, so that connections and metadata are not part of the measurement."""
        self._producer.repeat(self._topic, data, 1)
        self.flush()

    def write(self, data: bytes, count: int | None) -> Iterator[int]:
        """Write `count` records (None: without end). Yields the size of each step.

        raises  the error of a failed batch
        """
        sent = 0
        while count is None or sent < count:
            step = STEP if count is None else min(STEP, count - sent)
            self._producer.repeat(self._topic, data, step)
            self._raise_failed()
            sent += step
            yield step

    def flush(self) -> None:
        """Wait until all is delivered."""
        self._producer.flush()
        self._raise_failed()

    def _raise_failed(self) -> None:
        for *_, error in self._producer.delivered():
            if error is not None:
                raise error


def spans(asked: _krust.Client, topic: str, partitions: Iterable[int]) -> list[OffsetSpan]:
    """The offset ranges of a topic's partitions."""
    numbers = list(partitions)
    starts = asked.list_offsets([(topic, number, _krust.EARLIEST) for number in numbers])
    ends = asked.list_offsets([(topic, number, _krust.LATEST) for number in numbers])
    end_of = {number: offset for _, number, _, offset, _ in ends}
    return [(name, number, start, end_of[number]) for name, number, _, start, _ in starts]


class Reader:
    """Reads the records of spans; each call starts again."""

    def __init__(
        self, bootstrap: str, properties: dict[str, object], what: list[OffsetSpan]
    ) -> None:
        own = {"max.partition.fetch.bytes": _FETCHED}
        self._consumer = _krust.Consumer(bootstrap, properties | own)
        self._what = what

    def read(self) -> Iterator[tuple[int, int]]:
        """Read all spans. Yields the records and bytes of each step."""
        self._consumer.assign([(name, number, at, end) for name, number, at, end in self._what])
        while not self._consumer.done():
            yield self._consumer.count(500)
