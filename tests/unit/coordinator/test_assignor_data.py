"""The input of an assignor on a broker, and the assignments that members get from its answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from krust.coordinator import assignor_data
from krust.coordinator.assignors.assignor import GroupAssignment, Topics
from krust.coordinator.assignors.even import Uniform
from krust.coordinator.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    read_assignment,
    write_assignment,
    write_subscription,
)
from krust.coordinator.events import AssignCall

COOPERATIVE = "cooperative-sticky"


def places(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


def call(
    *members: tuple[str, Subscription | bytes, bytes],
    protocol: str = COOPERATIVE,
    generation: int = 5,
) -> AssignCall:
    rows = [
        (
            who,
            None,
            subscription if isinstance(subscription, bytes) else write_subscription(subscription),
            had,
        )
        for who, subscription, had in members
    ]
    return AssignCall("g", generation, protocol, rows)


def assigned_to_members(
    one: AssignCall, shares: GroupAssignment
) -> dict[str, tuple[TopicPartition, ...]]:
    written = assignor_data.write_assignments(assignor_data.read_members(one), shares)
    return {who: read_assignment(data).partitions for who, data in written.items()}


def test_each_member_is_answered_in_the_version_it_speaks() -> None:
    one = call(*((str(v), Subscription(("t",), version=v), b"") for v in range(4)))
    written = assignor_data.write_assignments(
        assignor_data.read_members(one), {"0": places(0), "3": places(1)}
    )
    assert [read_assignment(written[str(v)]).version for v in range(4)] == [0, 1, 2, 3]
    # Java's client of 0.9 reads no null here.
    assert all(read_assignment(data).user_data == b"" for data in written.values())
    assert written["0"] == write_assignment(Assignment(places(0), b"", 0))


def test_partitions_of_a_cooperative_member_are_assigned_only_after_it_revoked_them() -> None:
    holder = Subscription(("t",), owned=places(0, 1), generation=4)
    new = Subscription(("t",))
    shares = {"a": places(0), "b": places(1)}
    assert assigned_to_members(call(("a", holder, b""), ("b", new, b"")), shares) == {
        "a": places(0),
        "b": (),
    }
    let_go = Subscription(("t",), owned=places(0), generation=5)
    after = call(("a", let_go, b""), ("b", new, b""), generation=6)
    assert assigned_to_members(after, shares) == {"a": places(0), "b": places(1)}


def test_an_eager_member_of_the_same_group_owns_nothing() -> None:
    eager = Subscription(("t",))
    had = write_assignment(Assignment(places(0, 1), b"", 0))
    shares = {"a": places(0), "b": places(1)}
    assert assigned_to_members(call(("a", eager, had), ("b", eager, b"")), shares) == shares


def test_no_member_owns_partitions_under_an_eager_protocol() -> None:
    claims = Subscription(("t",), owned=places(0, 1), generation=4)
    shares = {"a": places(0), "b": places(1)}
    eager = call(("a", claims, b""), ("b", Subscription(("t",)), b""), protocol="range")
    assert assigned_to_members(eager, shares) == shares


def test_of_two_owners_the_one_with_the_partition_in_its_target_keeps_it() -> None:
    both = Subscription(("t",), owned=places(0), generation=4)
    one = call(("a", both, b""), ("b", both, b""))
    assert assigned_to_members(one, {"a": places(0)}) == {"a": places(0), "b": ()}


def test_a_member_keeps_its_previous_partitions_unless_another_owns_them() -> None:
    had = write_assignment(Assignment(places(0, 1), b"", 0))
    holder = Subscription(("t",), owned=places(1), generation=4)
    group = assignor_data.read_members(
        call(("a", Subscription(("t",)), had), ("b", holder, b""))
    ).group
    assert group.members["a"].owned == places(0)
    assert (group.members["a"].generation, group.members["b"].generation) == (4, 4)


def test_a_member_with_an_unreadable_subscription_gets_nothing_and_affects_no_other() -> None:
    reading = assignor_data.read_members(call(("a", Subscription(("t",)), b""), ("b", b"\0", b"")))
    assert list(reading.group.members) == ["a"]
    [line] = reading.unread
    assert line.startswith("member b gets nothing: bad consumer subscription of 1 bytes: version")
    written = assignor_data.write_assignments(reading, {"a": places(0)})
    assert read_assignment(written["b"]) == Assignment((), b"", 0)


def test_topics_come_from_the_members_with_readable_subscriptions() -> None:
    one = call(("a", Subscription(("t", "u")), b""), ("b", b"\0", b""))
    assert assignor_data.topics(one) == {"t", "u"}
    assert assignor_data.topics(one._replace(topics=["v"])) == {"v"}


@given(
    st.lists(st.sampled_from(["join eager", "join cooperative", "leave"]), max_size=12),
    st.integers(1, 20),
)
def test_groups_of_both_protocols_become_stable_and_no_partition_has_two_owners(
    steps: list[str], count: int
) -> None:
    """A model of clients: eager ones give up all before they join, the others when asked."""
    topics = Topics({"t": count})
    cooperative: dict[str, bool] = {}
    reads: dict[str, tuple[TopicPartition, ...]] = {}
    stored: dict[str, bytes] = {}
    generation = 0
    for number, step in enumerate([*steps, "join eager"]):
        if step == "leave":
            for who in list(cooperative)[:1]:
                del cooperative[who]
                reads.pop(who)
        else:
            cooperative[f"m{number}"] = step == "join cooperative"
            reads[f"m{number}"] = ()
        for _ in range(4):  # one rebalance in which all let go, one in which all take
            generation += 1
            reads = {
                who: own_partitions if cooperative[who] else ()
                for who, own_partitions in reads.items()
            }
            rows = [
                (
                    who,
                    Subscription(("t",), owned=own_partitions, generation=generation - 1),
                    stored.get(who),
                )
                for who, own_partitions in reads.items()
            ]
            one = call(*((w, s, had or b"") for w, s, had in rows), generation=generation)
            reading = assignor_data.read_members(one)
            stored = assignor_data.write_assignments(
                reading, Uniform().assign(reading.group, topics)
            )
            given_out = {who: read_assignment(data).partitions for who, data in stored.items()}
            for who, own_partitions in given_out.items():
                others = [place for other in reads if other != who for place in reads[other]]
                assert not set(own_partitions) & set(others)
            again = any(set(reads[who]) - set(given_out[who]) for who in reads)
            reads = given_out
            if not again:
                break
        else:
            raise AssertionError("the group does not come to rest")
        if reads:
            assert sorted(
                place.partition for own_partitions in reads.values() for place in own_partitions
            ) == list(range(count))
