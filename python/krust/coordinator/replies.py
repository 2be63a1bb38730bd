"""Responses of the group APIs, and their refusals.

A response has the fields of the newest version. The core leaves out what the version of the request
lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.consumer.replies import NO_AUTHORIZED_OPERATIONS
from krust.coordinator.consumer.replies import consumer_group_description as consumer_described
from krust.coordinator.consumer.replies import heartbeat_refusal as heartbeat_refused
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from krust.coordinator.events import Event, Reply
    from krust.messages import Message
    from krust.messages.consumer_group_describe import (
        ConsumerGroupDescribeResponse,
    )
    from krust.messages.consumer_group_describe import (
        DescribedGroup as DescribedConsumerGroup,
    )
    from krust.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
    from krust.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
    from krust.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
    from krust.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
    from krust.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
    from krust.messages.sync_group import SyncGroupResponse

OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""what may be done to a group: READ, DELETE, DESCRIBE"""


def join_refusal(code: Code, member_id: str) -> JoinGroupResponse:
    """A JoinGroup that is refused."""
    return join_response(member_id, -1, "", None, "", code=code)


def join_response(
    member_id: str,
    generation: int,
    protocol: str | None,
    protocol_type: str | None,
    leader: str | None,
    *,
    members: Sequence[JoinGroupResponseMember] = (),
    skip_assignment: bool = False,
    code: Code = Code.NONE,
) -> JoinGroupResponse:
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


def sync_refusal(code: Code) -> SyncGroupResponse:
    """A SyncGroup that is refused."""
    return sync_response(None, None, b"", code=code)


def sync_response(
    protocol_type: str | None,
    protocol: str | None,
    assignment: bytes,
    *,
    code: Code = Code.NONE,
) -> SyncGroupResponse:
    """A SyncGroup's answer."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "protocol_type": protocol_type,
        "protocol_name": protocol,
        "assignment": assignment,
    }


def leave_response(event: Event[LeaveGroupRequest], codes: Sequence[Code]) -> LeaveGroupResponse:
    """A LeaveGroup's answer: a code for each member that the request names, in its order."""
    if event.version < 3:
        return {"throttle_time_ms": 0, "error_code": codes[0], "members": []}
    members: list[MemberResponse] = [
        {
            "member_id": each["member_id"],
            "group_instance_id": each.get("group_instance_id"),
            "error_code": code,
        }
        for each, code in zip(event.message["members"], codes, strict=True)
    ]
    return {"throttle_time_ms": 0, "error_code": Code.NONE, "members": members}


def group_description(
    group_id: str, state: str, code: Code = Code.NONE, why: str | None = None
) -> DescribedGroup:
    """A group of DescribeGroups, without members."""
    return {
        "error_code": code,
        "error_message": why,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NO_AUTHORIZED_OPERATIONS,
    }


def describe_response(groups: Sequence[DescribedGroup]) -> DescribeGroupsResponse:
    """A DescribeGroups' answer."""
    return {"throttle_time_ms": 0, "groups": groups}


def consumer_describe_response(
    groups: Sequence[DescribedConsumerGroup],
) -> ConsumerGroupDescribeResponse:
    """A ConsumerGroupDescribe's answer."""
    return {"throttle_time_ms": 0, "groups": groups}


def delete_response(results: Sequence[DeletableGroupResult]) -> DeleteGroupsResponse:
    """A DeleteGroups' answer."""
    return {"throttle_time_ms": 0, "results": results}


def refusal(event: Event[Message], code: Code) -> Message:
    """A request of any API that is refused as a whole."""
    message = event.message
    if event.api == "JoinGroup":
        return join_refusal(code, message.get("member_id", ""))
    if event.api == "SyncGroup":
        return sync_refusal(code)
    if event.api == "ConsumerGroupHeartbeat":
        return heartbeat_refused(code)
    if event.api == "ConsumerGroupDescribe":
        return consumer_describe_response(
            [consumer_described(each, code) for each in message["group_ids"]]
        )
    if event.api == "DescribeGroups":
        return describe_response([group_description(each, "", code) for each in message["groups"]])
    if event.api == "DeleteGroups":
        return delete_response(
            [{"group_id": each, "error_code": code} for each in message["groups_names"]]
        )
    if event.api == "ListGroups":
        return {"throttle_time_ms": 0, "error_code": code, "groups": []}
    return {"throttle_time_ms": 0, "error_code": code, "members": []}


def refuse_failed(reply: Reply, failed_groups: Container[str]) -> Reply:
    """Refuse the groups of a reply whose append failed. The reply waits for its other groups."""
    ticket, response, groups = reply
    rest = tuple(each for each in groups if each not in failed_groups)
    return ticket, _with_refusals(response, failed_groups), rest


def _with_refusals(response: Message, failed_groups: Container[str]) -> Message:
    """A response of any API, with a refusal for the groups whose append failed."""
    code = Code.COORDINATOR_NOT_AVAILABLE
    if "generation_id" in response:
        return join_refusal(code, response["member_id"])
    if "heartbeat_interval_ms" in response:
        return heartbeat_refused(code)
    if "assignment" in response:
        return sync_refusal(code)
    if "results" in response:
        results = [
            {**each, "error_code": code} if each.get("group_id") in failed_groups else each
            for each in response["results"]
        ]
        return {**response, "results": results}
    if "groups" in response and "error_code" not in response:
        groups = [
            _not_described(each, code) if each.get("group_id") in failed_groups else each
            for each in response["groups"]
        ]
        return {**response, "groups": groups}
    lists: dict[str, list[object]] = {k: [] for k in ("members", "groups") if k in response}
    return {"throttle_time_ms": 0, "error_code": code, **lists}


def _not_described(group: Message, code: Code) -> DescribedGroup | DescribedConsumerGroup:
    group_id = group["group_id"]
    if "group_epoch" in group:
        return consumer_described(group_id, code)
    return group_description(group_id, "", code)


def list_response(
    event: Event[ListGroupsRequest], found: list[tuple[str, str, str, str]]
) -> ListGroupsResponse:
    """ListGroups: id, protocol type, state and kind of each group that passes its filters."""
    states = {each.lower() for each in event.message.get("states_filter") or ()}
    types = {each.lower() for each in event.message.get("types_filter") or ()}
    groups: list[ListedGroup] = [
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
