"""Groups through their commands, on krust and on Kafka alike."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import krust as krust_client
from krust._krust import Client
from tests.three_brokers import Command
from tests.waiting import WAIT_S, until

LINES = b"".join(b"%d\n" % n for n in range(30))
UNSUPPORTED_VERSION = 35
NEEDED = {"FindCoordinator", "JoinGroup", "OffsetCommit", "ListGroups"}


@pytest.fixture(autouse=True)
def served(krust: Command) -> None:
    rows = krust.ok("cluster", "versions", "--json").json()
    if missing := NEEDED - {row["api"] for row in rows}:
        pytest.skip(f"the broker does not serve {', '.join(sorted(missing))}")


@pytest.fixture
def filled(krust: Command, topic: str) -> str:
    """A topic with three partitions of ten records."""
    for partition in range(3):
        krust.ok("produce", topic, "-p", str(partition), given=LINES[:20])
    return topic


@contextmanager
def reading(krust: Command, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """`krust consume` that waits for more, until the block ends."""
    run = subprocess.Popen(
        krust.argv("consume", *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield run
    finally:
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=WAIT_S)
        assert run.returncode == 130, errors


def described(krust: Command, group: str) -> dict[str, Any]:
    done = krust("group", "describe", group, "--json")
    return done.json()[0] if done.code == 0 else {"state": "Dead", "members": [], "lag": None}


def test_a_group_reads_each_record_once_and_goes_on(krust: Command, filled: str) -> None:
    first = krust.ok("consume", filled, "-g", filled, "-n", "12").out.splitlines()
    rest = krust.ok("consume", filled, "-g", filled, "-e").out.splitlines()
    assert (len(first), len(rest)) == (12, 18)
    assert sorted(first + rest) == sorted(LINES[:20].splitlines() * 3)
    assert krust.ok("consume", filled, "-g", filled, "-e").out == b""
    group = described(krust, filled)
    assert (group["state"], group["lag"], group["members"]) == ("Empty", 0, [])
    krust.ok("produce", filled, "-p", "1", given=b"more\n")
    assert described(krust, filled)["lag"] == 1
    [behind] = krust.ok("group", "describe", filled, "--lag-only", "--json").json()[0]["partitions"]
    assert (behind["partition"], behind["committed"], behind["end"]) == (1, 10, 11)


def test_a_member_that_is_terminated_commits_and_leaves(krust: Command, filled: str) -> None:
    run = subprocess.Popen(
        krust.argv("consume", filled, "-g", filled), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    for _ in range(30):
        run.stdout.readline()
    run.terminate()
    _, errors = run.communicate(timeout=WAIT_S)
    assert run.returncode == 143, errors
    group = described(krust, filled)
    assert (group["state"], group["lag"], group["members"]) == ("Empty", 0, [])


def test_lag_ends_at_the_high_watermark_or_at_the_last_stable_offset(
    krust: Command, filled: str
) -> None:
    krust.ok("consume", filled, "-g", filled, "-e")
    writer = krust_client.Producer(bootstrap_servers=krust.bootstrap, transactional_id=filled)
    with writer:
        writer.begin_transaction()
        writer.send(filled, b"open", partition=1).result()
        assert described(krust, filled)["lag"] == 1
        [group] = krust.ok("group", "describe", filled, "--read-committed", "--json").json()
        assert group["lag"] == 0
        place = group["partitions"][1]
        assert (place["committed"], place["last_stable"], place["end"]) == (10, 10, 11)
        text = krust.ok("group", "describe", filled, "--read-committed").text
        assert "LAST STABLE" in text
        offsets = krust_client.Admin(bootstrap_servers=krust.bootstrap)
        with offsets:
            latest = {(filled, 1): "latest"}
            assert offsets.list_offsets(latest) == {(filled, 1): 11}
            stable = offsets.list_offsets(latest, isolation_level="read_committed")
            assert stable == {(filled, 1): 10}


def test_members_share_partitions_and_are_described(krust: Command, filled: str) -> None:
    with reading(krust, filled, "-g", filled):
        until(lambda: len(described(krust, filled)["members"]) == 1)
        with reading(krust, filled, "-g", filled):
            until(lambda: len(described(krust, filled)["members"]) == 2)
            until(lambda: described(krust, filled)["state"] == "Stable")
            group = described(krust, filled)
            shares = [member["assigned"] for member in group["members"]]
            assert sorted(map(len, shares)) == [1, 2]
            assert sorted(one for share in shares for one in share) == [
                [filled, n] for n in range(3)
            ]
            assert {row["member"] for row in group["partitions"]} == {
                member["member_id"] for member in group["members"]
            }
            assert f"{filled}:" in krust.ok("group", "describe", filled, "--members").text
        until(lambda: len(described(krust, filled)["members"]) == 1)
        for refused in (["seek", filled, "--to", "start"], ["delete", filled]):
            done = krust("group", *refused, "--yes")
            assert (done.code, done.out) == (1, b"")
            assert "NON_EMPTY_GROUP (68)" in done.err
    rows = krust.ok("group", "list", "--state", "empty", filled, "--json").json()
    assert [(row["group"], row["state"]) for row in rows] == [(filled, "Empty")]
    assert krust.ok("group", "list", "--state", "stable", filled, "--json").json() == []


def test_the_reasons_of_rebalances_are_shown_or_reported_as_unknown(
    krust: Command, filled: str
) -> None:
    krust.ok("consume", filled, "-g", filled, "-e")
    with reading(krust, filled, "-g", filled):
        until(lambda: described(krust, filled)["state"] == "Stable")
        history = described(krust, filled)["history"]
        text = krust.ok("group", "describe", filled, "--history").text
        if history is None:  # Kafka
            assert "last rebalance: this broker keeps no history" in text
            return
        first, left, last = history
        assert [each["generation"] for each in history] == [1, 2, 3]
        assert [each["members"] for each in history] == [1, 0, 1]
        assert "joined" in first["reasons"][0]["why"]
        assert "left" in left["reasons"][0]["why"]
        assert all(each["ended_ms"] >= each["started_ms"] for each in history)
        assert last["trouble"] is None
        assert "generation 3, 1 member   took" in text
        assert text.count(" joined") == 2
    assert "generation 4, 0 members" in krust.ok("group", "describe", filled).text


def test_a_group_of_the_newer_protocol_is_shown_and_moved(krust: Command, filled: str) -> None:
    asked = Client(krust.bootstrap).request("ConsumerGroupDescribe", {"group_ids": [filled]})
    if asked["groups"][0]["error_code"] == UNSUPPORTED_VERSION:  # 3.9 offers it and refuses it
        pytest.skip("the broker does not serve KIP-848")
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": krust.bootstrap,
            "group.id": filled,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "client.id": "newer",
        }
    )
    consumer.subscribe([filled])

    def has_all() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 3

    until(has_all)
    until(lambda: described(krust, filled)["state"] == "Stable")
    group = described(krust, filled)
    [member] = group["members"]
    assert (group["type"], group["protocol"], group["protocol_type"]) == (
        "consumer",
        "uniform",
        "consumer",
    )
    assert group["epoch"] == member["epoch"] >= 1
    assert member["assigned"] == member["target"] == [[filled, n] for n in range(3)]
    assert (member["client_id"], member["subscribed"]) == ("newer", [filled])
    text = krust.ok("group", "describe", filled).text
    assert f"epoch {group['epoch']}   assignor uniform" in text
    history = group["history"]
    assert history is None or "joined" in history[-1]["reasons"][0]["why"]
    assert ("keeps no history" in text) == (history is None)
    [row] = krust.ok("group", "list", filled, "--json").json()
    assert (row["type"], row["state"]) == ("consumer", "Stable")
    assert krust("group", "delete", filled, "--yes").code == 1
    consumer.close()
    until(lambda: described(krust, filled)["state"] == "Empty")
    krust.ok("group", "seek", filled, "--to", "-1", "--yes", "--topic", filled)
    assert described(krust, filled)["lag"] == 3
    krust.ok("group", "delete", filled, "--yes")
    assert described(krust, filled)["state"] == "Dead"


def test_seek_shows_its_plan_and_does_it_with_yes(krust: Command, filled: str) -> None:
    krust.ok("consume", filled, "-g", filled, "-e")
    plan = krust.ok("group", "seek", filled, "--to", "-3", "--json")
    assert [(row["old"], row["new"], row["lag"]) for row in plan.json()] == [(10, 7, 3)] * 3
    assert "--yes does it" in plan.err
    assert described(krust, filled)["lag"] == 0
    krust.ok("group", "seek", filled, "--to", "-3", "--yes", "--topic", f"{filled}:2")
    assert described(krust, filled)["lag"] == 3
    assert len(krust.ok("consume", filled, "-g", filled, "-e").out.splitlines()) == 3
    krust.ok("group", "seek", filled, "--to", "start", "--yes", "--dry-run")
    assert described(krust, filled)["lag"] == 0
    krust.ok("group", "seek", filled, "--to", "@2001-01-01", "--yes")
    assert described(krust, filled)["lag"] == 30


def test_seek_takes_offsets_of_a_group_or_a_file(krust: Command, filled: str) -> None:
    one, two = f"{filled}-one", f"{filled}-two"
    lines = f"# kept\n{filled} 0 4\n{filled},1,5\n".encode()
    krust.ok("group", "seek", one, "--to-file", "-", "--yes", given=lines)
    krust.ok("group", "seek", two, "--to-group", one, "--yes")
    rows = krust.ok("group", "describe", two, "--json").json()[0]["partitions"]
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == [
        (0, 4, 6),
        (1, 5, 5),
    ]
    bad = krust("group", "seek", one, "--to-file", "-", given=f"{filled} 0\n".encode())
    assert (bad.code, "line 1" in bad.err) == (2, True)
    nowhere = krust("group", "seek", one, "--to-file", "-", given=f"{filled} 9 0\n".encode())
    assert (nowhere.code, "has no partition 9" in nowhere.err) == (5, True)


def test_groups_and_offsets_are_deleted(krust: Command, filled: str) -> None:
    one, two = f"{filled}-one", f"{filled}-two"
    for group in (one, two):
        krust.ok("group", "seek", group, "--to", "end", "--topic", filled, "--yes")
    assert krust.ok("group", "drop-offsets", one, f"{filled}:1", "--json").json() == [
        {"topic": filled, "partitions": [1], "dropped": False}
    ]
    krust.ok("group", "drop-offsets", one, f"{filled}:1", "--yes")
    assert [row["partition"] for row in described(krust, one)["partitions"]] == [0, 2]
    assert krust("group", "drop-offsets", one, f"{filled}:1", "--yes").code == 5
    krust.ok("group", "delete", one, two)
    assert described(krust, one)["state"] == "Empty"
    done = krust("group", "delete", one, two, f"{filled}-none", "--yes", "--json")
    assert done.code == 8
    assert [row["deleted"] for row in json.loads(done.out)] == [True, True]
    assert described(krust, one)["state"] == "Dead"


def test_a_misspelt_group_is_answered_with_a_suggestion(krust: Command, filled: str) -> None:
    krust.ok("group", "seek", f"{filled}-abcd", "--to", "end", "--topic", filled, "--yes")
    for args in (["describe"], ["delete"], ["seek", "--to", "end"], ["drop-offsets"]):
        more = [filled] if args == ["drop-offsets"] else []
        done = krust("group", *args, f"{filled}-abdc", *more)
        assert (done.code, done.out) == (5, b"")
        assert "GROUP_ID_NOT_FOUND (69)" in done.err
        assert f'did you mean "{filled}-abcd"?' in done.err


@pytest.mark.parametrize(
    "args",
    [
        ("group", "seek", "g"),
        ("group", "seek", "g", "--to", "end", "--to-group", "h"),
        ("consume", "t", "-g", "g", "-p", "0"),
        ("consume", "t", "-g", "g", "-o", "1:2"),
    ],
)
def test_contradicting_options_are_a_usage_error(krust: Command, args: tuple[str, ...]) -> None:
    assert krust(*args).code == 2
