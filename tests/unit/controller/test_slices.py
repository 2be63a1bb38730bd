"""A large request is decided in slices; other requests are decided between them."""

from __future__ import annotations

from typing import Any

import pytest

from krust.authorizer import CLASSES
from krust.controller.apis import CONTROLLER_APIS
from krust.controller.controller import ControllerOutcome
from krust.controller.log_dirs import LogDir
from krust.controller.log_dirs import alter as alter_log_dirs
from krust.controller.pace import PAUSE, SLICE, WRITE
from krust.controller.state import Request
from krust.messages import Message
from krust.messages.alter_replica_log_dirs import AlterReplicaLogDir
from krust.metadata.store import MultiResult
from tests.unit.controller.runtime import NOW_MS, Runtime

MANY = 5 * SLICE
NAMES = [f"n{n}" for n in range(MANY)]
NUMBERS = list(range(MANY))


def topics(names: list[str], **fields: Any) -> list[Message]:
    return [{"name": name, **fields} for name in names]


def entries(**fields: Any) -> list[Message]:
    named = [[{"entity_type": "client-id", "entity_name": name}] for name in NAMES]
    return [{"entity": entity, "ops": [], **fields} for entity in named]


SHAPE = {"num_partitions": 0, "replication_factor": 1, "assignments": [], "configs": []}
RESOURCES = [{"resource_type": 2, "resource_name": name, "configs": []} for name in NAMES]
COMMITTED = {"committed_offset": 1, "committed_metadata": ""}
MOVED = [{"partition_index": n, "replicas": [0]} for n in NUMBERS]

AUTHORIZER: dict[str, object] = {"authorizer.class.name": CLASSES[0]}
ENTRY = {"operation": 3, "permission_type": 3}
ACL = {"resource_type": 2, "resource_name": "", "principal": "User:a", "host": "*", **ENTRY}
ACL_FILTER = {"resource_type_filter": 2, "principal_filter": None, "host_filter": None, **ENTRY}

LARGE: dict[str, Message] = {
    "CreateTopics": {"topics": topics(NAMES, **SHAPE)},
    "DeleteTopics": {"topic_names": NAMES},
    "CreatePartitions": {"topics": topics(NAMES, count=2, assignments=None)},
    "AutoCreate": {"topics": ["!" + name for name in NAMES]},
    "AlterConfigs": {"resources": RESOURCES},
    "IncrementalAlterConfigs": {"resources": RESOURCES},
    "AlterClientQuotas": {"entries": entries(), "validate_only": True},
    "DescribeUserScramCredentials": {"users": topics(NAMES)},
    "AlterUserScramCredentials": {
        "deletions": [{"name": name, "mechanism": 0} for name in NAMES],
        "upsertions": [],
    },
    "CreateAcls": {"creations": [ACL for _ in NAMES]},
    "DeleteAcls": {"filters": [{**ACL_FILTER, "resource_name_filter": name} for name in NAMES]},
    "CreateDelegationToken": {
        "renewers": [{"principal_type": "User", "principal_name": name} for name in NAMES],
        "max_lifetime_ms": -1,
    },
    "DescribeDelegationToken": {
        "owners": [{"principal_type": "User", "principal_name": name} for name in NAMES]
    },
    "ElectLeaders": {"topic_partitions": [{"topic": "t", "partitions": NUMBERS}]},
    "AlterPartitionReassignments": {"topics": topics(["t"], partitions=MOVED)},
    "OffsetCommit": {
        "group_id": "g",
        "topics": topics(["t"], partitions=[{"partition_index": n, **COMMITTED} for n in NUMBERS]),
    },
    "OffsetFetch": {"group_id": "g", "topics": topics(["t"], partition_indexes=NUMBERS)},
}


def test_each_api_that_goes_in_slices_has_a_large_request_here() -> None:
    assert LARGE.keys() == {row.name for row in CONTROLLER_APIS.values() if row.in_slices}


@pytest.mark.parametrize("api", LARGE)
def test_a_request_on_many_things_pauses_after_each_slice(api: str) -> None:
    runtime = Runtime(AUTHORIZER)
    runtime.create("t")
    runtime.ask(api, LARGE[api], version=0)
    assert runtime.pauses >= MANY // SLICE


def test_moves_between_log_directories_pause_after_each_slice() -> None:
    asked: list[AlterReplicaLogDir] = [
        {"path": "/a", "topics": [{"name": "t", "partitions": NUMBERS}]}
    ]
    pauses = list(alter_log_dirs({"dirs": asked}, [LogDir("/a", True, frozenset())], {}))
    assert pauses == [PAUSE] * (MANY // SLICE)


def test_what_is_written_one_by_one_pauses_earlier() -> None:
    runtime = Runtime()
    names = NAMES[:200]
    runtime.ask("CreateTopics", {"topics": topics(names, **{**SHAPE, "num_partitions": 1})}, 0)
    assert runtime.pauses >= 3
    runtime.pauses = 0
    pair = {"name": "retention.ms", "value": "1000"}
    altered = [{"resource_type": 2, "resource_name": n, "configs": [pair]} for n in names]
    answer = runtime.ask("AlterConfigs", {"resources": altered})
    assert {each["error_code"] for each in answer["responses"]} == {0}
    assert runtime.pauses >= len(names) * WRITE // SLICE
    runtime.pauses = 0
    answer = runtime.ask("DeleteTopics", {"topic_names": names})
    assert {each["error_code"] for each in answer["responses"]} == {0}
    assert runtime.pauses >= 3
    assert not runtime.state.topics


def test_quotas_are_written_and_read_in_slices() -> None:
    runtime = Runtime()
    ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]
    few = [{**each, "ops": ops} for each in entries()]
    runtime.ask("AlterClientQuotas", {"entries": few, "validate_only": False})
    assert runtime.pauses >= 10
    runtime.pauses = 0
    answer = runtime.ask("DescribeClientQuotas", {"components": [], "strict": False})
    assert len(answer["entries"]) == MANY
    assert runtime.pauses >= 2


def test_another_client_is_answered_between_two_slices() -> None:
    runtime = Runtime()
    runtime.create("t")
    controller = runtime.controller
    large = Request("ElectLeaders", 2, LARGE["ElectLeaders"], {}, NOW_MS)
    small = Request("ListPartitionReassignments", 0, {"topics": None}, {}, NOW_MS)
    assert not controller.request(1, large).replies
    assert controller.is_paused
    assert [ticket for ticket, _ in controller.request(2, small).replies] == [2]
    replies: list[int] = []
    while controller.is_paused:
        outcome: ControllerOutcome = controller.resume()
        replies += [ticket for ticket, _ in outcome.replies]
        for token, operations in outcome.submits:
            runtime.store.submit(operations, token)
        for event in runtime.store.events():
            assert isinstance(event, MultiResult)
            replies += [ticket for ticket, _ in controller.on_transaction_done(event).replies]
    assert replies == [1]


def test_a_name_that_is_deleted_many_times_is_answered_twice() -> None:
    runtime = Runtime()
    runtime.create("t")
    answer = runtime.ask("DeleteTopics", {"topic_names": ["t", "", "t", "", "t", ""]})
    codes = [(each["name"], each["error_code"]) for each in answer["responses"]]
    assert codes == [("t", 0), ("", 3), ("t", 42), ("", 3)]


def test_a_partition_that_is_named_again_is_answered_once() -> None:
    runtime = Runtime()
    runtime.create("t")
    twice = topics(["t", "t"], partition_indexes=[0, 0, 1])
    answer = runtime.ask("OffsetFetch", {"group_id": "g", "topics": twice}, 0)
    (topic,) = answer["topics"]
    assert [each["partition_index"] for each in topic["partitions"]] == [0, 1]
    asked = [{"topic": "t", "partitions": [0, 0]}, {"topic": "t", "partitions": [0]}]
    answer = runtime.ask("ElectLeaders", {"topic_partitions": asked, "election_type": 0})
    (result,) = answer["replica_election_results"]
    assert len(result["partition_result"]) == 1
