"""The contract of an assignor: its arguments, its result, and the check of the result.

An assignor is any object with a `name` and an `assign`. It needs no base class:

    class First:
        name = "first"

        def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
            return {member: [...] for member in group.members}

It depends only on its arguments: no clock, no network, no memory of the last call. It may raise.
`validate` checks its result. No member reads a partition that it leaves out.
All types here are plain data and can be pickled, so an assignor may run in another process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from krust.plugins import shown

if TYPE_CHECKING:
    from krust.coordinator.consumer_protocol import TopicPartition

GroupAssignment: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
"""Member id -> its partitions, (topic, number). A member that is absent gets none."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member, as it joined.

    topics       its subscription; some topics may not exist (yet)
    instance_id  the id of a static member, or None
    rack         its rack, or None
    user_data    the data of its own assignor, or None
    owned        its partitions; two members may claim the same partition
    generation   the generation of `owned`; the claim of the higher one wins; -1: not known
    """

    topics: frozenset[str]
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members of a group, by member id."""

    members: Mapping[str, MemberSpec]
    group_id: str = ""

    def order(self) -> list[str]:
        """Member ids in Kafka's order: static members by name first, the others by id."""

        def place(member_id: str) -> tuple[bool, str]:
            name = self.members[member_id].instance_id
            return name is None, member_id if name is None else name

        return sorted(self.members, key=place)


class TopicDescriber(Protocol):
    """What an assignor can ask about topics."""

    def partitions(self, topic: str) -> int:
        """The number of its partitions; 0: the topic does not exist."""

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        """The racks with a replica; empty: not known."""

    def lag(self, topic: str, partition: int) -> int | None:
        """The records that the group has not read; None: not known."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The `TopicDescriber` that is plain data."""

    counts: Mapping[str, int]
    replica_racks: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    lags: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def partitions(self, topic: str) -> int:
        """The number of its partitions."""
        return self.counts.get(topic, 0)

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        """The racks with a replica."""
        return self.replica_racks.get((topic, partition), frozenset())

    def lag(self, topic: str, partition: int) -> int | None:
        """The records that the group has not read."""
        return self.lags.get((topic, partition))


@runtime_checkable
class Assignor(Protocol):
    """An assignor of partitions to members."""

    name: str

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign all partitions of all subscribed topics."""


class AssignmentError(ValueError):
    """An assignment breaks a rule; the message names the rule and the member."""


def validate(group: GroupSpec, topics: TopicDescriber, assignment: object) -> None:
    """Check an assignment of user code.

    A valid assignment names each partition at most once; each partition exists, and its member
    subscribes to its topic.
    raises  AssignmentError
    """
    if not isinstance(assignment, Mapping):
        raise AssignmentError(f"not a mapping of members but {shown(assignment)}")
    owner: dict[tuple[str, int], str] = {}
    counts: dict[str, int] = {}
    for member_id, partitions in assignment.items():
        member = group.members.get(member_id) if isinstance(member_id, str) else None
        if member is None:
            raise AssignmentError(f"there is no member {shown(member_id)}")
        if not isinstance(partitions, (list, tuple, set, frozenset)):
            raise AssignmentError(f"member {member_id!r} gets {shown(partitions)}: not a list")
        for one in partitions:
            topic, partition = _pair(member_id, one)
            count = counts.get(topic)
            if count is None:
                count = counts[topic] = topics.partitions(topic)
            if not 0 <= partition < count:
                there = f"topic {topic!r} has {count}" if count else f"no topic {topic!r}"
                raise AssignmentError(f"member {member_id!r} gets partition {partition}: {there}")
            if topic not in member.topics:
                raise AssignmentError(f"member {member_id!r} does not subscribe to {topic!r}")
            other = owner.setdefault((topic, partition), member_id)
            if other != member_id:
                raise AssignmentError(f"{topic}:{partition} goes to {other!r} and {member_id!r}")
        if len(set(partitions)) < len(partitions):
            raise AssignmentError(f"member {member_id!r} gets a partition twice")


def _pair(member_id: str, one: object) -> tuple[str, int]:
    if isinstance(one, tuple) and len(one) == 2:
        topic, partition = one
        if isinstance(topic, str) and type(partition) is int:
            return topic, partition
    raise AssignmentError(f"member {member_id!r} gets {shown(one)}: not (topic, partition)")


def subscribed(group: GroupSpec, topics: TopicDescriber) -> dict[str, tuple[str, ...]]:
    """Existing topic -> its subscribers in Kafka's order. Topics are sorted by name.

    Topics with the same subscribers share one tuple.
    """
    kinds: dict[frozenset[str], list[int]] = {}
    order = group.order()
    for place, member_id in enumerate(order):
        kinds.setdefault(group.members[member_id].topics, []).append(place)
    who: dict[str, list[int]] = {}
    kind_members = list(kinds.values())
    for number, names in enumerate(kinds):
        for topic in names:
            who.setdefault(topic, []).append(number)
    shared: dict[tuple[int, ...], tuple[str, ...]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for topic in sorted(who):
        if topics.partitions(topic) <= 0:
            continue
        key = tuple(who[topic])
        if key not in shared:
            places = sorted(place for number in key for place in kind_members[number])
            shared[key] = tuple(order[place] for place in places)
        found[topic] = shared[key]
    return found


def owners(group: GroupSpec, topics: TopicDescriber) -> dict[TopicPartition, str]:
    """The owner of each partition that exists and that its owner still subscribes to.

    Of two claims the one of the higher generation wins. Of two claims of one generation none wins.
    """
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    kinds = {member.topics for member in group.members.values()}
    counts = {name: topics.partitions(name) for name in frozenset().union(*kinds)}
    for member_id in group.order():
        member = group.members[member_id]
        for one in set(member.owned):
            topic, partition = one
            if topic not in member.topics or not 0 <= partition < counts[topic]:
                continue
            generation, other = claims.get(one, (None, None))
            if generation is None or member.generation > generation:
                claims[one] = (member.generation, member_id)
            elif member.generation == generation and other != member_id:
                claims[one] = (generation, None)
    return {one: holder for one, (_, holder) in claims.items() if holder is not None}
