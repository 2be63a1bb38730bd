"""The records of a consumer group in `__consumer_offsets`, by Kafka's key types.

A record is (type, key without the group, value or None). Type 4 (what Kafka before 4.1 knew of
topics) is read by nobody; where it is found it goes with the group's next record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.consumer.member import Classic, Member, listed, unlisted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.consumer.member import Partitions
    from krust.coordinator.events import Message, Record

EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16


def epoch(number: int, topics_hash: int) -> Record:
    """The group's epoch, and a digest of the topics it was decided about."""
    return EPOCH, {}, {"epoch": number, "metadata_hash": topics_hash}


def target_epoch(number: int) -> Record:
    """The epoch of the target."""
    return TARGET_EPOCH, {}, {"assignment_epoch": number}


def target(member_id: str, partitions: Partitions) -> Record:
    """What a member is to have."""
    return TARGET, {"member_id": member_id}, {"topic_partitions": listed(partitions)}


def regex(pattern: str, topics: Iterable[str], now_ms: int) -> Record:
    """Which topics a regular expression means."""
    value = {"topics": sorted(topics), "version": 0, "timestamp": now_ms}
    return REGEX, {"regular_expression": pattern}, value


def member(one: Member) -> Record:
    """Who a member is and what it wants."""
    value: Message = {
        "instance_id": one.instance_id,
        "rack_id": one.rack,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "subscribed_topic_names": sorted(one.names),
        "subscribed_topic_regex": one.regex,
        "rebalance_timeout_ms": one.rebalance_timeout_ms,
        "server_assignor": one.assignor,
        # Said in so many words: what is not there is an empty one to Kafka, and the member classic.
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


def current(one: Member) -> Record:
    """What a member has, and on its way to what."""
    value = {
        "member_epoch": one.epoch,
        "previous_member_epoch": one.previous_epoch,
        "state": one.state,
        "assigned_partitions": listed(one.assigned),
        "partitions_pending_revocation": listed(one.revoking),
    }
    return CURRENT, {"member_id": one.id}, value


def member_tombstones(member_id: str) -> list[Record]:
    """A member is no more; what it had goes first, as Kafka's replay wants it."""
    return [(kind, {"member_id": member_id}, None) for kind in (CURRENT, TARGET, MEMBER)]


def read_member(member_id: str, value: Message) -> Member:
    """A member out of its record, without what it has."""
    spoken = value.get("classic_member_metadata")
    classic = spoken and Classic(
        spoken["session_timeout_ms"],
        tuple((each["name"], each["metadata"]) for each in spoken["supported_protocols"]),
    )
    return Member(
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


def read_current(one: Member, value: Message) -> None:
    """Add what a member has."""
    one.epoch, one.previous_epoch = value["member_epoch"], value["previous_member_epoch"]
    one.state = value["state"]
    one.assigned = unlisted(value["assigned_partitions"])
    one.revoking = unlisted(value["partitions_pending_revocation"])
