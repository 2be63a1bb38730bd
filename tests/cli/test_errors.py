"""Errors say what, why and what to do; the exit code is the one promised; data stays on stdout."""

from __future__ import annotations

import json

import pytest

from tests.three_brokers import Command

NOBODY = Command("127.0.0.1:1")


def test_a_misspelt_topic_is_answered_with_a_suggestion(krust: Command, topic: str) -> None:
    done = krust("consume", topic.replace("cli", "cil"), "-n1")
    assert (done.code, done.out) == (5, b"")
    first, second = done.err.splitlines()
    assert first.startswith("error: topic ")
    assert first.endswith("UNKNOWN_TOPIC_OR_PARTITION (3)")
    assert f'did you mean "{topic}"?' in second


def test_errors_as_json_have_every_field(krust: Command) -> None:
    done = krust("topic", "describe", "no-such-topic", "--json")
    error = json.loads(done.err)["error"]
    assert error["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (error["kafka_code"], error["exit"], error["retriable"]) == (3, 5, True)
    assert "create it" in error["hint"]


def test_an_unreachable_broker_is_exit_4_with_one_line_and_a_hint() -> None:
    for args in (["topic", "list"], ["produce", "t", "--template", "x"], ["consume", "t"]):
        done = NOBODY(*args)
        assert done.code == 4, done.err
        assert "cannot connect to 127.0.0.1:1: connection refused" in done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "args",
    [
        ["consume", "t", "-o", "yesterday"],
        ["consume", "t", "-f", "%z"],
        ["consume", "t", "--grep", "("],
        ["consume", "t:one"],
        ["produce", "t", "-f", "no verb"],
        ["produce", "t", "--template", "{{what}}"],
        ["topic", "create", "t:many"],
        ["topic", "alter", "t"],
        ["topic", "list", "-X", "no.such.property=1"],
        ["topic", "list", "--timeout", "soon"],
        ["topic", "list", "-b", "host:port"],
        ["config", "show", "--topic", "t", "--broker", "1"],
        ["log", "dump", "/", "-o", "@-1h"],
    ],
)
def test_an_invalid_argument_is_exit_2(args: list[str]) -> None:
    done = NOBODY(*args)
    assert done.code == 2, done.err
    assert "Traceback" not in done.err


def test_a_setting_is_explained_without_any_broker() -> None:
    done = NOBODY.ok("config", "explain", "retention.ms", "--json").json()
    assert (done["name"], done["default"], done["scope"]) == ("retention.ms", "604800000", "topic")
    every = NOBODY.ok("config", "explain", "--json").json()
    assert {one["type"] for one in every if one["name"] == "retention.ms"} == {"long"}
    missing = NOBODY("config", "explain", "retention.mss")
    assert missing.code == 5
    assert "did you mean" in missing.err
