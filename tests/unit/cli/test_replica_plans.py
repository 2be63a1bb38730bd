"""Plans for `krust cluster reassign`: few replicas move, and brokers have equal shares."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest

from krust.cli.replica_plans import (
    PartitionAssignment,
    PlanTargets,
    Replicas,
    TooFewBrokersError,
    plan_replicas,
)


def topic(name: str, *replicas: Replicas) -> list[PartitionAssignment]:
    return [PartitionAssignment(name, number, each, each) for number, each in enumerate(replicas)]


def ring(name: str, count: int, brokers: Sequence[int], factor: int) -> list[PartitionAssignment]:
    """Partitions as a new topic gets them."""
    size = len(brokers)
    return topic(
        name,
        *(tuple(brokers[(n + step) % size] for step in range(factor)) for n in range(count)),
    )


def targets(
    brokers: Iterable[int] | Mapping[int, str | None],
    *,
    receivers: Iterable[int] = (),
    factor: int | None = None,
    dead: Iterable[int] = (),
) -> PlanTargets:
    racks = dict(brokers) if isinstance(brokers, Mapping) else dict.fromkeys(brokers)
    return PlanTargets(racks, frozenset(racks) - set(dead), frozenset(receivers), factor)


def load(plan: Sequence[Replicas]) -> Counter[int]:
    return Counter(broker for replicas in plan for broker in replicas)


def added(partitions: Sequence[PartitionAssignment], plan: Sequence[Replicas]) -> int:
    pairs = zip(partitions, plan, strict=True)
    return sum(len(set(after) - set(before.replicas)) for before, after in pairs)


def test_a_broker_that_goes_gives_its_replicas_away_and_nothing_else_moves() -> None:
    partitions = ring("t", 12, (0, 1, 2, 3), 3)
    plan = plan_replicas(partitions, targets((0, 1, 2)))
    assert added(partitions, plan) == 9, "as many as broker 3 had"
    assert load(plan) == {0: 12, 1: 12, 2: 12}
    changed = [each for each, after in zip(partitions, plan, strict=True) if each.replicas != after]
    assert all(3 in each.replicas for each in changed)
    assert sorted(Counter(replicas[0] for replicas in plan).values()) == [4, 4, 4]


def test_a_new_broker_takes_its_share_and_no_other_broker_gets_anything() -> None:
    partitions = ring("a", 9, (0, 1, 2), 3) + ring("b", 9, (0, 1, 2), 1)
    plan = plan_replicas(partitions, targets((0, 1, 2, 3), receivers=[3]))
    assert load(plan)[3] == added(partitions, plan) == 9
    assert set(load(plan).values()) == {9}


def test_replicas_that_are_even_stay_where_they_are() -> None:
    partitions = ring("t", 12, (0, 1, 2), 2)
    plan = plan_replicas(partitions, targets((0, 1, 2), receivers=(0, 1, 2)))
    assert plan == [each.replicas for each in partitions]


def test_more_replicas_go_to_the_emptiest_brokers_and_the_leader_stays_preferred() -> None:
    partitions = topic("t", (0,), (0,), (1,)) + topic("u", (2,))
    plan = plan_replicas(partitions, targets((0, 1, 2), factor=2))
    assert [after[0] for after in plan] == [0, 0, 1, 2]
    assert all(len(set(after)) == 2 for after in plan)
    assert max(load(plan).values()) - min(load(plan).values()) <= 1


def test_fewer_replicas_give_up_those_out_of_sync_first() -> None:
    partitions = [
        PartitionAssignment("t", 0, (0, 1, 2), (0, 2)),
        PartitionAssignment("t", 1, (0, 1, 2), (1, 2)),
    ]
    assert plan_replicas(partitions, targets((0, 1, 2), factor=2)) == [(0, 2), (1, 2)]


def test_replicas_of_a_partition_are_on_different_racks_where_there_are_enough() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    partitions = topic("t", *((number % 6,) for number in range(12)))
    plan = plan_replicas(partitions, targets(racks, factor=3))
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in plan)
    levelled = plan_replicas(
        [each._replace(replicas=after) for each, after in zip(partitions, plan, strict=True)],
        targets({**racks, 6: "a"}, receivers=[6]),
    )
    racks[6] = "a"
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in levelled)
    assert load(levelled)[6] > 0


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(TooFewBrokersError, match="3 replicas needs 3 brokers of: 0, 1"):
        plan_replicas(ring("t", 1, (0, 1, 2), 3), targets((0, 1)))


def test_a_dead_broker_keeps_its_replicas_and_gets_none() -> None:
    partitions = topic("t", (2, 1), (1, 2), (0, 1))
    plan = plan_replicas(partitions, targets((0, 1, 2, 3), dead=[2], receivers=[3]))
    assert load(plan)[2] <= 2
    assert load(plan)[3] > 0
    with pytest.raises(TooFewBrokersError):
        plan_replicas(topic("t", (0, 1)), targets((0, 1, 2), factor=3, dead=[2]))


@pytest.mark.parametrize("seed", range(50))
def test_any_plan_is_legal_even_and_stable(seed: int) -> None:
    rng = random.Random(seed)
    brokers = list(range(rng.randint(3, 8)))
    factor = rng.randint(1, 3)
    partitions = [
        each
        for name in "abc"[: rng.randint(1, 3)]
        for each in topic(
            name, *(tuple(rng.sample(brokers, factor)) for _ in range(rng.randint(1, 30)))
        )
    ]
    allowed = rng.sample(brokers, rng.randint(factor, len(brokers)))
    wanted = targets(allowed, receivers=allowed)
    plan = plan_replicas(partitions, wanted)
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in plan)
    counts = [load(plan)[broker] for broker in allowed]
    assert set(load(plan)) <= set(allowed)
    assert max(counts) - min(counts) <= 1
    again = [each._replace(replicas=after) for each, after in zip(partitions, plan, strict=True)]
    assert plan_replicas(again, wanted) == plan


def test_ten_thousand_partitions_are_planned_within_seconds() -> None:
    partitions = [each for n in range(100) for each in ring(f"t{n}", 100, (0, 1, 2), 3)]
    begin = time.monotonic()
    plan = plan_replicas(partitions, targets(range(6), receivers=range(6)))
    assert time.monotonic() - begin < 20
    assert set(load(plan).values()) == {5000}
