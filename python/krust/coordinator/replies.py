"""The shapes of answers: what each API of classic groups says, and how it says no.

Every answer has the fields of the newest version; the core leaves out what the asked one lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.consumer.replies import NOT_ASKED
from krust.coordinator.consumer.replies import described as consumer_described
from krust.coordinator.consumer.replies import refused as beat_refused
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from krust.coordinator.events import Event, Message, Reply

OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""what may be done to a group: READ, DELETE, DESCRIBE"""


def join(code: Code, member_id: str) -> Message:
    """A JoinGroup that is refused."""
    return joined(member_id, -1, "", None, "", code=code)


def joined(
    member_id: str,
    generation: int,
    protocol: str | None,
    protocol_type: str | None,
    leader: str | None,
    *,
    members: Sequence[Message] = (),
    skip_assignment: bool = False,
    code: Code = Code.NONE,
) -> Message:
    """A JoinGroup's answer; `members` for the leader alone."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "generation_id": generation,
        "protocol_type": protocol_type,
        "protocol_name": protocol or "",
        "leader": leader or "",
        "skip_assignment": skip_assignment,
        "member_id": member_id,
        "members": list(members),
    }


def sync(code: Code) -> Message:
    """A SyncGroup that is refused."""
    return synced(None, None, b"", code=code)


def synced(
    protocol_type: str | None,
    protocol: str | None,
    assignment: bytes,
    *,
    code: Code = Code.NONE,
) -> Message:
    """A SyncGroup's answer."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "protocol_type": protocol_type,
        "protocol_name": protocol,
        "assignment": assignment,
    }


def left(event: Event, codes: Sequence[Code]) -> Message:
    """A LeaveGroup's answer: a code for each that was to leave, in the order of the request."""
    if event.version < 3:
        return {"throttle_time_ms": 0, "error_code": codes[0], "members": []}
    members = [
        {
            "member_id": each["member_id"],
            "group_instance_id": each.get("group_instance_id"),
            "error_code": code,
        }
        for each, code in zip(event.message["members"], codes, strict=True)
    ]
    return {"throttle_time_ms": 0, "error_code": Code.NONE, "members": members}


def described(group_id: str, state: str, code: Code = Code.NONE, why: str | None = None) -> Message:
    """A group of DescribeGroups, without members."""
    return {
        "error_code": code,
        "error_message": why,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NOT_ASKED,
    }


def refused(event: Event, code: Code) -> Message:
    """Any request that is refused as a whole, in the shape of its API."""
    message = event.message
    if event.api == "JoinGroup":
        return join(code, message.get("member_id", ""))
    if event.api == "SyncGroup":
        return sync(code)
    if event.api == "ConsumerGroupHeartbeat":
        return beat_refused(code)
    if event.api == "ConsumerGroupDescribe":
        shown = [consumer_described(each, code) for each in message["group_ids"]]
        return {"throttle_time_ms": 0, "groups": shown}
    if event.api == "DescribeGroups":
        groups = [described(each, "", code) for each in message["groups"]]
        return {"throttle_time_ms": 0, "groups": groups}
    if event.api == "DeleteGroups":
        results = [{"group_id": each, "error_code": code} for each in message["groups_names"]]
        return {"throttle_time_ms": 0, "results": results}
    if event.api == "ListGroups":
        return {"throttle_time_ms": 0, "error_code": code, "groups": []}
    return {"throttle_time_ms": 0, "error_code": code, "members": []}


def without(answer: Reply, on_append_failed: Container[str]) -> Reply:
    """An answer when what it says of some of its groups did not happen; it waits for the others."""
    ticket, reply, groups = answer
    rest = tuple(each for each in groups if each not in on_append_failed)
    return ticket, _withdrawn(reply, on_append_failed), rest


def _withdrawn(reply: Message, on_append_failed: Container[str]) -> Message:
    """The refusal that takes the place of an answer; of one on several groups, for those alone."""
    code = Code.COORDINATOR_NOT_AVAILABLE
    if "generation_id" in reply:
        return join(code, reply["member_id"])
    if "heartbeat_interval_ms" in reply:
        return beat_refused(code)
    if "assignment" in reply:
        return sync(code)
    if "results" in reply:
        results = [
            {**each, "error_code": code} if each.get("group_id") in on_append_failed else each
            for each in reply["results"]
        ]
        return {**reply, "results": results}
    if "groups" in reply and "error_code" not in reply:
        groups = [
            _undescribed(each, code) if each.get("group_id") in on_append_failed else each
            for each in reply["groups"]
        ]
        return {**reply, "groups": groups}
    lists: Message = {key: [] for key in ("members", "groups") if key in reply}
    return {"throttle_time_ms": 0, "error_code": code, **lists}


def _undescribed(shown: Message, code: Code) -> Message:
    group_id = shown["group_id"]
    if "group_epoch" in shown:
        return consumer_described(group_id, code)
    return described(group_id, "", code)


def listed(event: Event, found: list[tuple[str, str, str, str]]) -> Message:
    """ListGroups: id, protocol type, state and kind of each group that passes its filters."""
    states = {each.lower() for each in event.message.get("states_filter") or ()}
    types = {each.lower() for each in event.message.get("types_filter") or ()}
    groups = [
        {
            "group_id": group_id,
            "protocol_type": protocol_type,
            "group_state": state,
            "group_type": kind,
        }
        for group_id, protocol_type, state, kind in found
        if (not states or state.lower() in states) and (not types or kind in types)
    ]
    return {"throttle_time_ms": 0, "error_code": Code.NONE, "groups": groups}
