"""The invariants of every step (G1-G4, S7), each under the name of its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from krust.coordinator.classic_group import ClassicGroup
from krust.errors import Code
from krust.messages import Message

if TYPE_CHECKING:
    from krust.coordinator.events import Event, GroupOutcome
    from tests.unit.coordinator.simulator.clients import SimulatedMember
    from tests.unit.coordinator.simulator.simulation import GroupSimulation

SLACK_MS = 2000


class Violation(AssertionError):  # noqa: N818 (a finding, by its name)
    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


@dataclass(slots=True)
class PendingRequest:
    event: Event[Message]
    client: SimulatedMember
    since_ms: int
    bound_ms: int


class GroupChecks:
    def __init__(self, simulation: GroupSimulation) -> None:
        self.simulation = simulation
        self.given: dict[str, dict[int, ClassicGroup | None]] = {}
        self.formed: dict[tuple[str, int], str] = {}
        self.asked: dict[int, PendingRequest] = {}

    def must(self, check: str, holds: bool, text: str) -> None:
        if not holds:
            raise Violation(check, f"{text} (at {self.simulation.now_ms})")

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.simulation.coordinator._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- requests and their answers

    def requested(self, event: Event[Message], client: SimulatedMember) -> None:
        self.asked[event.ticket] = PendingRequest(
            event, client, self.simulation.now_ms, client.rebalance_ms
        )

    def crashed(self) -> None:
        self.asked.clear()
        for group_id in list(self.given):
            if not self.simulation.core.has(group_id):
                self.forget(group_id)

    def forget(self, group_id: str) -> None:
        """The group's log is empty: the group and its generations start again."""
        self.given.pop(group_id, None)
        self.formed = {key: each for key, each in self.formed.items() if key[0] != group_id}

    def waits(self) -> None:
        """G4: no member waits longer than the group's longest rebalance timeout in that time."""
        for each in self.asked.values():
            event = each.event
            group = self.classic(each.client.group_id)
            if group is not None:
                each.bound_ms = max(each.bound_ms, group.rebalance_timeout_ms())
            waited = self.simulation.now_ms - each.since_ms
            check = {"JoinGroup": "join waits", "SyncGroup": "sync waits"}.get(event.api, "once")
            text = f"{event.api} {event.ticket} has waited {waited} ms"
            self.must(check, waited <= each.bound_ms + SLACK_MS, text)

    def answered(self, ticket: int, reply: Message) -> SimulatedMember:
        self.must("once", ticket in self.asked, f"{ticket} is answered that nobody asked")
        event = self.asked[ticket].event
        client = self.asked.pop(ticket).client
        if reply.get("error_code") == Code.NONE and event.api == "JoinGroup":
            self._joined(event, reply)
        elif reply.get("error_code") == Code.NONE and event.api == "SyncGroup":
            self._synced(event, reply)
        if event.api in ("JoinGroup", "SyncGroup"):
            self._fenced(event, reply)
        return client

    def _joined(self, event: Event[Message], reply: Message) -> None:
        group_id, generation = event.message["group_id"], reply["generation_id"]
        own = {each["name"] for each in event.message["protocols"]}
        self.must("protocol", reply["protocol_name"] in own, f"{reply} does not speak that")
        protocol = self.formed.setdefault((group_id, generation), reply["protocol_name"])
        self.must("protocol", protocol == reply["protocol_name"], f"two protocols in {generation}")
        leads = reply["leader"] == reply["member_id"]
        listed = {each["member_id"] for each in reply["members"]}
        self.must("leader", bool(listed) == leads, f"{reply['member_id']} gets {listed}")
        row = self.simulation.core.rows.get(group_id)
        if leads and row is not None and row["generation"] == generation and self.simulation.single:
            self.must("leader", listed == set(row["members"]), "the leader knows others")
        self._generation(group_id, generation)

    def _generation(self, group_id: str, generation: int) -> None:
        """G1: a number means one generation for ever; a replayed group may keep its own."""
        group = self.classic(group_id)
        given = self.given.setdefault(group_id, {})
        if generation not in given:
            newest = max(given, default=0)
            replayed = (
                group is not None and group.issued_generation - 1 == generation
            )  # by nobody's number
            risen = generation > newest or replayed
            self.must("generation", risen, f"{group_id}: {generation} after {newest}")
            given[generation] = group
        elif given[generation] is not group and group is not None:
            replayed = group.issued_generation - 1 == generation
            self.must("generation", replayed, f"{group_id}: {generation} is given out again")

    def _synced(self, event: Event[Message], reply: Message) -> None:
        group_id, member_id = event.message["group_id"], event.message["member_id"]
        value = self.simulation.core.log.get(group_id) or {"members": [], "generation": -1}
        stored = {each["member_id"]: each["assignment"] for each in value["members"]}
        durable = stored.get(member_id) == reply["assignment"]
        later = value["generation"] > event.message["generation_id"] or member_id not in stored
        if later and not self.simulation.single:
            return  # the same batch went on
        self.must("durable", durable, f"{member_id} has what is not in the log")
        asked = event.message["generation_id"]
        newest = value["generation"]
        self.must("sync generation", asked == newest, f"{asked} is taken for {newest}")

    def _fenced(self, event: Event[Message], reply: Message) -> None:
        message = event.message
        instance = message.get("group_instance_id")
        if instance is None or not message["member_id"] or not self.simulation.single:
            return
        row = self.simulation.core.rows.get(message["group_id"])
        if row is None or message["group_id"] in self.simulation.reloading:
            return
        holder = {each["instance_id"]: key for key, each in row["members"].items()}.get(instance)
        code = reply["error_code"]
        if holder is not None and holder != message["member_id"]:
            right = code not in (Code.NONE, Code.UNKNOWN_MEMBER_ID)
            self.must("fenced", right, f"{message['member_id']} is not {instance}, code {code}")

    def evicted(self, client: Any) -> None:
        """A member that follows the protocol is never removed."""
        self.must("polite", not self.simulation.fault_free, f"{client.name} was thrown out")

    # -- after each call

    def called(self, outcome: GroupOutcome) -> None:
        if not self.simulation.raises:
            self.must("no exception", not outcome.lines, "\n".join(outcome.lines))
        self.rows_match()
        self.waits()
        for group_id in dict(outcome.snapshots):
            self.owners(group_id)

    def rows_match(self) -> None:
        """The core's snapshot equals the group's state; it may lag only for members that wait."""
        for group_id, row in self.simulation.core.rows.items():
            group = self.classic(group_id)
            if group is None or group_id in self.simulation.reloading:
                continue
            published = (row["state"], row["generation"], row["protocol_type"])
            held = (group.state, group.generation, group.protocol_type)
            self.must(
                "snapshot", published == held, f"{group_id}: {published} is published of {held}"
            )
            known, real = row["members"], group.members
            self.must("snapshot", set(known) == set(real), f"{group_id}: {set(known) ^ set(real)}")
            for key, each in real.items():
                own = known[key]
                same = own["instance_id"] == each.instance_id and (own["timed"] or each.is_waiting)
                same = same and own["session_timeout_ms"] == each.session_timeout_ms
                self.must("snapshot", same, f"{group_id}: {key} is published as {own}")

    def owners(self, group_id: str) -> None:
        """G2: in Stable each partition has at most one owner that may commit."""
        core = self.simulation.core
        row = core.rows.get(group_id)
        if row is None or row["state"] != "Stable":
            return
        owner: dict[int, str] = {}
        for each in self.simulation.clients:
            if each.group_id != group_id or not each.owned:
                continue
            code = core.heartbeat(group_id, each.member_id, each.instance, each.generation)
            if code == Code.NONE:
                for part in each.owned:
                    other = owner.setdefault(part, each.member_id)
                    text = f"{part} of {group_id} belongs to {other} and {each.member_id}"
                    self.must("owners", other == each.member_id, text)

    def committed(self, client: Any) -> None:
        """G3: only a member of the current generation commits."""
        if client.group_id in self.simulation.reloading:
            return
        group = self.classic(client.group_id)
        real = group is not None and client.member_id in group.members
        real = real and group is not None and group.generation == client.generation
        self.must("zombie", real, f"{client.name} commits as {client.member_id}")

    def settled(self) -> None:
        """After the faults every member has joined and each partition has an owner."""
        for group_id in self.simulation.groups:
            alive = [
                each
                for each in self.simulation.clients
                if each.group_id == group_id and each.state != "gone"
            ]
            if self.simulation.max_size < 100:
                continue
            for each in alive:
                text = f"{each.name} of {group_id} is {each.state}"
                self.must("settled", each.state == "member", text)
            parts = sorted(part for each in alive for part in each.owned)
            if alive:
                self.must("settled", parts == list(range(8)), f"{group_id} shares {parts}")
            group = self.classic(group_id)
            if group is not None:
                self.must("rest", not group.pending, f"{group_id}: {group.pending}")
                same = len(group.members) == len(alive)
                self.must("rest", same, f"{group_id}: {set(group.members)}")
