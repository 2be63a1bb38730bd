"""Members of groups, as a coordinator describes them, in one shape whichever protocol they speak.

A dict of member_id, instance_id, client_id, host, rack; `subscribed`, a list of topics, and
`assigned`, a list of (topic, partition): None where that is of no consumer, or cannot be read.
"""

from __future__ import annotations

from typing import Any

from krust.coordinator import consumer_protocol


def consumer_member(member: dict[str, Any]) -> dict[str, Any]:
    """A member of a consumer group, in the shape of any."""
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
    """A member, with what it subscribes to and has; None where that cannot be read."""
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
    except ValueError:  # another protocol under the consumers' name: shown without it
        pass
    return read
