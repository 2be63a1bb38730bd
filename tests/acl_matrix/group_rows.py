"""Requests about groups and their offsets.

OffsetFetch before 2 has no error of the group: of a group that may not be described Kafka answers
nothing at all, so that a client takes its offsets for lost. krust gives each partition the error.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.acl_matrix.codec import Body
from tests.acl_matrix.rows import Names, Row, numbers, partitions, topics

NOBODY = "nobody"
READ = {"": "30 Group Read group"}


def _member(names: Names) -> Body:
    return {
        "group_id": names.group,
        "member_id": NOBODY,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "protocols": [{"name": "range", "metadata": b""}],
        "members": [{"member_id": NOBODY}],
    }


def _commit(names: Names) -> Body:
    return {
        "group_id": names.group,
        "generation_id_or_member_epoch": -1,
        "retention_time_ms": -1,
        "topics": partitions(names, "name", "partitions", committed_leader_epoch=-1),
    }


def _committed(names: Names) -> Body:
    wanted = numbers(names, "name", "partition_indexes")
    return {
        "group_id": names.group,
        "topics": wanted,
        "groups": [{"group_id": names.group, "member_epoch": -1, "topics": wanted}],
    }


def _all_committed(names: Names) -> Body:
    return {"group_id": names.group, "groups": [{"group_id": names.group, "member_epoch": -1}]}


def _member_row(api: str, versions: Sequence[int]) -> Row:
    return Row(api, api, versions, _member, READ)


ROWS = [
    Row(
        "FindCoordinator of a group",
        "FindCoordinator",
        (0, 3),
        lambda names: {"key": names.group},
        {"": "30 Group Describe group"},
    ),
    Row(
        "FindCoordinator of groups",
        "FindCoordinator",
        (4, 6),
        lambda names: {"coordinator_keys": [names.group, names.no_group]},
        topics("30 Group Describe {}", "group", "no_group"),
    ),
    _member_row("JoinGroup", (0, 5, 9)),
    _member_row("SyncGroup", (0, 5)),
    _member_row("Heartbeat", (0, 4)),
    _member_row("LeaveGroup", (0, 3, 5)),
    Row(
        "DescribeGroups",
        "DescribeGroups",
        (0, 5),
        lambda names: {"groups": [names.group, names.no_group]},
        topics("30 Group Describe {}", "group", "no_group"),
    ),
    Row(
        "DescribeGroups with operations",
        "DescribeGroups",
        (3, 5),
        lambda names: {"groups": [names.group], "include_authorized_operations": True},
        {"group bits": "-2147483648 Group Describe group; bits Group group"},
    ),
    Row(
        "ListGroups",
        "ListGroups",
        (0, 5),
        lambda _: {},
        {"group": "-1 Cluster Describe | Group Describe group"},
    ),
    Row(
        "OffsetCommit",
        "OffsetCommit",
        (1, 2, 9),
        _commit,
        topics("30 Group Read group; 29 Topic Read {}"),
    ),
    Row(
        "OffsetFetch",
        "OffsetFetch",
        (2, 8, 9),
        _committed,
        topics("30 Group Describe group; 29 Topic Describe {}"),
    ),
    Row(
        "OffsetFetch before 2",
        "OffsetFetch",
        (1,),
        _committed,
        topics("-1 Group Describe group; 29 Topic Describe {}"),
        krusts=topics("30 Group Describe group; 29 Topic Describe {}"),
    ),
    Row(
        "OffsetFetch of all",
        "OffsetFetch",
        (2, 8),
        _all_committed,
        topics("30 Group Describe group; -1 Topic Describe {}", "there"),
    ),
    Row(
        "DeleteGroups",
        "DeleteGroups",
        (0, 2),
        lambda names: {"groups_names": [names.no_group]},
        topics("30 Group Delete {}", "no_group"),
    ),
    Row(
        "OffsetDelete",
        "OffsetDelete",
        (0,),
        lambda names: {
            "group_id": names.group,
            "topics": partitions(names, "name", "partitions", partition_index=0),
        },
        topics("30 Group Delete group; 29 Topic Read {}"),
    ),
]
