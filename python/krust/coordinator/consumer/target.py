"""The target: who is to have what, from subscriptions, topics and an assignor.

`uniform` and `range` are computed here, at once; whatever else `group.consumer.assignors` names is
user code: it gets an AssignCall, and answers by the news `Assigned`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from krust.coordinator.assignors.classic import Range
from krust.coordinator.assignors.even import Uniform
from krust.coordinator.assignors.spec import GroupSpec, MemberSpec, Topics
from krust.coordinator.consumer_protocol import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.coordinator.assignors.spec import Assignor, GroupAssignment
    from krust.coordinator.consumer.member import Member, Partitions
    from krust.coordinator.events import GroupSettings, TopicShape

BUILT_IN: dict[str, type[Assignor]] = {"uniform": Uniform, "range": Range}
"""Those that are bounded and fast, and run where everything is decided."""


class MemberSubscription(NamedTuple):
    """A member and the names of all topics it wants, those of its regular expression among them."""

    member: Member
    topics: frozenset[str]


def preferred(members: Iterable[Member], settings: GroupSettings) -> str:
    """Most votes among members that name one; a tie, or no vote, goes to the first configured."""
    votes = Counter(each.assignor for each in members if each.assignor in settings.assignors)
    return max(settings.assignors, key=lambda name: votes[name])


def spec(
    group_id: str,
    subscriptions: list[MemberSubscription],
    target: Mapping[str, Partitions],
    epoch: int,
    settings: GroupSettings,
) -> GroupSpec:
    """The group as an assignor sees it; what the target was so far counts as owned."""
    members = {
        each.member.id: MemberSpec(
            each.topics,
            each.member.instance_id,
            each.member.rack,
            None,
            tuple(named(target.get(each.member.id, ()), settings)),
            epoch,
        )
        for each in subscriptions
    }
    return GroupSpec(members, group_id)


def compute(name: str, group: GroupSpec, settings: GroupSettings) -> GroupAssignment:
    """The target by a built-in assignor."""
    wanted = {topic for each in group.members.values() for topic in each.topics}
    shapes = known(wanted, settings)
    racks = {
        (topic, number): racks
        for topic, shape in shapes.items()
        for number, racks in enumerate(shape.racks)
    }
    topics = Topics({topic: shape.partitions for topic, shape in shapes.items()}, racks)
    return BUILT_IN[name]().assign(group, topics)


def taken(
    given: GroupAssignment, subscriptions: list[MemberSubscription], settings: GroupSettings
) -> dict[str, Partitions]:
    """The target out of an assignment; what is not so any more since it was asked is left out."""
    gone: set[tuple[str, int]] = set()
    found: dict[str, Partitions] = {}
    for member, topics in subscriptions:
        mine = ids([each for each in given.get(member.id, ()) if each[0] in topics], settings)
        found[member.id] = mine - gone
        gone |= mine
    return found


def known(topics: Iterable[str], settings: GroupSettings) -> dict[str, TopicShape]:
    """Those of these topics that there are, by name."""
    found = ((topic, settings.topics(topic)) for topic in sorted(topics))
    return {topic: shape for topic, shape in found if shape is not None}


def named(partitions: Iterable[tuple[str, int]], settings: GroupSettings) -> list[TopicPartition]:
    """Partitions by their topics' names, in one order; topics that are gone are left out."""
    by_id: dict[str, str | None] = {}
    found = []
    for topic_id, number in partitions:
        if topic_id not in by_id:
            by_id[topic_id] = settings.topic_of(topic_id)
        name = by_id[topic_id]
        if name is not None:
            found.append(TopicPartition(name, number))
    return sorted(found)


def ids(partitions: Iterable[tuple[str, int]], settings: GroupSettings) -> Partitions:
    """And back; those that do not exist are left out."""
    found = list(partitions)
    shapes = known({topic for topic, _ in found}, settings)
    return frozenset(
        (shapes[topic].id, number)
        for topic, number in found
        if topic in shapes and 0 <= number < shapes[topic].partitions
    )


def digest(topics: Iterable[str], settings: GroupSettings) -> int:
    """A number that is another one when any of these topics is: 64 bits, signed; 0: none exists."""
    shapes = known(topics, settings)
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
