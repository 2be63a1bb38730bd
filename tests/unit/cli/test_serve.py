"""`krust serve` before it starts: which setting wins, and which are refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from krust.cli.serve import configure
from krust.errors import ConfigError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def serve(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "krust", "serve", *args]
    env = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_host_and_port_change_their_part_of_the_listener(tmp_path: Path) -> None:
    (tmp_path / "krust.toml").write_text('listeners = "PLAINTEXT://127.0.0.9:7000"')
    assert configure().text("listeners") == "PLAINTEXT://127.0.0.9:7000"
    assert configure(port=1).text("listeners") == "PLAINTEXT://127.0.0.9:1"
    assert configure(host="::1").text("listeners") == "PLAINTEXT://[::1]:7000"
    assert configure(host="h", port=0).text("listeners") == "PLAINTEXT://h:0"


def test_a_flag_overrides_a_variable_which_overrides_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nbroker.id=2\nlog.dirs=two\n")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "3")
    monkeypatch.setenv("KRUST_BROKER_ID", "3")
    config = configure(file=file, node_id=4)
    assert config.whole("num.partitions") == 3
    assert config.whole("broker.id") == 4
    assert config.text("log.dirs") == "two"
    assert configure(file=file, pairs=(("num.partitions", "5"),)).whole("num.partitions") == 5


def test_prod_is_the_mode_of_any_listener_beyond_loopback() -> None:
    assert configure().mode == "dev"
    assert configure(host="0.0.0.0").mode == "prod"
    assert configure(mode="prod").mode == "prod"


def test_contradicting_flags_and_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="beside"):
        configure(port=1, pairs=(("listeners", "PLAINTEXT://:2"),))


def test_print_config_can_be_read_back(tmp_path: Path) -> None:
    run = serve("--port", "0", "-o", "num.partitions=7", "--print-config")
    assert run.returncode == 0
    assert "# option: num.partitions\nnum.partitions=7\n" in run.stdout
    file = tmp_path / "printed.properties"
    file.write_text(run.stdout)
    assert configure(file=file).whole("num.partitions") == 7


def test_check_finds_a_taken_port_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = serve("--check", "--host", "127.0.0.1", "--port", str(taken.getsockname()[1]))
    assert run.returncode == 3
    assert run.stderr.startswith("error: cannot listen on 127.0.0.1:")
    assert serve("--check", "--port", "0").stdout == "ok\n"
    assert not (tmp_path / "krust-data").exists()


def test_an_unknown_setting_is_a_usage_error_with_a_suggestion() -> None:
    run = serve("--check", "-o", "num.partition=3")
    assert run.returncode == 2
    assert "did you mean num.partitions?" in run.stderr
    assert "Traceback" not in run.stderr
