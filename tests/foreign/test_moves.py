"""Replicas move between log directories while they are written: kafka-python and Kafka's own
AdminClient ask for it, confluent-kafka writes and reads. KRUST_CRASH_ROUNDS says how often the
broker is killed meanwhile (half of 10).
"""

from __future__ import annotations

import itertools
import random
import subprocess
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import (
    KafkaError,
    LogDirNotFoundError,
    NoError,
    UnknownTopicOrPartitionError,
)

from tests.faults.test_kill import PARTITIONS, ROUNDS, Load, read_all
from tests.foreign.conftest import jars
from tests.peers.java_source import program
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until, until_is

OPTIONS: dict[str, object] = {"log.segment.bytes": 1 << 20}


def options(folder: Path) -> dict[str, object]:
    return {**OPTIONS, "log.dirs": f"{folder / 'one'},{folder / 'two'}"}


def served(folder: Path, port: int = 0) -> ServedBroker:
    return ServedBroker(folder / "one", options=options(folder), port=port)


def loaded(broker: ServedBroker) -> Load:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("load", PARTITIONS, 1)])["load"].result(WAIT_S)
    return Load(broker.bootstrap, "load")


def described(bootstrap: str) -> dict[str, dict[str, tuple[int, int, bool]]]:
    """Directory -> partition -> size, lag, whether it is a copy on its way; internal topics out."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    (answer,) = admin.describe_log_dirs()
    admin.close()
    return {
        each["log_dir"]: {
            f"{topic['name']}-{row['partition_index']}": (
                row["partition_size"],
                row["offset_lag"],
                row["is_future_key"],
            )
            for topic in each["topics"]
            if not topic["name"].startswith("__")
            for row in topic["partitions"]
        }
        for each in answer["log_dirs"]
    }


def move(bootstrap: str, wanted: dict[tuple[str, int], Path]) -> list[type]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    named = {(topic, number, 0): str(to) for (topic, number), to in wanted.items()}
    codes = list(admin.alter_replica_log_dirs(named).values())
    admin.close()
    return codes


def wait_for(bootstrap: str, directory: Path, partitions: set[str]) -> None:
    def there() -> set[str]:
        return {name for name, row in described(bootstrap)[str(directory)].items() if not row[2]}

    until_is(partitions, there)


def everything_is_there(broker: ServedBroker, load: Load) -> None:
    for partition in range(PARTITIONS):
        found = read_all(broker.bootstrap, "load", partition)
        assert found == [(number, number) for number in range(load.next[partition])]
        assert sorted(load.acked[partition]) == found


def test_replicas_move_while_they_are_written(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    every = {f"load-{number}" for number in range(PARTITIONS)}
    with served(tmp_path) as broker:
        load = loaded(broker)
        load.run_until(acknowledged=2000)
        assert all(described(broker.bootstrap).values()), "new partitions lie where the fewest are"
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                load.run_until(acknowledged=200)

        writer = threading.Thread(target=write)
        writer.start()
        for to in (two, one, two):
            wanted = {("load", number): to for number in range(PARTITIONS)}
            assert move(broker.bootstrap, wanted) == [NoError] * PARTITIONS
            wait_for(broker.bootstrap, to, every)
        stop.set()
        writer.join()
        load.finish()
        everything_is_there(broker, load)
        sizes = {
            f"load-{number}": sum(
                file.stat().st_size for file in (two / f"load-{number}").glob("*.log")
            )
            for number in range(PARTITIONS)
        }
        until(lambda: not list(one.glob("load-*")))
        shown = described(broker.bootstrap)
        assert not shown[str(one)]
        if all(size < 1 << 20 for size in sizes.values()):  # no disk is reserved ahead
            assert {name: row[0] for name, row in shown[str(two)].items()} == sizes
        refused = {("load", 0): tmp_path / "three", ("nobody", 0): two}
        assert move(broker.bootstrap, refused) == [
            LogDirNotFoundError,
            UnknownTopicOrPartitionError,
        ]
    with served(tmp_path) as broker:
        everything_is_there(broker, load)
        assert "unclean" not in broker.stderr()


@pytest.mark.timeout(max(300, ROUNDS * 20))
def test_a_log_is_whole_after_kills_at_any_moment_of_a_move(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    dirs = itertools.cycle([tmp_path / "two", tmp_path / "one"])
    port = free_port()
    broker = served(tmp_path, port)
    load = loaded(broker)
    try:
        for _ in range(ROUNDS // 2):
            load.run_until(acknowledged=chance.randrange(200, 2000))
            to = next(dirs)
            move(broker.bootstrap, {("load", number): to for number in range(PARTITIONS)})
            load.run_until(acknowledged=chance.choice([1, 30, 300]))
            broker.kill()
            broker = served(tmp_path, port)
        load.finish()
        everything_is_there(broker, load)
        assert broker.stop() == 0
    finally:
        if broker.process.poll() is None:
            broker.kill()
    with served(tmp_path) as broker:
        wait_for_quiet(broker.bootstrap)
        until(lambda: len(list(tmp_path.glob("*/load-*"))) == PARTITIONS)
        everything_is_there(broker, load)
    left = [path.name for path in tmp_path.glob("*/load-*")]
    assert sorted(left) == [f"load-{number}" for number in range(PARTITIONS)]
    assert not list(tmp_path.glob("*/*/krust-moved-from"))


def wait_for_quiet(bootstrap: str) -> None:
    """Wait until no copy is in progress."""
    until(
        lambda: not any(row[2] for rows in described(bootstrap).values() for row in rows.values())
    )


@pytest.mark.java
@pytest.mark.timeout(300)
def test_kafkas_own_admin_client_moves_replicas(tmp_path: Path) -> None:
    lib = jars("3.9.1")
    one, two = tmp_path / "one", tmp_path / "two"
    with served(tmp_path) as broker:
        load = loaded(broker)
        load.run_until(acknowledged=1000)
        load.finish()
        source = Path(__file__).parent / "java/MoveReplicas.java"
        wanted = [word for number in range(2) for word in ("load", str(number), str(two))]
        wanted += ["load", "2", str(tmp_path / "three"), "nobody", "0", str(one)]
        command = ["java", *program(source, lib), broker.bootstrap, *wanted]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines()[:4] == [
            "load-0 ok",
            "load-1 ok",
            "load-2 LogDirNotFoundException",
            "nobody-0 UnknownTopicOrPartitionException",
        ]
        wait_for_quiet(broker.bootstrap)
        tool = ["java", "-cp", f"{lib}/*", "org.apache.kafka.tools.LogDirsCommand"]
        tool += ["--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", "load"]
        run = subprocess.run(tool, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert f'"logDir":"{two}"' in run.stdout
        assert '"isFuture":true' not in run.stdout
        everything_is_there(broker, load)


def test_an_unusable_directory_affects_no_other(tmp_path: Path) -> None:
    two = tmp_path / "two"
    with served(tmp_path) as broker:
        load = loaded(broker)
        load.run_until(acknowledged=1000)
        load.finish()
        there = described(broker.bootstrap)
    two.rename(tmp_path / "away")
    two.write_text("a file where a directory should be")
    lost = {int(name[-1]) for name in there[str(two)]}
    assert lost
    with served(tmp_path) as broker:
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=WAIT_S)
        leaders = {n: each.leader for n, each in metadata.topics["load"].partitions.items()}
        assert leaders == {n: -1 if n in lost else 0 for n in range(PARTITIONS)}
        for number in set(range(PARTITIONS)) - lost:
            assert read_all(broker.bootstrap, "load", number) == sorted(load.acked[number])
        assert not described(broker.bootstrap)[str(two)]
        (code,) = move(broker.bootstrap, {("load", min(lost)): tmp_path / "one"})
        assert issubclass(code, KafkaError)
        assert code is not NoError
        other = AdminClient({"bootstrap.servers": broker.bootstrap})
        other.create_topics([NewTopic("new", 2, 1)])["new"].result(WAIT_S)
        assert len(described(broker.bootstrap)[str(tmp_path / "one")]) >= 2
    two.unlink()
    (tmp_path / "away").rename(two)
    with served(tmp_path) as broker:
        everything_is_there(broker, load)
