"""A member that closes leaves its group even if a listener or the last commit fails."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

import krust
from krust import _krust
from krust.clients.consumer import Consumer
from krust.errors import KafkaError
from tests.clients.test_consumer_member import serves
from tests.clients.test_group import fill, patient, settle, until
from tests.leftovers import nothing_left

End = Callable[[Consumer], None]


class ListenerError(Exception):
    """What a listener of the user's raises."""


def fails(consumer: Consumer, places: list[krust.TopicPartition]) -> None:
    raise ListenerError(f"{len(places)} partitions")


@pytest.fixture(params=["classic", "consumer"])
def settings(request: pytest.FixtureRequest, bootstrap: str, topic: str) -> dict[str, object]:
    """A group of either protocol over a topic of three partitions of ten records."""
    if request.param == "consumer" and not serves(bootstrap):
        pytest.skip("this broker has no consumer groups (KIP-848)")
    fill(bootstrap, topic)
    pace = {"heartbeat.interval.ms": 100} if request.param == "classic" else {}
    return {
        **pace,
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "group.protocol": request.param,
        "auto.offset.reset": "earliest",
    }


@pytest.mark.parametrize("end", [Consumer.close, Consumer.unsubscribe])
def test_a_member_whose_listener_raises_leaves_its_group_and_no_thread(
    settings: dict[str, object], topic: str, end: End
) -> None:
    with nothing_left():
        one = krust.Consumer(settings)
        one.subscribe([topic], on_revoke=fails)
        settle(3, one)
        with pytest.raises(ListenerError, match="3 partitions"):
            end(one)
        assert "krust-member" not in {thread.name for thread in threading.enumerate()}
        assert not one.assignment()
        assert not one.subscription()
        with krust.Consumer(settings) as two:
            two.subscribe([topic])
            settle(3, two)  # within no session of the one that left
        one.close()


def test_a_member_whose_last_commit_is_refused_leaves_its_group_and_no_thread(
    settings: dict[str, object], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = krust.Consumer(settings)

    def refuse(*_: object) -> None:
        raise KafkaError("too large", code=28, name="INVALID_COMMIT_OFFSET_SIZE", retriable=False)

    monkeypatch.setattr(one, "commit", refuse)
    with nothing_left():
        one.subscribe([topic])
        settle(3, one)
        with pytest.raises(KafkaError, match="too large"):
            one.close()
    with krust.Consumer(settings) as two:
        two.subscribe([topic])
        settle(3, two)


def test_a_listener_that_raises_while_its_group_rebalances_is_called_again(
    settings: dict[str, object], topic: str
) -> None:
    calls: list[int] = []

    def fails_once(_: Consumer, places: list[krust.TopicPartition]) -> None:
        calls.append(len(places))
        if len(calls) == 1:
            raise ListenerError

    with krust.Consumer(settings) as one, krust.Consumer(settings) as two:
        one.subscribe([topic], on_revoke=fails_once)
        settle(3, one)
        two.subscribe([topic])
        with contextlib.suppress(ListenerError):
            until(lambda: len(calls) == 1, two, one)
        settle(3, one, two)
        assert calls[0] == calls[1]


def test_a_removed_member_commits_nothing_and_its_on_lost_is_called(
    bootstrap: str, settings: dict[str, object], topic: str
) -> None:
    heard: list[str] = []
    slow = krust.Consumer(settings, auto_commit_interval_ms=600_000)
    slow.subscribe(
        [topic],
        on_revoke=lambda *_: heard.append("revoked"),
        on_lost=lambda *_: heard.append("lost"),
    )
    settle(3, slow)
    until(lambda: all(slow.position(topic, p) == 10 for p in range(3)), slow)
    patient(slow, 1)
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        while not is_empty(bootstrap, topic):
            time.sleep(0.02)
        with pytest.raises(KafkaError) as caught:
            slow.commit()  # an empty group would take it from anybody
        assert caught.value.name == "UNKNOWN_MEMBER_ID"
        slow.close()
        assert not admin.committed(topic, topic, 3)
    assert heard == ["lost"]


def is_empty(bootstrap: str, group: str) -> bool:
    """Whether a group of either kind has no members."""
    groups = _krust.Client(bootstrap).request("ListGroups", {})["groups"]
    return any(one["group_state"] == "Empty" for one in groups if one["group_id"] == group)
