"""Simulation runs with both protocols in one group, and with topics that are created, grow and go.

Adds to `simulation`: classic groups become consumer groups and back while members work, users'
assignors answer late, wrong or never, and regular expressions match new topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from krust.coordinator import convert, group_coordinator
from krust.coordinator.assignors.assignor import Topics
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.consumer import records
from krust.coordinator.consumer.group import CALL_MS, ConsumerGroup
from krust.coordinator.consumer.member import UNREVOKED, partitions_of
from krust.coordinator.consumer.target import BUILT_IN
from krust.coordinator.events import AssignCall, GroupSettings
from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.consuming import Cluster
from tests.unit.coordinator.simulator.checks import SLACK_MS, GroupChecks, PendingRequest
from tests.unit.coordinator.simulator.consumer_members import (
    ArbitraryConsumerMember,
    ConsumerMember,
    ConvertingMember,
)
from tests.unit.coordinator.simulator.simulation import FailingClassicGroup, GroupSimulation

if TYPE_CHECKING:
    from krust.coordinator.classic_member import Turn
    from krust.coordinator.events import Event, GroupOutcome
    from tests.unit.coordinator.simulator.clients import SimulatedMember


class MixedGroupSimulation(GroupSimulation):
    faults_ms, drain_ms = 40_000, 70_000
    checks: MixedGroupChecks

    def _settings(self) -> GroupSettings:
        rng = self.rng
        self.cluster = Cluster(t=rng.randrange(1, 7), u0=2)
        self.names = {self.cluster_id(name): name for name in ("t", "u0")}
        self.cooperates = rng.random() < 0.5
        self.share_of_readers = rng.choice((0.3, 0.6, 1.0))
        return GroupSettings(
            initial_rebalance_delay_ms=rng.choice((0, 0, 1000)),
            max_size=self.max_size,
            consumer_max_size=self.max_size,
            session_timeout_ms=rng.choice((9000, 20_000)),
            heartbeat_interval_ms=rng.choice((1000, 2000)),
            assignors={"uniform": "uniform", "range": "range", "mine": "mod:Mine"},
            downgrades=rng.random() < 0.9,
            topics=self.cluster.topics,
            topic_of=self.cluster.topic_of,
            match_topics=self.cluster.match,
        )

    def _checks(self) -> MixedGroupChecks:
        self.kind = "consumer"
        return MixedGroupChecks(self)

    def cluster_id(self, name: str) -> str:
        shape = self.cluster.topics(name)
        assert shape is not None
        return shape.id

    def name_of(self, topic_id: str) -> str:
        return self.names[topic_id]

    def id_of(self, name: str) -> str:
        return next(key for key, each in self.names.items() if each == name)

    # -- clients and topics

    def _add_member(self, back: SimulatedMember | None = None) -> None:
        rng = self.rng
        name = f"c{len(self.all_clients)}"
        group_id = back.group_id if back else rng.choice(self.groups)
        instance = back.instance if back else (f"i{name}" if self.chance(0.3) else None)
        is_arbitrary = not self.fault_free and not back and self.chance(0.1)
        client: Any
        if rng.random() < self.share_of_readers:
            client = (ArbitraryConsumerMember if is_arbitrary else ConsumerMember)(
                self, name, group_id, instance
            )
        else:
            client = ConvertingMember(self, name, group_id, instance)
            if instance:  # it may be given what its forerunner had, of before the topics changed
                self.later(rng.randrange(3000), client.notice)
        self.all_clients.append(client)
        self.clients = [each for each in self.clients if each.state != "gone"] + [client]

    def _change_membership(self) -> None:
        super()._change_membership()
        if not self.draining and self.chance(0.15):
            self._change_topics()

    def _change_topics(self) -> None:
        rng, counts = self.rng, self.cluster.counts
        name = rng.choice(("t", "u0", "u1", "u2", "v"))
        if name not in counts:
            if name in self.cluster.made:
                return  # what has gone does not come back
            self.cluster.made[name] = 0
            counts[name] = rng.randrange(1, 4)
            self.names[self.cluster_id(name)] = name
        elif name != "t" and rng.random() < 0.3:
            del counts[name]
        elif counts[name] < 8:
            counts[name] += rng.randrange(1, 3)
        self._notify_policy("TopicsChanged", {"group_id": "", "names": [name]})
        for each in self.clients:
            if isinstance(each, ConvertingMember):
                self.later(rng.randrange(3000), each.notice)

    # -- requests

    def quick(self, client: ConsumerMember, message: Message) -> Message | None:
        """The requests that the core answers without the policy."""
        self.core.note_request(
            client.group_id, message["member_id"], client.connection, self.now_ms
        )
        return self.core.consumer_heartbeat(message)

    def _assign(self, call: AssignCall) -> None:
        """A user's assignor at work."""
        assert call.group is not None
        topics = Topics({name: self.cluster.counts.get(name, 0) for name in call.topics or ()})
        given: Any = BUILT_IN["range"]().assign(call.group, topics)
        if self.fault_free or not self.chance(0.1):
            if not self.fault_free and self.chance(0.2):
                given = None
            coordinator = self.coordinator
            result = {"call": call, "assignments": given, "line": None}
            message = {"group_id": call.group_id, **result}

            def answer() -> None:
                if self.coordinator is coordinator:
                    self._notify_policy("Assigned", message)

            self.later(self.rng.randrange(100 if self.chance(0.5) else 6000), answer)


class MixedGroupChecks(GroupChecks):
    simulation: MixedGroupSimulation

    def __init__(self, simulation: MixedGroupSimulation) -> None:
        super().__init__(simulation)
        self.numbers: dict[str, int] = {}
        self.since: dict[tuple[str, str, str], int] = {}

    def group(self, group_id: str) -> ConsumerGroup | None:
        group = self.simulation.coordinator._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def forget(self, group_id: str) -> None:
        super().forget(group_id)
        self.numbers.pop(group_id, None)

    def requested(self, event: Event[Message], client: Any) -> None:
        super().requested(event, client)
        asked: PendingRequest = self.asked[event.ticket]
        if event.api == "ConsumerGroupHeartbeat" or self.group(client.group_id) is not None:
            asked.bound_ms = max(asked.bound_ms, CALL_MS)

    def waits(self) -> None:
        for each in self.asked.values():
            if self.group(each.client.group_id) is not None:
                each.bound_ms = max(each.bound_ms, CALL_MS)
        super().waits()

    # -- answers

    def answered(self, ticket: int, reply: Message) -> SimulatedMember:
        event = self.asked[ticket].event if ticket in self.asked else None
        client = super().answered(ticket, reply)
        if event is not None and event.api == "ConsumerGroupHeartbeat":
            self._check_heartbeat(event, reply)
        return client

    def _check_heartbeat(self, event: Event[Message], reply: Message) -> None:
        """G1, and the assignment is in the log before a member gets it."""
        message, core = event.message, self.simulation.core
        if reply["error_code"] != Code.NONE or reply["member_epoch"] < 0:
            return
        group_id, member_id = message["group_id"], reply["member_id"]
        epoch = core.value(group_id, records.EPOCH)
        if core.log.get(group_id) is not None:
            return  # the same batch turned the group into a classic one
        known = epoch is not None and 0 < reply["member_epoch"] <= epoch["epoch"]
        self.must("epoch", known, f"{member_id} gets {reply['member_epoch']}, the log has {epoch}")
        current = core.value(group_id, records.CURRENT, member_id=member_id)
        if current is None:
            self.must("durable", not self.simulation.single, f"{member_id} is not in the log")
        elif self.simulation.single or current["member_epoch"] == reply["member_epoch"]:
            same = current["member_epoch"] == reply["member_epoch"]
            self.must("durable", same, f"{member_id} has {reply}, the log {current}")
            if reply["assignment"] is not None and self.simulation.single:
                sent = partitions_of(reply["assignment"]["topic_partitions"])
                stored = partitions_of(current["assigned_partitions"])
                self.must("durable", sent == stored, f"{member_id}: {sent} is not {stored}")

    def _generation(self, group_id: str, generation: int) -> None:
        if self.group(group_id) is None:
            super()._generation(group_id, generation)

    def _joined(self, event: Event[Message], reply: Message) -> None:
        if self.group(event.message["group_id"]) is None:
            super()._joined(event, reply)

    def _synced(self, event: Event[Message], reply: Message) -> None:
        if self.simulation.core.value(event.message["group_id"], records.EPOCH) is None:
            super()._synced(event, reply)

    # -- after each call

    def called(self, outcome: GroupOutcome) -> None:
        super().called(outcome)
        for group_id, row in outcome.snapshots:
            is_published = self.simulation.core.rows.get(group_id) == row
            if row is not None and is_published:
                self._number(group_id, row)
        for group_id in self.simulation.groups:
            self._paced(group_id)

    def _number(self, group_id: str, row: Message) -> None:
        """G1: the number of a group never falls, and continues when its type changes."""
        number = row["epoch"] if row.get("type") == "consumer" else row["generation"]
        before = self.numbers.get(group_id, 0)
        group = self.classic(group_id)
        if group is not None and group.issued_generation - 1 == number:
            return  # replayed: what was given out after that is not given out again
        self.must("number", number >= before, f"{group_id} falls from {before} to {number}")
        self.numbers[group_id] = number

    def rows_match(self) -> None:
        super().rows_match()
        for group_id, row in self.simulation.core.rows.items():
            group = self.group(group_id)
            if group is None or group_id in self.simulation.reloading:
                continue
            published, held = (row.get("type"), row.get("epoch")), ("consumer", group.epoch)
            self.must(
                "snapshot", published == held, f"{group_id}: {published} is published of {held}"
            )
            self.must(
                "snapshot", row["state"] == group.current_state(), f"{group_id}: {row['state']}"
            )
            known = row["members"]
            self.must("snapshot", set(known) == set(group.members), f"{group_id}: {set(known)}")
            if any(each.api == "TopicsChanged" for each in self.simulation._inbox):
                continue  # it sees the topics, and has no new assignment yet
            for key, each in group.members.items():
                own = known[key]
                self.must("snapshot", own["epoch"] == each.epoch, f"{key} is published as {own}")
                if each.classic is None:
                    same = own["has_current_assignment"] == group.has_current_assignment(
                        each, self.simulation.settings
                    )
                else:
                    same = own["rejoin"] == group.must_rejoin(each, self.simulation.settings)
                self.must("snapshot", same, f"{group_id}: {key} is published as {own}")

    def _paced(self, group_id: str) -> None:
        """G4: no member delays the others for longer than its rebalance timeout."""
        group = self.group(group_id)
        now = {}
        if group is not None and group_id not in self.simulation.reloading:
            for each in group.members.values():
                if each.state == UNREVOKED and each.classic is None and each.epoch > 0:
                    now[group_id, each.id, f"revokes {sorted(each.revoking)}"] = each
                row = self.simulation.core.rows.get(group_id)
                if row and row["members"].get(each.id, {}).get("rejoin"):
                    now[group_id, each.id, f"is to join by {each.join_due}"] = each
        for key in [key for key in self.since if key[0] == group_id and key not in now]:
            del self.since[key]
        for key, each in now.items():
            waited = self.simulation.now_ms - self.since.setdefault(key, self.simulation.now_ms)
            text = f"{key[1]} {key[2]} for {waited} ms"
            self.must("pace", waited <= each.rebalance_timeout_ms + SLACK_MS, text)

    def crashed(self) -> None:
        super().crashed()
        self.since.clear()

    def owners(self, group_id: str) -> None:
        """G2: never two owners at once in any state, except among eager members."""
        row = self.simulation.core.rows.get(group_id)
        if row is None or row.get("type") != "consumer":
            super().owners(group_id)
            return
        owner: dict[tuple[str, int], str] = {}
        for each in self.simulation.clients:
            if (
                each.group_id == group_id
                and each.member_id in row["members"]
                and not each.is_arbitrary
            ):
                for part in each.owned:
                    other = owner.setdefault(part, each.member_id)
                    text = f"{part} of {group_id} belongs to {other} and {each.member_id}"
                    self.must("owners", other == each.member_id, text)

    def committed(self, client: Any) -> None:
        group = self.group(client.group_id)
        if group is None:
            super().committed(client)
            return
        if client.group_id not in self.simulation.reloading:
            member = group.members.get(client.member_id)
            real = member is not None and member.epoch == client.generation
            self.must("zombie", real, f"{client.name} commits as {client.member_id}")

    def settled(self) -> None:
        """After the faults every member has joined; one reads each subscribed partition."""
        for group_id in self.simulation.groups:
            alive: list[Any] = [
                each
                for each in self.simulation.clients
                if each.group_id == group_id and each.state != "gone"
            ]
            if self.simulation.max_size < 100 or not alive:
                continue
            for each in alive:
                text = f"{each.name} of {group_id} is {each.state}"
                self.must("settled", each.state == "member", text)
            names = {
                name
                for each in alive
                for name in (each.wants() if isinstance(each, ConsumerMember) else each.topics)
            }
            counts = {
                name: n for name, n in self.simulation.cluster.counts.items() if name in names
            }
            wanted = {
                (self.simulation.id_of(name), n) for name, k in counts.items() for n in range(k)
            }
            parts = [part for each in alive for part in each.owned]
            there = [part for part in parts if self.simulation.name_of(part[0]) in counts]
            shared = sorted(there) == sorted(wanted)
            self.must("settled", shared, f"{group_id}: {sorted(there)} of {sorted(wanted)}")
            group = self.simulation.coordinator._groups[group_id]
            self.must("rest", group.state == "Stable", f"{group_id} is {group.state}")
            same = set(group.members) == {each.member_id for each in alive}
            self.must("rest", same, f"{group_id}: {set(group.members)}")
            kinds = {isinstance(each, ConsumerMember) for each in alive}
            if True in kinds:
                self.must("rest", isinstance(group, ConsumerGroup), f"{group_id} is classic")
            elif self.simulation.settings.downgrades:
                self.must(
                    "rest", isinstance(group, ClassicGroup), f"{group_id} is no classic group"
                )


class FailingConsumerGroup(ConsumerGroup):
    """A group with planted bugs: any answer may raise."""

    simulation: ClassVar[GroupSimulation]

    def answer(self, turn: Turn, ticket: int, reply: Message) -> None:
        simulation = self.simulation
        if simulation.raises and not simulation.draining and simulation.chance(simulation.raises):
            raise RuntimeError("bad luck")
        super().answer(turn, ticket, reply)


def simulate(seed: int) -> tuple[str, int]:
    """Digest and number of steps."""
    simulation = FailingConsumerGroup.simulation = FailingClassicGroup.simulation = (
        MixedGroupSimulation(seed)
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (group_coordinator, convert):
            patch.setattr(module, "ClassicGroup", FailingClassicGroup)
            patch.setattr(module, "ConsumerGroup", FailingConsumerGroup)
        return simulation.run(), simulation.steps
