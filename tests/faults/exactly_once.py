"""The bank and the copy: processes with transactional producers, and what must be true at the end.

`Workload` runs tellers and copiers (`exactly_once_client.py`) of several libraries, kills and
suspends them, and starts the next process with a transactional id whenever one has ended.
`Workload.check` reads with read_committed and demands:

    bank    the transfers of a teller are numbered without a gap, each is there once and whole, in
            order in each partition, and no aborted one is; after each the sum of the teller's
            accounts is what it was at first; each transfer that a teller was told is committed is
            there, and at most one more a process
    copy    after two hops each input is there once

A reader that follows a topic all the time must have seen the same as one that comes at the
end. A process that was suspended while its successor came is a zombie: it must end without another
commit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.faults.exactly_once_client import ACCOUNTS, BALANCE, OWNED, PARTITIONS, read_committed
from tests.transaction_version import finalize, finalized
from tests.waiting import WAIT_S, until

HOPS = ("first", "second", "last")
TOPICS = (ACCOUNTS, *HOPS)
BROKER: dict[str, object] = {
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
"""settings of a broker"""
VERSION = os.environ.get("KRUST_TXN_VERSION", "")
"""the level of transaction.version, if it is not the default"""
FEED = 3
"""inputs that come at once"""
BACKLOG = 600
"""inputs that may wait to be copied"""
PAUSE_S = 0.02
"""between two looks at clients"""


class Processes:
    """The processes of one transactional id, one after the other."""

    def __init__(self, place: Path, *words: str) -> None:
        self._words = words
        self.name = words[3]
        self.told: list[int] = []
        """the numbers that its processes printed"""
        self.told_by_latest = 0
        """how many of them its latest process did"""
        self.starts = 0
        self._errors = place / f"{self.name}.stderr"
        self._starting = threading.Lock()
        self._readers: list[threading.Thread] = []
        self._zombies: list[subprocess.Popen[str]] = []
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.faults.exactly_once_client", *self._words]
        with self._errors.open("ab") as errors:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, text=True
            )
        self.starts += 1
        self.told_by_latest = 0
        self._readers.append(threading.Thread(target=self._read, args=(self.process,)))
        self._readers[-1].start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        with process:  # waits for it and closes its pipes
            assert process.stdout is not None
            for line in process.stdout:
                self.told.append(int(line))
                self.told_by_latest += process is self.process

    def tend(self) -> None:
        """Start the next process if the last has ended."""
        with self._starting:
            if self.process.poll() is not None:
                self._start()

    def kill(self) -> None:
        self.process.kill()

    def suspend(self) -> None:
        """Suspend its process, and start the next one."""
        with self._starting:
            self.process.send_signal(signal.SIGSTOP)
            self._zombies.append(self.process)
            self._start()

    def resume(self) -> None:
        """Let the suspended processes go on. They must end by themselves, as they are fenced."""
        for zombie in self._zombies:
            zombie.send_signal(signal.SIGCONT)
            assert zombie.wait(WAIT_S) != 0, self.errors()
        self._zombies.clear()

    def stop(self) -> None:
        """Let the process end after its transaction."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)

    def close(self) -> None:
        """End all processes now."""
        for process in (self.process, *self._zombies):
            process.kill()
        for reader in self._readers:
            reader.join()

    def errors(self) -> str:
        return self._errors.read_text()

    def says_where_it_is(self) -> bool:
        """Have the process write its stack to its errors; whether it has."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
        return self.process.poll() is not None or "Current thread" in self.errors()


class Follower:
    """A read_committed reader of a topic that never rests."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        where = {"bootstrap.servers": bootstrap, "group.id": "follower", "log_level": 0}
        more = {"isolation.level": "read_committed", "reconnect.backoff.max.ms": 200}
        self._consumer = Consumer({**where, **more})
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        self.seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """the values of each partition"""
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __len__(self) -> int:
        return sum(map(len, self.seen))

    def has(self, number: int) -> bool:
        """Whether it has seen so many."""
        return len(self) >= number

    def _run(self) -> None:
        while not self._stops.is_set():
            for message in self._consumer.consume(1000, 0.1):
                value = message.value()
                if message.error() is None and isinstance(value, bytes):
                    self.seen[message.partition() or 0].append(value)
        self._consumer.close()

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()


class Workload:
    """Tellers, copiers, a source and followers. See the module.

    A thread starts the next process of each client whose last one has ended, and feeds the copy.
    """

    def __init__(self, bootstrap: str, place: Path, seed: int) -> None:
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        if VERSION:
            finalize(bootstrap, int(VERSION))
        self._version = finalized(bootstrap)
        self.inputs = 0
        self.happened: Counter[str] = Counter()
        """what was done to clients"""
        self.waits_for: list[str] = []
        """the clients that have committed nothing since the last fault"""
        libraries = self._chance.sample(["confluent", "aiokafka", "krust"], 3)
        self.tellers = [
            Processes(place, "teller", library, bootstrap, f"teller-{library}")
            for library in libraries
        ]
        self.copiers = [
            Processes(place, "copier", library, bootstrap, f"copy-to-{target}", source, target)
            for library, source, target in zip(libraries, HOPS, HOPS[1:], strict=False)
        ]
        self.followers = {topic: Follower(bootstrap, topic) for topic in (ACCOUNTS, HOPS[-1])}
        self._source = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._feeds, self._stops = threading.Event(), threading.Event()
        self._feeds.set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def clients(self) -> list[Processes]:
        return [*self.tellers, *self.copiers]

    def told(self) -> int:
        """How often a process said that it has committed."""
        return sum(len(client.told) for client in self.clients)

    def _run(self) -> None:
        while not self._stops.wait(PAUSE_S):
            for client in self.clients:
                client.tend()
            self._source.poll(0)
            if self._feeds.is_set() and self.inputs - len(self.followers[HOPS[-1]]) < BACKLOG:
                for number in range(self.inputs, self.inputs + FEED):
                    value = f"{number}".encode()
                    self._source.produce(HOPS[0], value, partition=number % PARTITIONS)
                self.inputs += FEED

    def progress(self) -> None:
        """Wait until every client has committed something new, for WAIT_S each."""
        before = [len(client.told) for client in self.clients]
        for client, told in zip(self.clients, before, strict=True):
            self._waits_for(client, told)

    def _waits_for(self, client: Processes, before: int) -> None:
        self.waits_for = [client.name]
        until(lambda: len(client.told) > before)

    def kinds(self) -> list[Callable[[], None]]:
        """What may happen to clients."""
        return [self.kills_a_client, self.makes_a_zombie]

    def kills_a_client(self) -> None:
        client = self._chance.choice(self.clients)
        self.happened["kills"] += 1
        client.kill()

    def makes_a_zombie(self) -> None:
        """A process goes on after its successor has begun."""
        client = self._chance.choice(self.tellers)
        self.happened["zombies"] += 1
        client.suspend()
        until(lambda: client.told_by_latest)
        client.resume()

    def check(self) -> None:
        """Let everybody end, and read what is there."""
        self._feeds.clear()
        assert self._source.flush(WAIT_S) == 0
        until(lambda: len(self.followers[HOPS[-1]]) >= self.inputs)
        self._end()
        for client in self.clients:
            client.stop()
        committed = {topic: committed_values(self._bootstrap, topic) for topic in TOPICS}
        for topic, follower in self.followers.items():
            until(partial(follower.has, sum(map(len, committed[topic]))))
            assert follower.seen == committed[topic], topic
        for topic in HOPS:
            copied = Counter(int(value) for values in committed[topic] for value in values)
            assert copied == dict.fromkeys(range(self.inputs), 1), topic
        for teller in self.tellers:
            check_teller(teller, committed[ACCOUNTS])

    def diagnosis(self) -> str:
        """What the clients wait for."""
        late = [client for client in self.clients if client.name in self.waits_for]
        for client in late:
            until(client.says_where_it_is)
        texts = [f"{each.name}:\n{each.errors()}" for each in self.clients]
        return "\n".join([f"these wait: {self.waits_for}", self.summary(), *texts])

    def summary(self) -> str:
        """What was done."""
        transfers = sum(len(teller.told) for teller in self.tellers)
        processes = sum(client.starts for client in self.clients)
        done = f"{transfers} transfers, {self.inputs} inputs copied twice, {processes} processes"
        version = f"transaction.version {self._version}"
        return f"{done}, clients: {dict(self.happened)}, {version}"

    def _end(self) -> None:
        self._stops.set()
        self._thread.join()

    def close(self) -> None:
        self._end()
        for client in self.clients:
            client.close()
        for follower in self.followers.values():
            follower.stop()


def committed_values(bootstrap: str, topic: str) -> list[list[bytes]]:
    """The committed values of each partition. No transaction is open any more."""
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for partition, value in read_committed(bootstrap, topic):
        found[partition].append(value)
    return found


def check_teller(teller: Processes, accounts: list[list[bytes]]) -> None:
    """What the module promises of a teller."""
    transfers: dict[int, dict[int, int]] = {}
    for values in accounts:
        before = -1
        for record in map(json.loads, values):
            if record["teller"] != teller.name:
                continue
            number, account = record["number"], record["account"]
            assert record["commits"], (record, "was aborted")
            assert number >= before, (record, "comes after", before)
            changed = transfers.setdefault(number, {})
            assert account not in changed, (record, "is there twice")
            before, changed[account] = number, record["balance"]
    assert sorted(transfers) == list(range(len(transfers))), teller.name
    assert set(teller.told) <= transfers.keys(), (teller.name, "lost")
    assert len(transfers) <= len(teller.told) + teller.starts, teller.name
    balances: dict[int, int] = {}
    for number in range(len(transfers)):
        assert len(transfers[number]) == (2 if number else OWNED), (teller.name, number, "is torn")
        balances |= transfers[number]
        assert sum(balances.values()) == OWNED * BALANCE, (teller.name, number)
