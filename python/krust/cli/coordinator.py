"""Requests to the coordinators of groups.

The coordinator is looked up for each group. While it moves or loads, the request is repeated, for
`--timeout` in all. Offset requests name topics (OffsetFetch 9, OffsetCommit 9), because a deleted
topic with commits has a name but no id.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from krust import _krust
from krust.cli import session
from krust.clients.coordinator_client import (
    BY_NAME,
    MOVING,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PAUSE_S,
    MemberIdentity,
    commit_body,
    find,
    moving_codes,
    newest_at,
)
from krust.clients.member_descriptions import classic_member, consumer_member
from krust.errors import KrustError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust.cli.options import Options

NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 68, 69
DEAD = "Dead"
WITHOUT_MEMBERS = ("Empty", DEAD)
CONSUMER = "consumer"
MOMENT_S = 2.0

PartitionKey = tuple[str, int]


class GroupDescription(NamedTuple):
    """A group as its coordinator describes it. `state` DEAD: it does not exist."""

    group_id: str
    coordinator: int
    state: str
    protocol_type: str
    protocol: str
    members: list[dict[str, Any]]
    history: list[dict[str, Any]] | None = None
    """its last rebalances, oldest first; None: the broker keeps none"""
    type: str = "classic"
    """or `consumer`; then `protocol` is the name of the assignor"""
    epoch: int | None = None


class Coordinators:
    """A client that finds the coordinator of each group."""

    def __init__(self, options: Options) -> None:
        self.client = session.client(options)
        self._options = options
        self._known: dict[str, int] = {}

    def ask(
        self, group_id: str, api: str, body: dict[str, Any], version: int | None = None
    ) -> dict[str, Any]:
        """Send a request until the group's coordinator has answered it."""
        until = time.monotonic() + self._options.timeout_ms / 1000
        while True:
            broker = self.of(group_id)
            answer = self.client.request(api, body, version, broker=broker)
            codes = moving_codes(answer)
            if not codes:
                return answer
            if time.monotonic() > until:
                raise session.refused(min(codes), f"group {group_id!r}: {api} at broker {broker}")
            self._known.pop(group_id, None)
            time.sleep(PAUSE_S)

    def of(self, group_id: str) -> int:
        """The coordinator of a group."""
        until = time.monotonic() + self._options.timeout_ms / 1000
        while group_id not in self._known:
            found = find(self.client, group_id)
            if not found["error_code"]:
                self._known[group_id] = found["node_id"]
            elif found["error_code"] not in MOVING or time.monotonic() > until:
                session.check(found, f"coordinator of group {group_id!r}")
            else:
                time.sleep(PAUSE_S)
        return self._known[group_id]

    def groups(self, states: Sequence[str] = ()) -> list[dict[str, Any]]:
        """All groups of all brokers, sorted; `states`: only groups in these states."""
        found: list[dict[str, Any]] = []
        wanted = {state.lower() for state in states}
        for broker in session.metadata(self.client, [])["brokers"]:
            node = broker["node_id"]
            answer = self.client.request("ListGroups", {"states_filter": list(states)}, broker=node)
            session.check(answer, f"groups of broker {node}")
            for group in answer["groups"]:
                state = group.get("group_state") or None
                if not wanted or (state or "").lower() in wanted:
                    found.append({**group, "group_state": state, "coordinator": node})
        return sorted(found, key=lambda group: str(group["group_id"]))

    def describe(self, group_id: str) -> GroupDescription:
        """The state and the members of a group, with decoded subscriptions and assignments."""
        body = {"groups": [group_id], "krust_history": True}
        answer = self.ask(group_id, "DescribeGroups", body)
        [group] = answer["groups"]
        if group["error_code"] != GROUP_ID_NOT_FOUND:
            session.check(group, f"group {group_id!r}")
        kind = group["protocol_type"]
        state = group["group_state"] or DEAD
        if state == DEAD:  # DescribeGroups does not know groups of the other type
            listed = {one["group_id"]: one for one in self.groups()}.get(group_id, {})
            if (listed.get("group_type") or "").lower() == CONSUMER:
                return self._describe_consumer(group_id)
            state, kind = listed.get("group_state") or DEAD, listed.get("protocol_type") or kind
        members = [classic_member(member, kind) for member in group["members"]]
        members.sort(key=lambda member: str(member["member_id"]))
        fields = (group_id, self.of(group_id), state, kind, group["protocol_data"], members)
        return GroupDescription(*fields, history=group.get("krust_history"))

    def _describe_consumer(self, group_id: str) -> GroupDescription:
        """Describe a consumer group (KIP-848)."""
        body = {"group_ids": [group_id], "krust_history": True}
        [group] = self.ask(group_id, "ConsumerGroupDescribe", body)["groups"]
        session.check(group, f"group {group_id!r}")
        members = [consumer_member(member) for member in group["members"]]
        members.sort(key=lambda member: str(member["member_id"]))
        fields = (group_id, self.of(group_id), group["group_state"], CONSUMER)
        more = {"history": group.get("krust_history"), "type": CONSUMER}
        return GroupDescription(
            *fields, group["assignor_name"], members, epoch=group["group_epoch"], **more
        )

    def committed(self, group_id: str) -> dict[PartitionKey, int]:
        """All committed offsets of a group."""
        version = newest_at(self.client, self.of(group_id), OFFSET_FETCH, BY_NAME)
        one = {"group_id": group_id, "topics": None}
        answer = self.ask(group_id, "OffsetFetch", {**one, "groups": [one]}, version)
        group = answer["groups"][0] if answer.get("groups") else answer
        if group.get("error_code") != GROUP_ID_NOT_FOUND:
            session.check({"error_code": 0, **group}, f"offsets of group {group_id!r}")
        return {
            (topic["name"], partition["partition_index"]): partition["committed_offset"]
            for topic in sorted(group["topics"], key=lambda topic: str(topic["name"]))
            for partition in sorted(topic["partitions"], key=lambda p: int(p["partition_index"]))
            if not partition["error_code"] and partition["committed_offset"] >= 0
        }

    def commit(self, group_id: str, offsets: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        """Commit without membership. Returns partition -> error code."""
        body = commit_body(group_id, offsets.items(), MemberIdentity())
        version = newest_at(self.client, self.of(group_id), OFFSET_COMMIT, BY_NAME)
        answer = self.ask(group_id, "OffsetCommit", body, version)
        return {
            (topic["name"], partition["partition_index"]): partition["error_code"]
            for topic in answer["topics"]
            for partition in topic["partitions"]
        }

    def existing(self, places: Iterable[PartitionKey]) -> list[PartitionKey]:
        """The partitions among these that exist and have a leader."""
        wanted = list(places)
        names = sorted({topic for topic, _ in wanted})
        if not names:
            return []
        there = {
            (topic["name"], partition["partition_index"])
            for topic in session.metadata(self.client, names)["topics"]
            for partition in topic["partitions"]
            if partition["leader_id"] >= 0
        }
        return [place for place in wanted if place in there]

    def offsets(
        self, places: Sequence[PartitionKey], timestamp: int, *, read_committed: bool = False
    ) -> dict[PartitionKey, int]:
        """The offsets of existing partitions at a time: LATEST, EARLIEST, milliseconds.

        read_committed  LATEST is the last stable offset; otherwise it is the high watermark
        """
        if not places:
            return {}
        moments = [(topic, partition, timestamp) for topic, partition in places]
        found = self.client.list_offsets(moments, read_committed=read_committed)
        return {(topic, partition): offset for topic, partition, _, offset, _ in found}

    def written(self, first: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        """The timestamps of the records at these offsets that can be read in a moment."""
        found: dict[PartitionKey, int] = {}
        if not first:
            return found
        small = session.properties(self._options, max_partition_fetch_bytes=1)
        reader = _krust.Consumer(self._options.bootstrap, small)
        until = time.monotonic() + MOMENT_S
        with suppress(KrustError):
            reader.assign([(topic, n, offset, offset + 1) for (topic, n), offset in first.items()])
            while not reader.done() and time.monotonic() < until:
                for record in reader.poll(100)[0]:
                    found[record.topic, record.partition] = record.timestamp_ms
        return found

    def missing(self, group_id: str) -> Exception:
        """The error for a group that does not exist. It suggests a similar name."""
        from difflib import get_close_matches

        near = get_close_matches(group_id, [group["group_id"] for group in self.groups()], 1)
        hint = f'did you mean "{near[0]}"?' if near else "list the groups: krust group list"
        text = f'group "{group_id}" does not exist on {self._options.bootstrap}'
        return session.refused(GROUP_ID_NOT_FOUND, text, hint=hint)


def require_no_members(group: GroupDescription) -> None:
    """Raise if the group has members, because they would overwrite the offsets."""
    if group.state not in WITHOUT_MEMBERS or group.members:
        text = f"group {group.group_id!r} is {group.state} and has {len(group.members)} members"
        hint = f"stop them first; who they are: krust group describe {group.group_id} --members"
        raise session.refused(NON_EMPTY_GROUP, text, hint=hint)
