"""`krust produce` and `krust consume` keep records unchanged: every codec, format and range."""

from __future__ import annotations

import base64
import signal
import subprocess
from pathlib import Path

import pytest

from tests.three_brokers import Command
from tests.waiting import WAIT_S, until


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("how", ["--idempotent", "--acks=1"])
def test_lines_go_in_and_come_back(krust: Command, topic: str, codec: str, how: str) -> None:
    lines = b"".join(b"line %d of some length\n" % n for n in range(5000))
    krust.ok("produce", topic, "-z", codec, how, "-p", "2", given=lines)
    assert krust.ok("consume", topic, "-e").out == lines


def test_keys_headers_nulls_and_bytes_survive(krust: Command, topic: str) -> None:
    raw = bytes(range(256))
    given = "\n".join(
        [
            '{"key": "k", "value": "v", "headers": [{"key": "h", "value": "1"}], "partition": 1}',
            '{"key": null, "value": null, "timestamp_ms": 1700000000000}',
            f'{{"value": {{"base64": "{base64.b64encode(raw).decode()}"}}, "key": ""}}',
            '{"value": {"nested": [1, "zwei"]}, "headers": [{"key": "n", "value": null}]}',
        ]
    ).encode()
    krust.ok("produce", topic, "-f", "json", given=given)
    found = krust.ok("consume", topic, "-e", "--json").lines()
    by_key = {str(record["key"]) + str(type(record["value"])): record for record in found}
    assert len(by_key) == 4
    first = by_key["k<class 'str'>"]
    assert (first["partition"], first["value"]) == (1, "v")
    assert first["headers"] == [{"key": "h", "value": "1"}]
    null = by_key["None<class 'NoneType'>"]
    assert null["timestamp_ms"] == 1_700_000_000_000
    binary = next(record for record in found if record["key"] == "")
    assert base64.b64decode(binary["value"]["base64"]) == raw
    nested = next(record for record in found if record["headers"] == [{"key": "n", "value": None}])
    assert nested["value"] == '{"nested": [1, "zwei"]}'
    shown = krust.ok("consume", topic, "-e", "--json", "--value", "json").lines()
    assert {"nested": [1, "zwei"]} in [record["value"] for record in shown]


def test_a_format_cuts_input_and_shapes_output(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, "-f", r"%p;%k=%v\n", "-H", "a=1", given=b"0;x=1\n2;y=2=2\n0;z=\n")
    form = r"%t/%p@%o %k{hex} %v %K %V %H %h{%k:%v,} %% %i\n"
    rows = krust.ok("consume", topic, "-e", "-f", form).text.splitlines()
    assert sorted(row.rpartition(" ")[0] for row in rows) == [
        f"{topic}/0@0 78 1 1 1 1 a:1, %",
        f"{topic}/0@1 7a  1 0 1 a:1, %",
        f"{topic}/2@0 79 2=2 1 3 1 a:1, %",
    ]
    meta = krust.ok("consume", f"{topic}:0", "-e", "--meta-only").text
    assert "key=1 value=1" in meta


def test_blocks_of_lines_keep_every_option(krust: Command, topic: str) -> None:
    """Keys, headers, null values, one partition, a count, lines longer than a read."""
    long = "x" * 300_000
    given = f"a=>1\nb=>\n=>=>3\nlong=>{long}\nlast=>no end\nleft out=>\n".encode()
    options = ("-H", "h=1", "-H", "i=2", "--null", "-p", "1", "--count", "5")
    krust.ok("produce", topic, "-f", r"%k=>%v\n", *options, given=given)
    found = krust.ok("consume", f"{topic}:1", "-e", "--json").lines()
    assert [(record["key"], record["value"]) for record in found] == [
        ("a", "1"),
        ("b", None),
        ("", "=>3"),
        ("long", long),
        ("last", "no end"),
    ]
    headers = [{"key": "h", "value": "1"}, {"key": "i", "value": "2"}]
    assert all(record["headers"] == headers for record in found)
    krust.ok("produce", topic, "-k", "for all", "-p", "2", given=b"x\n\ny")
    found = krust.ok("consume", f"{topic}:2", "-e", "--json").lines()
    assert [record["value"] for record in found] == ["x", "", "y"]
    assert {record["key"] for record in found} == {"for all"}


def test_records_before_a_bad_line_are_written_and_the_line_is_named(
    krust: Command, topic: str
) -> None:
    failed = krust("produce", topic, "-f", r"%k\t%v\n", "-p", "0", given=b"a\tb\nc\td\nonly\n")
    assert failed.code == 2
    assert "line 3: " in failed.err
    assert krust.ok("consume", f"{topic}:0", "-e").out == b"b\nd\n"


def test_equal_keys_go_to_the_partition_that_java_would_choose(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, "-f", r"%k %v\n", given=b"21 a\nfoobar b\nabc c\n21 d\n")
    rows = krust.ok("consume", topic, "-e", "-f", r"%k %p\n").text.split("\n")
    # murmur2 & 0x7fffffff, modulo 3
    expected = {"21": 1_173_551_340 % 3, "foobar": 1_357_151_166 % 3, "abc": 479_470_107 % 3}
    assert sorted(filter(None, rows)) == sorted(
        f"{key} {expected[key]}" for key in ("21", "foobar", "abc", "21")
    )


def test_produce_writes_tombstones_templates_and_files(
    krust: Command, topic: str, tmp_path: Path
) -> None:
    krust.ok("produce", topic, "-k", "gone", "--tombstone", "-p", "0", given=b"\n")
    [tombstone] = krust.ok("consume", f"{topic}:0", "-e", "--json").lines()
    assert (tombstone["key"], tombstone["value"]) == ("gone", None)
    krust.ok("produce", topic, "--template", '{"id":{{i}}}', "--count", "2500", "-p", "1")
    values = krust.ok("consume", f"{topic}:1", "-e").text.splitlines()
    assert values == [f'{{"id":{n}}}' for n in range(2500)]
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthree")
    krust.ok("produce", topic, "--from", str(path), "--count", "3", "-p", "2")
    assert krust.ok("consume", f"{topic}:2", "-e").out == b"one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("start", range(100)),
        ("90", range(90, 100)),
        ("-3", range(97, 100)),
        ("+97", range(97, 100)),
        ("10:20", range(10, 20)),
        (":5", range(5)),
        ("-10:-8", range(90, 92)),
        ("50:+2", range(50, 52)),
        ("@-1h:end", range(100)),
        ("@2020-01-01:+2", range(2)),
        ("end", range(0)),
    ],
)
def test_a_range_names_its_records(krust: Command, where: str, expected: range) -> None:
    topic = "cli-ranges"
    if krust("topic", "create", topic).code == 0:
        krust.ok("produce", topic, "--template", "{{i}}", "--count", "100", "-p", "0")
    found = krust.ok("consume", f"{topic}:0", "-o", where, "-e").text.split()
    assert found == [str(number) for number in expected]


def test_limits_and_grep_end_the_reading(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, "--template", "value {{i}}", "--count", "2000", "-p", "0")
    assert krust.ok("consume", topic, "-n", "3").out.count(b"\n") == 3
    found = krust.ok("consume", topic, "-e", "--grep", "7{3}$").text.split("\n")
    assert found == ["value 777", "value 1777", ""]
    assert krust.ok("consume", topic, "-n", "0").out == b""
    assert krust.ok("consume", topic, "-p", "1,2", "-e").out == b""


def test_a_waiting_consumer_gets_new_records_and_leaves_on_ctrl_c(
    krust: Command, topic: str
) -> None:
    argv = krust.argv("consume", topic, "-o", "start")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        krust.ok("produce", topic, given=b"now\n")
        assert waiting.stdout.readline() == b"now\n"
        waiting.send_signal(2)
        assert waiting.wait(WAIT_S) == 130


def committed(krust: Command, topic: str) -> list[bytes]:
    """The values that read_committed readers see."""
    return krust.ok("consume", topic, "-e", "--read-committed").out.splitlines()


def test_a_transaction_commits_all_lines_at_the_end_of_the_input(
    krust: Command, topic: str
) -> None:
    done = krust.ok("produce", topic, "--transaction", "-p", "0", "--json", given=b"a\nb\n")
    assert done.json()[0] | {"topic": ""} == {
        "topic": "",
        "partition": 0,
        "base_offset": 0,
        "records": 2,
    }
    krust.ok("produce", topic, "--transactional-id", f"id-{topic}", "-p", "0", given=b"c\n")
    until(lambda: committed(krust, topic) == [b"a", b"b", b"c"])
    refused = krust("produce", topic, "--transaction", "--acks", "1", given=b"d\n")
    assert (refused.code, "acks=all" in refused.err) == (2, True)


def test_invalid_input_and_refused_records_abort_the_transaction(
    krust: Command, topic: str
) -> None:
    form = ("-f", r"%k\t%v\n")
    failed = krust("produce", topic, "--transaction", *form, given=b"a\tb\nc\td\nonly\n")
    assert failed.code == 2
    assert "line 3" in failed.err
    assert "the transaction was aborted: none of its records takes effect" in failed.err
    failed = krust("produce", topic, "--transaction", given=b"fits\n" + b"x" * (2 << 20))
    assert failed.code != 0
    assert "the transaction was aborted" in failed.err
    krust.ok("produce", topic, "--transaction", given=b"kept\n")
    until(lambda: committed(krust, topic) == [b"kept"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_aborts_the_transaction(
    krust: Command, topic: str, number: signal.Signals
) -> None:
    argv = krust.argv("produce", topic, "--transaction")
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as waiting:
        assert waiting.stdin is not None
        assert waiting.stderr is not None
        waiting.stdin.write(b"lost\n")
        waiting.stdin.flush()
        until(lambda: krust.ok("consume", topic, "-e").out == b"lost\n")
        waiting.send_signal(number)
        assert waiting.wait(WAIT_S) == 128 + number
        assert b"the transaction was aborted" in waiting.stderr.read()
    krust.ok("produce", topic, "--transaction", given=b"kept\n")
    until(lambda: committed(krust, topic) == [b"kept"])


def test_a_closed_pipe_is_not_an_error(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, "--template", "x" * 200, "--count", "5000")
    argv = krust.argv("consume", topic, "-e")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.readline()
        writing.stdout.close()
        assert writing.wait(WAIT_S) == 0
        assert writing.stderr.read() == b""


def test_benches_report_records_and_rates(krust: Command, topic: str) -> None:
    made = krust.ok("bench", "produce", topic, "--count", "20000", "-z", "lz4", "--json").json()
    assert (made["records"], made["bytes"]) == (20_000, 2_000_000)
    read = krust.ok("bench", "consume", topic, "--json").json()
    assert read["records"] == 20_001
    assert read["records_per_second"] > 0


def test_benches_last_for_the_given_duration(krust: Command, topic: str) -> None:
    for command in ("produce", "consume"):
        did = krust.ok("bench", command, topic, "--duration", "300ms", "--json").json()
        assert did["elapsed_ms"] >= 300
        assert did["records"] > 0
