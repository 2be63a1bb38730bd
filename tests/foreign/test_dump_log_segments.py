"""Kafka 3.9 reads the files that krust wrote, and finds nothing to complain about."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.foreign.clients import ALL, AioKafka, Confluent, KafkaPython, Record
from tests.foreign.conftest import jars
from tests.peers.java_source import program
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

JAVA = "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DUMP = JAVA + " -cp {}/* kafka.tools.DumpLogSegments --deep-iteration"
RECORDS: list[Record] = [(f"k{n}".encode(), b"v" * n) for n in range(300)]


@pytest.mark.java
@pytest.mark.timeout(300)
def test_every_file_of_every_codec_is_sound(tmp_path: Path) -> None:
    lib = jars("3.9.1")
    options = {"log.segment.bytes": 65536, "log.index.interval.bytes": 512}
    with ServedBroker(tmp_path / "data", options=dict(options)) as broker:
        for codec in ALL:
            topic = f"codec-{codec}"
            for writer in (
                Confluent(**{"enable.idempotence": True, "batch.size": 8192}),
                AioKafka(),
            ):
                writer.write(broker.bootstrap, topic, codec, RECORDS)
            if codec != "zstd":
                KafkaPython((0, 8, 2)).write(broker.bootstrap, topic, codec, RECORDS)
                KafkaPython((0, 10, 1)).write(broker.bootstrap, topic, codec, RECORDS)
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()
    for folder in sorted((tmp_path / "data").glob("codec-*")):
        files = [file for file in sorted(folder.iterdir()) if file.suffix != ".metadata"]
        dump(lib, [file for file in files if file.suffix in (".log", ".snapshot")], folder)
        dump(lib, [file for file in files if file.suffix.endswith("index")], folder)


def sound(lib: str, files: list[Path], complaints: str) -> str:
    """What the tool says of `files`, none of which are `complaints`."""
    run = subprocess.run(
        [*DUMP.format(lib).split(), "--files", ",".join(map(str, files))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    bad = re.findall(rf"(?im)^.*(?:{complaints}).*$", run.stdout)
    assert not bad, (files[0].parent, bad[:5])
    return run.stdout


def dump(lib: str, files: list[Path], folder: Path) -> None:
    said = sound(lib, files, "mismatch|non-consecutive|found bytes|isvalid: false")
    if any(file.suffix == ".log" for file in files):
        offsets = [int(text) for text in re.findall(r"^\| offset: (\d+)", said, re.M)]
        writers = 4 if not folder.name.startswith("codec-zstd") else 2
        assert offsets == list(range(len(RECORDS) * writers))


@pytest.mark.java
def test_kafka_takes_a_producers_newest_batch_from_a_snapshot_with_five(tmp_path: Path) -> None:
    """Kafka's own snapshots have one entry for a producer; krust's have one for each batch kept."""
    lib = jars("3.9.1")
    with ServedBroker(tmp_path / "data") as broker:
        for _ in range(2):
            one = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
            for _ in range(7):
                one.produce("orders", b"value", partition=0)
                assert one.flush(WAIT_S) == 0
    folder = tmp_path / "data/orders-0"
    snapshot = folder / f"{14:020}.snapshot"
    said = sound(lib, [snapshot], "exception|error|corrupt")
    found = re.findall(r"(?i)producerId: (\d+).*?lastOffset: (\d+)", said)
    offsets: dict[int, list[int]] = {}
    for producer, last in found:
        offsets.setdefault(int(producer), []).append(int(last))
    first, second = sorted(offsets)
    assert offsets == {first: [2, 3, 4, 5, 6], second: [9, 10, 11, 12, 13]}
    source = Path(__file__).parent / "java/Producers.java"
    words = ["java", *program(source, lib), str(folder), "14"]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [f"{first} 0 6 6", f"{second} 0 6 13"]
