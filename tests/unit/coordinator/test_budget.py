"""Classic groups keep no more of what members say of themselves than the settings allow."""

from __future__ import annotations

from krust.coordinator.member import size
from krust.errors import Code
from tests.unit.coordinator.bench import Bench

LARGE = (("range", b"m" * 100_000),)
COST = size(LARGE)
FULL = Code.GROUP_MAX_SIZE_REACHED


def test_who_joins_beyond_the_bytes_of_a_group_is_refused_and_who_is_in_it_stays() -> None:
    bench = Bench(max_group_bytes=3 * COST)
    tickets = [bench.join(protocols=LARGE, client=f"c{n}") for n in range(5)]
    bench.wait(1)
    codes = [bench.answers[each]["error_code"] for each in tickets if each in bench.answers]
    assert codes.count(FULL) == 2
    assert bench.coordinator.budget.used == 3 * COST
    known = next(iter(bench.coordinator._groups["g"].members))
    again = bench.join(known, protocols=LARGE)
    assert bench.answers.get(again, {"error_code": 0})["error_code"] != FULL


def test_all_groups_together_have_a_limit_and_a_group_that_goes_gives_back() -> None:
    bench = Bench(max_bytes=10 * COST)
    tickets = [bench.join(protocols=LARGE, group_id=f"g{n}") for n in range(2000)]
    codes = [bench.answers[each]["error_code"] for each in tickets if each in bench.answers]
    assert codes.count(FULL) == 1990
    assert bench.coordinator.budget.used == 10 * COST
    for n in range(10):
        (member_id,) = bench.coordinator._groups[f"g{n}"].members
        bench.send("LeaveGroup", group_id=f"g{n}", member_id=member_id)
    assert bench.coordinator.budget.used == 0


def test_assignments_count_and_too_large_ones_are_refused() -> None:
    bench = Bench(max_group_bytes=3 * COST)
    ticket = bench.join(protocols=LARGE)
    bench.wait(1)
    joined = bench.answers[ticket]
    sync = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
    sync |= {"group_instance_id": None, "protocol_type": None, "protocol_name": None}
    for length, code in ((3 * COST, Code.UNKNOWN_SERVER_ERROR), (COST, Code.NONE)):
        given = [{"member_id": joined["member_id"], "assignment": b"a" * length}]
        answer = bench.send("SyncGroup", 3, **sync, assignments=given)
        assert answer is not None
        assert answer["error_code"] == code
    assert bench.coordinator.budget.used == 2 * COST
