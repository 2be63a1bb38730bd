"""The records of a consumer group in `__consumer_offsets`, by Kafka's key types.

A record is (type, key without the group, value or None). Kafka before 4.1 wrote its topics as
type 4. krust does not read it, and writes its tombstone with the group's next record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from krust.coordinator.consumer.member import (
    ClassicProtocols,
    ConsumerMember,
    group_by_topic,
    partitions_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.consumer.member import Partitions
    from krust.coordinator.events import Record
    from krust.messages import Message
    from krust.messages.consumer_group_current_member_assignment_value import (
        ConsumerGroupCurrentMemberAssignmentValue as CurrentValue,
    )
    from krust.messages.consumer_group_member_metadata_value import (
        ConsumerGroupMemberMetadataValue as MemberValue,
    )
    from krust.messages.consumer_group_metadata_value import (
        ConsumerGroupMetadataValue as EpochValue,
    )
    from krust.messages.consumer_group_regular_expression_value import (
        ConsumerGroupRegularExpressionValue as RegexValue,
    )
    from krust.messages.consumer_group_target_assignment_member_value import (
        ConsumerGroupTargetAssignmentMemberValue as TargetValue,
    )
    from krust.messages.consumer_group_target_assignment_metadata_value import (
        ConsumerGroupTargetAssignmentMetadataValue as TargetEpochValue,
    )

EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16


def epoch(number: int, topics_hash: int) -> Record:
    """The group's epoch, and a digest of its topics."""
    value: EpochValue = {"epoch": number, "metadata_hash": topics_hash}
    return EPOCH, {}, value


def target_epoch(number: int) -> Record:
    """The epoch of the target."""
    value: TargetEpochValue = {"assignment_epoch": number}
    return TARGET_EPOCH, {}, value


def target(member_id: str, partitions: Partitions) -> Record:
    """The target of a member."""
    value: TargetValue = {"topic_partitions": group_by_topic(partitions)}
    return TARGET, {"member_id": member_id}, value


def regex(pattern: str, topics: Iterable[str], now_ms: int) -> Record:
    """The topics that match a regular expression."""
    value: RegexValue = {"topics": sorted(topics), "version": 0, "timestamp": now_ms}
    return REGEX, {"regular_expression": pattern}, value


def member(one: ConsumerMember) -> Record:
    """A member's identity and subscription."""
    value: MemberValue = {
        "instance_id": one.instance_id,
        "rack_id": one.rack,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "subscribed_topic_names": sorted(one.names),
        "subscribed_topic_regex": one.regex,
        "rebalance_timeout_ms": one.rebalance_timeout_ms,
        "server_assignor": one.assignor,
        # Written as null: without the field Kafka would read an empty one, and a classic member.
        "classic_member_metadata": None,
    }
    if one.classic is not None:
        value["classic_member_metadata"] = {
            "session_timeout_ms": one.classic.session_timeout_ms,
            "supported_protocols": [
                {"name": name, "metadata": metadata} for name, metadata in one.classic.protocols
            ],
        }
    return MEMBER, {"member_id": one.id}, value


def current(one: ConsumerMember) -> Record:
    """The partitions of a member: assigned, and to be revoked."""
    value: CurrentValue = {
        "member_epoch": one.epoch,
        "previous_member_epoch": one.previous_epoch,
        "state": one.state,
        "assigned_partitions": group_by_topic(one.assigned),
        "partitions_pending_revocation": group_by_topic(one.revoking),
    }
    return CURRENT, {"member_id": one.id}, value


def member_tombstones(member_id: str) -> list[Record]:
    """A member is removed. Its partitions go first, because Kafka's replay requires that order."""
    return [(kind, {"member_id": member_id}, None) for kind in (CURRENT, TARGET, MEMBER)]


def read_member(member_id: str, message: Message) -> ConsumerMember:
    """A member out of the value of its record, without its partitions."""
    value = cast("MemberValue", message)
    metadata = value.get("classic_member_metadata")
    classic = metadata and ClassicProtocols(
        metadata["session_timeout_ms"],
        tuple((each["name"], each["metadata"]) for each in metadata["supported_protocols"]),
    )
    return ConsumerMember(
        member_id,
        instance_id=value.get("instance_id"),
        rack=value.get("rack_id"),
        client_id=value["client_id"],
        client_host=value["client_host"],
        names=frozenset(value["subscribed_topic_names"]),
        regex=value.get("subscribed_topic_regex") or "",
        rebalance_timeout_ms=value["rebalance_timeout_ms"],
        assignor=value.get("server_assignor"),
        classic=classic or None,
    )


def read_current(one: ConsumerMember, message: Message) -> None:
    """Set the partitions that a member has, from the value of its record."""
    value = cast("CurrentValue", message)
    one.epoch, one.previous_epoch = value["member_epoch"], value["previous_member_epoch"]
    one.state = value["state"]
    one.assigned = partitions_of(value["assigned_partitions"])
    one.revoking = partitions_of(value["partitions_pending_revocation"])
