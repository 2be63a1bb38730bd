"""What the replicas of a partition are in, as `kafka-topics` counts it."""

from __future__ import annotations

from typing import Any

import pytest

from krust.cli import replica_health
from krust.cli.replica_health import OngoingMove, PartitionHealth
from krust.errors import KafkaError


def metadata(**more: Any) -> dict[str, Any]:
    """A partition of a Metadata answer."""
    partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2, 3]}
    return {"isr_nodes": [1, 2, 3], **partition, **more}


def health(move: OngoingMove | None = None, min_isr: int = 2, **more: Any) -> PartitionHealth:
    topics = [{"name": "t", "partitions": [metadata(**more)]}]
    moves = {} if move is None else {("t", 0): move}
    [found] = replica_health.partitions(topics, moves, {"t": min_isr})
    return found


@pytest.mark.parametrize(
    ("isr", "status", "flags"),
    [
        ([1, 2, 3], "", (False, False, False)),
        ([1, 2], "at min ISR", (True, True, False)),
        ([1], "under min ISR", (True, False, True)),
    ],
)
def test_the_isr_is_compared_with_the_replicas_and_with_min_isr(
    isr: list[int], status: str, flags: tuple[bool, ...]
) -> None:
    found = health(isr_nodes=isr)
    assert found.problem() == status
    assert (found.is_under_replicated, found.is_at_min_isr, found.is_under_min_isr) == flags


def test_replicas_that_a_reassignment_adds_do_not_count_as_missing() -> None:
    moving = OngoingMove((1, 2, 3, 4), (4,), (1,))
    found = health(moving, replica_nodes=[1, 2, 3, 4])
    assert (found.is_under_replicated, found.problem(), found.lacking) == (False, "moving", ())
    behind = health(moving, replica_nodes=[1, 2, 3, 4], isr_nodes=[1, 2])
    assert (behind.problem(), behind.lacking) == ("at min ISR", (3,))


def test_a_partition_with_fewer_replicas_than_min_isr_needs_all_of_them() -> None:
    assert health(replica_nodes=[1], isr_nodes=[1]).min_isr == 1
    assert health(replica_nodes=[1], isr_nodes=[1]).problem() == ""


def test_a_partition_without_a_leader_is_unavailable() -> None:
    assert health(leader_id=-1, isr_nodes=[3]).problem() == "no leader"
    assert health(leader_id=-1).row()["unavailable"] is True


def test_a_broker_too_old_for_moves_and_settings_shows_the_rest() -> None:
    class Old:
        def request(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
            raise KafkaError("too old", code=35, name="UNSUPPORTED_VERSION", retriable=False)

    old: Any = Old()
    [found] = replica_health.partition_health(
        old, [{"name": "t", "partitions": [metadata(isr_nodes=[1])]}]
    )
    assert (found.min_isr, found.is_under_min_isr, found.problem()) == (
        None,
        False,
        "under-replicated",
    )
