"""A user's replica selector, and every way in which it can fail."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from krust.config import load
from krust.runtime.selector_calls import Brokers, SelectorCalls
from tests.waiting import until

if TYPE_CHECKING:
    from krust._krust import Server
    from krust.replica_selectors.selector import Question

MODULE = '''
import os, time

class Last:
    """The last in-sync replica that is in the rack, whatever comes before the dash."""
    name = "last"
    suffix = ""

    def configure(self, configs):
        self.suffix = configs.get("suffix", "")

    def select(self, topic, partition, rack, replicas):
        print("not for the broker's ears")
        near = [r.broker for r in replicas if r.is_in_sync and r.rack == rack + self.suffix]
        return near[-1] if near else None

class Raises(Last):
    def select(self, topic, partition, rack, replicas):
        raise LookupError("planted")

class Slow(Last):
    def select(self, topic, partition, rack, replicas):
        time.sleep(60)

class Dies(Last):
    def select(self, topic, partition, rack, replicas):
        os._exit(7)

class Stranger(Last):
    def select(self, topic, partition, rack, replicas):
        return 3
'''
BROKERS = Brokers(0, {0: "a", 1: "b", 2: "b-x"})


class Double:
    """A core that keeps the answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []

    def answer(self, ticket: int, response: Any) -> None:
        self.answers.append((ticket, response["selections"]))


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "selectors_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def question(rack: str, isr: list[int]) -> Question:
    return {"topic": "t", "partition": 0, "rack": rack, "isr": isr, "replicas": [0, 1, 2, 3]}


def selected(name: str, *questions: Question, **more: object) -> list[int]:
    given: dict[str, object] = {"replica.selector.class": f"selectors_of_mine:{name}"}
    double = Double()
    config = load(options={**given, **more})
    selecting = SelectorCalls(config, cast("Server", double))
    selecting.start(7, questions, BROKERS)
    until(lambda: double.answers)
    selecting.close()
    [(ticket, answer)] = double.answers
    assert ticket == 7
    return cast("list[int]", answer)


def test_a_selector_chooses_for_each_partition_and_rack() -> None:
    every = [0, 1, 2]
    questions = (question("b", every), question("b-x", every), question("b", [0]))
    assert selected("Last", *questions) == [1, 2, -1]


def test_a_selector_has_parameters() -> None:
    asked = question("b", [0, 1, 2])
    assert selected("Last", asked, **{"replica.selector.class.last.suffix": "-x"}) == [2]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Raises", "planted"),
        ("Slow", "in select"),
        ("Dies", "no answer within"),
        ("Stranger", "3 is none of its in-sync replicas [0, 1]"),
        ("Missing", "has no Missing"),
    ],
)
def test_a_failing_selector_is_logged_and_leaders_are_read(
    name: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "krust.replicas"):
        assert selected(name, question("b", [0, 1])) == []
    assert says in caplog.text
    assert "consumers read the leaders of 1 partitions" in caplog.text
