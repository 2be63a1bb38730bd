"""The examples that other clients' documentation has, run against a broker in this process."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import krust
from examples.clients import (
    admin,
    asynchronous,
    idempotent,
    lag,
    lines_in,
    reading,
    threads,
    writing,
)
from tests.waiting import until

ROOT = Path(__file__).parents[2]
Output = Callable[[], str]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with krust.Broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    """What was printed since the last call."""
    return lambda: capsys.readouterr().out


@pytest.fixture
def lines(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Runs `lines_in` over a text."""

    def run(topic: str, text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        lines_in.main(bootstrap, topic)

    return run


def test_the_threads_example_runs(bootstrap: str, output: Output) -> None:
    printed = ""

    def has_read() -> bool:
        nonlocal printed
        threads.main(bootstrap, "1")
        printed += output()
        return "value b'test'" in printed and "Hola, mundo!" in printed

    until(has_read)


def test_a_program_that_writes_then_reads_runs(
    bootstrap: str, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing.main(bootstrap)
    printed = output()
    assert re.search(r"^my-topic 0 \d+$", printed, re.MULTILINE)
    assert "delivered <Delivered my-topic:0 offset " in printed
    slow = reading.json_for_a_while
    monkeypatch.setattr(reading, "json_for_a_while", lambda at, wait_ms: slow(at, 8000))
    reading.main(bootstrap)
    printed = output()
    assert len(re.findall(r"^my-topic:0:\d+: ", printed, re.MULTILINE)) == 3
    assert "decoded {'key': 'value'}" in printed


def test_the_line_examples_print_what_they_were_given(
    bootstrap: str, lines: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    lines("lines", "one\ntwo\nthree\n")
    stderr = capsys.readouterr().err
    assert stderr.count("% Message delivered to lines [0] @ ") == 3
    run = subprocess.Popen(
        [sys.executable, "-m", "examples.clients.lines_out", bootstrap, "out", "lines"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == "Assignment: ['lines [0]']\n"
        assert [run.stdout.readline() for _ in range(3)] == ["one\n", "two\n", "three\n"]
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert "% lines [0] at offset 2 with key None:" in errors
    assert errors.endswith("% Aborted by user\n")
    assert run.returncode == 0
    lag.main(bootstrap, "out", "lines")
    assert re.search(r"lines \[0\]\s+3\s+0$", capsys.readouterr().out, re.MULTILINE)


def test_lag_of_a_group_without_commits_is_the_whole_topic(
    bootstrap: str, lines: Callable[[str, str], None], output: Output
) -> None:
    lines("behind", "a\nb\n")
    lag.main(bootstrap, "none", "behind")
    assert re.search(r"behind \[0\]\s+-\s+2$", output(), re.MULTILINE)
    with pytest.raises(SystemExit, match="does not exist"):
        lag.main(bootstrap, "none", "missing")


def test_the_admin_example_runs(bootstrap: str, output: Output) -> None:
    admin.main(bootstrap, "create_topics", "a", "b", "a")
    printed = output()
    assert printed.startswith("Topic a created\nTopic b created\nFailed to create topic a: ")
    admin.main(bootstrap, "create_partitions", "a", "5")
    admin.main(bootstrap, "alter_configs", "a", "retention.ms=3600000,cleanup.policy=compact")
    output()
    admin.main(bootstrap, "describe_configs", "a")
    printed = output()
    assert "a: retention.ms = 3600000" in printed
    assert "a: cleanup.policy = compact" in printed
    admin.main(bootstrap, "alter_configs", "a", "cleanup.policy=")
    admin.main(bootstrap, "list")
    printed = output()
    assert '"a" with 5 partition(s)' in printed
    assert bootstrap in printed
    admin.main(bootstrap, "delete_topics", "a", "b")
    admin.main(bootstrap, "list")
    assert '"a"' not in output().partition("Topic b deleted")[2]


def test_the_idempotent_example_writes_each_record_once(bootstrap: str, output: Output) -> None:
    idempotent.main(bootstrap, "numbers", "500")
    assert output() == "500 delivered, 0 failed\n"


def test_the_asynchronous_example_runs(bootstrap: str, output: Output) -> None:
    asynchronous.main(bootstrap, "items")
    printed = output()
    assert "item 0 is at offset 0" in printed
    assert printed.count("read b'item ") == 10


def test_every_example_has_a_test() -> None:
    names = {path.stem for path in (ROOT / "examples/clients").glob("*.py")} - {"__init__"}
    text = Path(__file__).read_text()
    assert not {name for name in names if name not in text}
