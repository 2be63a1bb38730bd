"""Kafka's two oldest ways to share partitions: by topic in ranges, or in turn.

Both look at nothing but the subscriptions, and give what Kafka's own clients would compute, so
that a group looks the same whoever assigns.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from krust.coordinator.assignors.spec import subscribed
from krust.coordinator.consumer_protocol import TopicPartition

if TYPE_CHECKING:
    from krust.coordinator.assignors.spec import GroupAssignment, GroupSpec, TopicDescriber


class Range:
    """Each topic cut into runs of neighbours, so that equal keys of two topics meet in one member.

    Promise: of each topic, a subscriber has as many partitions as another or one more (the first
    ones do). Over many topics that adds up: the first members carry more.
    """

    name = "range"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Share each topic on its own."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in group.members}
        for topic, members in subscribed(group, topics).items():
            count = topics.partitions(topic)
            few, more = divmod(count, len(members))
            first = 0
            for place, member in enumerate(members[:count]):
                end = first + few + (place < more)
                shares[member] += [TopicPartition(topic, n) for n in range(first, end)]
                first = end
        return shares


class RoundRobin:
    """All partitions of all topics dealt like cards; who does not subscribe is passed over.

    Promise: with equal subscriptions, counts differ by one at most. With unequal ones, none.
    """

    name = "roundrobin"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Deal topic by topic."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in group.members}
        turn = cycle(group.order())
        for topic in subscribed(group, topics):
            for partition in range(topics.partitions(topic)):
                member = next(member for member in turn if topic in group.members[member].topics)
                shares[member].append(TopicPartition(topic, partition))
        return shares
