"""Groups keep at most as many bytes of their members' metadata as the settings allow."""

from __future__ import annotations

from krust.coordinator.classic_member import size
from krust.errors import Code
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.consuming import ConsumerBench

LARGE = (("range", b"m" * 100_000),)
COST = size(LARGE)
FULL = Code.GROUP_MAX_SIZE_REACHED


def test_a_join_beyond_the_byte_limit_of_a_group_is_refused_and_members_stay() -> None:
    bench = Bench(max_group_bytes=3 * COST)
    tickets = [bench.join(protocols=LARGE, client=f"c{n}") for n in range(5)]
    bench.wait(1)
    codes = [bench.answers[each]["error_code"] for each in tickets if each in bench.answers]
    assert codes.count(FULL) == 2
    assert bench.coordinator.budget.used == 3 * COST
    known = next(iter(bench.coordinator._groups["g"].members))
    again = bench.join(known, protocols=LARGE)
    assert bench.answers.get(again, {"error_code": 0})["error_code"] != FULL


def test_all_groups_share_a_byte_limit_and_a_removed_group_frees_its_bytes() -> None:
    bench = Bench(max_bytes=10 * COST)
    tickets = [bench.join(protocols=LARGE, group_id=f"g{n}") for n in range(2000)]
    codes = [bench.answers[each]["error_code"] for each in tickets if each in bench.answers]
    assert codes.count(FULL) == 1990
    assert bench.coordinator.budget.used == 10 * COST
    for n in range(10):
        (member_id,) = bench.coordinator._groups[f"g{n}"].members
        bench.send("LeaveGroup", group_id=f"g{n}", member_id=member_id)
    assert bench.coordinator.budget.used == 0


def test_assignments_count_toward_the_limit_and_too_large_ones_are_refused() -> None:
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


def test_subscriptions_of_consumer_groups_count_and_a_leaving_member_frees_them() -> None:
    names = [f"topic-{n}" for n in range(1000)]
    bench = ConsumerBench(max_bytes=600_000)
    codes = [
        bench.code(f"m{n}", 0, group_id=f"g{n}", subscribed_topic_names=names) for n in range(10)
    ]
    assert codes == [0] * 5 + [FULL] * 5
    used = bench.coordinator.budget.used
    assert used == 5 * (size(()) + sum(map(len, names)) + 100 * len(names))
    assert bench.code("m0", 1, group_id="g0", subscribed_topic_names=names) == 0
    assert bench.code("m0", 1, group_id="g0", subscribed_topic_names=[*names, "x" * 1000]) == 0
    more = [f"{name}-{n}" for name in names for n in range(2)]
    assert bench.code("m0", 2, group_id="g0", subscribed_topic_names=more) == FULL
    for n in range(5):
        bench.code(f"m{n}", -1, group_id=f"g{n}")
    assert bench.coordinator.budget.used == 0


def test_the_topics_of_a_regular_expression_count_once_for_all_groups() -> None:
    bench = ConsumerBench(topics={f"topic-{n}": 1 for n in range(1000)}, max_bytes=300_000)
    for n in range(10):
        assert bench.code(f"m{n}", 0, group_id=f"g{n}", subscribed_topic_regex="topic-.*") == 0
    used = bench.coordinator.budget.used
    assert 100_000 < used < 150_000
    assert bench.code("m", 0, group_id="h", subscribed_topic_regex="t.*") == 0
    assert bench.code("m", 0, group_id="i", subscribed_topic_regex="to.*") == FULL
    assert bench.code("m", -1, group_id="h") == 0
    assert bench.coordinator.budget.used == used
    for n in range(10):
        bench.code(f"m{n}", -1, group_id=f"g{n}")
    assert bench.coordinator.budget.used == 0
