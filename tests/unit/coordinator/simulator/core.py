"""A model of the Rust side: rows, sessions, heartbeats, commits and the log of groups."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from krust.coordinator.consumer.replies import heartbeat_refusal, heartbeat_response
from krust.coordinator.events import LiveRecord, Record
from krust.errors import Code
from krust.messages import Message

GRACE_MS = 500


@dataclass(slots=True)
class MemberSession:
    seen_ms: int
    timed: bool
    timeout_ms: int
    connection: int | None
    static: bool
    grace_ms: int | None = None
    reported: bool = False

    def deadline(self) -> int | None:
        times = [self.seen_ms + self.timeout_ms] if self.timed else []
        if self.grace_ms is not None:
            times.append(self.grace_ms)
        return min(times, default=None)


class SimulatedCore:
    """A broker without its policy."""

    def __init__(self, *, grace: bool) -> None:
        self.grace = grace
        self.log: dict[str, Message | None] = {}
        self.live: dict[str, dict[tuple[int, str], LiveRecord]] = {}
        """records of consumer groups"""
        self.records = 0
        self.rows: dict[str, Message] = {}
        self.expected: set[str] = set()
        self.sessions: dict[tuple[str, str], MemberSession] = {}
        self.closed: set[int] = set()

    def append(self, group_id: str, value: Message | str | list[Record] | None) -> None:
        self.records += 1
        if isinstance(value, list):
            live = self.live.setdefault(group_id, {})
            for kind, key, each in copy.deepcopy(value):
                live.pop((kind, repr(key)), None)
                if each is not None:
                    live[kind, repr(key)] = (kind, key, each)
        elif not isinstance(value, str):
            self.log[group_id] = copy.deepcopy(value)

    def has(self, group_id: str) -> bool:
        """Whether the log still has a record of the group."""
        return self.log.get(group_id) is not None or bool(self.live.get(group_id))

    def loaded(self, group_ids: list[str]) -> Message:
        """The event GroupsLoaded."""
        groups = [{"group_id": each, "value": self.log.get(each)} for each in group_ids]
        live = {each: self.live.get(each, {}).values() for each in group_ids}
        records = [(group_id, *one) for group_id, each in live.items() for one in each]
        return {"partition": 0, "groups": groups, "records": copy.deepcopy(records)}

    def value(self, group_id: str, kind: int, **key: str) -> Message | None:
        """One record of a consumer group."""
        found = self.live.get(group_id, {}).get((kind, repr(key)))
        return found[2] if found is not None else None

    def restart(self) -> None:
        self.rows.clear()
        self.sessions.clear()
        self.expected = {each for each in self.log.keys() | self.live.keys() if self.has(each)}

    def publish(self, group_id: str, row: Message | None, now_ms: int) -> None:
        self.expected.discard(group_id)
        if row is None:
            self.rows.pop(group_id, None)
            row = {"members": {}}
        else:
            self.rows[group_id] = copy.deepcopy(row)
        for key in [key for key in self.sessions if key[0] == group_id]:
            if key[1] not in row["members"]:
                del self.sessions[key]
        for member_id, member in row["members"].items():
            key = (group_id, member_id)
            old = self.sessions.get(key)
            timed, timeout = member["timed"], member["session_timeout_ms"]
            if old is None:
                static = member["instance_id"] is not None
                old = MemberSession(now_ms, timed, timeout, None, static)
                self.sessions[key] = old
            elif timed and not old.timed:
                old.seen_ms = now_ms
            old.timed, old.timeout_ms, old.reported = timed, timeout, False
            if member["connection"] is not None and member["connection"] != old.connection:
                old.connection = member["connection"]
                if old.connection in self.closed:
                    self._unload(old, now_ms)

    def note_request(self, group_id: str, member_id: str, connection: int, now_ms: int) -> None:
        session = self.sessions.get((group_id, member_id))
        if session is not None:
            session.seen_ms, session.grace_ms, session.reported = now_ms, None, False
            session.connection = connection

    def close(self, connection: int, now_ms: int) -> None:
        self.closed.add(connection)
        for session in self.sessions.values():
            if session.connection == connection:
                self._unload(session, now_ms)

    def _unload(self, session: MemberSession, now_ms: int) -> None:
        if self.grace and not session.static:
            session.grace_ms = now_ms + GRACE_MS

    def expired(self, now_ms: int) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for (group_id, member_id), session in self.sessions.items():
            deadline = session.deadline()
            if deadline is not None and deadline <= now_ms and not session.reported:
                session.reported = True
                found.setdefault(group_id, []).append(member_id)
        return found

    def _member_error(
        self, group_id: str, member_id: str, instance: str | None, generation: int
    ) -> Code | None:
        row = self.rows.get(group_id)
        if group_id in self.expected:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        if row is None:
            return Code.UNKNOWN_MEMBER_ID
        if instance is not None:
            known = {each["instance_id"]: key for key, each in row["members"].items()}
            if instance not in known:
                return Code.UNKNOWN_MEMBER_ID
            if known[instance] != member_id:
                return Code.FENCED_INSTANCE_ID
        if member_id not in row["members"]:
            return Code.UNKNOWN_MEMBER_ID
        if row.get("type") == "consumer":
            member = row["members"][member_id]
            known = member["epoch"]
            wrong = Code.ILLEGAL_GENERATION if "classic" in member else Code.FENCED_MEMBER_EPOCH
        else:
            known, wrong = row["generation"], Code.ILLEGAL_GENERATION
        return None if known == generation else wrong

    def consumer_heartbeat(self, message: Message) -> Message | None:
        """A heartbeat of the consumer protocol that needs no decision; None: Python decides."""
        row = self.rows.get(message["group_id"])
        if message["group_id"] in self.expected:
            return heartbeat_refusal(Code.COORDINATOR_LOAD_IN_PROGRESS)
        member = row["members"].get(message["member_id"]) if row else None
        if row is None or row.get("type") != "consumer" or member is None:
            return None
        changes = [each for key, each in message.items() if key.startswith(("sub", "ser", "top"))]
        unchanged = (
            member["has_current_assignment"]
            and message["rebalance_timeout_ms"] == -1
            and changes == [None] * 4
        )
        same = member["epoch"] == message["member_epoch"] > 0
        if not unchanged or not same or message["instance_id"] not in (None, member["instance_id"]):
            return None
        return heartbeat_response(
            message["member_id"], member["epoch"], row["heartbeat_interval_ms"]
        )

    def heartbeat(
        self, group_id: str, member_id: str, instance: str | None, generation: int
    ) -> Code:
        code = self._member_error(group_id, member_id, instance, generation)
        if code is not None:
            return code
        row = self.rows[group_id]
        preparing = row["state"] == "PreparingRebalance"
        if row.get("type") == "consumer":
            preparing = row["members"][member_id].get("rejoin", False)
        return Code.REBALANCE_IN_PROGRESS if preparing else Code.NONE

    def commit(self, group_id: str, member_id: str, instance: str | None, generation: int) -> Code:
        code = self._member_error(group_id, member_id, instance, generation)
        if code is not None:
            return code
        completing = self.rows[group_id]["state"] == "CompletingRebalance"
        return Code.REBALANCE_IN_PROGRESS if completing else Code.NONE
