"""Assignors at work: which group has which, where they run, what comes back as the news `Assigned`.

Each assignor has a lane: a thread with a queue, made at its first call, so that one which hangs
holds up its own groups alone. Of a group only the newest call is kept. A call ends within
QUEUE_S + the deadline + what krust's own default takes: an assignor that raises, hangs or breaks a
rule, or whose queue does not move, costs a logged error and the traceback in the group's history,
and `uniform` shares instead. Where even that cannot be, the leader's assignment counts.
Threads: `start`, `take` and `wants` are called by the policy thread; `nudge` wakes it.
Not promised: an answer after `close`.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from krust.coordinator import assigning
from krust.coordinator.assignors import find
from krust.coordinator.events import Event
from krust.runtime.runners import FailedError, Here, Plugin, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krust.coordinator.assignors.spec import Assignor, GroupAssignment, Topics
    from krust.coordinator.events import AssignCall, Message
    from krust.plugins import Parameters
    from krust.runtime.runners import Runner

DEFAULT = "uniform"
LEAST_MS, MOST_MS, EACH_MS = 50, 5000, 0.02
QUEUE_S = 5.0
"""A call that waited longer for its assignor is not put to it any more."""
_CLOSE_S = 5.0

_log = logging.getLogger("krust.groups")


class Rule(NamedTuple):
    """Whose groups an assignor serves."""

    pattern: str
    assignor: str | Assignor
    """its name or place, or itself"""


def deadline_s(members: int, partitions: int, least_ms: int = LEAST_MS) -> float:
    """So long may an assignor take for a group of that size."""
    return min(max(least_ms, EACH_MS * (members + partitions)), MOST_MS) / 1000


class Assigning:
    """The assignors of one broker."""

    def __init__(
        self,
        rules: Sequence[Rule],
        nudge: Callable[[], None],
        least_ms: int = LEAST_MS,
        parameters: Parameters | None = None,
    ) -> None:
        self._rules = rules
        self._nudge = nudge
        self._least_ms = least_ms
        self._parameters = parameters
        self._lanes: dict[str, _Lane] = {}
        self._done: deque[Event] = deque()
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
        """Have the assignors of the rules loaded, behind whatever goes on."""
        for rule in self._rules:
            self._lane(_key(rule)).warm()

    def start(self, call: AssignCall, topics: Topics) -> None:
        """Have it done; the answer comes out of `take`."""
        if call.protocol in assigning.ALONE:
            line = f"protocol {call.protocol} is its leader's own; krust does not assign in it"
            self._say(call, None, (line, None))
            return
        rule = self._rule(call.group_id)
        key = call.assignor or (_key(rule) if rule is not None else DEFAULT)
        self._lane(key).put(call, topics)

    def take(self) -> list[Event]:
        """The answers since the last call."""
        taken = []
        while self._done:
            taken.append(self._done.popleft())
        return taken

    def close(self) -> None:
        """End all threads and processes."""
        for lane in self._lanes.values():
            lane.kill()
        for lane in self._lanes.values():
            lane.join()
        self._lanes.clear()

    def _rule(self, group_id: str) -> Rule | None:
        return next((rule for rule in self._rules if fnmatchcase(group_id, rule.pattern)), None)

    def _lane(self, key: str) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            known = self._objects.get(key, key)
            lane = self._lanes[key] = _Lane(
                key, _runner(known, self._parameters), self._say, self._least_ms
            )
        return lane

    def _say(
        self,
        call: AssignCall,
        assignments: dict[str, bytes] | GroupAssignment | None,
        told: tuple[str | None, str | None],
    ) -> None:
        """`told`: what went wrong, and which assignor assigned."""
        message: Message = {
            "group_id": call.group_id,
            "call": call,
            "assignments": assignments,
            "line": told[0],
            "assignor": told[1],
        }
        self._done.append(Event(0, "Assigned", 0, message, {}))
        self._nudge()


def _key(rule: Rule) -> str:
    """What an assignor is called here; two objects of one name are two."""
    if isinstance(rule.assignor, str):
        return rule.assignor
    return f"{rule.assignor.name}@{id(rule.assignor):x}"


def _runner(assignor: str | Assignor, parameters: Parameters | None) -> Runner:
    if not isinstance(assignor, str):
        return Plugin(assignor)
    built_in = find.BUILT_IN.get(assignor)
    return Here(built_in()) if built_in is not None else Process(assignor, parameters)


class _Lane:
    """One assignor, its thread, and the calls that wait for it: the newest of each group."""

    def __init__(
        self,
        key: str,
        runner: Runner,
        say: Callable[
            [
                AssignCall,
                dict[str, bytes] | GroupAssignment | None,
                tuple[str | None, str | None],
            ],
            None,
        ],
        least_ms: int,
    ) -> None:
        self._name = key.partition("@")[0]
        self._runner = runner
        self._say = say
        self._least_ms = least_ms
        self._waiting: dict[str, tuple[AssignCall, Topics, float]] = {}
        self._changed = threading.Condition()
        self._cold = self._stopping = False
        self._told = ""
        self._thread: threading.Thread | None = None

    def put(self, call: AssignCall, topics: Topics) -> None:
        with self._changed:
            since = self._waiting.pop(call.group_id, (None, None, time.monotonic()))[2]
            self._waiting[call.group_id] = (call, topics, since)
            self._awake()

    def warm(self) -> None:
        with self._changed:
            self._cold = True
            self._awake()

    def kill(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._runner.kill()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _awake(self) -> None:
        self._changed.notify()
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="krust-assign", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            self._serve(*call)
        self._runner.close()

    def _next(self) -> tuple[AssignCall, Topics, float] | None:
        """The call that waits longest; None: the broker stops."""
        while True:
            with self._changed:
                while not (self._waiting or self._cold or self._stopping):
                    self._changed.wait()
                if self._stopping:
                    return None
                if not self._cold:
                    return self._waiting.pop(next(iter(self._waiting)))
                self._cold = False
            try:
                self._runner.warm()
            except FailedError as error:
                if self._told != str(error) and not self._stopping:
                    self._told = str(error)
                    _log.error("assignor %s cannot be used: %s", self._name, error)

    def _serve(self, call: AssignCall, topics: Topics, since: float) -> None:
        """Answer a call, whatever happens."""
        try:
            if call.group is not None:
                reading = assigning.GroupReading(call.group, {})
            else:
                reading = assigning.read_members(call)
            shares, line = self._shared(reading, topics, since)
            lines = [*reading.unread, *([line] if line else [])]
            given = (
                shares if call.group is not None else assigning.write_assignments(reading, shares)
            )
            self._say(call, given, ("\n".join(lines) or None, DEFAULT if line else self._name))
        except Exception:
            text = f"krust cannot assign\n{traceback.format_exc()}"
            _log.error("group %r: %s", call.group_id, text)
            self._say(call, None, (text, None))

    def _shared(
        self, reading: assigning.GroupReading, topics: Topics, since: float
    ) -> tuple[GroupAssignment, str | None]:
        """The shares, and what went wrong on the way to them."""
        group = reading.group
        names = frozenset[str]().union(*(member.topics for member in group.members.values()))
        partitions = sum(map(topics.partitions, names))
        seconds = deadline_s(len(group.members), partitions, self._least_ms)
        try:
            if time.monotonic() - since > QUEUE_S:
                raise FailedError(f"waited {QUEUE_S:.0f} s for its turn")
            return self._runner.run(group, topics, seconds), None
        except FailedError as error:
            line = f"assignor {self._name} failed, {DEFAULT} assigned instead: {error}"
            self._cold = True  # the next call shall not wait for a new process
            if not self._stopping:
                _log.error("group %r: %s", group.group_id, line)
            return find.BUILT_IN[DEFAULT]().assign(group, topics), line
