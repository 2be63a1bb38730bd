"""Calls of assignors: which assignor serves a group, where it runs, the notification `Assigned`.

Each assignor has a queue and a thread, made at its first call, so an assignor that hangs delays
only its own groups. The queue keeps the newest call of a group. A call ends within QUEUE_S, the
deadline and the time of krust's default together. If an assignor raises, hangs or breaks a rule, or
if its queue does not move, krust logs an error, writes the traceback into the group's history and
assigns with `uniform`. If `uniform` fails too, the leader's assignment holds.
Threads: the policy thread calls `start`, `take` and `wants`. `wakeup` wakes it, from any thread.
Not promised: an answer after `close`.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from krust.coordinator import assignor_data
from krust.coordinator.assignors import find
from krust.coordinator.events import Event
from krust.named_tuple import NamedTuple
from krust.plugin_process import PluginFailedError
from krust.runtime.runners import OnCallingThread, OnOwnThread, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krust.coordinator.assignors.assignor import Assignor, GroupAssignment, Topics
    from krust.coordinator.events import AssignCall, Assigned
    from krust.plugins import Parameters
    from krust.runtime.runners import AssignorRunner

    Assignments = dict[str, bytes] | GroupAssignment

DEFAULT_ASSIGNOR = "uniform"
LEAST_MS, MOST_MS, EACH_MS = 50, 5000, 0.02
QUEUE_S = 5.0
"""A call that waited longer in the queue goes to the default."""
_CLOSE_S = 5.0

_log = logging.getLogger("krust.groups")


class AssignorRule(NamedTuple):
    """Which groups an assignor serves."""

    pattern: str
    assignor: str | Assignor
    """its name, its import path, or the object"""


class CallResult(NamedTuple):
    """How a call ended."""

    assignments: Assignments | None
    """None: the leader's assignment holds"""
    line: str | None
    """what went wrong, for the group's history"""
    assignor: str | None
    """the assignor that made the assignments"""


def deadline_s(members: int, partitions: int, least_ms: int = LEAST_MS) -> float:
    """How long an assignor may take for a group of this size."""
    return min(max(least_ms, EACH_MS * (members + partitions)), MOST_MS) / 1000


class AssignorCalls:
    """The assignors of one broker."""

    def __init__(
        self,
        rules: Sequence[AssignorRule],
        wakeup: Callable[[], None],
        least_ms: int = LEAST_MS,
        parameters: Parameters | None = None,
    ) -> None:
        self._rules = rules
        self._wakeup = wakeup
        self._least_ms = least_ms
        self._parameters = parameters
        self._queues: dict[str, _CallQueue] = {}
        self._done: deque[Event[Assigned[Assignments]]] = deque()
        self._objects: dict[str, Assignor] = {}
        for rule in rules:
            if isinstance(rule.assignor, str):
                continue
            self._objects[_key(rule)] = rule.assignor
            if rule.assignor.name not in find.BUILT_IN:  # members may ask for it by its name
                self._objects[rule.assignor.name] = rule.assignor

    def wants(self, group_id: str) -> bool:
        """Whether krust assigns in this group of the kind `classic`."""
        return self._rule(group_id) is not None

    def warm(self) -> None:
        """Load the assignors of the rules in the background."""
        for rule in self._rules:
            self._queue_of(_key(rule)).warm()

    def start(self, call: AssignCall, topics: Topics) -> None:
        """Queue a call; `take` returns its answer."""
        if call.protocol in assignor_data.LEADER_ONLY_PROTOCOLS:
            line = f"protocol {call.protocol} is its leader's own; krust does not assign in it"
            self._report(call, CallResult(None, line, None))
            return
        rule = self._rule(call.group_id)
        key = call.assignor or (_key(rule) if rule is not None else DEFAULT_ASSIGNOR)
        self._queue_of(key).put(call, topics)

    def take(self) -> list[Event[Assigned[Assignments]]]:
        """The answers since the last call."""
        taken = []
        while self._done:
            taken.append(self._done.popleft())
        return taken

    def close(self) -> None:
        """End all threads and processes."""
        for queue in self._queues.values():
            queue.kill()
        for queue in self._queues.values():
            queue.join()
        self._queues.clear()

    def _rule(self, group_id: str) -> AssignorRule | None:
        return next((rule for rule in self._rules if fnmatchcase(group_id, rule.pattern)), None)

    def _queue_of(self, key: str) -> _CallQueue:
        queue = self._queues.get(key)
        if queue is None:
            known = self._objects.get(key, key)
            runner = _runner(known, self._parameters)
            queue = self._queues[key] = _CallQueue(key, runner, self._report, self._least_ms)
        return queue

    def _report(self, call: AssignCall, result: CallResult) -> None:
        """Queue the notification of a call that has ended, and wake the policy thread."""
        message: Assigned[Assignments] = {
            "group_id": call.group_id,
            "call": call,
            "assignments": result.assignments,
            "line": result.line,
            "assignor": result.assignor,
        }
        self._done.append(Event(0, "Assigned", 0, message, {}))
        self._wakeup()


def _key(rule: AssignorRule) -> str:
    """The key of an assignor's queue. Two objects with one name have two keys."""
    if isinstance(rule.assignor, str):
        return rule.assignor
    return f"{rule.assignor.name}@{id(rule.assignor):x}"


def _runner(assignor: str | Assignor, parameters: Parameters | None) -> AssignorRunner:
    if not isinstance(assignor, str):
        return OnOwnThread(assignor)
    built_in = find.BUILT_IN.get(assignor)
    return (
        OnCallingThread(built_in()) if built_in is not None else WorkerProcess(assignor, parameters)
    )


class _CallQueue:
    """One assignor, its thread, and the calls that wait for it: the newest of each group."""

    def __init__(
        self,
        key: str,
        runner: AssignorRunner,
        report: Callable[[AssignCall, CallResult], None],
        least_ms: int,
    ) -> None:
        self._name = key.partition("@")[0]
        self._runner = runner
        self._report = report
        self._least_ms = least_ms
        self._waiting: dict[str, tuple[AssignCall, Topics, float]] = {}
        self._changed = threading.Condition()
        self._must_warm = self._stopping = False
        self._logged = ""
        """the last failure to load, which is logged once"""
        self._thread: threading.Thread | None = None

    def put(self, call: AssignCall, topics: Topics) -> None:
        with self._changed:
            since = self._waiting.pop(call.group_id, (None, None, time.monotonic()))[2]
            self._waiting[call.group_id] = (call, topics, since)
            self._wake_thread()

    def warm(self) -> None:
        with self._changed:
            self._must_warm = True
            self._wake_thread()

    def kill(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._runner.kill()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _wake_thread(self) -> None:
        self._changed.notify()
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="krust-assign", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            self._serve(*call)
        self._runner.close()

    def _next(self) -> tuple[AssignCall, Topics, float] | None:
        """Wait for the oldest call; None: the broker stops."""
        while True:
            with self._changed:
                while not (self._waiting or self._must_warm or self._stopping):
                    self._changed.wait()
                if self._stopping:
                    return None
                if not self._must_warm:
                    return self._waiting.pop(next(iter(self._waiting)))
                self._must_warm = False
            try:
                self._runner.warm()
            except PluginFailedError as error:
                if self._logged != str(error) and not self._stopping:
                    self._logged = str(error)
                    _log.error("assignor %s cannot be used: %s", self._name, error)

    def _serve(self, call: AssignCall, topics: Topics, since: float) -> None:
        """Make a call and report its result, whatever happens."""
        try:
            if call.group is not None:
                reading = assignor_data.GroupReading(call.group, {})
            else:
                reading = assignor_data.read_members(call)
            shares, failure = self._shares(reading, topics, since)
            lines = "\n".join([*reading.unread, *([failure] if failure else [])])
            given = (
                shares
                if call.group is not None
                else assignor_data.write_assignments(reading, shares)
            )
            assignor = DEFAULT_ASSIGNOR if failure else self._name
            self._report(call, CallResult(given, lines or None, assignor))
        except Exception:
            text = f"krust cannot assign\n{traceback.format_exc()}"
            _log.error("group %r: %s", call.group_id, text)
            self._report(call, CallResult(None, text, None))

    def _shares(
        self, reading: assignor_data.GroupReading, topics: Topics, since: float
    ) -> tuple[GroupAssignment, str | None]:
        """The shares, and why the assignor failed; then the default made them."""
        group = reading.group
        names = frozenset[str]().union(*(member.topics for member in group.members.values()))
        partitions = sum(map(topics.partitions, names))
        seconds = deadline_s(len(group.members), partitions, self._least_ms)
        try:
            if time.monotonic() - since > QUEUE_S:
                raise PluginFailedError(f"waited {QUEUE_S:.0f} s for its turn")
            return self._runner.run(group, topics, seconds), None
        except PluginFailedError as error:
            line = f"assignor {self._name} failed, {DEFAULT_ASSIGNOR} assigned instead: {error}"
            self._must_warm = True  # so that the next call need not wait for a new process
            if not self._stopping:
                _log.error("group %r: %s", group.group_id, line)
            return find.BUILT_IN[DEFAULT_ASSIGNOR]().assign(group, topics), line
