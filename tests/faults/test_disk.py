"""On a full, vanished or unwritable disk krust refuses records, serves the rest and recovers.

KRUST_DISK_FILLS says how often a real file system is filled and freed (3).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.disks import MEMORY, Disk, fill, missing
from tests.foreign.clients import Confluent
from tests.serving import NotReadyError, ServedBroker
from tests.waiting import WAIT_S

STORAGE_ERROR = 56
FILLS = int(os.environ.get("KRUST_DISK_FILLS", "3"))
BACK_S = 60
OPTIONS: dict[str, object] = {"log.segment.bytes": 1 << 20}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "krust-test", str(place)]
    run = subprocess.run(mount, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip(f"cannot mount a small file system: {run.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def produce(bootstrap: str, topic: str, value: bytes) -> int:
    """Send one record without retries; Kafka's error code, 0 for none."""
    codes: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        codes.append(error.code() if error else 0)

    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "log_level": 0})
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.flush(WAIT_S)
    return codes[0]


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(small_disk: Path) -> None:
    with ServedBroker(small_disk / "data", options=OPTIONS) as broker:
        create(broker.bootstrap, "full")
        value = os.urandom(500_000)
        assert produce(broker.bootstrap, "full", value) == 0
        filler = fill(small_disk)
        written, code = 1, 0
        while code == 0 and written < 100:
            code = produce(broker.bootstrap, "full", value)
            written += code == 0
        assert code == STORAGE_ERROR
        assert produce(broker.bootstrap, "full", value) == STORAGE_ERROR
        assert Confluent().read(broker.bootstrap, "full", written) == [(None, value)] * written
        filler.unlink()
        assert produce(broker.bootstrap, "full", b"after") == 0
        found = Confluent().read(broker.bootstrap, "full", written + 1)
        assert found[-1] == (None, b"after")
    with ServedBroker(small_disk / "data", options=OPTIONS) as broker:
        assert len(Confluent().read(broker.bootstrap, "full", written + 1)) == written + 1


@pytest.fixture
def image() -> Iterator[Disk]:
    """An ext4 of 64 MiB on a loop device."""
    if reason := missing("ext4"):
        pytest.skip(reason)
    folder = MEMORY / f"krust-full-{os.getpid()}"
    folder.mkdir()
    disk = Disk("ext4", folder, "64M")
    yield disk
    disk.remove()


@pytest.mark.timeout(max(300, FILLS * 60))
def test_a_real_disk_filled_and_freed_again_and_again_loses_nothing(image: Disk) -> None:
    options = {**OPTIONS, "krust.flush.mode": "ack"}
    acked: list[bytes] = []
    slowest = 0.0
    with ServedBroker(image.place / "data", options=options) as broker:
        create(broker.bootstrap, "full")

        def send() -> int:
            value = os.urandom(100_000)
            code = produce(broker.bootstrap, "full", value)
            if code == 0:
                acked.append(value)
            return code

        for _ in range(FILLS):
            assert [send() for _ in range(3)] == [0, 0, 0]
            filler = fill(image.place)
            codes = [send() for _ in range(12)]
            assert set(codes) <= {0, STORAGE_ERROR}
            assert STORAGE_ERROR in codes
            found = Confluent().read(broker.bootstrap, "full", len(acked))
            assert found == [(None, value) for value in acked]
            filler.unlink()
            freed = time.monotonic()
            while send() != 0:
                assert time.monotonic() < freed + BACK_S, "it does not come back"
            slowest = max(slowest, time.monotonic() - freed)
        assert broker.process.poll() is None
        broker.kill()
    print(f"{FILLS} times full, {len(acked)} records, back after {slowest:.2f} s at most")
    with ServedBroker(image.place / "data", options=options) as broker:
        found = Confluent().read(broker.bootstrap, "full", len(acked))
        assert found == [(None, value) for value in acked]


def test_krust_warns_before_a_disk_is_full(small_disk: Path) -> None:
    with ServedBroker(small_disk / "data", options={"krust.disk.reserve.bytes": 1 << 30}) as broker:
        create(broker.bootstrap, "room")
        assert produce(broker.bootstrap, "room", b"there is room yet") == 0
        assert broker.stop() == 0
        assert broker.stderr().count("krust.disk.reserve.bytes") == 1


def test_a_broker_stops_cleanly_on_a_full_disk(small_disk: Path) -> None:
    with ServedBroker(small_disk / "data", options=OPTIONS) as broker:
        create(broker.bootstrap, "full")
        assert produce(broker.bootstrap, "full", b"before") == 0
        filler = fill(small_disk)
        assert broker.stop() == 0
    filler.unlink()
    with ServedBroker(small_disk / "data", options=OPTIONS) as broker:
        assert Confluent().read(broker.bootstrap, "full", 1) == [(None, b"before")]


def test_a_read_only_directory_gives_one_line_and_exit_code_3(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(NotReadyError) as caught:
        ServedBroker(small_disk)
    assert caught.value.code == 3
    assert "Traceback" not in caught.value.stderr


def test_a_directory_without_permission_gives_one_line_and_exit_code_3(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(NotReadyError) as caught:
        ServedBroker(tmp_path / "data")
    assert caught.value.code == 3


def test_a_removed_partition_directory_costs_no_other_partition(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:
        for topic in ("kept", "removed"):
            create(broker.bootstrap, topic)
            assert produce(broker.bootstrap, topic, b"before") == 0
        shutil.rmtree(tmp_path / "data/removed-0")
        for _ in range(3):
            produce(broker.bootstrap, "removed", os.urandom(600_000))
        assert broker.process.poll() is None
        code = produce(broker.bootstrap, "kept", b"after")
        assert code in (0, STORAGE_ERROR)  # the directory may go offline as a whole, as Kafka's
        if code == 0:
            assert Confluent().read(broker.bootstrap, "kept", 1) == [(None, b"before")]
    assert "panic" not in broker.stderr().lower()
