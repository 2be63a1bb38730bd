"""Assignors that the tests put on a broker: `tests.foreign.server_assignors:Dealt`, and so on."""

from __future__ import annotations

import time

from krust.coordinator.assignors.assignor import GroupAssignment, GroupSpec, TopicDescriber


class Dealt:
    """Partition n to the n-th member, backwards: what no client's assignor computes."""

    name = "dealt"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        order = group.order()[::-1]
        shares: dict[str, list[tuple[str, int]]] = {member: [] for member in order}
        for topic in sorted({each for one in group.members.values() for each in one.topics}):
            for number in range(topics.partitions(topic)):
                shares[order[number % len(order)]].append((topic, number))
        return shares


class Raises(Dealt):
    """Always raises."""

    name = "raises"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        raise LookupError("planted")


class Hangs(Dealt):
    """Never answers."""

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        while True:
            time.sleep(1)


class Lies(Dealt):
    """Gives every partition to every member."""

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        shares = super().assign(group, topics)
        return {member: [one for mine in shares.values() for one in mine] for member in shares}
