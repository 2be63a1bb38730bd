"""The target assignment, from subscriptions, topics and an assignor.

`uniform` and `range` are computed here. Any other assignor of `group.consumer.assignors` is user
code: it gets an AssignCall and answers with the notification `Assigned`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from krust.coordinator.assignors.assignor import GroupSpec, MemberSpec, Topics
from krust.coordinator.assignors.classic import Range
from krust.coordinator.assignors.even import Uniform
from krust.coordinator.consumer_protocol import TopicPartition
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.coordinator.assignors.assignor import Assignor, GroupAssignment
    from krust.coordinator.consumer.member import ConsumerMember, Partitions
    from krust.coordinator.events import GroupSettings, TopicShape

BUILT_IN: dict[str, type[Assignor]] = {"uniform": Uniform, "range": Range}
"""Assignors that are bounded and fast, and so run on the policy thread."""


class MemberSubscription(NamedTuple):
    """A member and its topics, by name and by regular expression."""

    member: ConsumerMember
    topics: frozenset[str]


def preferred_assignor(members: Iterable[ConsumerMember], settings: GroupSettings) -> str:
    """The assignor with the most votes. A tie, or no vote, goes to the first configured one."""
    votes = Counter(each.assignor for each in members if each.assignor in settings.assignors)
    return max(settings.assignors, key=lambda name: votes[name])


def group_spec(
    group_id: str,
    subscriptions: list[MemberSubscription],
    target: Mapping[str, Partitions],
    epoch: int,
    settings: GroupSettings,
) -> GroupSpec:
    """The group for an assignor. Members own the partitions of the last target."""
    members = {
        each.member.id: MemberSpec(
            each.topics,
            each.member.instance_id,
            each.member.rack,
            None,
            tuple(with_topic_names(target.get(each.member.id, ()), settings)),
            epoch,
        )
        for each in subscriptions
    }
    return GroupSpec(members, group_id)


def compute_target(name: str, group: GroupSpec, settings: GroupSettings) -> GroupAssignment:
    """The assignment of a built-in assignor."""
    wanted = {topic for each in group.members.values() for topic in each.topics}
    shapes = existing_topics(wanted, settings)
    racks = {
        (topic, number): racks
        for topic, shape in shapes.items()
        for number, racks in enumerate(shape.racks)
    }
    topics = Topics({topic: shape.partitions for topic, shape in shapes.items()}, racks)
    return BUILT_IN[name]().assign(group, topics)


def valid_target(
    given: GroupAssignment, subscriptions: list[MemberSubscription], settings: GroupSettings
) -> dict[str, Partitions]:
    """The target of an assignment, without members, topics and partitions that do not exist."""
    gone: set[tuple[str, int]] = set()
    found: dict[str, Partitions] = {}
    for member, topics in subscriptions:
        mine = with_topic_ids(
            [each for each in given.get(member.id, ()) if each[0] in topics], settings
        )
        found[member.id] = mine - gone
        gone |= mine
    return found


def existing_topics(topics: Iterable[str], settings: GroupSettings) -> dict[str, TopicShape]:
    """The topics among these that exist, by name."""
    found = ((topic, settings.topics(topic)) for topic in sorted(topics))
    return {topic: shape for topic, shape in found if shape is not None}


def with_topic_names(
    partitions: Iterable[tuple[str, int]], settings: GroupSettings
) -> list[TopicPartition]:
    """Partitions with topic names instead of ids, sorted, without deleted topics."""
    by_id: dict[str, str | None] = {}
    found = []
    for topic_id, number in partitions:
        if topic_id not in by_id:
            by_id[topic_id] = settings.topic_of(topic_id)
        name = by_id[topic_id]
        if name is not None:
            found.append(TopicPartition(name, number))
    return sorted(found)


def with_topic_ids(partitions: Iterable[tuple[str, int]], settings: GroupSettings) -> Partitions:
    """Partitions with topic ids instead of names, without those that do not exist."""
    found = list(partitions)
    shapes = existing_topics({topic for topic, _ in found}, settings)
    return frozenset(
        (shapes[topic].id, number)
        for topic, number in found
        if topic in shapes and 0 <= number < shapes[topic].partitions
    )


def topics_hash(topics: Iterable[str], settings: GroupSettings) -> int:
    """A hash of these topics and their partitions: 64 bits, signed; 0: none exists."""
    shapes = existing_topics(topics, settings)
    if not shapes:
        return 0
    shown = [
        (name, each.id, each.partitions, [sorted(racks) for racks in each.racks])
        for name, each in shapes.items()
    ]
    # OpenSSL costs 3 MB of memory, and 2 ms of each start: only consumer groups load it.
    from hashlib import blake2b

    data = blake2b(repr(shown).encode(), digest_size=8).digest()
    return int.from_bytes(data, "big", signed=True)
