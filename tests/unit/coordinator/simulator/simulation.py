"""A simulation run around the coordinator from a seed: clients, core, clock and faults.

It reads only its own clock and its own random source. So a seed gives the same run, and the same
`digest`, each time. Faults: requests in batches of any cut, answers late, clients that die,
pause, lie or come back under their instance id, connections that close, appends that fail,
exceptions inside the policy, and a broker that is killed at any point, also between an append and
the answers that wait for it.
"""

from __future__ import annotations

import hashlib
import random
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from krust.coordinator import group_coordinator
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.events import AssignCall, Event, GroupOutcome, GroupSettings
from krust.coordinator.group_coordinator import GroupCoordinator
from krust.messages import Message, RequestContext
from tests.unit.coordinator.simulator.checks import GroupChecks
from tests.unit.coordinator.simulator.clients import ArbitraryMember, SimulatedMember, shared
from tests.unit.coordinator.simulator.core import SimulatedCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.coordinator.classic_member import Turn
    from krust.errors import Code

START_MS, FAULTS_MS, DRAIN_MS = 1_000_000, 60_000, 120_000


class GroupSimulation:
    faults_ms, drain_ms = FAULTS_MS, DRAIN_MS

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.fault_free = rng.random() < 0.25
        self.single = rng.random() < 0.5
        self.crashes = 0.0 if self.fault_free else rng.choice((0.0, 0.002, 0.01))
        self.failures = 0.0 if self.fault_free else rng.choice((0.0, 0.0, 0.05))
        self.raises = 0.0 if self.fault_free else rng.choice((0.0, 0.0, 0.02))
        self.max_size = 1000 if self.fault_free or rng.random() < 0.8 else 2
        self.core = SimulatedCore(grace=rng.random() < 0.5)
        self.assigns = rng.random() < 0.3
        self.kind = "consumer" if self.assigns else "test"
        self.settings = self._settings()
        self.now_ms = START_MS
        self.draining = False
        self.clients: list[SimulatedMember] = []
        self.all_clients: list[SimulatedMember] = []
        self.reloading: set[str] = set()
        """groups that are being read again: rows and policy differ for a while"""
        self.groups = ["g", "h"][: rng.randrange(1, 3)]
        self.steps = 0
        self._digest = hashlib.sha256()
        self._schedule: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._tickets = count(1)
        self._connections = count(1)
        self._ids = count(1)
        self._inbox: list[Event[Message]] = []
        self._called = False
        self.checks = self._checks()
        self.coordinator = self._new()

    def _settings(self) -> GroupSettings:
        return GroupSettings(
            initial_rebalance_delay_ms=self.rng.choice((0, 0, 1000, 3000)),
            max_size=self.max_size,
            server_assignor=lambda name: self.assigns and name == "g",
        )

    def _checks(self) -> GroupChecks:
        return GroupChecks(self)

    def run(self) -> str:
        """Run the whole simulation; returns its digest."""
        for _ in range(self.rng.randrange(1, 7)):
            self._add_member()
        self.later(500, self._expire_sessions)
        self.later(100, self._change_membership)
        self._until(START_MS + self.faults_ms)
        self.draining = True
        for each in self.clients:
            each.slow = False
            if each.is_arbitrary:
                each.die()
        self._until(START_MS + self.faults_ms + self.drain_ms)
        self.checks.settled()
        return self._digest.hexdigest()

    # -- for the clients

    def later(self, ms: int, act: Callable[[], None]) -> None:
        heappush(self._schedule, (self.now_ms + ms, next(self._order), act))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def new_connection(self) -> int:
        return next(self._connections)

    def close(self, connection: int) -> None:
        self.core.close(connection, self.now_ms)

    def request(self, client: Any, api: str, version: int, message: Message) -> int:
        who: RequestContext = {"id": client.name, "host": "h", "connection": client.connection}
        event = Event(next(self._tickets), api, version, message, who)
        if api in ("JoinGroup", "SyncGroup"):
            member_id = message["member_id"]
            self.core.note_request(client.group_id, member_id, client.connection, self.now_ms)
        self.checks.requested(event, client)
        self._enqueue(event)
        return event.ticket

    def heartbeat(self, client: SimulatedMember) -> Code:
        who = (client.group_id, client.member_id)
        self.core.note_request(*who, client.connection, self.now_ms)
        return self.core.heartbeat(*who, client.instance, client.generation)

    def commit(self, client: Any) -> None:
        who = (client.group_id, client.member_id)
        if self.core.commit(*who, client.instance, client.generation) == 0:
            self.checks.committed(client)

    # -- time

    def _until(self, end_ms: int) -> None:
        while self._schedule and self._schedule[0][0] <= end_ms:
            self.now_ms, _, act = heappop(self._schedule)
            self.steps += 1
            act()
        self.now_ms = end_ms

    def _expire_sessions(self) -> None:
        """The policy thread wakes to find expired sessions."""
        self._schedule_policy(20)
        self.later(100, self._expire_sessions)

    def _change_membership(self) -> None:
        """Let clients join, leave or die."""
        if self.draining:
            return
        alive = [each for each in self.clients if each.state != "gone"]
        if self.chance(0.15) and len(alive) < 8:
            self._add_member()
        if self.chance(0.15) and alive:
            self.rng.choice(alive).leave()
        if not self.fault_free and self.chance(0.15) and alive:
            victim = self.rng.choice(alive)
            victim.die(closes=self.chance(0.7))
            if victim.instance and self.chance(0.8):
                self._add_member(victim)
        if not self.fault_free and self.chance(0.05):
            twins = [each for each in alive if each.instance]
            if twins:
                self._add_member(self.rng.choice(twins))
        self.later(self.rng.randrange(500, 4000), self._change_membership)

    def _add_member(self, back: SimulatedMember | None = None) -> None:
        name = f"c{len(self.all_clients)}"
        group_id = back.group_id if back else self.rng.choice(self.groups)
        instance = back.instance if back else (f"i{name}" if self.chance(0.4) else None)
        is_arbitrary = not self.fault_free and not back and self.chance(0.1)
        client = (ArbitraryMember if is_arbitrary else SimulatedMember)(
            self, name, group_id, instance
        )
        self.all_clients.append(client)
        self.clients = [each for each in self.clients if each.state != "gone"] + [client]

    # -- the policy thread

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self._new_id)

    def _new_id(self) -> str:
        if not self.draining and self.chance(self.raises):
            raise RuntimeError("bad luck")
        return f"{next(self._ids):04d}"

    def _notify_policy(self, api: str, message: Message) -> None:
        self._enqueue(Event(0, api, 0, message, {}))

    def _enqueue(self, event: Event[Message]) -> None:
        self._inbox.append(event)
        self._schedule_policy(20)

    def _schedule_policy(self, within_ms: int) -> None:
        if not self._called:
            self._called = True
            self.later(self.rng.randrange(within_ms), self._run_policy)

    def _run_policy(self) -> None:
        """The core's way: what waits, and behind it whose session is over by now (where one event
        is a batch: when nothing waits).
        """
        self._called = False
        size = 1 if self.single else self.rng.randrange(len(self._inbox) + 1)
        batch, self._inbox = self._inbox[:size], self._inbox[size:]
        if self._inbox:
            self._schedule_policy(5)
        if not (self.single and batch):
            batch += [
                Event(0, "SessionExpired", 0, {"group_id": group_id, "members": members}, {})
                for group_id, members in self.core.expired(self.now_ms).items()
            ]
        if not batch:
            return
        for event in batch:
            if event.api == "GroupsLoaded":
                self.reloading -= {each["group_id"] for each in event.message["groups"]}
        self._apply(self.coordinator.handle_batch(batch, self.now_ms))

    def _tick(self) -> None:
        self._apply(self.coordinator.tick(self.now_ms))

    def _apply(self, outcome: GroupOutcome) -> None:
        """The core's part: append, publish, answer; or fail, or die."""
        self._digest.update(repr((self.now_ms, outcome)).encode())
        failed: set[str] = set()
        if outcome.records and not self.draining and self.chance(self.failures):
            failed = {group_id for group_id, _ in outcome.records}
        for group_id, value in outcome.records:
            if group_id not in failed:
                self.core.append(group_id, value)
        for group_id in {group_id for group_id, _ in outcome.records}:
            if not self.core.has(group_id):
                self.checks.forget(group_id)
        if not self.draining and self.chance(self.crashes):
            self._crash()
            return
        for group_id, row in outcome.snapshots:
            if group_id not in failed:
                self.core.publish(group_id, row, self.now_ms)
        for ticket, reply, waits_for in outcome.replies:
            if failed.isdisjoint(waits_for):
                self._answer(ticket, reply)
        for call in outcome.calls:
            self._assign(call)
        self._wake(outcome)
        if failed:
            refused = self.coordinator.on_append_failed(failed, self.now_ms, outcome.replies)
            self._reload(sorted(failed))
            for ticket, reply, _ in refused.replies:
                self._answer(ticket, reply)
            self._wake(refused)
        self._reload(outcome.reload)
        self.checks.called(outcome)
        if not self.draining and self.chance(self.crashes):
            self._crash()

    def _wake(self, outcome: GroupOutcome) -> None:
        if outcome.wake_at_ms is not None:
            late = self.rng.randrange(5)
            coordinator = self.coordinator

            def tick() -> None:
                if self.coordinator is coordinator:
                    self._tick()

            self.later(max(0, outcome.wake_at_ms - self.now_ms) + late, tick)

    def _answer(self, ticket: int, reply: Message) -> None:
        client = self.checks.answered(ticket, reply)
        if "results" not in reply:
            self.later(self.rng.randrange(10), lambda: client.on_reply(ticket, reply))

    def _assign(self, call: AssignCall) -> None:
        """An assignor at work: it answers late, never, or with a failure."""
        given: dict[str, bytes] | None = shared([each[0] for each in call.members])
        if not self.fault_free and self.chance(0.15):
            given = None
        coordinator = self.coordinator

        def answer() -> None:
            if self.coordinator is coordinator:
                result = {"call": call, "assignments": given, "line": None}
                self._notify_policy("Assigned", {"group_id": call.group_id, **result})

        if self.fault_free or not self.chance(0.1):
            self.later(self.rng.randrange(1 if self.chance(0.5) else 4000), answer)

    def _reload(self, group_ids: list[str]) -> None:
        for group_id in group_ids:
            self.reloading.add(group_id)
            self.core.expected.add(group_id)

            def load(
                group_id: str = group_id, coordinator: GroupCoordinator = self.coordinator
            ) -> None:
                if self.coordinator is coordinator:
                    if not self.core.has(group_id):
                        self.checks.forget(group_id)
                    self._notify_policy("GroupsLoaded", self.core.loaded([group_id]))

            self.later(self.rng.randrange(1500), load)

    def _crash(self) -> None:
        """kill -9, and a start that replays the log."""
        self.core.restart()
        self.checks.crashed()
        self._inbox.clear()
        self.reloading.clear()
        self.coordinator = self._new()
        names = sorted(self.core.log.keys() | self.core.live.keys())
        self._notify_policy("GroupsLoaded", self.core.loaded(names))
        for each in self.clients:
            if each.ticket:
                each.lost_connection()


class FailingClassicGroup(ClassicGroup):
    """A group with planted bugs: any answer may raise."""

    simulation: ClassVar[GroupSimulation]

    def answer(self, turn: Turn, ticket: int, reply: Message) -> None:
        simulation = self.simulation
        if simulation.raises and not simulation.draining and simulation.chance(simulation.raises):
            raise RuntimeError("bad luck")
        super().answer(turn, ticket, reply)


def simulate(seed: int) -> tuple[str, int]:
    """Digest and number of steps."""
    simulation = FailingClassicGroup.simulation = GroupSimulation(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_coordinator, "ClassicGroup", FailingClassicGroup)
        return simulation.run(), simulation.steps
