"""Descriptions of group members in one form for both protocols.

A dict of member_id, instance_id, client_id, host, rack, `subscribed` (a list of topics) and
`assigned` (a list of (topic, partition)). The last two are None if the member is no consumer, or if
they cannot be decoded.
"""

from __future__ import annotations

from typing import Any

from krust.coordinator import consumer_protocol


def consumer_member(member: dict[str, Any]) -> dict[str, Any]:
    """The description of a member of a consumer group."""
    pattern = member["subscribed_topic_regex"]
    assigned, target = (
        sorted(
            (topic["topic_name"], n)
            for topic in has["topic_partitions"]
            for n in topic["partitions"]
        )
        for has in (member["assignment"], member["target_assignment"])
    )
    return {
        "member_id": member["member_id"],
        "instance_id": member["instance_id"],
        "client_id": member["client_id"],
        "host": member["client_host"].lstrip("/"),
        "subscribed": sorted(member["subscribed_topic_names"])
        + ([f"/{pattern}/"] if pattern else []),
        "rack": member["rack_id"],
        "assigned": assigned,
        "target": target,
        "epoch": member["member_epoch"],
    }


def classic_member(member: dict[str, Any], protocol_type: str) -> dict[str, Any]:
    """The description of a member of a classic group."""
    read: dict[str, Any] = {
        "member_id": member["member_id"],
        "instance_id": member.get("group_instance_id"),
        "client_id": member["client_id"],
        "host": member["client_host"].lstrip("/"),
        "subscribed": None,
        "rack": None,
        "assigned": None,
    }
    if protocol_type != consumer_protocol.PROTOCOL_TYPE:
        return read
    try:
        assigned = consumer_protocol.read_assignment(member["member_assignment"]).partitions
        read["assigned"] = sorted(assigned)
        if member["member_metadata"]:
            subscription = consumer_protocol.read_subscription(member["member_metadata"])
            read["subscribed"] = sorted(subscription.topics)
            read["rack"] = subscription.rack
    except ValueError:  # another protocol under the protocol type of consumers
        pass
    return read
