"""kill -9 of the broker under transactions: a read_committed reader sees each one whole or not.

One test kills the broker at any moment. The other kills it, or the client, at a named point of a
transaction's end. The product has no hook for that: strace kills the broker at its n-th write to
some logs, and that write does not happen. The markers come after the record of the decision, and
the record that the transaction is complete after them, so a write is a point:

    before prepare    the decision, by EndTxn or by the abort timer, is not in the log
    after prepare     it is, and no partition has its marker
    between markers   some partitions have their marker
    before complete   all have
    in replay         a broker that was killed there is killed again as it replays the decision
    before EndTxn     the client is killed with its transaction open
    EndTxn waits      the client is killed with its EndTxn sent, and before the broker reads it

The producers are confluent-kafka's and krust's.
KRUST_TXN_KILLS: how many kills (20); a fifth of them is random.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from krust.errors import KrustError
from tests.faults.transactional_client import (
    EACH,
    LIBRARIES,
    PARTITIONS,
    TOPIC,
    WAIT_S,
    AnyProducer,
    close,
    send,
    transactional,
)
from tests.ports import free_port
from tests.serving import NotReadyError, ServedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import Future

KILLS = int(os.environ.get("KRUST_TXN_KILLS", "20"))
RANDOM_KILLS = KILLS // 5
OPTIONS: dict[str, object] = {
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}
SHORTEST_MS = 1000
"""the shortest timeout of a transaction that librdkafka takes"""
READ_DELAY_US = 150_000
"""each read of the coordinator's log takes so long while a replay is awaited"""
WRITES = "pwrite64,pwritev,pwritev2"
READS = "pread64,preadv"


class Transactions:
    """One transaction after the other, on a thread. Of each it is known how it ended, or not.

    Each library has numbers of its own.
    """

    def __init__(self, bootstrap: str, library: str) -> None:
        self._bootstrap, self._library = bootstrap, library
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Wait until so many more are committed."""
        wanted = len(self.committed) + count
        until(lambda: len(self.committed) >= wanted)

    def stop(self) -> None:
        """End after the transaction that runs."""
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        producer, number = self._next_producer(), LIBRARIES.index(self._library)
        while not self._stops.is_set():
            commits = number // len(LIBRARIES) % 3 != 2
            try:
                send(producer, number)
                if commits:
                    producer.commit_transaction(WAIT_S)
                    self.committed.add(number)
                else:
                    self.aborted.add(number)
                    producer.abort_transaction(WAIT_S)
            except (KafkaException, KrustError):
                close(producer)
                producer = self._next_producer()
            number += len(LIBRARIES)
        close(producer)

    def _next_producer(self) -> AnyProducer:
        return transactional(self._library, self._bootstrap, f"killed-{self._library}")


class Reader:
    """Counts the records of each transaction that a read_committed reader sees, from the first."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: Counter[int] = Counter()
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reads",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])

    def until_whole(self, number: int) -> None:
        """Read until all records of a transaction were seen."""
        until(lambda: self._poll() and self.seen[number] >= EACH)

    def to_the_end(self) -> Counter[int]:
        """Read until the end of each partition was seen; what was seen in all."""
        self._ended.clear()
        until(lambda: self._poll() and len(self._ended) == PARTITIONS)
        return self.seen

    def high_watermarks(self) -> list[int]:
        """Of each partition."""
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return [self._consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places]

    def close(self) -> None:
        self._consumer.close()

    def _poll(self) -> bool:
        for message in self._consumer.consume(1000, 0.05):
            value, error = message.value(), message.error()
            if error is None and isinstance(value, bytes):
                self.seen[int(value)] += 1
            elif error is not None and error.name() == "_PARTITION_EOF":
                self._ended.add(message.partition() or 0)
        return True


@contextmanager
def serving(place: Path) -> Iterator[Served]:
    """A broker with the topic, and whatever is started in its place."""
    served = Served(place)
    try:
        served.create()
        yield served
    finally:
        if served.broker.process.poll() is None:
            served.broker.kill()


class Served:
    """A broker that is killed and started again, on one directory and one port."""

    def __init__(self, place: Path) -> None:
        self.place, self._port = place, free_port()
        self.kills = 0
        self.broker = self._start()

    def _start(self, *within: str) -> ServedBroker:
        return ServedBroker(self.place, options=OPTIONS, port=self._port, within=within)

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)

    def kill(self) -> None:
        """Kill it now."""
        self.broker.kill()
        self.kills += 1

    def start(self) -> None:
        self.broker = self._start()

    @contextmanager
    def killed_at(self, point: Point) -> Iterator[None]:
        """It is killed at a point that what happens within leads to; then it starts again."""
        paths = [self._log("__transaction_state", 0)] if point.of_coordinator else []
        paths += [self._log(TOPIC, each) for each in range(PARTITIONS)] if point.of_data else []
        inject = f"inject={WRITES}:signal=KILL:when={point.write}"
        self._wait_for_markers()
        before = self._batches()
        with tracing(self.broker.pid, paths, f"trace={WRITES}", inject) as tracer:
            yield
            self.broker.process.wait(WAIT_S)
            tracer.wait(WAIT_S)
        grown = [now - then for now, then in zip(self._batches(), before, strict=True)]
        assert grown[0] == point.decided, point
        assert sum(grown[1:]) == point.markers, point
        self.kill()
        if point.in_replay:
            self._kill_in_replay()
        self.start()

    def _wait_for_markers(self) -> None:
        """Wait until no transaction is between its decision and its last record."""
        asked = {"state_filters": ["PrepareCommit", "PrepareAbort"], "producer_id_filters": []}
        client = Client(self.broker.bootstrap)
        until(lambda: client.request("ListTransactions", asked)["transaction_states"] == [])

    def _kill_in_replay(self) -> None:
        """Start it with slow reads of the coordinator's log, and kill it as its replay runs."""
        log = self._log("__transaction_state", 0)
        slow = f"inject={READS}:delay_enter={READ_DELAY_US}"
        command = ["strace", "-f", "-o", "/dev/null", "-P", str(log), "-e", f"trace={READS}"]
        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(lambda: until(kill_replaying_child))
            with suppress(NotReadyError):
                self.broker = self._start(*command, "-e", slow)
            assert killed.result()
        self.kill()

    def _batches(self) -> list[int]:
        """How many batches there are in the coordinator's log and in each of the topic."""
        logs = [self._log(TOPIC, each) for each in range(PARTITIONS)]
        return [batches(log) for log in (self._log("__transaction_state", 0), *logs)]

    def _log(self, topic: str, partition: int) -> Path:
        return self.place / f"{topic}-{partition}" / f"{0:020}.log"


@contextmanager
def tracing(pid: int, paths: list[Path], *expressions: str) -> Iterator[subprocess.Popen[str]]:
    """strace of a process, from now on."""
    command = ["strace", "-f", "-p", str(pid), "-o", "/dev/null"]
    for path in paths:
        command += ["-P", str(path)]
    for expression in expressions:
        command += ["-e", expression]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        first = tracer.stderr.readline()
        assert "attached" in first, first
        try:
            yield tracer
        finally:
            tracer.terminate()


def batches(log: Path) -> int:
    """How many batches a log has; each begins with its offset and its length."""
    data, at, count = log.read_bytes(), 0, 0
    while at < len(data):
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        count += 1
    return count


def kill_replaying_child() -> bool:
    """Kill the grandchild of this process whose thread replays the coordinator's log, if any."""
    for child in children(os.getpid()):
        for pid in children(child):
            with suppress(FileNotFoundError, ProcessLookupError):
                tasks = Path(f"/proc/{pid}/task").iterdir()
                if "krust-txn-load" in {(task / "comm").read_text().strip() for task in tasks}:
                    os.kill(pid, signal.SIGKILL)
                    return True
    return False


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


class Point(NamedTuple):
    """Where a transaction is cut off.

    write         the write at which the broker is killed
    of_coordinator, of_data   which logs count
    decided       whether the decision is in the log then
    markers       how many partitions have their marker then
    in_replay     whether its next start is killed too
    """

    name: str
    write: int
    of_coordinator: bool
    of_data: bool
    decided: bool
    markers: int
    in_replay: bool = False


BEFORE_PREPARE = Point("before prepare", 1, True, False, decided=False, markers=0)
AFTER_PREPARE = Point("after prepare", 1, False, True, decided=True, markers=0)
BETWEEN_MARKERS = Point("between markers", 3, False, True, decided=True, markers=2)
# strace counts the writes of each thread, and another thread writes the decision.
BEFORE_COMPLETE = Point("before complete", 5, True, True, decided=True, markers=PARTITIONS)


def and_in_replay(point: Point) -> Point:
    return point._replace(name=f"{point.name}, in replay", in_replay=True)


ENDS = {
    "commit": [BEFORE_PREPARE, BETWEEN_MARKERS, BEFORE_COMPLETE, and_in_replay(AFTER_PREPARE)],
    "abort": [BEFORE_PREPARE, AFTER_PREPARE, BEFORE_COMPLETE, and_in_replay(BETWEEN_MARKERS)],
    "timer": [BEFORE_PREPARE, AFTER_PREPARE, BETWEEN_MARKERS, BEFORE_COMPLETE],
}
"""Who ends a transaction, and where the broker is killed then."""
KINDS = sum(map(len, ENDS.values())) + 2
"""these, and two kills of clients"""


class Cuts:
    """Transactions that are cut off, one after the other, and what must be left of each."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.bootstrap = served.broker.bootstrap
        self.number = 0
        self.committed: set[int] = set()
        self.in_doubt: set[int] = set()
        self.happened: Counter[str] = Counter()
        self.client_kills = 0
        self._library = LIBRARIES[0]
        self._producers = {each: self._transactional(each) for each in LIBRARIES}
        self._pool = ThreadPoolExecutor(1)

    @property
    def kills(self) -> int:
        return self.served.kills + self.client_kills

    def _transactional(self, library: str, timeout_ms: int = 60_000) -> AnyProducer:
        return transactional(library, self.bootstrap, f"cut-{library}", timeout_ms)

    def choose_library(self, count: int) -> None:
        """Choose who has the cut after so many: each library has every second kind by turns."""
        turns, kind = divmod(count, KINDS)
        self._library = LIBRARIES[(turns + kind) % len(LIBRARIES)]

    def kinds(self) -> Iterator[Callable[[], None]]:
        """All ways to cut one off, again and again."""

        def bound(end: str, point: Point) -> Callable[[], None]:
            return lambda: self.broker_killed(end, point)

        kinds = [bound(end, point) for end, points in ENDS.items() for point in points]
        kinds += [self.client_killed_before_end_txn, self.client_killed_in_end_txn]
        return cycle(kinds)

    def broker_killed(self, end: str, point: Point) -> None:
        """The broker is killed as a transaction ends. A client that ends it does not notice."""
        self.happened[f"{self._library}, {end}: {point.name}"] += 1
        if end == "timer":
            self._replace_producer(SHORTEST_MS)
        producer = self._producers[self._library]
        send(producer, self.number)
        producer.flush(WAIT_S)
        ended: Future[None] | None = None
        with self.served.killed_at(point):
            if end == "commit":
                ended = self._pool.submit(producer.commit_transaction, WAIT_S)
            elif end == "abort":
                ended = self._pool.submit(producer.abort_transaction, WAIT_S)
        if ended is not None:
            ended.result()
        if end == "commit":
            self.committed.add(self.number)
        if end == "timer":
            self._replace_producer()
        self.number += 1

    def client_killed_before_end_txn(self) -> None:
        """The next producer of the id aborts what is open."""
        self.happened[f"{self._library}, client: before EndTxn"] += 1
        with self._client() as client:
            client.kill()
        self._next_producer()

    def client_killed_in_end_txn(self) -> None:
        """Nobody learns how it ended, but it ended whole."""
        self.happened[f"{self._library}, client: EndTxn waits"] += 1
        broker = self.served.broker
        with self._client() as client:
            broker.process.send_signal(signal.SIGSTOP)
            try:
                until(lambda: is_stopped(broker.pid))
                assert client.stdin is not None
                client.stdin.write("commit\n")
                client.stdin.flush()
                until(lambda: has_unread_bytes(broker.address[1]))
                client.kill()
            finally:
                broker.process.send_signal(signal.SIGCONT)
        self.in_doubt.add(self.number)
        self._next_producer()

    def _next_producer(self) -> None:
        self.client_kills += 1
        self.number += 1
        self._replace_producer()

    def _replace_producer(self, timeout_ms: int = 60_000) -> None:
        close(self._producers[self._library])
        self._producers[self._library] = self._transactional(self._library, timeout_ms)

    def close(self) -> None:
        """End all producers."""
        for producer in self._producers.values():
            close(producer)

    @contextmanager
    def _client(self) -> Iterator[subprocess.Popen[str]]:
        """A process with an open transaction whose records have all arrived."""
        command = [sys.executable, "-m", "tests.faults.transactional_client"]
        command += [self._library, self.bootstrap, f"cut-{self._library}", str(self.number)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "sent\n"
            yield client


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs any more: a signal takes a moment."""
    stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.rpartition(") ")[2].startswith("T") for stat in stats)


def has_unread_bytes(port: int) -> bool:
    """Whether something that was sent to a port of this host waits to be read."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        local, received, state = words[1], words[4].partition(":")[2], words[3]
        if state == "01" and int(local.partition(":")[2], 16) == port and int(received, 16):
            return True
    return False


@pytest.mark.timeout(max(300, KILLS * 20))
def test_each_transaction_is_seen_whole_or_not_at_all_after_kills(tmp_path: Path) -> None:
    chance = random.Random(20261126)
    with serving(tmp_path / "data") as served:
        running = [Transactions(served.broker.bootstrap, each) for each in LIBRARIES]
        try:
            while served.kills < RANDOM_KILLS:
                chance.choice(running).until_more(chance.randrange(5, 60))
                served.kill()
                served.start()
        finally:
            for transactions in running:
                transactions.stop()
        reader = Reader(served.broker.bootstrap)
        seen = reader.to_the_end()
        reader.close()
    committed = {number for each in running for number in each.committed}
    assert {seen[number] for number in committed} == {EACH}
    assert not seen.keys() & {number for each in running for number in each.aborted}
    assert set(seen.values()) == {EACH}
    print(f"{served.kills} kills, {len(committed)} transactions committed")


@pytest.mark.timeout(max(300, KILLS * 20))
@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace here")
def test_a_transaction_that_is_cut_off_at_a_named_point_ends_as_it_was_decided(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "data") as served:
        cuts, reader = Cuts(served), Reader(served.broker.bootstrap)
        for count, cut_off in enumerate(cuts.kinds()):
            cuts.choose_library(count)
            cut_off()
            if cuts.number - 1 in cuts.committed:
                reader.until_whole(cuts.number - 1)
            if cuts.kills >= KILLS - RANDOM_KILLS:
                break
        seen = reader.to_the_end()
        wanted = dict.fromkeys(cuts.committed | (cuts.in_doubt & seen.keys()), EACH)
        assert seen == wanted, cuts.happened
        # Each partition has each transaction's records, and one marker for each.
        offsets = cuts.number * (EACH // PARTITIONS + 1)
        assert reader.high_watermarks() == [offsets] * PARTITIONS
        reader.close()
        cuts.close()
    print(f"{cuts.kills} kills, {cuts.number} transactions: {dict(cuts.happened)}")
