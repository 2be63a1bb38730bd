"""Turns an AssignCall into an assignor's arguments, and its result into members' assignments.

Eager members give up all partitions before they join. Cooperative members keep the partitions that
their subscription names. No other member gets such a partition in this generation: its holder sees
that it has lost it, gives it up and joins again, and then the partition is free. Each member is
treated by its own subscription, so a group can have both kinds. With the protocols of Kafka's eager
assignors no member keeps partitions, whatever its subscription names.
A member whose subscription names no partitions is taken to own those of its last assignment.
Pure: no thread, no clock. It runs where the assignor is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krust.coordinator.assignors.assignor import GroupSpec, MemberSpec
from krust.coordinator.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    read_assignment,
    read_subscription,
    write_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust.coordinator.assignors.assignor import GroupAssignment
    from krust.coordinator.events import AssignCall

EAGER_PROTOCOLS = frozenset({"range", "roundrobin", "sticky"})
"""Protocols whose members hold nothing while they join."""

LEADER_ONLY_PROTOCOLS = frozenset({"stream"})
"""Protocols whose assignments have more than partitions: only the leader can assign."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The decoded subscriptions of a call.

    group     for the assignor, without members whose subscription cannot be decoded
    versions  member id -> its version of the consumer protocol
    holders   partition -> members that keep it until a later generation
    unread    one line for each member whose subscription cannot be decoded
    """

    group: GroupSpec
    versions: dict[str, int]
    holders: dict[TopicPartition, set[str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def read_members(call: AssignCall) -> GroupReading:
    """Read the members of a classic group."""
    subscriptions: dict[str, Subscription] = {}
    versions: dict[str, int] = {}
    unread: list[str] = []
    for member_id, _, subscription, _ in call.members:
        versions[member_id] = 0
        try:
            subscriptions[member_id] = read_subscription(subscription)
            versions[member_id] = subscriptions[member_id].version
        except ValueError as error:
            unread.append(f"member {member_id} gets nothing: {error}")
    holders: dict[TopicPartition, set[str]] = {}
    if call.protocol not in EAGER_PROTOCOLS:
        for member_id, one in subscriptions.items():
            for partition in one.owned:
                holders.setdefault(partition, set()).add(member_id)
    claimed = {partition for one in subscriptions.values() for partition in one.owned}
    members = {}
    for member_id, instance_id, _, previous in call.members:
        if member_id not in subscriptions:
            continue
        one = subscriptions[member_id]
        owned, generation = one.owned, one.generation
        if not owned:
            owned = tuple(
                partition
                for partition in _previous_partitions(previous)
                if partition not in claimed
            )
            generation = call.generation - 1
        topics = frozenset(one.topics)
        members[member_id] = MemberSpec(
            topics, instance_id, one.rack, one.user_data, owned, generation
        )
    return GroupReading(GroupSpec(members, call.group_id), versions, holders, unread)


def topics(call: AssignCall) -> set[str]:
    """The topics of all subscriptions that can be decoded."""
    if call.topics is not None:
        return set(call.topics)
    members = call.group if call.group is not None else read_members(call).group
    return {topic for member in members.members.values() for topic in member.topics}


def _previous_partitions(assignment: bytes) -> Sequence[TopicPartition]:
    try:
        return read_assignment(assignment).partitions
    except ValueError:
        return ()


def write_assignments(reading: GroupReading, shares: GroupAssignment) -> dict[str, bytes]:
    """The assignment of each member, in its version. It has no partition that another member still
    keeps.
    """
    return {
        member_id: write_assignment(
            Assignment(tuple(_free(member_id, shares, reading.holders)), b"", version)
        )
        for member_id, version in reading.versions.items()
    }


def _free(
    member_id: str, shares: GroupAssignment, holders: Mapping[TopicPartition, set[str]]
) -> Iterable[TopicPartition]:
    for one in shares.get(member_id, ()):
        partition = TopicPartition(*one)
        held_by = holders.get(partition)
        if held_by is None or member_id in held_by:
            yield partition
