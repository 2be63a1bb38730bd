"""Responses of the consumer protocol's APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.consumer.member import group_by_topic
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.consumer.member import Partitions
    from krust.messages.consumer_group_describe import DescribedGroup
    from krust.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

NO_AUTHORIZED_OPERATIONS = -(2**31)
"""authorized operations where the request does not ask for them"""


def heartbeat_response(
    member_id: str, epoch: int, interval_ms: int = 0, assignment: Partitions | None = None
) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat's answer. `assignment` None: the member keeps the assignment that it knows."""
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "member_id": member_id,
        "member_epoch": epoch,
        "heartbeat_interval_ms": interval_ms,
        "assignment": None
        if assignment is None
        else {"topic_partitions": group_by_topic(assignment)},
    }


def unsupported_assignor(name: str, offered: Iterable[str]) -> tuple[Code, str]:
    """The refusal of a member that asks for an unknown assignor."""
    why = f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(offered)}."
    return Code.UNSUPPORTED_ASSIGNOR, why


def heartbeat_refusal(code: Code, why: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat that is refused."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": why,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval_ms": 0,
        "assignment": None,
    }


def consumer_group_description(
    group_id: str, code: Code = Code.NONE, why: str | None = None
) -> DescribedGroup:
    """A group of ConsumerGroupDescribe, without members."""
    return {
        "error_code": code,
        "error_message": why,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
        "authorized_operations": NO_AUTHORIZED_OPERATIONS,
    }
