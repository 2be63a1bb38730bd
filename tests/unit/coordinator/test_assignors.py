"""The promises of each assignor, for any group; the docstrings of the classes state them."""

import itertools
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.coordinator.assignors import even
from krust.coordinator.assignors.assignor import (
    AssignmentError,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    Topics,
    owners,
    validate,
)
from krust.coordinator.assignors.find import ASSIGNORS, BUILT_IN
from krust.coordinator.consumer_protocol import TopicPartition

EVEN = ("sticky", "uniform", "rack_aware", "lag_aware")
NAMES = [f"t{n}" for n in range(4)]
RACKS = ["r0", "r1", "r2"]
everyone = pytest.mark.parametrize("name", BUILT_IN)


seeds = st.integers(0, 2**32)


def some_topics(seed: int) -> Topics:
    chance = Random(seed)
    counts = {topic: chance.randrange(8) for topic in NAMES if chance.randrange(5)}
    places = [(topic, n) for topic, count in counts.items() for n in range(count)]
    racks = {p: frozenset(chance.sample(RACKS, chance.randrange(3))) for p in places}
    lags = {p: chance.randrange(1000) for p in places if chance.randrange(2)}
    return Topics(counts, racks, lags)


def some_group(seed: int, equal: bool) -> GroupSpec:
    """Members that subscribe to all or to some; what they claim may overlap, or not exist."""
    chance = Random(seed)
    static, likely = chance.randrange(4) == 0, chance.choice((0.3, 0.6, 1.0))
    members = {}
    for member_id in chance.sample("abcdefgh", chance.randint(1, 8)):
        names = [name for name in [*NAMES, "none"] if equal or chance.random() < likely]
        owned = [(chance.choice(NAMES), chance.randint(-1, 8)) for _ in range(chance.randrange(9))]
        members[member_id] = MemberSpec(
            frozenset(names),
            f"i{member_id}-w2" if static else None,
            chance.choice([None, *RACKS]),
            chance.choice([None, b"weight=%d" % chance.randrange(10)]),
            tuple(TopicPartition(*one) for one in owned),
            chance.randint(-1, 2),
        )
    return GroupSpec(members)


topics = partial(st.builds, some_topics, seeds)
groups = partial(st.builds, some_group, seeds, st.booleans())
equals = partial(st.builds, some_group, seeds, st.just(True))


def counts(assignment: GroupAssignment) -> dict[str, int]:
    return {member: len(partitions) for member, partitions in assignment.items()}


def owner_of(assignment: GroupAssignment) -> dict[TopicPartition, str]:
    return {TopicPartition(*one): who for who, ours in assignment.items() for one in ours}


def places(ours: Iterable[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*one) for one in ours)


def holding(group: GroupSpec, assignment: GroupAssignment) -> GroupSpec:
    """The group, as it comes back with what it was given."""
    kept = {
        one: replace(member, owned=places(assignment.get(one, ())), generation=5)
        for one, member in group.members.items()
    }
    return GroupSpec(kept)


def moved(before: Mapping[TopicPartition, str], after: GroupAssignment) -> int:
    return sum(before.get(one, member) != member for one, member in owner_of(after).items())


@everyone
@given(group=groups(), topics=topics())
def test_every_partition_goes_to_one_subscriber(
    name: str, group: GroupSpec, topics: Topics
) -> None:
    assignment = ASSIGNORS.find(name).assign(group, topics)
    validate(group, topics, assignment)
    wanted = {topic for member in group.members.values() for topic in member.topics}
    assert sum(counts(assignment).values()) == sum(map(topics.partitions, wanted))
    assert ASSIGNORS.find(name).assign(group, topics) == assignment, "the same again"


@pytest.mark.parametrize("name", [*EVEN, "roundrobin"])
@given(group=equals(), topics=topics())
def test_equal_subscriptions_differ_by_one(name: str, group: GroupSpec, topics: Topics) -> None:
    found = counts(ASSIGNORS.find(name).assign(group, topics)).values()
    assert max(found) - min(found) <= 1


@given(group=groups(), topics=topics())
def test_range_is_even_in_each_topic_and_its_runs_are_unbroken(
    group: GroupSpec, topics: Topics
) -> None:
    assignment = ASSIGNORS.find("range").assign(group, topics)
    for topic in topics.counts:
        shares = [
            [n for name, n in assignment[member] if name == topic]
            for member in group.order()
            if topic in group.members[member].topics
        ]
        assert shares == sorted(shares, key=len, reverse=True)
        assert not shares or len(shares[0]) - len(shares[-1]) <= 1
        run = [n for share in shares for n in share]
        assert run == list(range(topics.partitions(topic) if shares else 0))


def chain_that_helps(
    group: GroupSpec, assignment: GroupAssignment, weight: Mapping[str, int]
) -> list[str]:
    """A way of hand-overs that makes an assignment more even, found without cleverness."""
    load = counts(assignment)
    for start in group.members:
        ways = [[start]]
        while ways:
            way = ways.pop()
            for one in places(assignment.get(way[-1], ())):
                for taker in group.members:
                    if taker in way or one.topic not in group.members[taker].topics:
                        continue
                    if (2 * load[taker] + 1) / weight[taker] < (2 * load[start] - 1) / weight[
                        start
                    ]:
                        return [*way, taker]
                    if not any(taker in other for other in ways):
                        ways.append([*way, taker])
    return []


@pytest.mark.parametrize("name", EVEN)
@given(group=groups(), topics=topics())
def test_no_assignment_is_more_balanced(name: str, group: GroupSpec, topics: Topics) -> None:
    assignment = ASSIGNORS.find(name).assign(group, topics)
    assert not chain_that_helps(group, assignment, dict.fromkeys(group.members, 1))


@given(group=groups(), topics=topics())
def test_no_assignment_is_nearer_to_the_weights(group: GroupSpec, topics: Topics) -> None:
    weights = {member: even.weight_of(spec) for member, spec in group.members.items()}
    assert not chain_that_helps(group, ASSIGNORS.find("weighted").assign(group, topics), weights)


@pytest.mark.parametrize("name", ["sticky", "uniform", "weighted"])
@given(group=groups(), topics=topics())
def test_no_partition_moves_when_nothing_changed(
    name: str, group: GroupSpec, topics: Topics
) -> None:
    first = ASSIGNORS.find(name).assign(group, topics)
    assert ASSIGNORS.find(name).assign(holding(group, first), topics) == first


@given(group=equals(), topics=topics())
def test_with_equal_subscriptions_the_fewest_partitions_move(
    group: GroupSpec, topics: Topics
) -> None:
    before = owners(group, topics)
    held = sorted(Counter(before.values()).values(), reverse=True)
    few, more = divmod(sum(topics.counts.values()), len(group.members))
    must = sum(max(0, have - few - (n < more)) for n, have in enumerate(held))
    assert moved(before, ASSIGNORS.find("sticky").assign(group, topics)) == must


@pytest.mark.parametrize("name", ["sticky", "uniform"])
def test_few_partitions_move_when_members_join_and_leave(name: str) -> None:
    topics = Topics({"a": 60, "b": 60})
    everything = frozenset(topics.counts)
    assignor = ASSIGNORS.find(name)
    group = GroupSpec({f"m{n}": MemberSpec(everything) for n in range(6)})
    first = assignor.assign(group, topics)
    left = GroupSpec({m: spec for m, spec in holding(group, first).members.items() if m != "m3"})
    second = assignor.assign(left, topics)
    assert moved(owner_of(first), second) == 20, "the 20 of the member that left"
    grown = {**holding(left, second).members, "m3": MemberSpec(everything)}
    third = assignor.assign(GroupSpec(grown), topics)
    assert moved(owner_of(second), third) == 20, "the 20 that the new member takes"


STICKINESS = {
    "range": (40, 60),
    "roundrobin": (80, 100),
    "sticky": (0, 20),
    "uniform": (0, 20),
    "weighted": (0, 20),
    "rack_aware": (8, 20),
    "lag_aware": (40, 20),
}
"""what is taken from members that stay, of 120 partitions: the first of six leaves, it is back"""


@everyone
def test_the_number_of_moved_partitions_is_as_measured(name: str) -> None:
    """The price of each, in docs/assignors.md: 20 partitions have to move each time."""
    everything = frozenset({"a", "b"})
    spots = [(topic, n) for topic in sorted(everything) for n in range(60)]
    racks = {spot: frozenset({RACKS[at % 3]}) for at, spot in enumerate(spots)}
    topics = Topics({"a": 60, "b": 60}, racks)
    assignor = ASSIGNORS.find(name)
    members = {f"m{n}": MemberSpec(everything, rack=RACKS[n % 3]) for n in range(6)}
    first = assignor.assign(GroupSpec(members), topics)
    kept = holding(GroupSpec(members), first).members
    five = GroupSpec({who: spec for who, spec in kept.items() if who != "m0"})
    second = assignor.assign(five, topics)
    orphaned = len(first["m0"])
    six = GroupSpec({**holding(five, second).members, "m0": members["m0"]})
    third = assignor.assign(six, topics)
    found = (moved(owner_of(first), second) - orphaned, moved(owner_of(second), third))
    assert (orphaned, found) == (20, STICKINESS[name])


def test_the_owner_with_the_newest_generation_wins() -> None:
    topics, everything = Topics({"a": 3}), frozenset({"a"})
    two_partitions = tuple(TopicPartition("a", n) for n in range(2))
    gone = (TopicPartition("a", 9), TopicPartition("b", 0))
    old, new = MemberSpec(everything, owned=two_partitions, generation=3), MemberSpec(everything)
    new = replace(new, owned=two_partitions[:1] + gone, generation=4)
    assert owners(GroupSpec({"old": old, "new": new}), topics) == {
        two_partitions[0]: "new",
        two_partitions[1]: "old",
    }
    twin = replace(old, generation=4)
    assert owners(GroupSpec({"twin": twin, "new": new}), topics) == {two_partitions[1]: "twin"}


def test_static_members_come_first_by_their_names() -> None:
    topics, both = Topics({"a": 3}), frozenset({"a"})
    group = GroupSpec(
        {"x": MemberSpec(both), "y": MemberSpec(both, "2"), "z": MemberSpec(both, "1")}
    )
    for name in ("range", "roundrobin"):
        shares = ASSIGNORS.find(name).assign(group, topics)
        assert shares == {"z": [("a", 0)], "y": [("a", 1)], "x": [("a", 2)]}


@pytest.mark.parametrize(
    ("user_data", "instance_id", "weight"),
    [
        (None, None, 1),
        (b"weight=3", None, 3),
        (b"zone=x; weight=12, more", "box-w4", 12),
        (b"\xff\x00", "box-w4", 4),
        (b"overweight=7", None, 1),
        (b"weight=0", None, 1),
        (b"weight=999999999", None, 1000),
        (b"weight=9999999999", None, 1),
        (None, "box-w4-2", 1),
    ],
)
def test_weights_of_every_form_are_read(
    user_data: bytes | None, instance_id: str | None, weight: int
) -> None:
    member = MemberSpec(frozenset(), instance_id, user_data=user_data)
    assert even.weight_of(member) == weight


def test_partitions_are_assigned_in_proportion_to_weights() -> None:
    group = GroupSpec(
        {f"m{w}": MemberSpec(frozenset({"a"}), user_data=b"weight=%d" % w) for w in (1, 2, 3)}
    )
    shares = ASSIGNORS.find("weighted").assign(group, Topics({"a": 60}))
    assert counts(shares) == {"m1": 10, "m2": 20, "m3": 30}


def test_members_get_partitions_with_replicas_in_their_rack() -> None:
    racks = {("a", n): frozenset({RACKS[n % 3]}) for n in range(12)}
    topics = Topics({"a": 12}, racks)
    members = {f"m{n}": MemberSpec(frozenset({"a"}), rack=RACKS[n % 3]) for n in range(6)}
    shares = ASSIGNORS.find("rack_aware").assign(GroupSpec(members), topics)
    near = [members[m].rack in racks[one] for m, ours in shares.items() for one in ours]
    assert (all(near), set(counts(shares).values())) == (True, {2})
    del members["m0"], members["m3"]  # nobody is left in r0
    shares = ASSIGNORS.find("rack_aware").assign(GroupSpec(members), topics)
    near = [members[m].rack in racks[one] for m, ours in shares.items() for one in ours]
    assert (sum(near), set(counts(shares).values())) == (8, {3})


@given(group=equals(), topics=topics())
def test_lag_is_balanced_across_members(group: GroupSpec, topics: Topics) -> None:
    shares = ASSIGNORS.find("lag_aware").assign(group, topics)
    lags = [sum(topics.lag(*one) or 0 for one in ours) for ours in shares.values()]
    assert max(lags) - min(lags) <= max(topics.lags.values(), default=0)


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ([], "not a mapping"),
        ({"x": []}, "no member 'x'"),
        ({7: []}, "no member 7"),
        ({"a": None}, "not a list"),
        ({"a": "t"}, "not a list"),
        ({"a": [("t", 2)]}, "topic 't' has 2"),
        ({"a": [("t", -1)]}, "partition -1"),
        ({"a": [("u", 0)]}, "no topic 'u'"),
        ({"a": [("t", True)]}, "not .topic, partition."),
        ({"a": ["t:0"]}, "not .topic, partition."),
        ({"b": [("t", 0)]}, "'b' does not subscribe to 't'"),
        ({"a": [("t", 0), ("t", 0)]}, "twice"),
        ({"a": [("t", 0)], "c": [("t", 0)]}, "t:0 goes to 'a' and 'c'"),
    ],
)
def test_a_broken_rule_is_named(assignment: object, why: str) -> None:
    t = MemberSpec(frozenset({"t"}))
    group = GroupSpec({"a": t, "b": MemberSpec(frozenset({"s"})), "c": t})
    with pytest.raises(AssignmentError, match=why):
        validate(group, Topics({"t": 2}), assignment)
    validate(group, Topics({"t": 2}), {"a": [("t", 1)], "c": ()})


@pytest.mark.parametrize("name", EVEN)
def test_a_large_group_is_assigned_in_few_steps(name: str) -> None:
    topics = Topics({f"t{n}": 50 for n in range(100)})
    member = MemberSpec(frozenset(topics.counts))
    group = GroupSpec({f"m{n}": member for n in range(500)})
    assignor = ASSIGNORS.find(name)
    held = holding(group, assignor.assign(group, topics)).members
    rest = GroupSpec({m: spec for n, (m, spec) in enumerate(held.items()) if n % 10})
    calls = itertools.count()
    sys.setprofile(lambda *_: next(calls))
    try:
        assignment = assignor.assign(rest, topics)
        validate(rest, topics, assignment)
    finally:
        sys.setprofile(None)
    assert next(calls) < 500_000, "calls of 500 members and 5,000 partitions"
    assert pickle.loads(pickle.dumps((rest, topics))) == (rest, topics)
