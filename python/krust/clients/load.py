"""Records by the thousand, written and read by the core's clients: what measures a broker.

`krust bench` and the throughput benches drive it. A client is one thread that makes real batches
and walks real records, so its own cost is in what is measured. Nothing here keeps time: each step
gives what it did, and whoever drives it decides when it is enough. A client is for one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust import _krust

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STEP = 2000
"""Records handed over at once, so that progress and Ctrl-C have their turn."""
_PATTERN = b"krust measures 0123456789 "
_FETCHED = 8 << 20

Span = tuple[str, int, int, int]
"""Topic, partition, first offset, end."""


def value(size: int) -> bytes:
    """A value of so many bytes, which codecs shrink well."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]


class Writer:
    """Writes one value again and again, in full batches."""

    def __init__(self, bootstrap: str, properties: dict[str, object], topic: str) -> None:
        self._producer = _krust.Producer(bootstrap, properties | {"linger.ms": 1000})
        self._topic = topic

    def warm(self, data: bytes) -> None:
        """Write one record: connections and metadata are not what is measured."""
        self._producer.repeat(self._topic, data, 1)
        self.flush()

    def write(self, data: bytes, count: int | None) -> Iterator[int]:
        """Write `count` records, or without end: the size of each step, once it is handed over.

        raises  what a batch failed with
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


def spans(asked: _krust.Client, topic: str, partitions: Iterable[int]) -> list[Span]:
    """What the partitions of a topic hold now."""
    numbers = list(partitions)
    starts = asked.list_offsets([(topic, number, _krust.EARLIEST) for number in numbers])
    ends = asked.list_offsets([(topic, number, _krust.LATEST) for number in numbers])
    end_of = {number: offset for _, number, _, offset, _ in ends}
    return [(name, number, start, end_of[number]) for name, number, _, start, _ in starts]


class Reader:
    """Walks the records of spans, again from their start whenever it is told."""

    def __init__(self, bootstrap: str, properties: dict[str, object], what: list[Span]) -> None:
        own = {"max.partition.fetch.bytes": _FETCHED}
        self._consumer = _krust.Consumer(bootstrap, properties | own)
        self._what = what

    def read(self) -> Iterator[tuple[int, int]]:
        """Read all of it from the start: records and bytes of the batches, step by step."""
        self._consumer.assign([(name, number, at, end) for name, number, at, end in self._what])
        while not self._consumer.done():
            yield self._consumer.count(500)
