"""`krust serve --check` finds all that keeps a broker from starting, and starts nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import krust
from krust.cli.checking import problems
from krust.config import Config, load
from krust.errors import ConfigError, ServerError
from tests.waiting import until

MODULE = """
class Keeps:
    name = "keeps"
    def configure(self, configs):
        int(configs.get("segments", 0))
    def expired(self, disk, partitions, now_ms):
        return {}
class Needs(Keeps):
    def __init__(self, more):
        pass
class Exits(Keeps):
    def __init__(self):
        raise SystemExit(3)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_check.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def config(**more: object) -> Config:
    return load(options={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "data"} | more)


def found_problems(**more: object) -> list[str]:
    found = list(problems(config(**more)))
    assert all(each.hint for each in found)
    return [str(each) for each in found]


def test_a_valid_configuration_has_no_problems_and_creates_nothing(tmp_path: Path) -> None:
    assert found_problems() == []
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("setting", "place", "says"),
    [
        ("krust.retention.policy", "nowhere:Policy", "there is no module 'nowhere'"),
        ("krust.retention.policy", "of_check:Missing", "has no Missing"),
        ("krust.retention.policy", "of_check:Needs", "cannot be made without arguments"),
        ("krust.retention.policy", "of_check:Exits", "raises SystemExit"),
        ("krust.retention.policy", "tiem", "there is no retention policy 'tiem'"),
        ("krust.group.server.assignor", "nowhere:Assignor", "there is no module 'nowhere'"),
        ("krust.group.server.assignor", "of_check:Keeps", "is no assignor"),
    ],
)
def test_a_missing_plug_in_is_a_problem(setting: str, place: str, says: str) -> None:
    [problem] = found_problems(**{setting: f"*={place}"})
    assert says in problem
    assert place in problem


def test_a_replica_selector_is_checked() -> None:
    setting = "replica.selector.class"
    kafka = "org.apache.kafka.common.replica"
    for name in (f"{kafka}.LeaderSelector", f"{kafka}.RackAwareReplicaSelector", ""):
        assert found_problems(**{setting: name}) == []
    [problem] = found_problems(**{setting: "of_check:Keeps"})
    assert "is no replica selector" in problem
    with pytest.raises(ConfigError, match="a class that krust does not have"):
        config(**{setting: "com.example.NearestSelector"})


def test_an_assignor_for_consumer_groups_is_checked_too() -> None:
    [problem] = found_problems(**{"group.consumer.assignors": "uniform,nowhere:Assignor"})
    assert "nowhere" in problem


def test_plug_in_parameters_are_passed_and_unknown_ones_are_a_problem() -> None:
    policy = {"krust.retention.policy": "*=of_check:Keeps"}
    assert found_problems(**policy, **{"krust.retention.policy.keeps.segments": 2}) == []
    [refused] = found_problems(**policy, **{"krust.retention.policy.keeps.segments": "x"})
    assert "refuses its parameters" in refused
    [nobodys] = found_problems(**policy, **{"krust.retention.policy.kept.segments": "2"})
    assert "no retention policy kept" in nobodys


def test_a_zookeeper_that_does_not_answer_is_a_problem() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        connect = f"127.0.0.1:{nobody.getsockname()[1]}"
        more = {"zookeeper.connect": connect, "zookeeper.connection.timeout.ms": 200}
        [problem] = found_problems(**more)
    assert f"no ZooKeeper answers at {connect}" in problem


def test_a_directory_that_cannot_be_created_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [problem] = found_problems(**{"log.dirs": "file/data"})
    assert f"{tmp_path / 'file'} is no directory" in problem
    if os.getuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        [problem] = found_problems(**{"log.dirs": "closed/data"})
        assert "cannot make closed/data" in problem


def test_a_directory_of_another_broker_is_a_problem(tmp_path: Path) -> None:
    krust.Broker(tmp_path / "data", config={"broker.id": 3}).stop()
    assert found_problems(**{"broker.id": 3}) == []
    [problem] = found_problems(**{"broker.id": 4})
    assert "belongs to broker 3" in problem


def test_the_directory_of_a_running_broker_is_a_problem(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "krust", "serve", "--port", "0", "--data-dir", "data"]
    broker = subprocess.Popen([*command, "--ready-file", ready, "--quiet"])
    try:
        until(ready.exists)
        [problem] = found_problems()
        assert problem == "data is in use by another process"
    finally:
        broker.terminate()
        broker.wait()


def test_listeners_are_bound_and_released() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        name = {"listeners": f"A://127.0.0.1:{port},B://no.such.host.invalid:1"}
        mapped = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
        taken_port, no_host = found_problems(**name, **mapped)
    assert taken_port.startswith(f"cannot listen on 127.0.0.1:{port}")
    assert "no.such.host.invalid is no address of this machine" in no_host
    name = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    assert found_problems(**name) == []
    socket.create_server(("127.0.0.1", port)).close()


def test_one_list_has_every_problem_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = ["num.partition=3", "num.partitions=x", "krust.retention.policy=*=nowhere:Policy"]
    command = [sys.executable, "-m", "krust", "serve", "--check", "--data-dir", "file/data"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        pairs = [part for each in options for part in ("-o", each)]
        run = subprocess.run(
            [*command, "--host", "127.0.0.1", "--port", port, *pairs],
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == ConfigError.exit
    lines = run.stderr.splitlines()
    assert sum(line.startswith("error: ") for line in lines) == 5
    assert sum(line.startswith("  ") for line in lines) == 5
    for word in ("num.partition\n", "num.partitions = ", "nowhere", "is no directory", f":{port}"):
        assert word in run.stderr
    assert "ok" not in run.stdout
    assert ServerError.exit == 3
