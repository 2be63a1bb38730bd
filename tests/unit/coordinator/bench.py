"""A test bench of the coordinator: named clients, answers by ticket, a manual clock."""

from __future__ import annotations

from itertools import count
from typing import Any

from krust.coordinator.events import (
    AssignCall,
    Event,
    GroupOutcome,
    GroupSettings,
    LiveRecord,
    Record,
)
from krust.coordinator.group_coordinator import GroupCoordinator
from krust.messages import Message, RequestContext

RANGE = (("range", b"m"),)


class Bench:
    """A coordinator with its surroundings. `answers` maps a ticket to its reply."""

    def __init__(self, group_id: str = "g", **settings: Any) -> None:
        settings.setdefault("initial_rebalance_delay_ms", 0)
        self.group_id = group_id
        self.settings = GroupSettings(**settings)
        self.now_ms = 1_000_000
        self.log: list[tuple[str, Message | str | list[Record] | None]] = []
        self.snapshots: dict[str, Message | None] = {}
        self.answers: dict[int, Message] = {}
        self.outcomes: list[GroupOutcome] = []
        self._tickets = count(1)
        self._ids = count(1)
        self.coordinator = self._new()

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, lambda: f"id{next(self._ids)}")

    # -- going on

    def event(
        self, api: str, version: int = 0, client: str = "c", **message: Any
    ) -> Event[Message]:
        who: RequestContext = {
            "id": client,
            "host": "10.0.0.1",
            "listener": "PLAINTEXT",
            "connection": 7,
        }
        message.setdefault("group_id", self.group_id)
        return Event(next(self._tickets), api, version, message, who)

    def batch(self, *events: Event[Message]) -> GroupOutcome:
        return self.take(self.coordinator.handle_batch(events, self.now_ms))

    def send(self, api: str, version: int = 0, **message: Any) -> Message | None:
        """The answer, if it comes at once."""
        event = self.event(api, version, **message)
        self.batch(event)
        return self.answers.get(event.ticket)

    def notify(self, api: str, **message: Any) -> GroupOutcome:
        return self.batch(self.event(api, **message)._replace(ticket=0))

    def call(self, generation: int) -> AssignCall | None:
        """The last call that was made for a generation."""
        calls = [call for outcome in self.outcomes for call in outcome.calls]
        return next((call for call in reversed(calls) if call.generation == generation), None)

    def take(self, outcome: GroupOutcome) -> GroupOutcome:
        self.outcomes.append(outcome)
        self.log += outcome.records
        self.snapshots |= dict(outcome.snapshots)
        for ticket, reply, _ in outcome.replies:
            assert ticket not in self.answers, "answered twice"
            assert ticket, "a notification is not answered"
            self.answers[ticket] = reply
        return outcome

    def wait(self, ms: int) -> None:
        """Time goes by, with a tick whenever the coordinator wants one."""
        end = self.now_ms + ms
        while (wake := self.outcomes[-1].wake_at_ms) is not None and wake <= end:
            self.now_ms = max(self.now_ms, wake)
            self.take(self.coordinator.tick(self.now_ms))
        self.now_ms = end

    def restart(self) -> None:
        """A new coordinator reads what the old one wrote."""
        self.coordinator = self._new()
        values: dict[str, Message | None] = {}
        live: dict[tuple[str, int, str], tuple[str, *LiveRecord]] = {}
        for group_id, value in self.log:
            if isinstance(value, list):
                for kind, key, each in value:
                    live.pop((group_id, kind, repr(key)), None)
                    if each is not None:
                        live[group_id, kind, repr(key)] = (group_id, kind, key, each)
            elif not isinstance(value, str):
                values[group_id] = value
        groups = [{"group_id": group_id, "value": value} for group_id, value in values.items()]
        self.notify("GroupsLoaded", partition=0, groups=groups, records=list(live.values()))

    # -- what clients say

    def join_event(
        self, member_id: str = "", version: int = 3, client: str = "c", **more: Any
    ) -> Event[Message]:
        message = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "reason": None,
            **more,
        }
        protocols = message.pop("protocols", RANGE)
        message["protocols"] = [{"name": name, "metadata": data} for name, data in protocols]
        return self.event("JoinGroup", version, client, **message)

    def join(self, member_id: str = "", version: int = 3, **more: Any) -> int:
        """Its ticket."""
        event = self.join_event(member_id, version, **more)
        self.batch(event)
        return event.ticket

    def joined(self, member_id: str = "", version: int = 3, **more: Any) -> Message:
        """The answer, which must come at once."""
        return self.answers[self.join(member_id, version, **more)]

    def sync_event(
        self,
        member_id: str,
        generation: int,
        given: dict[str, bytes] | None = None,
        version: int = 3,
        **more: Any,
    ) -> Event[Message]:
        message = {
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer" if version >= 5 else None,
            "protocol_name": "range" if version >= 5 else None,
            **more,
        }
        message["assignments"] = [
            {"member_id": each, "assignment": data} for each, data in (given or {}).items()
        ]
        return self.event("SyncGroup", version, **message)

    def sync(self, member_id: str, generation: int, *args: Any, **more: Any) -> int:
        event = self.sync_event(member_id, generation, *args, **more)
        self.batch(event)
        return event.ticket

    def synced(self, member_id: str, generation: int, *args: Any, **more: Any) -> Message:
        return self.answers[self.sync(member_id, generation, *args, **more)]

    def leave(self, *members: str | Message, version: int = 3, group_id: str = "g") -> Message:
        if version < 3:
            (member_id,) = members
            message: Message = {"member_id": member_id}
        else:
            message = {
                "members": [
                    each
                    if isinstance(each, dict)
                    else {"member_id": each, "group_instance_id": None, "reason": None}
                    for each in members
                ]
            }
        answer = self.send("LeaveGroup", version, group_id=group_id, **message)
        assert answer is not None
        return answer

    # -- whole scenes

    def stable(self, size: int = 2, **more: Any) -> list[str]:
        """A Stable group of so many members; the first one leads, each has its name as bytes."""
        first = self.joined(**more)["member_id"]
        members = [first]
        for _ in range(size - 1):
            joins = [self.join(**more)] + [self.join(each, **more) for each in members]
            members.append(self.answers[joins[0]]["member_id"])
        self.share(members)
        return members

    def share(self, members: list[str]) -> None:
        given = {each: each.encode() for each in members}
        generation = self.snapshot["generation"]
        for each in members:
            self.sync(each, generation, given if each == members[0] else None)
        assert self.snapshot["state"] == "Stable"

    @property
    def snapshot(self) -> Message:
        snapshot = self.snapshots[self.group_id]
        assert snapshot is not None
        return snapshot

    @property
    def generation(self) -> int:
        generation: int = self.snapshot["generation"]
        return generation

    @property
    def state(self) -> str:
        state: str = self.snapshot["state"]
        return state
