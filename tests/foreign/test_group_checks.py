"""The checks of chaos_groups.py find their violations, and nothing else."""

from __future__ import annotations

from typing import Any

from tests.foreign import group_checks

Fact = dict[str, Any]


def assigned(at: float, generation: int, *partitions: int) -> Fact:
    return {"assigned": list(partitions), "generation": generation, "at": at}


def revoked(at: float, *partitions: int) -> Fact:
    return {"revoked": list(partitions), "generation": -1, "at": at}


def read(at: float, offset: int) -> list[Fact]:
    """A record of partition 0, and its commit a second later."""
    return [{"record": [0, offset, ""], "at": at}, {"committed": [0, offset + 1], "at": at + 1}]


def test_a_partition_that_moves_on_has_one_owner_a_generation() -> None:
    first = [assigned(1, 1, 0, 1), revoked(2, 1), assigned(3, 2), assigned(5, 3)]
    second = [assigned(3, 2), assigned(4, 3, 1)]
    assert not group_checks.two_owners([first, second])


def test_two_owners_in_one_generation_are_found() -> None:
    first, second = [assigned(1, 1, 0, 1), assigned(3, 2)], [assigned(4, 2, 1)]
    assert len(group_checks.two_owners([first, second])) == 1


def test_a_commit_that_goes_back_is_found() -> None:
    assert group_checks.went_back([read(1, 8), read(3, 5)])
    assert not group_checks.went_back([read(1, 5), read(3, 5), read(5, 8)])


def test_commits_on_their_way_together_may_end_in_any_order() -> None:
    assert not group_checks.went_back([read(1.0, 8), read(1.5, 5)])


def test_an_old_owner_may_not_commit() -> None:
    new = [assigned(2, 2, 0), *read(8, 3)]
    assert len(group_checks.by_an_old_owner([[assigned(1, 1, 0), *read(3, 3)], new])) == 1
    refused = {"refused": "illegal generation", "at": 5}
    late = [assigned(1, 1, 0), read(3, 3)[0], refused, revoked(6, 0), assigned(12, 3, 0)]
    assert not group_checks.by_an_old_owner([[*late, *read(13, 4)], new])


def test_a_record_that_no_member_read_is_found() -> None:
    assert group_checks.skipped([read(1, 0), read(1, 2)], {0: 3}) == ["partition 0: nobody saw [1]"]
    assert not group_checks.skipped([read(1, 0), read(1, 1)], {0: 2})
