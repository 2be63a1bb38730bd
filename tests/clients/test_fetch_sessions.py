"""Fetch sessions (KIP-227): a consumer says only what changed, and reads what it would have read.

Each broker tells its clients to come through a proxy that sees how long their Fetches are and may
answer one itself, as a broker that has lost the session does.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import krust
from krust import _krust
from krust.clients.consumer import Consumer
from krust.errors import KafkaError
from tests.clients.conftest import create
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.proxy import Proxy, peer
from tests.serving import ServedBroker
from tests.waiting import until

FETCH = 1
SESSION_ID_NOT_FOUND, INVALID_SESSION_EPOCH = 70, 71
BROKERS = {"krust": "", "kafka39": "3.9.1", "kafka43": "4.3.0"}


class Way:
    """What went by: the length of each Fetch and its session's epoch, by its client's name, since a
    consumer that was closed may be heard of late; and what to refuse."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.lengths: defaultdict[str, list[int]] = defaultdict(list)
        self.epochs: defaultdict[str, list[int]] = defaultdict(list)
        self.refusals: list[int] = []

    def asked(self, key: int, request: bytes) -> None:
        if key == FETCH:
            client, epoch = told_in(request)
            self.lengths[client].append(len(request))
            self.epochs[client].append(epoch)

    def answer(self, key: int, frame: bytes, connection: socket.socket) -> bool:
        if key != FETCH or not self.refusals or gone(connection):
            return False
        code = self.refusals.pop()
        # correlation id; no tags; throttle time, error, no session; no topics, no tags
        refused = frame[:4] + b"\0" + struct.pack(">ihi", 0, code, 0) + b"\1\0"
        connection.sendall(struct.pack(">i", len(refused)) + refused)
        return True


def told_in(request: bytes) -> tuple[str, int]:
    """The client's name and the session's epoch in a Fetch of version 12 or newer."""
    version, _, client_id = struct.unpack_from(">hih", request, 2)
    body = 11 + client_id + (4 if version < 15 else 0)  # until then the replica's id comes first
    epoch: int
    # longest wait, bytes at least, bytes at most, isolation; the session's id; its epoch
    [epoch] = struct.unpack_from(">i", request, body + 13 + 4)
    return request[10 : 10 + client_id].decode(), epoch


def gone(connection: socket.socket) -> bool:
    """Whether nobody hears there any more: a closed consumer leaves its last Fetch behind."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.fixture(scope="module", params=BROKERS)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """A way to each kind of broker."""
    folder = tmp_path_factory.mktemp("sessions")
    version = BROKERS[request.param]
    seen = Way("")
    proxy = Proxy(seen.answer, seen.asked)
    with peer(proxy.serve) as address:
        seen.bootstrap = address
        settings: dict[str, object] = {"advertised.listeners": f"PLAINTEXT://{address}"}
        if not version:
            with ServedBroker(folder / "data", options=settings) as broker:
                proxy.upstream = broker.address
                yield seen
            return
        try:
            with kafka.running(version, folder, settings, proxy.forward_to):
                yield seen
        except AbsentError as error:
            pytest.skip(str(error))


def write(bootstrap: str, topic: str, numbers: dict[int, range]) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for partition, values in numbers.items():
            for value in values:
                producer.produce(topic, b"%d" % value, partition=partition)


def test_a_fetch_names_only_changed_partitions(way: Way, name: str) -> None:
    create(way.bootstrap, name, 200)
    lengths = way.lengths[name]
    settings: dict[str, Any] = {"client_id": name, "fetch_max_wait_ms": 50}
    with krust.Consumer(bootstrap_servers=way.bootstrap, **settings) as consumer:
        consumer.assign([(name, partition, 0) for partition in range(200)])
        while len(lengths) < 5 or max(lengths[-3:]) >= 100:
            consumer.poll(50)
        assert lengths[0] > 200 * 20
        settled = len(lengths)
        write(way.bootstrap, name, {7: range(3), 150: range(3)})
        got: list[_krust.Record] = []
        while len(got) < 6:
            got += consumer.poll(50)
        assert {(one.partition, one.offset) for one in got} == {
            (partition, offset) for partition in (7, 150) for offset in range(3)
        }
        assert max(lengths[settled:], default=0) < 300
        asked = len(lengths)
        consumer.pause([(name, partition) for partition in range(100)])
        while len(lengths) < asked + 4:
            consumer.poll(50)
        assert 100 < max(lengths[asked:]) < 1000  # 100 to forget, by number
        assert lengths[-1] < 100


@pytest.mark.parametrize("code", [SESSION_ID_NOT_FOUND, INVALID_SESSION_EPOCH])
def test_a_lost_fetch_session_is_replaced_by_a_new_one(way: Way, name: str, code: int) -> None:
    create(way.bootstrap, name, 50)
    lengths = way.lengths[name]
    settings: dict[str, Any] = {"client_id": name, "fetch_max_wait_ms": 50}
    with krust.Consumer(bootstrap_servers=way.bootstrap, **settings) as consumer:
        consumer.assign([(name, partition, 0) for partition in range(50)])
        for at in range(0, 60, 3):
            asked = len(lengths)
            if at % 2:
                way.refusals.append(code)
            write(way.bootstrap, name, {at % 50: range(at, at + 3)})
            got: list[_krust.Record] = []
            while len(got) < 3:
                got += consumer.poll(50)
            assert [one.value for one in got] == [b"%d" % value for value in range(at, at + 3)]
            assert not at % 2 or max(lengths[asked:]) > 50 * 20


def test_a_recreated_topic_is_read_from_its_beginning(way: Way, name: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": way.bootstrap, "auto_offset_reset": "earliest"}
    with krust.Consumer(fetch_max_wait_ms=50, **settings) as consumer:
        create(way.bootstrap, name, 2)
        write(way.bootstrap, name, {0: range(9), 1: range(9)})
        consumer.assign([(name, 0, 0), (name, 1, 0)])
        assert len(take(consumer, 18)) == 18
        recreate(way.bootstrap, name)
        write(way.bootstrap, name, {0: range(20, 25), 1: range(30, 35)})
        values = sorted(int(one.value or b"") for one in take(consumer, 10))
        assert values == [*range(20, 25), *range(30, 35)]


def test_batches_larger_than_the_partition_limit_come_in_turn(way: Way, name: str) -> None:
    create(way.bootstrap, name, 5)
    write(way.bootstrap, name, {partition: range(40) for partition in range(5)})
    limit: dict[str, Any] = {"max_partition_fetch_bytes": 50, "fetch_max_wait_ms": 50}
    with krust.Consumer(bootstrap_servers=way.bootstrap, **limit) as consumer:
        consumer.assign([(name, partition, 0) for partition in range(5)])
        places = [(one.partition, one.offset) for one in take(consumer, 200)]
    assert sorted(places) == [(partition, at) for partition in range(5) for at in range(40)]


def test_a_consumer_that_is_closed_ends_its_session(way: Way, name: str) -> None:
    create(way.bootstrap, name, 1)
    epochs = way.epochs[name]
    settings: dict[str, Any] = {"client_id": name, "fetch_max_wait_ms": 50}
    consumer = krust.Consumer(bootstrap_servers=way.bootstrap, **settings)
    consumer.assign([(name, 0, 0)])
    while len(epochs) < 2:
        consumer.poll(50)
    consumer.close()
    until(lambda: epochs[-1] == -1)  # it is on its way
    assert epochs == [*range(len(epochs) - 1), -1]


def recreate(bootstrap: str, name: str) -> None:
    """Delete a topic, and create it as soon as that is through."""
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_topic(name)
        while True:
            try:
                return admin.create_topic(name, 2)
            except KafkaError as error:
                if error.name != "TOPIC_ALREADY_EXISTS":
                    raise
                time.sleep(0.05)


def take(consumer: Consumer, count: int) -> list[_krust.Record]:
    got: list[_krust.Record] = []
    while len(got) < count:
        got += consumer.poll(100)
    return got


@pytest.mark.parametrize("seed", range(4))
def test_records_equal_the_log_under_random_seeks_pauses_and_assignments(
    way: Way, name: str, seed: int
) -> None:
    chance = random.Random(seed)
    create(way.bootstrap, name, 12)
    ends = dict.fromkeys(range(12), 0)
    limit: dict[str, Any] = {
        "max_partition_fetch_bytes": 600,
        "fetch_max_bytes": 2000,
        "fetch_max_wait_ms": 20,
    }
    with krust.Consumer(bootstrap_servers=way.bootstrap, **limit) as consumer:
        next_at: dict[int, int] = {}
        paused: set[int] = set()
        for _ in range(40):
            match chance.randrange(6):
                case 0 | 1:
                    some = {p: range(ends[p], ends[p] + 20) for p in chance.sample(range(12), 4)}
                    write(way.bootstrap, name, some)
                    ends |= {partition: values.stop for partition, values in some.items()}
                case 2 if next_at:
                    moved = chance.choice([*next_at])
                    next_at[moved] = chance.randint(0, ends[moved])
                    consumer.seek(name, moved, next_at[moved])
                case 3 if next_at:
                    paused = set(chance.sample([*next_at], len(next_at) // 2))
                    consumer.resume((name, partition) for partition in next_at)
                    consumer.pause((name, partition) for partition in paused)
                case 4:
                    chosen = chance.sample(range(12), 6)
                    next_at = {p: chance.randint(0, ends[p]) for p in chosen}
                    paused.clear()
                    consumer.assign((name, p, offset) for p, offset in next_at.items())
                case 5:
                    way.refusals += [chance.choice([70, 71])] * bool(next_at.keys() - paused)
            for _ in range(3):
                follow(consumer, next_at, paused)
        consumer.resume((name, partition) for partition in next_at)
        while any(ends[partition] > at for partition, at in next_at.items()):
            follow(consumer, next_at, set())


def follow(consumer: Consumer, next_at: dict[int, int], paused: set[int]) -> None:
    """Poll, and compare: in every partition each record's value is its offset."""
    for one in consumer.poll(30):
        assert one.partition not in paused
        assert one.offset == next_at[one.partition]
        assert one.value == b"%d" % one.offset
        next_at[one.partition] += 1
