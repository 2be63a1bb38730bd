"""The problems that `krust cluster health` derives from the answers of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from krust.cli.brokers import NO_BROKER, ClusterState
from krust.cli.replica_health import PartitionHealth
from krust.errors import KafkaError, UnreachableError

ROOM = 10**12
DIRECTORY = {
    "log_dir": "/data",
    "error_code": 0,
    "topics": [{"partitions": [{"partition_size": 5}]}],
    "usable_bytes": ROOM,
}


class Brokers:
    """Answers of a cluster: the directories of each broker, and whether its controller answers."""

    def __init__(
        self, directories: dict[int, list[dict[str, Any]]], controller_error: int = 0
    ) -> None:
        self.directories, self.controller_error = directories, controller_error

    def request(
        self, api: str, body: dict[str, Any], *, broker: int | None = None
    ) -> dict[str, Any]:
        if api == "ListPartitionReassignments":
            return {"error_code": self.controller_error, "error_message": None}
        assert broker is not None
        if broker not in self.directories:
            raise UnreachableError(f"broker {broker} is silent")
        if api == "DescribeLogDirs":
            return {"results": self.directories[broker]}
        return {"results": [{"configs": [{"name": "krust.disk.reserve.bytes", "value": "1000"}]}]}


def partition(
    leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], min_isr: int = 1, number: int = 3
) -> PartitionHealth:
    return PartitionHealth("t", number, leader, 0, replicas, isr, (), (), (), min_isr)


def view(each: Brokers, *partitions: PartitionHealth, controller: int = 1) -> ClusterState:
    made: Any = object.__new__(ClusterState)
    made._each, made.controller, made.partitions = each, controller, partitions
    made.brokers = [{"node_id": 1}, {"node_id": 2}]
    found: ClusterState = made
    return found


def problems(
    each: Brokers, *partitions: PartitionHealth, controller: int = 1
) -> list[tuple[str, str]]:
    found = view(each, *partitions, controller=controller).problems()
    return [(one["problem"], one["subject"]) for one in found]


WELL = {1: [DIRECTORY], 2: [DIRECTORY]}


def test_a_healthy_cluster_has_no_problems() -> None:
    assert problems(Brokers(WELL), partition(1, (1,), (1,))) == []
    assert view(Brokers(WELL), partition(1, (1, 2), (2, 1))).notices() == []


@pytest.mark.parametrize(("controller", "controller_error"), [(NO_BROKER, 0), (1, 41)])
def test_a_missing_controller_is_a_problem(controller: int, controller_error: int) -> None:
    [(problem, _)] = problems(Brokers(WELL, controller_error), controller=controller)
    assert problem == "no controller"


def test_a_broker_that_does_not_answer_is_a_problem() -> None:
    silent = Brokers({1: [DIRECTORY]})
    assert problems(silent) == [("broker does not answer", "broker 2")]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"error_code": 56}, "log directory offline"),
        ({"usable_bytes": 1000}, "disk full"),
        ({"usable_bytes": 1001}, None),
        ({"usable_bytes": -1}, None),
    ],
)
def test_an_offline_or_full_directory_is_a_problem(
    given: dict[str, int], problem: str | None
) -> None:
    found = problems(Brokers(WELL | {2: [{**DIRECTORY, **given}]}))
    assert found == ([(problem, "broker 2 /data")] if problem else [])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (partition(-1, (3,), (3,)), "no leader"),
        (partition(1, (1, 2, 3), (1,), min_isr=2), "under min ISR"),
        (partition(1, (1, 2), (1,)), "at min ISR"),
        (partition(1, (1, 2, 3), (1, 2)), "under-replicated"),
    ],
)
def test_a_partition_without_leader_or_out_of_sync_is_one_problem(
    given: PartitionHealth, problem: str
) -> None:
    assert problems(Brokers(WELL), given) == [(problem, "t:3")]


def test_a_broker_too_old_to_report_is_not_a_problem() -> None:
    class Old(Brokers):
        def request(self, api: str, *rest: Any, **more: Any) -> dict[str, Any]:
            if api == "DescribeLogDirs":
                raise KafkaError("too old", code=35, name="UNSUPPORTED_VERSION", retriable=False)
            return super().request(api, *rest, **more)

    assert problems(Old(WELL)) == []


def test_partitions_that_miss_the_same_brokers_are_one_problem() -> None:
    lost = [partition(-1, (1001,), (1001,), number=number) for number in range(27)]
    [problem] = view(Brokers(WELL), *lost).problems()
    assert problem["detail"] == "broker 1001 is away: 27 partitions have no leader"
    assert problem["partitions"][26] == "t:26"


def test_brokers_that_are_away_and_brokers_that_are_behind_have_different_statuses() -> None:
    behind = [partition(1, (1, 2, 7), (1,), min_isr=2, number=number) for number in (0, 1)]
    [problem] = view(Brokers(WELL), *behind).problems()
    assert problem["subject"] == "2 partitions"
    assert problem["detail"] == (
        "broker 7 is away and broker 2 is behind: "
        "2 partitions have too few in-sync replicas: acks=all is refused"
    )


def test_leaders_away_from_their_preferred_replicas_are_a_notice() -> None:
    moved = [partition(2, (1, 2), (1, 2), number=number) for number in range(2)]
    stay = [partition(1, (1, 2), (1, 2), number=number) for number in range(2, 18)]
    assert view(Brokers(WELL), *moved[:1], *stay).notices() == [], "10 % are allowed"
    found = view(Brokers(WELL), *moved, *stay)
    assert found.problems() == []
    [notice] = found.notices()
    assert (notice["problem"], notice["subject"]) == ("unbalanced leaders", "broker 1")
    assert notice["detail"] == "it leads 16 of the 18 partitions that prefer it"


def test_preferred_leaders_that_cannot_lead_yet_are_no_notice() -> None:
    assert view(Brokers(WELL), partition(2, (1, 2), (2,))).notices() == []


def test_moving_partitions_are_a_notice_and_no_problem() -> None:
    moving = partition(1, (1, 2, 3), (1, 2))._replace(adding=(3,), removing=(2,))
    found = view(Brokers(WELL), moving)
    assert found.problems() == []
    [notice] = found.notices()
    assert (notice["subject"], notice["detail"]) == ("t:3", "1 partition of t is moving")
