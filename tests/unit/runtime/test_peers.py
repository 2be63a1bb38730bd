"""Requests to other brokers arrive in order; an unreachable broker delays no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import krust
from krust.controller.controller import Controller
from krust.controller.entities import LiveBroker
from krust.controller.state import BrokerRequest
from krust.errors import Code, ConfigError, UnreachableError
from krust.messages import Message
from krust.metadata.contents import Endpoint
from krust.runtime import peers
from krust.runtime.peers import Peers
from tests.waiting import WAIT_S, until

DONE: Message = {"error_code": 0}
NOT_NOW: Message = {"error_code": Code.REQUEST_TIMED_OUT}


class Wire:
    """Stands for the connections: what was said to whom, and what is answered."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.script: list[Message | Exception] = []
        self.holds = False
        self.held = threading.Event()
        self.heard = threading.Event()
        self.cut: set[int] = set()
        self.refusals: list[Exception] = []
        """why the next connections cannot be set up"""

    def client(self, address: str, options: dict[str, object]) -> Connection:
        if self.refusals:
            raise self.refusals.pop()
        return Connection(self, address)

    def answer(self, address: str, message: Message) -> Message:
        self.said.append((address, message["n"]))
        answer = self.script.pop(0) if self.script else DONE
        if isinstance(answer, Exception):
            raise answer
        return answer


class Connection:
    def __init__(self, wire: Wire, address: str) -> None:
        self._wire, self._address = wire, address
        self._ended = threading.Event()

    def request(self, api: str, message: Message) -> Message:
        if self._wire.holds:
            self._wire.held.set()
            self._ended.wait()
            raise KeyboardInterrupt
        return self._wire.answer(self._address, message)

    def end(self) -> None:
        self._ended.set()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(peers, "Client", wire.client)
    monkeypatch.setattr(peers, "PAUSE_S", (0.001, 0.002))
    return wire


@pytest.fixture
def others(wire: Wire) -> Iterator[Peers]:
    made = Peers(0, "INNER", wire.heard.set, lambda broker: broker not in wire.cut, dict)
    made.follow({0: live(90), 1: live(91), 2: live(92)})
    yield made
    made.close()


def live(port: int, epoch: int = 5) -> LiveBroker:
    outer = Endpoint("OUTER", "PLAINTEXT", "far", 1)
    return LiveBroker(epoch, None, (outer, Endpoint("INNER", "PLAINTEXT", "::1", port)))


def tell(number: int, broker: int = 1, api: str = "UpdateMetadata") -> BrokerRequest:
    return BrokerRequest(broker, api, {"n": number})


def wait(others: Peers, wire: Wire, count: int) -> list[tuple[int, Any]]:
    """So many answers: which request, and its answer."""
    found: list[tuple[int, Any]] = []
    while len(found) < count:
        assert wire.heard.wait(WAIT_S)
        wire.heard.clear()
        found += [(asked.message["n"], answer) for asked, answer in others.answers()]
    return found


def test_requests_arrive_in_order_on_the_brokers_own_listener(others: Peers, wire: Wire) -> None:
    sent = [tell(number) for number in range(20)]
    for each in sent:
        others.send(each)
    assert wait(others, wire, 20) == [(number, DONE) for number in range(20)]
    assert wire.said == [("[::1]:91", number) for number in range(20)]


@pytest.mark.parametrize("failure", [UnreachableError("refused"), NOT_NOW])
def test_a_refused_control_request_is_sent_again_before_the_next(
    others: Peers, wire: Wire, failure: Any
) -> None:
    wire.script = [failure, failure, DONE]
    others.send(tell(1))
    others.send(tell(2))
    assert wait(others, wire, 2) == [(1, DONE), (2, DONE)]
    assert [number for _, number in wire.said] == [1, 1, 1, 2]


def test_a_control_request_is_not_lost_while_a_certificate_cannot_be_read(
    others: Peers, wire: Wire
) -> None:
    wire.refusals = [ConfigError("no certificate"), ConfigError("no certificate")]
    others.send(tell(1))
    others.send(tell(2))
    assert wait(others, wire, 2) == [(1, DONE), (2, DONE)]


@pytest.mark.parametrize("failure", [UnreachableError("closed"), NOT_NOW])
def test_a_proposed_isr_is_sent_once_whatever_becomes_of_it(
    others: Peers, wire: Wire, failure: Any
) -> None:
    wire.script = [failure, DONE]
    others.send(tell(1, api="AlterPartition"))
    others.send(tell(2))
    assert wait(others, wire, 2) == [(1, None), (2, DONE)]
    assert [number for _, number in wire.said] == [1, 2]


@pytest.mark.parametrize("after", [{}, {1: live(91, epoch=6)}], ids=["gone", "registered again"])
def test_requests_for_a_broker_that_restarted_are_dropped(
    others: Peers, wire: Wire, after: dict[int, LiveBroker]
) -> None:
    wire.holds = True
    others.send(tell(1))
    others.send(tell(2))
    assert wire.held.wait(WAIT_S)
    others.follow(after)
    assert wait(others, wire, 2) == [(1, None), (2, None)]
    wire.holds = False
    others.send(tell(3))
    assert wait(others, wire, 1) == [(3, DONE if after else None)]


def test_a_client_is_answered_when_the_controller_is_silent(
    others: Peers, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FORWARDED_MS", 0)
    wire.script = [UnreachableError("nobody"), ConfigError("no such field")]
    others.send(tell(1, api="CreateTopics"))
    others.send(tell(2))
    others.send(tell(3))
    assert wait(others, wire, 3) == [(1, None), (2, None), (3, DONE)]


def test_an_unreachable_broker_delays_no_other(others: Peers, wire: Wire) -> None:
    others.follow({1: live(91), 2: LiveBroker(5, None, ())})
    others.send(tell(1, broker=2))
    others.send(tell(2, broker=1))
    others.send(tell(3, broker=7))
    answers = wait(others, wire, 2)
    assert sorted(answers) == [(2, DONE), (3, None)]
    others.close()
    assert wait(others, wire, 1) == [(1, None)]


def test_a_broker_that_is_cut_off_is_asked_again_when_it_is_in_reach(
    others: Peers, wire: Wire
) -> None:
    wire.cut.add(1)
    others.send(tell(1, broker=1))
    others.send(tell(2, broker=2))
    assert wait(others, wire, 1) == [(2, DONE)]
    assert wire.said == [("[::1]:92", 2)]
    wire.cut.clear()
    others.reach_changed()
    assert wait(others, wire, 1) == [(1, DONE)]


def test_an_answer_that_arrives_after_the_cut_is_lost(others: Peers, wire: Wire) -> None:
    def cuts(address: str, message: Message) -> Message:
        wire.said.append((address, message["n"]))
        if len(wire.said) == 1:
            wire.cut.add(1)
            wire.held.set()
        return DONE

    wire.answer = cuts  # type: ignore[method-assign]
    others.send(tell(1))
    assert wire.held.wait(WAIT_S)
    assert others.answers() == []
    wire.cut.clear()
    others.reach_changed()
    assert wait(others, wire, 1) == [(1, DONE)]
    assert len(wire.said) == 2


def test_a_request_that_waits_ends_with_the_cut_and_is_sent_again(
    others: Peers, wire: Wire
) -> None:
    wire.holds = True
    others.send(tell(1))
    assert wire.held.wait(WAIT_S)
    wire.cut.add(1)
    others.reach_changed()
    wire.holds = False
    wire.cut.clear()
    others.reach_changed()
    assert wait(others, wire, 1) == [(1, DONE)]


def test_a_malformed_answer_to_the_controller_does_not_end_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(*_: object) -> None:
        raise KeyError("error_code")

    monkeypatch.setattr(Controller, "on_peer_answer", raises)
    with krust.Broker() as broker:
        broker._running()._peer_queues().send(tell(1, broker=9))
        broker.create_topic("after")
        assert broker.topics() == ["after"]
        until(lambda: "the answer of broker 9 to UpdateMetadata is dropped" in caplog.text)
