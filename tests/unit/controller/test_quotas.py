"""Which quota applies to a request, how it is stored as text, and how a bucket fills."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.controller.quotas import (
    Bucket,
    Buckets,
    QuotaOwner,
    enforced_by_core,
    is_address,
    owner_at,
    path,
    quota_for,
    read,
    text_of,
    wait_ms,
)

U, C = "user", "client-id"
LEVELS: list[tuple[QuotaOwner, QuotaOwner]] = [
    (((U, "ann"), (C, "app")), ((U, "ann"), (C, "app"))),
    (((U, "ann"), (C, None)), ((U, "ann"), (C, "app"))),
    (((U, "ann"),), ((U, "ann"),)),
    (((U, None), (C, "app")), ((U, "ann"), (C, "app"))),
    (((U, None), (C, None)), ((U, "ann"), (C, "app"))),
    (((U, None),), ((U, "ann"),)),
    (((C, "app"),), ((C, "app"),)),
    (((C, None),), ((C, "app"),)),
]
"""From the most special one on, as Kafka's ClientQuotaManager documents it; who shares it."""


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_applies_and_each_entity_has_a_default(first: int) -> None:
    table = {owner: {"x": float(n)} for n, (owner, _) in enumerate(LEVELS) if n >= first}
    table[((U, "bob"),)] = {"x": 99.0}
    table[((C, "other"),)] = {"x": 99.0}
    assert quota_for(table, "x", "ann", "app") == (float(first), LEVELS[first][1])


def test_a_client_without_an_id_has_the_quota_of_its_user() -> None:
    table: dict[QuotaOwner, dict[str, float]] = {((C, None),): {"x": 1.0}, ((C, ""),): {"x": 2.0}}
    assert quota_for(table, "x", "ann", "") is None
    table |= {((U, None), (C, None)): {"x": 3.0}, ((U, None),): {"x": 4.0}}
    assert quota_for(table, "x", "ann", "") == (4.0, ((U, "ann"),))


def test_a_quota_of_another_kind_hides_none() -> None:
    table: dict[QuotaOwner, dict[str, float]] = {
        ((U, "ann"), (C, "app")): {"other": 1.0},
        ((C, None),): {"x": 2.0},
    }
    assert quota_for(table, "x", "ann", "app") == (2.0, ((C, "app"),))
    assert quota_for(table, "y", "ann", "app") is None


@pytest.mark.parametrize(
    ("place", "owner"),
    [
        ("users/ann", ((U, "ann"),)),
        ("users/<default>/clients/<default>", ((U, None), (C, None))),
        ("users/bob%7E%20%2A%2B%25x/clients/app", ((U, "bob~ *+%x"), (C, "app"))),
        ("clients/%3Cdefault%3E", ((C, "<default>"),)),
        ("ips/10.0.0.1", (("ip", "10.0.0.1"),)),
    ],
)
def test_a_quota_path_is_parsed_and_written_back(place: str, owner: QuotaOwner) -> None:
    assert owner_at(place) == owner
    assert path(owner) == place


@pytest.mark.parametrize(
    "place", ["users", "users/a b", "users/a%2", "topics/a", "clients/a/users/b", "users/a/b/c", ""]
)
def test_a_path_that_kafka_would_not_write_is_refused(place: str) -> None:
    assert owner_at(place) is None


@given(st.text(), st.none() | st.text())
def test_any_entity_name_is_written_and_read_back(user: str, client: str | None) -> None:
    owner = ((U, user), (C, client))
    try:
        place = path(owner)
    except UnicodeEncodeError:  # half a letter, which no frame can carry either
        return
    assert owner_at(place) == owner


@pytest.mark.parametrize(
    ("value", "text"),
    [(200.0, "200.0"), (0.0, "0.0"), (50.5, "50.5"), (1e10, "1.0E10"), (0.00015, "1.5E-4")],
)
def test_fractions_are_written_as_java_does(value: float, text: str) -> None:
    assert text_of(value) == text


@given(st.floats(min_value=0, allow_infinity=False))
def test_any_fraction_is_read_again(value: float) -> None:
    owner = ((U, "ann"),)
    assert read(owner, {"request_percentage": text_of(value)}) == (
        {"request_percentage": value},
        [],
    )


def test_a_quota_that_is_not_a_number_is_ignored_and_logged() -> None:
    config = {"request_percentage": "NaN", "producer_byte_rate": "-1", "consumer_byte_rate": "2"}
    values, faults = read(((U, "ann"),), {**config, "connection_creation_rate": "5", "x": "y"})
    assert values == {"consumer_byte_rate": 2.0}
    assert len(faults) == 2


def test_the_core_gets_no_quotas_that_the_controller_enforces() -> None:
    table: dict[QuotaOwner, dict[str, float]] = {
        ((U, "ann"), (C, None)): {"producer_byte_rate": 1.0, "controller_mutation_rate": 2.0},
        ((U, None),): {"controller_mutation_rate": 2.0},
    }
    assert enforced_by_core(table) == [
        ({"user": "ann", "client_id": None}, {"producer_byte_rate": 1.0})
    ]


def test_a_bucket_begins_full_and_fills_with_time() -> None:
    bucket = Bucket()
    assert bucket.level(2, 10, 1_000) == 20
    bucket.take(30)
    assert bucket.level(2, 10, 1_000) == -10
    assert wait_ms(-10, 2) == 5_000
    assert bucket.level(2, 10, 6_000) == 0
    assert bucket.level(2, 10, 3_000) == 0, "a clock that goes back brings nothing"
    assert bucket.level(2, 10, 10**9) == 20


def test_a_bucket_with_rate_zero_never_refills() -> None:
    bucket = Bucket()
    assert bucket.level(0, 10, 1_000) == 0
    bucket.take(1)
    assert wait_ms(bucket.level(0, 10, 10**9), 0) == 2**31 - 1


def test_the_number_of_buckets_is_bounded() -> None:
    buckets = Buckets()
    first = buckets.of(((C, "first"),))
    for number in range(Buckets.LIMIT):
        assert buckets.of(((C, str(number)),)) is not first
    assert buckets.of(((C, "first"),)) is not first


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("10.0.0.1", True),
        ("::1", False),
        ("localhost", False),
        ("1.2.3", False),
        ("1.2.3.256", False),
    ],
)
def test_an_address_is_one_of_ipv4(text: str, fits: bool) -> None:
    assert is_address(text) == fits
