"""Real power cuts: the test shuts down a file system on a loop image under a running broker.

Whatever was not synced is gone (`tests/disks.py`). Then the broker is killed, the image mounted
again and the broker started on what is left.
KRUST_POWER_CUTS says how often per file system and mode (10), KRUST_POWER_SEED when. Skipped with
the reason if the machine cannot mount, shut down or make the file system.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.disks import MEMORY, SIZES, Disk, missing
from tests.faults.test_kill import read_all
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

CUTS = int(os.environ.get("KRUST_POWER_CUTS", "10"))
SEED = os.environ.get("KRUST_POWER_SEED", "0")
PARTITIONS = 2
MESSAGES = 50
"""`log.flush.interval.messages` where not every answer waits: one less may be lost."""
OPTIONS: dict[str, object] = {"log.segment.bytes": 60_000, "log.segment.delete.delay.ms": 0}


@pytest.fixture(params=list(SIZES))
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    """A file system in memory."""
    if reason := missing(request.param):
        pytest.skip(reason)
    folder = MEMORY / f"krust-power-{os.getpid()}-{request.param}"
    folder.mkdir()
    disk = Disk(request.param, folder)
    yield disk
    disk.remove()


class Load:
    """Producers of numbers; keeps the acknowledged ones. The fate of a failed number is unknown."""

    def __init__(self) -> None:
        self.sent = [0] * PARTITIONS
        self.acked: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """offset -> number"""

    def run(self, bootstrap: str, until: threading.Event, *, idempotent: bool) -> None:
        """Send until `until` is set or the broker is gone.

        A plain producer does not retry. A retry after a lost answer would write a record twice, and
        the test could not tell this from a fault of the broker. An idempotent producer continues
        under a new epoch when its time is up, because a disk may hang for seconds.
        """
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 7}
        settings |= {"log_level": 0, "message.timeout.ms": 30_000}
        settings |= {"enable.idempotence": True} if idempotent else {"retries": 0}
        producer = Producer(settings)
        while not until.is_set():
            for partition in range(PARTITIONS if len(producer) < 1000 else 0):
                number = self.sent[partition]
                self.sent[partition] += 1
                value = b"%d" % number
                producer.produce("t", value, b"k" * 90, partition, on_delivery=self._delivered)
            producer.poll(0.0005 if len(producer) < 500 else 0.02)
        producer.purge()
        producer.flush(5)

    def count(self) -> int:
        """How many were acknowledged."""
        return sum(map(len, self.acked))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = self.acked[message.partition() or 0]
            place[message.offset() or 0] = int(message.value() or b"")


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic, and wait until the broker lists it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)


def check(bootstrap: str, load: Load, before: list[dict[int, int]], most: int) -> int:
    """No record is wrong or twice; returns how many acknowledged records are lost.

    most     acknowledged records of a partition that may be lost
    before   what was acknowledged before the cut began. While it lasts a sync may return well whose
             log entry was dropped, and no machine without power could have said so
    """
    lost = 0
    for partition in range(PARTITIONS):
        found = dict(read_all(bootstrap, "t", partition))
        assert list(found) == list(range(len(found))), "offsets have a gap"
        kept = {at: number for at, number in load.acked[partition].items() if at in found}
        assert {at: found[at] for at in kept} == kept, "an acknowledged record is another one"
        twice = [number for number, times in Counter(found.values()).items() if times > 1]
        assert not twice, f"records are there twice: {twice[:8]}"
        gone = before[partition].keys() - found.keys()
        assert len(gone) <= most, f"{len(gone)} acknowledged records are lost"
        lost += len(gone)
        load.acked[partition] = kept
    return lost


@pytest.mark.timeout(max(300, CUTS * 30))
@pytest.mark.parametrize("mode", ["ack", "async"])
def test_flushed_records_survive_a_power_cut(disk: Disk, mode: str) -> None:
    chance = random.Random(f"{SEED} {mode} {disk.image.parent.name.rpartition('-')[2]}")
    options = {**OPTIONS, "krust.flush.mode": mode}
    if mode == "async":
        options |= {"log.flush.interval.messages": MESSAGES}
    load, lost, topics = Load(), 0, ["t"]
    most = 0 if mode == "ack" else MESSAGES - 1
    broker = ServedBroker(disk.place / "data", options=options)
    try:
        create(broker.bootstrap, "t", PARTITIONS)
        for cut in range(CUTS):
            stop = threading.Event()
            goal = load.count() + chance.randrange(20, 1500)
            sending = threading.Thread(
                target=load.run,
                args=(broker.bootstrap, stop),
                kwargs={"idempotent": bool(cut % 2)},
            )
            sending.start()
            while load.count() < goal:
                assert broker.process.poll() is None
                stop.wait(0.002)
            if mode == "ack":
                topics.append(f"t-{cut}")
                create(broker.bootstrap, topics[-1], 1)
            before = [dict(each) for each in load.acked]
            disk.cut()
            stop.set()
            broker.kill()
            sending.join()
            disk.unmount()
            disk.mount()
            broker = ServedBroker(disk.place / "data", options=options)
            lost += check(broker.bootstrap, load, before, most)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            known = admin.list_topics(timeout=WAIT_S)
            assert set(topics) <= set(known.topics), "a topic that was created is gone"
        print(f"{CUTS} cuts, {load.count()} acknowledged records there, {lost} lost")
    finally:
        if broker.process.poll() is None:
            broker.kill()
