"""The problems that `krust cluster health` derives from the answers of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from krust.cli.brokers import NOBODY, View
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


def partition(leader: int, replicas: list[int], isr: list[int]) -> dict[str, Any]:
    whole = {"topic": "t", "partition_index": 3, "leader_id": leader}
    return {**whole, "replica_nodes": replicas, "isr_nodes": isr}


def problems(
    each: Brokers, *partitions: dict[str, Any], controller: int = 1
) -> list[tuple[str, str]]:
    view: Any = object.__new__(View)
    view._each, view.controller = each, controller
    view.brokers = [{"node_id": 1}, {"node_id": 2}]
    view.partitions = partitions
    return [(one["problem"], one["subject"]) for one in view.problems()]


WELL = {1: [DIRECTORY], 2: [DIRECTORY]}


def test_a_healthy_cluster_has_no_problems() -> None:
    assert problems(Brokers(WELL), partition(1, [1], [1])) == []


@pytest.mark.parametrize(("controller", "controller_error"), [(NOBODY, 0), (1, 41)])
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
    ("leader", "replicas", "isr", "problem"),
    [(-1, [3], [3], "no leader"), (1, [1, 2], [1], "under-replicated")],
)
def test_a_partition_without_leader_or_out_of_sync_is_a_problem(
    leader: int, replicas: list[int], isr: list[int], problem: str
) -> None:
    assert problems(Brokers(WELL), partition(leader, replicas, isr)) == [(problem, "t:3")]


def test_a_broker_too_old_to_report_is_not_a_problem() -> None:
    class Old(Brokers):
        def request(self, api: str, *rest: Any, **more: Any) -> dict[str, Any]:
            if api == "DescribeLogDirs":
                raise KafkaError("too old", code=35, name="UNSUPPORTED_VERSION", retriable=False)
            return super().request(api, *rest, **more)

    assert problems(Old(WELL)) == []


def test_partitions_that_miss_the_same_brokers_are_one_problem() -> None:
    view: Any = object.__new__(View)
    view._each, view.controller = Brokers(WELL), 1
    view.brokers = [{"node_id": 1}, {"node_id": 2}]
    lost = {"topic": "t", "leader_id": -1, "replica_nodes": [1001], "isr_nodes": [1001]}
    view.partitions = [{**lost, "partition_index": n} for n in range(27)]
    [problem] = view.problems()
    assert problem["detail"] == "broker 1001 is away: 27 partitions have no leader"
    assert problem["partitions"][26] == "t:26"
