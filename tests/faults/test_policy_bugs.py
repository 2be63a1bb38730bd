"""A bug anywhere in the group policy costs one request and a replay of its group, never the broker.

Each test plants an exception in the coordinator of a broker in this process and lets a client meet
it. It then checks the client's answer, the log, the group after its replay, and another group,
which must not be affected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import krust
from krust._krust import Client
from krust.coordinator import group_coordinator, replies
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.group_coordinator import GroupCoordinator
from krust.errors import Code, KrustError
from tests.coordinated import ready
from tests.waiting import until

PLANTED = "a planted bug"
SETTINGS = {"group.min.session.timeout.ms": 500, "krust.group.connection.grace.ms": 600_000}
LONG_MS, SHORT_MS = 300_000, 7000
"""a time that ends nothing, and one that a test sees pass: no busy machine makes it pass before"""


class Member:
    """A member of a classic group with one partition of `t` to commit."""

    def __init__(
        self,
        broker: krust.Broker,
        group_id: str,
        session_ms: int = LONG_MS,
        rebalance_ms: int = LONG_MS,
    ) -> None:
        self.client, self.group_id = Client(broker.bootstrap), group_id
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.id, self.generation = "", -1

    def join(self) -> dict[str, Any]:
        body = {
            "group_id": self.group_id,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        answer = self.client.request("JoinGroup", body, 3)
        if answer["error_code"] == Code.NONE:
            self.id, self.generation = answer["member_id"], answer["generation_id"]
        return answer

    def sync(self) -> dict[str, Any]:
        assignments = [{"member_id": self.id, "assignment": b"all"}]
        return self.ask("SyncGroup", 3, assignments=assignments)

    def ask(self, api: str, version: int, **more: Any) -> dict[str, Any]:
        me = {"member_id": self.id, "generation_id": self.generation}
        return self.client.request(api, {"group_id": self.group_id, **me, **more}, version)

    def beat(self) -> int:
        return int(self.ask("Heartbeat", 3)["error_code"])

    def commit(self, offset: int) -> int:
        partition = {"partition_index": 0, "committed_offset": offset}
        body = {
            "group_id": self.group_id,
            "member_id": self.id,
            "generation_id_or_member_epoch": self.generation,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        answer = self.client.request("OffsetCommit", body, 7)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def committed(self) -> int:
        topics = [{"name": "t", "partition_indexes": [0]}]
        answer = self.client.request(
            "OffsetFetch", {"group_id": self.group_id, "topics": topics}, 7
        )
        return int(answer["topics"][0]["partitions"][0]["committed_offset"])

    def state(self) -> str:
        answer = self.client.request("DescribeGroups", {"groups": [self.group_id]}, 4)
        return str(answer["groups"][0]["group_state"])


def stable(broker: krust.Broker, group_id: str, **times_ms: int) -> Member:
    member = Member(broker, group_id, **times_ms)
    ready(member.client, group_id)
    assert member.join()["error_code"] == Code.NONE
    assert member.sync()["assignment"] == b"all"
    assert member.commit(5) == Code.NONE
    return member


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[krust.Broker]:
    with krust.Broker(tmp_path, config=SETTINGS) as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def witness(broker: krust.Broker) -> Iterator[Member]:
    """A member of another group, which must not be affected."""
    member = stable(broker, "witness")
    yield member
    assert member.beat() == Code.NONE
    assert member.commit(6) == Code.NONE
    assert member.committed() == 6
    assert member.state() == "Stable"
    broker.create_topic("later")


class Plant:
    """Makes a method fail once; a method of a group fails for one group."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.met = 0

    def into(self, owner: Any, name: str, instead: Callable[..., Any] | None = None) -> None:
        real = getattr(owner, name)

        def once(*given: Any, **named: Any) -> Any:
            if self.met or getattr(given[0], "id", "victim") != "victim":
                return real(*given, **named)
            self.met += 1
            if instead is not None:
                return instead(*given, **named)
            raise RuntimeError(PLANTED)

        self._patch.setattr(owner, name, once)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    return Plant(monkeypatch)


def is_logged(caplog: pytest.LogCaptureFixture) -> bool:
    return any(
        each.name == "krust.groups"
        and each.levelno >= logging.ERROR
        and (PLANTED in each.getMessage() or PLANTED in str(each.exc_info))
        for each in caplog.records
    )


def is_rebuilt(member: Member) -> None:
    """The group is what the log says: the member continues where it was."""
    until(lambda: member.state() == "Stable")
    assert member.beat() == Code.NONE
    assert member.commit(7) == Code.NONE
    assert member.committed() == 7
    assert member.sync()["assignment"] == b"all", "what was synced is not lost"


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("name", ["join", "sync", "leave", "describe", "publish"])
def test_a_request_that_meets_a_bug_is_answered_and_its_group_replayed(
    name: str, broker: krust.Broker, plant: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    victim = stable(broker, "victim")
    plant.into(ClassicGroup, name)
    code: int
    if name in ("join", "publish"):
        code = Member(broker, "victim").join()["error_code"]
    elif name == "sync":
        code = victim.sync()["error_code"]
    elif name == "leave":
        body = {"group_id": "victim", "member_id": victim.id}
        code = victim.client.request("LeaveGroup", body, 2)["error_code"]
    else:
        answer = victim.client.request("DescribeGroups", {"groups": ["victim"]}, 4)
        code = answer["groups"][0]["error_code"]
    wanted = Code.COORDINATOR_NOT_AVAILABLE if name == "publish" else Code.UNKNOWN_SERVER_ERROR
    assert code == wanted
    until(lambda: is_logged(caplog))
    is_rebuilt(victim)


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("api", ["ListGroups", "DeleteGroups"])
def test_a_request_on_many_groups_is_answered(
    api: str,
    broker: krust.Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    victim = stable(broker, "victim")

    def fails(*_: object) -> None:
        raise RuntimeError(PLANTED)

    with monkeypatch.context() as patch:
        patch.setitem(group_coordinator._HANDLERS, api, fails)
        answer = victim.client.request(api, {"groups_names": ["victim"]} if "Del" in api else {})
    found = answer if api == "ListGroups" else answer["results"][0]
    assert found["error_code"] == Code.UNKNOWN_SERVER_ERROR
    until(lambda: is_logged(caplog))
    is_rebuilt(victim)


@pytest.mark.usefixtures("witness")
def test_a_bug_in_an_event_costs_only_its_group(
    broker: krust.Broker, plant: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    victim = stable(broker, "victim", session_ms=SHORT_MS)
    plant.into(ClassicGroup, "expire")
    until(lambda: plant.met == 1)
    until(lambda: is_logged(caplog))
    # It was silent, and is so again after the replay: this time nothing fails.
    until(lambda: victim.state() == "Empty")
    assert victim.committed() == 5


@pytest.mark.usefixtures("witness")
def test_a_bug_at_a_deadline_costs_only_its_group(
    broker: krust.Broker, plant: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    victim = stable(broker, "victim", rebalance_ms=SHORT_MS)
    other = Member(broker, "victim", rebalance_ms=SHORT_MS)
    plant.into(ClassicGroup, "on_time")
    # The first member does not come back: the deadline of the rebalance passes.
    assert other.join()["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert plant.met == 1
    until(lambda: is_logged(caplog))
    until(lambda: victim.state() == "Stable")
    # It is silent again after the replay: this time nothing fails.
    assert other.join()["error_code"] == Code.NONE
    assert other.generation > victim.generation
    assert victim.committed() == 5


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize(
    "answer", [{"no such field": 1}, {"error_code": "x"}, {"members": object()}]
)
def test_an_invalid_answer_costs_only_its_group(
    answer: dict[str, Any],
    broker: krust.Broker,
    plant: Plant,
    caplog: pytest.LogCaptureFixture,
) -> None:
    victim = stable(broker, "victim")
    plant.into(replies, "sync_response", lambda *_, **__: answer)
    with suppress(KrustError):
        assert victim.sync()["error_code"] != Code.NONE
    assert plant.met == 1
    until(lambda: any("victim" in each.getMessage() for each in caplog.records))
    until(lambda: Member(broker, "witness").state() == "Stable")
    is_rebuilt(victim)


@pytest.mark.usefixtures("witness")
def test_an_invalid_record_costs_only_its_group(
    broker: krust.Broker, plant: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    victim = stable(broker, "victim")
    stored = victim.generation
    plant.into(ClassicGroup, "value", lambda *_: {"generation": object()})
    assert victim.join()["error_code"] == Code.NONE
    assert victim.sync()["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert plant.met == 1
    victim.generation = stored
    until(lambda: any("victim" in each.getMessage() for each in caplog.records))
    is_rebuilt(victim)


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("names", [("victim", "other"), ("other", "victim")])
def test_an_answer_on_several_groups_refuses_the_one_that_could_not_be_written(
    names: tuple[str, str], broker: krust.Broker, plant: Plant
) -> None:
    members = {name: stable(broker, name) for name in names}
    for name, member in members.items():
        body = {"group_id": name, "member_id": member.id}
        assert member.client.request("LeaveGroup", body, 2)["error_code"] == Code.NONE
    plant.into(group_coordinator, "_tombstones", lambda *_: object())
    answer = members["victim"].client.request("DeleteGroups", {"groups_names": list(names)})
    codes = {each["group_id"]: each["error_code"] for each in answer["results"]}
    assert codes == {"other": Code.NONE, "victim": Code.COORDINATOR_NOT_AVAILABLE}
    assert plant.met == 1
    until(lambda: members["victim"].state() == "Empty")
    assert members["victim"].committed() == 5
    assert members["other"].state() == "Dead"


@pytest.mark.usefixtures("witness")
def test_a_bug_outside_any_group_replays_all_groups(
    broker: krust.Broker, plant: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    victim = stable(broker, "victim")
    plant.into(GroupCoordinator, "_on_time")
    assert victim.sync()["error_code"] != Code.NONE
    until(lambda: is_logged(caplog))
    until(lambda: Member(broker, "witness").state() == "Stable")
    is_rebuilt(victim)


@pytest.mark.usefixtures("witness")
def test_a_group_that_cannot_be_replayed_loses_its_members_and_keeps_its_offsets(
    broker: krust.Broker, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = stable(broker, "victim")
    plant.into(ClassicGroup, "sync")

    def unreadable(*_: object) -> None:
        raise RuntimeError(PLANTED)

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "replayed", unreadable)
        assert victim.sync()["error_code"] == Code.UNKNOWN_SERVER_ERROR
        until(lambda: victim.beat() == Code.UNKNOWN_MEMBER_ID)
    victim.id = ""
    assert victim.join()["error_code"] == Code.NONE
    assert victim.committed() == 5


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("name", ["heartbeat", "converge", "publish"])
def test_a_consumer_group_is_replayed_too(
    name: str, broker: krust.Broker, plant: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(broker.bootstrap)
    ready(client, "victim")
    body: dict[str, Any] = {
        "group_id": "victim",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": LONG_MS,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    answer = client.request("ConsumerGroupHeartbeat", body)
    assert answer["error_code"] == Code.NONE
    [owned] = answer["assignment"]["topic_partitions"]
    epoch = answer["member_epoch"]
    again = {
        "group_id": "victim",
        "member_id": "m",
        "member_epoch": epoch,
        "topic_partitions": [owned],
    }
    plant.into(ConsumerGroup, name)
    other = {**body, "member_id": "n"}
    assert client.request("ConsumerGroupHeartbeat", other)["error_code"] in (
        Code.UNKNOWN_SERVER_ERROR,
        Code.COORDINATOR_NOT_AVAILABLE,
    )
    assert plant.met == 1
    until(lambda: is_logged(caplog))
    until(lambda: client.request("ConsumerGroupHeartbeat", again)["error_code"] == Code.NONE)
    described = client.request("ConsumerGroupDescribe", {"group_ids": ["victim"]})["groups"][0]
    assert described["error_code"] == Code.NONE
    assert [each["member_id"] for each in described["members"]] == ["m"]
    assert described["group_epoch"] == epoch
