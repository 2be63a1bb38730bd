"""The assignment of a group in ZooKeeper: every member computes the one that Apache's would."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.clients.zookeeper.sharing import Blacklist, TopicFilter, Whitelist, share, threads
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError
from krust.metadata.contents import ConsumerRegistration


def static(**topics: int) -> ConsumerRegistration:
    return ConsumerRegistration(topics, "static", 0)


def parts(shares: dict[TopicPartition, str], topic: str = "t") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, thread in sorted(shares.items()):
        if place.topic == topic:
            found.setdefault(thread, []).append(place.partition)
    return found


def test_threads_are_sorted_as_strings_not_as_numbers() -> None:
    readers = [threads("c", static(t=11), ())]
    assert parts(share(readers, {"t": range(12)})) == {
        "c-0": [0, 1],
        "c-1": [2],
        "c-10": [3],
        **{f"c-{number}": [number + 2] for number in range(2, 10)},
    }


def test_threads_are_sorted_by_the_halves_of_utf_16_as_java_does() -> None:
    readers = [threads(name, static(t=1), ()) for name in ("\uffee", "\U0001f600")]
    assert parts(share(readers, {"t": range(2)})) == {"\U0001f600-0": [0], "\uffee-0": [1]}


def test_the_first_threads_get_the_remainder_and_the_last_maybe_nothing() -> None:
    readers = [threads("a", static(t=2), ()), threads("b", static(t=1, other=5), ())]
    assert parts(share(readers, {"t": range(7)})) == {
        "a-0": [0, 1, 2],
        "a-1": [3, 4],
        "b-0": [5, 6],
    }
    assert parts(share(readers, {"t": range(2)})) == {"a-0": [0], "a-1": [1]}


def test_only_subscribers_of_a_topic_get_its_partitions() -> None:
    readers = [threads("a", static(t=1), ()), threads("b", static(u=1), ())]
    shares = share(readers, {"t": range(2), "u": range(1), "v": range(3)})
    assert set(shares.values()) == {"a-0", "b-0"}
    assert {place.topic for place in shares} == {"t", "u"}


def apaches(names: list[str], count: int) -> dict[str, list[int]]:
    """The formula of `RangeAssignor` in Kafka 0.8.2."""
    ordered = sorted(names, key=lambda name: name.encode("utf-16-be"))
    each, extra = divmod(count, len(ordered))
    found = {}
    for position, name in enumerate(ordered):
        start = each * position + min(position, extra)
        size = each + (0 if position + 1 > extra else 1)
        found[name] = list(range(start, start + size))
    return {name: numbers for name, numbers in found.items() if numbers}


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 40))
def test_each_partition_has_the_owner_that_apaches_consumer_computes(
    members: dict[str, int], count: int
) -> None:
    readers = [threads(name, static(t=size), ()) for name, size in members.items()]
    shares = share(readers, {"t": range(count)})
    assert sorted(place.partition for place in shares) == list(range(count))
    names = [thread for each in readers for thread in each["t"]]
    assert parts(shares) == apaches(names, count)
    sizes = Counter(shares.values())
    assert not sizes or max(sizes.values()) - min(sizes[name] for name in names) <= 1


@pytest.mark.parametrize(
    ("topics", "allowed"),
    [
        (Whitelist("orders"), {"orders"}),
        (Whitelist("orders,bills"), {"orders", "bills"}),
        (Whitelist('"or.*| b.*"'), {"orders", "bills"}),
        (Whitelist(".*"), {"orders", "bills", "old-orders"}),
        (Blacklist("orders"), {"bills", "old-orders"}),
        (Blacklist(".*o.*"), {"bills"}),
    ],
)
def test_a_filter_takes_whole_names(topics: TopicFilter, allowed: set[str]) -> None:
    there = ("orders", "bills", "old-orders", "__consumer_offsets")
    assert {name for name in there if topics.allows(name)} == allowed
    member = ConsumerRegistration({topics.regex: 2}, topics.pattern, 0)
    found = threads("m", member, there)
    assert found == {name: ["m-0", "m-1"] for name in allowed}


def test_internal_topics_are_matched_only_if_asked_for() -> None:
    assert not Blacklist("x").allows("__consumer_offsets")
    assert Blacklist("x").allows("__consumer_offsets", internal=True)
    member = ConsumerRegistration({".*": 1}, "white_list", 0)
    assert threads("m", member, ["__transaction_state"]) == {}


def test_an_invalid_pattern_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a pattern"):
        Whitelist("a(")
    with pytest.raises(ConfigError):
        threads("m", ConsumerRegistration({"[": 1}, "black_list", 0), ["t"])


def test_members_without_a_subscription_get_no_partitions() -> None:
    assert threads("m", static(t=0, u=-3), ()) == {}
    assert threads("m", ConsumerRegistration({}, "white_list", 0), ["t"]) == {}
