"""A stream of a ConsumerConnector: an iterator of records for one thread of the application.

The connector's thread gives it partitions and takes them away between two fetches, which last at
most SLICE_S. As in Kafka 0.8, a record counts as consumed when it is returned, so a commit may
include a record that the application has not handled yet.
Threads: one thread at a time calls `next`, the connector's thread all other methods.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krust import _krust
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import KafkaError, KrustError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    from krust._krust import Record

SLICE_S = 0.05
_LIMIT = 500


class ConsumerTimeoutError(KrustError):
    """No record came in `consumer.timeout.ms`. The stream can be read again."""

    retriable = True


class KafkaStream:
    """A stream; see the module.

    core      options of `_krust.Consumer`
    reset     where to begin without a valid offset: `_krust.LATEST`, EARLIEST
    patience  how long `next` waits for a record, in seconds; None: without limit
    """

    def __init__(self, core: Mapping[str, object], reset: int, patience_s: float | None) -> None:
        self._options = {**core, "krust.report.out.of.range": "true"}
        self._reset = reset
        self._patience_s = patience_s
        self._core: _krust.Consumer | None = None
        self._client: _krust.Client | None = None
        self._calm = threading.Condition()
        self._wanted = 0
        self._failure: BaseException | None = None
        self._busy = self._halted = self._closed = False
        self._positions: dict[TopicPartition, int] = {}
        self._ahead: list[tuple[str, int, int]] = []
        self._fresh: set[TopicPartition] = set()
        self._rest: deque[Record] = deque()
        self._pid = os.getpid()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        """The next record. The iterator ends when the connector is shut down.

        raises  ConsumerTimeoutError: none in time; KafkaError: a partition is refused for good
        """
        if os.getpid() != self._pid and self._core is not None:
            self._core.done()  # raises ForkedError
        until = None if self._patience_s is None else time.monotonic() + self._patience_s
        while True:
            with self._calm:
                while self._wanted:
                    self._calm.wait()
                if self._closed:
                    if self._failure is not None:
                        raise self._failure
                    raise StopIteration
                if self._rest and not self._halted:
                    return self._next()
                if until is not None and time.monotonic() >= until:
                    raise ConsumerTimeoutError("no record came in time")
                core, client = self._core, self._client
                if self._halted or core is None or client is None or not self._some:
                    self._calm.wait(SLICE_S)
                    continue
                self._busy = True
            try:
                self._fetch(core, client)
            except (KafkaError, UnreachableError) as error:
                if not error.retriable:
                    raise
                time.sleep(SLICE_S)
            finally:
                with self._calm:
                    self._busy = False
                    self._calm.notify_all()

    @property
    def places(self) -> set[TopicPartition]:
        """The partitions of the stream."""
        return {*self._positions, *self._fresh}

    def connect(self, bootstrap: str, client: Mapping[str, object]) -> None:
        """Use other brokers from now on."""
        with self._between():
            self._disconnect()
            self._core = _krust.Consumer(bootstrap, self._options)
            self._client = _krust.Client(bootstrap, {**client})
            self._rest.clear()
            self._ahead.clear()
            self._core.assign([(*place, at, None) for place, at in self._positions.items()])

    def take(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Add partitions, with an offset, or None: as `auto.offset.reset` says."""
        with self._between():
            known = {place: at for place, at in offsets.items() if at is not None}
            self._positions |= known
            self._fresh |= offsets.keys() - known.keys()
            if self._core is not None:
                self._core.assign([(*place, at, None) for place, at in known.items()], keep=True)

    def drop(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Remove partitions. Returns their positions."""
        with self._between():
            gone = self.places & {*places}
            self._fresh -= gone
            found = {p: self._positions.pop(p) for p in gone if p in self._positions}
            self._rest = deque(each for each in self._rest if _place(each) not in gone)
            self._ahead = [each for each in self._ahead if (each[0], each[1]) not in gone]
            if self._core is not None:
                self._core.unassign([*gone])
            return found

    def positions(self) -> dict[TopicPartition, int]:
        """Partition -> the offset after the last record that was returned."""
        with self._calm:
            return dict(self._positions)

    def halt(self, halted: bool) -> None:
        """Return no record while `halted`, because another member may have the partitions."""
        with self._between():
            self._halted = halted

    def close(self, failure: BaseException | None = None) -> None:
        """End the iterator and its connections. After a failure `next` raises it."""
        with self._between():
            self._closed, self._failure = True, failure
            self._disconnect()

    def _disconnect(self) -> None:
        for one in (self._core, self._client):
            if one is not None:
                one.close()
        self._core = self._client = None

    @property
    def _some(self) -> bool:
        return bool(self._positions or self._fresh)

    @contextmanager
    def _between(self) -> Iterator[None]:
        """Hold the stream while no fetch runs and no record is returned."""
        with self._calm:
            self._wanted += 1
            try:
                while self._busy:
                    self._calm.wait()
                yield
            finally:
                self._wanted -= 1
                self._calm.notify_all()

    def _next(self) -> Record:
        record = self._rest.popleft()
        self._positions[_place(record)] = record.offset + 1
        if not self._rest:  # offsets after the last record that have no records
            for topic, partition, offset in self._ahead:
                self._positions[TopicPartition(topic, partition)] = offset
            self._ahead = []
        return record

    def _fetch(self, core: _krust.Consumer, client: _krust.Client) -> None:
        """Fetch records. `_busy` keeps other threads out."""
        out_of_range = [
            TopicPartition(topic, partition) for topic, partition, _ in core.out_of_range()
        ]
        if self._fresh or out_of_range:
            moments = [(*place, self._reset) for place in {*self._fresh, *out_of_range}]
            for topic, partition, _, offset, _ in client.list_offsets(moments):
                place = TopicPartition(topic, partition)
                self._positions[place] = offset
                if place in self._fresh:
                    core.assign([(*place, offset, None)], keep=True)
                else:
                    core.seek(topic, partition, offset)
            self._fresh.clear()
        found, places = core.poll(int(SLICE_S * 1000), _LIMIT)
        if found:
            self._rest.extend(found)
            self._ahead = places
        else:
            for topic, partition, offset in places:
                self._positions[TopicPartition(topic, partition)] = offset


def _place(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
