"""A user error is one or two lines: what is wrong, and what to do. No traceback."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import krust
from krust.cli import history, main
from krust.cli.apis import NAMES
from krust.cli.records import FormatError, FormattedRecord, from_object, to_object
from krust.decode import options
from krust.errors import ConfigError

FACTS = Path(__file__).parents[2] / "data/facts/api_versions.tsv"


def run_command(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(list(args))
    return int(str(left.value.code)), capsys.readouterr().err


def test_hints_are_shown_in_tracebacks() -> None:
    error = ConfigError("no such setting", hint="did you mean retention.ms?")
    assert "did you mean retention.ms?" in "".join(traceback.format_exception(error))


def test_a_path_without_a_directory_is_an_error_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = run_command(capsys, "log", "dump", "greetings")
    assert (code, text) == (5, "error: greetings: no such log file or partition directory\n")


def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run_command(capsys, "produce", "t", "--from", "nofile", "-b", "127.0.0.1:1")
    assert (code, text) == (5, "error: cannot read nofile: no such file\n")


def test_an_unknown_group_state_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run_command(capsys, "group", "list", "--state", "Sable", "-b", "127.0.0.1:1")
    assert code == 2
    assert "there is no state 'Sable': PreparingRebalance, CompletingRebalance, Stable" in text


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"vlaue": 1}, "no field 'vlaue' in a record"),
        ({"value": 1, "headers": [{"key": "a", "val": 1}]}, "no field 'val' in a header"),
        ([1], "a record is a JSON object"),
    ],
)
def test_an_unknown_record_field_is_refused(given: object, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        from_object(given)


def test_the_output_of_consume_can_be_produced_again() -> None:
    record = FormattedRecord("t", 0, 7, 1, 0, b"k", b"v", [("h", b"x")])
    assert from_object(to_object(record))["value"] == "v"


def test_a_group_without_members_has_no_rebalance_history() -> None:
    group: dict[str, Any] = {"history": None, "members": [], "protocol_type": None}
    assert list(history.lines(group, 0, all_of_it=False)) == ["no rebalance yet"]


def test_all_of_kafkas_apis_have_names() -> None:
    rows = [line.split("\t") for line in FACTS.read_text().splitlines()[1:]]
    assert {int(row[0]): row[1] for row in rows} == NAMES


def test_truncated_json_is_reported_as_json() -> None:
    import pyarrow as pa

    decoder = options.decoder({"valueFormat": "json", "valueSchema": "id bigint"})
    found = decoder.decode(pa.array([b'{"id": "a'], pa.binary()))
    assert "at at" not in found.bad[0].reason
    assert "Unterminated string starting at character" in found.bad[0].reason


def test_two_signals_at_once_stop_in_order_without_a_traceback() -> None:
    """In a process with one thread: another would take a signal that the first one blocks."""
    program = (
        "import os, signal\n"
        "from krust.cli import serve\n"
        "both = [signal.SIGINT, signal.SIGTERM]\n"
        "with serve.stops() as asked:\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, both)\n"
        "    for each in both:\n"
        "        os.kill(os.getpid(), each)\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)\n"
        "    print(asked())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() in ("SIGINT", "SIGTERM")
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_second_interrupt_during_the_first_message_prints_no_traceback() -> None:
    code = (
        "import krust.cli, signal, os\n"
        "def outcome(args):\n    os.kill(os.getpid(), signal.SIGINT)\n    input()\n"
        "krust.cli._run_command = outcome\nkrust.cli.main([])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (130, "")


def test_a_group_assigned_by_krust_names_its_assignor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with krust.Broker(config={"krust.group.server.assignor": "g*=sticky"}) as broker:
        broker.create_topic("t", 2)
        given: dict[str, Any] = {"group_id": "g1", "partition_assignment_strategy": "range"}
        with krust.Consumer("t", bootstrap_servers=broker.bootstrap, **given) as consumer:
            while not consumer.assignment():
                consumer.poll(100)
            with pytest.raises(SystemExit):
                main(["group", "describe", "g1", "-b", broker.bootstrap])
    assert "protocol range   assigned by krust's sticky" in capsys.readouterr().out


def test_a_partition_without_a_leader_names_its_dead_broker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with krust.Cluster(2) as cluster:
        cluster.create_topic("o", 2)
        lost = next(n for n in range(2) if n != cluster.controller)
        [place] = [n for n in range(2) if cluster.leader("o", n) == lost]
        cluster.kill(lost)
        asked = ("topic", "offsets", f"o:{place}", "--timeout", "500ms")
        code, text = run_command(capsys, *asked, "-b", cluster.bootstrap)
    assert code == 4
    assert f"o:{place}: the partition has no leader; broker {lost} is away" in text


def test_a_record_that_is_too_large_is_reported_with_the_limit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * 2_000_000)
    with krust.Broker() as broker:
        broker.create_topic("t", 1)
        asked = ("produce", "t", "--from", str(large), "-b", broker.bootstrap)
        code, text = run_command(capsys, *asked)
    assert code == 1
    assert "(1 record) is larger than max.message.bytes (1,048,588) of topic t" in text
    assert text.count("MESSAGE_TOO_LARGE") == 1
