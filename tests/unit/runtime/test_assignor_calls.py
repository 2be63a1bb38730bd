"""Assignors run in this process or another one; slow, wrong and dead ones are handled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from krust import plugin_worker
from krust.coordinator.assignors.assignor import GroupAssignment, GroupSpec, TopicDescriber, Topics
from krust.coordinator.consumer_protocol import Subscription, read_assignment, write_subscription
from krust.coordinator.events import AssignCall
from krust.messages import Message
from krust.plugin_process import PluginFailedError
from krust.runtime import assignor_calls, own_thread
from krust.runtime.assignor_calls import AssignorCalls, AssignorRule, deadline_s
from krust.runtime.runners import OnOwnThread
from tests.leftovers import nothing_left
from tests.waiting import until_is

MODULE = '''
import os, time

class First:
    """All to the first member."""
    name = "first"

    def assign(self, group, topics):
        first = min(group.members)
        return {first: [(t, p) for t in group.members[first].topics
                        for p in range(topics.partitions(t))]}

class Speaks(First):
    def assign(self, group, topics):
        print("not for the broker's ears")
        return super().assign(group, topics)

class Slow(First):
    def assign(self, group, topics):
        if not os.path.exists("calm"):
            time.sleep(60)
        return super().assign(group, topics)

class Raises(First):
    def assign(self, group, topics):
        raise LookupError("planted")

class Lies(First):
    def assign(self, group, topics):
        return {member: [("t", 0)] for member in group.members}

class Dies(First):
    def assign(self, group, topics):
        os._exit(7)

class Odd(First):
    def assign(self, group, topics):
        return object()
'''
SUBSCRIPTION = write_subscription(Subscription(("t",)))
MEMBERS = [(who, None, SUBSCRIPTION, b"") for who in ("m1", "m2")]
TOPICS = Topics({"t": 4})
FIRST, EVEN = {"m1": [0, 1, 2, 3], "m2": []}, {"m1": [0, 2], "m2": [1, 3]}
PATIENCE_S = 90
CALM_MS, HANGS_MS = 60_000, 6000
"""what an answer may take on a busy machine, and what one that will not come is waited for"""


class AskedAssignors:
    """Assignors, and who waits for them."""

    def __init__(self, *rules: AssignorRule) -> None:
        self._woken = threading.Event()
        self.assigning = AssignorCalls(rules, self._woken.set, CALM_MS)

    def start(self, group_id: str = "g", **more: Any) -> None:
        members: Any = MEMBERS if "group" not in more else []
        call = AssignCall(group_id, 1, "range", members, ["t"])._replace(**more)
        self.assigning.start(call, TOPICS)

    def answer(self) -> Message:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self._woken.wait(1)
            self._woken.clear()
            for event in self.assigning.take():
                assert (event.ticket, event.api) == (0, "Assigned")
                return event.message
        raise AssertionError("no answer")

    def shares(self, **more: Any) -> tuple[dict[str, list[int]], str | None]:
        self.start(**more)
        message = self.answer()
        given = message["assignments"].items()
        return {
            who: [place.partition for place in read_assignment(data).partitions]
            for who, data in given
        }, message["line"]


@contextmanager
def asked(*assignors: Any) -> Iterator[AskedAssignors]:
    one = AskedAssignors(*(AssignorRule("g", each) for each in assignors))
    try:
        yield one
    finally:
        one.assigning.close()


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given up because the machine is busy."""
    monkeypatch.setattr(assignor_calls, "QUEUE_S", CALM_MS / 1000)
    for name in ("GRACE_S", "START_S"):
        monkeypatch.setattr(plugin_worker, name, CALM_MS / 1000)
    monkeypatch.setattr(assignor_calls, "MOST_MS", CALM_MS)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working directory."""
    (tmp_path / "shelf_of_assignors.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "shelf_of_assignors"


def test_the_deadline_grows_with_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert deadline_s(3, 12) == 0.05
    assert deadline_s(5_000, 5_000) == 0.2
    assert deadline_s(10_000, 1_000_000) == 5
    assert deadline_s(3, 12, 1000) == 1


def test_assignors_of_krust_and_of_the_working_directory_assign(module: str) -> None:
    with asked("uniform") as one:
        assert one.shares() == (EVEN, None)
    with asked(f"{module}:First") as one:
        assert one.shares() == (FIRST, None)
        assert one.shares() == (FIRST, None)


def test_output_of_an_assignor_is_harmless(module: str) -> None:
    with asked(f"{module}:Speaks") as one:
        assert one.shares() == (FIRST, None)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("Raises", "LookupError: planted"),
        ("Lies", "t:0 goes to 'm1' and 'm2'"),
        ("Odd", "not a mapping of members but <object"),
        ("Dies", "exit code 7"),
        ("Missing", "shelf_of_assignors has no Missing"),
    ],
)
def test_the_default_assigns_after_a_failing_assignor_which_is_logged(
    module: str, kind: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with asked(f"{module}:{kind}") as one:
        shares, line = one.shares()
        assert shares == EVEN
        assert line is not None
        assert why in line
        assert f"{module}:{kind} failed, uniform assigned instead" in caplog.text
        assert one.shares()[0] == EVEN


def test_a_hanging_assignor_is_logged_with_its_stack_and_restarted(module: str) -> None:
    one = AskedAssignors(AssignorRule("g", f"{module}:Slow"))
    one.assigning._least_ms = HANGS_MS
    try:
        shares, line = one.shares()
        assert shares == EVEN
        assert line is not None
        assert "in assign" in line
        assert f"{module}.py" in line
        Path("calm").touch()
        until_is((FIRST, None), one.shares)
    finally:
        one.assigning.close()


class Local:
    """Lives here: what it does to this process is seen."""

    name = "local"

    def __init__(self) -> None:
        self.hold = threading.Event()
        self.hold.set()
        self.raises = False

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        self.hold.wait()
        if self.raises:
            raise LookupError("planted")
        return {"m1": [("t", number) for number in range(topics.partitions("t"))]}


def test_an_assignor_object_runs_in_a_thread_that_is_abandoned_when_it_hangs() -> None:
    local = Local()
    with asked(local) as one:
        assert one.shares() == (FIRST, None)
        local.raises = True
        shares, line = one.shares()
        assert shares == EVEN
        assert line is not None
        assert "LookupError: planted" in line
        local.raises = False
        local.hold.clear()
        one.assigning._queues[next(iter(one.assigning._queues))]._least_ms = HANGS_MS
        shares, line = one.shares()
        assert shares == EVEN
        assert line is not None
        assert "self.hold.wait()" in line
        assert "krust/runtime/" not in line
        local.hold.set()


def test_the_number_of_hanging_threads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "may_abandon", threading.BoundedSemaphore(1))
    monkeypatch.setattr(own_thread, "ABANDONED_MAX", 1)
    hangs = Local()
    hangs.hold.clear()
    topics = Topics({"t": 1})
    with pytest.raises(PluginFailedError, match="no answer"):
        OnOwnThread(hangs).run(GroupSpec({}), topics, 0.05)
    with pytest.raises(PluginFailedError, match="1 threads hang"):
        OnOwnThread(Local()).run(GroupSpec({}), topics, 5)
    hangs.hold.set()


def test_a_hanging_assignor_delays_no_other(module: str) -> None:
    one = AskedAssignors(AssignorRule("slow", f"{module}:Slow"), AssignorRule("g", "range"))
    try:
        one.start("slow")
        assert one.shares() == ({"m1": [0, 1], "m2": [2, 3]}, None)
    finally:
        one.assigning.close()


def test_the_first_matching_pattern_chooses_the_assignor() -> None:
    one = AskedAssignors(AssignorRule("a-*", "range"), AssignorRule("*", "uniform"))
    assert one.assigning.wants("b")
    assert one.shares(group_id="a-1")[0] == {"m1": [0, 1], "m2": [2, 3]}
    assert one.shares(group_id="b")[0] == EVEN
    one.assigning.close()
    assert not AskedAssignors(AssignorRule("a-*", "range")).assigning.wants("b")


def test_groups_of_kafka_streams_are_assigned_by_their_leaders() -> None:
    with asked("uniform") as one:
        one.start(protocol="stream")
        message = one.answer()
        assert message["assignments"] is None
        assert "its leader's own" in message["line"]


def test_a_consumer_group_gets_partitions_and_names_its_assignor() -> None:
    from krust.coordinator.assignors.assignor import MemberSpec

    group = GroupSpec({who: MemberSpec(frozenset({"t"})) for who in ("m1", "m2")}, "g")
    with asked() as one:
        one.start(kind="consumer", assignor="range", group=group)
        given = one.answer()["assignments"]
        assert given == {"m1": [("t", 0), ("t", 1)], "m2": [("t", 2), ("t", 3)]}


def test_a_closed_assigner_leaves_no_process_thread_or_descriptor(module: str) -> None:
    with nothing_left():
        for kind in ("First", "Slow"):
            with asked(f"{module}:{kind}") as one:
                one.assigning.warm()
                one.start()
