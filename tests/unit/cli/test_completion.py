"""Shell completion offers names that the broker knows, and returns quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import krust
from krust.cli import completion


@pytest.fixture(scope="module")
def broker() -> Iterator[krust.Broker]:
    with krust.Broker() as broker:
        broker.create_topic("orders", 1)
        broker.create_topic("returns", 1)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.produce("orders", b"x")
        given: dict[str, Any] = {"auto_offset_reset": "earliest", "group_id": "billing"}
        with krust.Consumer("orders", bootstrap_servers=broker.bootstrap, **given) as consumer:
            while not consumer.poll(1000):
                pass
            consumer.commit()
        yield broker


def completed(line: str) -> list[str]:
    """What bash is offered for the last word."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    run = subprocess.run(
        [sys.executable, "-m", "krust"],
        env={**os.environ, completion.VARIABLE: "bash_complete", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not run.stderr
    return [each.partition(",")[2] for each in run.stdout.splitlines() if each]


def test_topics_and_groups_are_completed(broker: krust.Broker) -> None:
    asked = f"krust -b {broker.bootstrap}"
    assert completed(f"{asked} topic describe ord") == ["orders"]
    assert completed(f"{asked} consume -n 1 r") == ["returns"]
    assert completed(f"{asked} consume orders -g b") == ["billing"]
    assert completed(f"{asked} group describe ") == ["billing"]


def test_an_unreachable_broker_completes_nothing_silently() -> None:
    assert completed("krust -b 127.0.0.1:1 topic describe ord") == []


def test_commands_are_completed_without_a_broker() -> None:
    assert completed("krust top") == ["topic"]
    assert "create" in completed("krust topic cr")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_of_each_shell_calls_krust(shell: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "krust", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{completion.VARIABLE}={shell}_complete" in run.stdout
