"""Kafka's two oldest assignors: ranges of each topic, and round robin.

Both use only the subscriptions. They compute the same as Kafka's clients, so a group has the same
assignment if a member assigns.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from krust.coordinator.assignors.assignor import subscribed
from krust.coordinator.consumer_protocol import TopicPartition

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import GroupAssignment, GroupSpec, TopicDescriber


class Range:
    """Each topic is cut into ranges, so equal keys of two topics are read by one member.

    Promised: the counts of two subscribers of a topic differ by one at most; the first subscribers
    have one more. With many topics the first members have more in all.
    """

    name = "range"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign each topic by itself."""
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
    """The partitions of all topics go to the subscribers in turn.

    Promised: with equal subscriptions, counts differ by one at most. Not promised: anything with
    unequal subscriptions.
    """

    name = "roundrobin"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign topic by topic."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in group.members}
        turn = cycle(group.order())
        for topic in subscribed(group, topics):
            for partition in range(topics.partitions(topic)):
                member = next(member for member in turn if topic in group.members[member].topics)
                shares[member].append(TopicPartition(topic, partition))
        return shares
