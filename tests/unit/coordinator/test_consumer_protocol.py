"""Subscriptions and assignments as bytes: those of other clients, and invalid ones."""

import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.coordinator import consumer_protocol
from krust.coordinator.consumer_protocol import Assignment, Subscription, TopicPartition

OWNED = (TopicPartition("a", 0), TopicPartition("a", 3))
HEAD = "00000002000161000362c3a90000000178"
TAIL = "00000001000161000000020000000000000003"
GOLDEN = {
    0: (Subscription(("a", "bé"), b"x", version=0), "0000" + HEAD),
    1: (Subscription(("a", "bé"), b"x", OWNED, version=1), "0001" + HEAD + TAIL),
    2: (Subscription(("a", "bé"), b"x", OWNED, 7, version=2), "0002" + HEAD + TAIL + "00000007"),
    3: (
        Subscription(("a", "bé"), b"x", OWNED, 7, "r1", version=3),
        "0003" + HEAD + TAIL + "00000007" + "00027231",
    ),
}
ASSIGNED = "00000002000161000000020000000000000003000162" + "0000000100000001ffffffff"
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
places = st.builds(TopicPartition, names, st.integers(-(2**31), 2**31 - 1))


@pytest.mark.parametrize("version", GOLDEN)
def test_a_subscription_has_kafkas_bytes(version: int) -> None:
    subscription, golden = GOLDEN[version]
    assert consumer_protocol.write_subscription(subscription).hex() == golden
    assert consumer_protocol.read_subscription(bytes.fromhex(golden)) == subscription


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_has_kafkas_bytes(version: int) -> None:
    assignment = Assignment((*OWNED, TopicPartition("b", 1)), None, version)
    golden = f"{version:04x}{ASSIGNED}"
    assert consumer_protocol.write_assignment(assignment).hex() == golden
    assert consumer_protocol.read_assignment(bytes.fromhex(golden)) == assignment
    assert consumer_protocol.read_assignment(b"") == Assignment(())


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_writes_and_reads_the_same(version: int) -> None:
    from kafka.protocol.consumer import metadata as theirs

    kind: Any = theirs.ConsumerProtocolSubscription
    subscription, golden = GOLDEN[version]
    owned = [kind.TopicPartition(topic="a", partitions=[0, 3])]
    same = kind(
        version=version,
        topics=list(subscription.topics),
        user_data=b"x",
        owned_partitions=owned,
        generation_id=7,
        rack_id="r1",
    )
    assert same.encode().hex() == golden
    assignment = Assignment((*OWNED, TopicPartition("b", 1)), b"", version)
    read = theirs.ConsumerProtocolAssignment.decode(consumer_protocol.write_assignment(assignment))
    assert tuple(map(tuple, read.partitions())) == assignment.partitions


def test_aiokafka_writes_and_reads_the_same() -> None:
    from aiokafka.coordinator.protocol import ConsumerProtocol

    subscription, golden = GOLDEN[0]
    assert ConsumerProtocol.METADATA(0, ["a", "bé"], b"x").encode().hex() == golden
    assignment = Assignment((*OWNED, TopicPartition("b", 1)), b"", 0)
    written = consumer_protocol.write_assignment(assignment)
    read = ConsumerProtocol.ASSIGNMENT.decode(written)
    assert tuple(map(tuple, read.partitions())) == assignment.partitions
    assert consumer_protocol.read_subscription(bytes.fromhex(golden)) == subscription


def test_newer_versions_are_read_as_the_newest_known() -> None:
    subscription, golden = GOLDEN[3]
    assert consumer_protocol.read_subscription(bytes.fromhex("0009" + golden[4:] + "beef")) == (
        subscription
    )


@given(
    st.builds(
        Subscription,
        st.lists(names, max_size=5).map(tuple),
        st.none() | st.binary(max_size=20),
        st.lists(places, max_size=8).map(lambda owned: tuple(sorted(owned))),
        st.integers(-1, 2**31 - 1),
        st.none() | names,
    )
)
def test_encoding_then_decoding_keeps_every_field(subscription: Subscription) -> None:
    written = consumer_protocol.write_subscription(subscription)
    assert consumer_protocol.read_subscription(written) == subscription
    assignment = Assignment(subscription.owned, subscription.user_data)
    written = consumer_protocol.write_assignment(assignment)
    assert consumer_protocol.read_assignment(written) == assignment


@pytest.mark.parametrize("version", range(1, 4))
def test_every_truncation_is_an_error(version: int) -> None:
    whole = bytes.fromhex(GOLDEN[version][1])
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="bad consumer subscription of"):
            consumer_protocol.read_subscription(whole[:length])
    whole = bytes.fromhex("0003" + ASSIGNED)
    for length in range(1, len(whole)):
        with pytest.raises(ValueError, match="bad consumer assignment of"):
            consumer_protocol.read_assignment(whole[:length])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("ffff00000000ffffffff", "version -1"),
        ("00007fffffff", "2147483647 topics in 0 bytes"),
        ("0000ffffffff", "-1 topics in 0 bytes"),
        ("000000000001ffff", "a null string"),
        ("000000000001fffe", "a string of -2 bytes"),
        ("0000000000010001ff", "no UTF-8"),
        ("0000000000017fff61", "takes 32767 bytes, 1 are left"),
        ("000000000000fffffffe", "user data of -2 bytes"),
        ("0000000000007fffffff", "user data takes 2147483647 bytes"),
        ("000100000000ffffffff00000001000161" + "40000000", "1073741824 partitions in 0 bytes"),
    ],
)
def test_invalid_lengths_are_errors_with_different_reasons(data: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        consumer_protocol.read_subscription(bytes.fromhex(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_value_error(data: bytes) -> None:
    for read in (consumer_protocol.read_subscription, consumer_protocol.read_assignment):
        with suppress(ValueError):
            read(data)


def test_decoding_takes_memory_in_proportion_to_its_input() -> None:
    count = 50_000
    blob = (
        struct.pack(">hiiih", 1, 0, -1, 1, 1) + b"a" + struct.pack(">i", count) + bytes(4 * count)
    )
    tracemalloc.start()
    try:
        assert len(consumer_protocol.read_subscription(blob).owned) == count
        assert tracemalloc.get_traced_memory()[1] < 40 * len(blob)
    finally:
        tracemalloc.stop()


def test_values_out_of_range_are_not_encoded() -> None:
    for wrong in (
        Subscription(("a" * 40_000,)),
        Subscription((), generation=2**31),
        Subscription((), owned=(TopicPartition("a", 2**40),)),
        Subscription((), version=4),
    ):
        with pytest.raises(ValueError, match=r"fit|no version 4"):
            consumer_protocol.write_subscription(wrong)
