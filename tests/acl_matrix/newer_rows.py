"""Requests that a Kafka 3.9.1 with ZooKeeper lacks, as 4.3.0 answers them."""

from __future__ import annotations

from tests.acl_matrix import codec, group_rows, topic_rows, transaction_rows
from tests.acl_matrix.codec import Body
from tests.acl_matrix.rows import Names, Row, topics

GROUP = 32
"""the type of configs of groups"""


def _by_id(names: Names, rows: str, **partition: object) -> list[Body]:
    return [{"topic_id": names.ids[names.there], rows: [partition]}]


def _heartbeat(names: Names) -> Body:
    """Of a member that the group does not know."""
    return {
        "group_id": names.group,
        "member_id": "nobody",
        "member_epoch": 7,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": [names.there, names.absent],
    }


def _committed(names: Names) -> Body:
    wanted = [{"topic_id": names.ids[names.there], "partition_indexes": [0]}]
    return {"groups": [{"group_id": names.group, "member_epoch": -1, "topics": wanted}]}


def _configs(names: Names) -> Body:
    rows = [{"resource_type": GROUP, "resource_name": names.group}]
    return {"resources": rows, "validate_only": True}


def _described(names: Names) -> Body:
    wanted = [{"name": name} for name in sorted((names.there, names.absent))]
    return {"topics": wanted, "response_partition_limit": 100}


OWN = [
    Row(
        "Produce by id",
        "Produce",
        (13,),
        lambda names: {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": _by_id(names, "partition_data", records=topic_rows.batch(0, -1)),
        },
        topics("29 Topic Write {}", "there"),
    ),
    Row(
        "OffsetCommit by id",
        "OffsetCommit",
        (10,),
        lambda names: {
            "group_id": names.group,
            "generation_id_or_member_epoch": -1,
            "topics": _by_id(names, "partitions", committed_leader_epoch=-1),
        },
        topics("30 Group Read group; 29 Topic Read {}", "there"),
    ),
    Row(
        "OffsetFetch by id",
        "OffsetFetch",
        (10,),
        _committed,
        topics("30 Group Describe group; 29 Topic Describe {}", "there"),
    ),
    Row(
        "ConsumerGroupHeartbeat",
        "ConsumerGroupHeartbeat",
        (0, 1),
        _heartbeat,
        {"": "30 Group Read group; 29 Topic Describe there; 29 Topic Describe absent"},
    ),
    Row(
        "ConsumerGroupDescribe",
        "ConsumerGroupDescribe",
        (0, 1),
        lambda names: {"group_ids": [names.group, names.no_group]},
        topics("30 Group Describe {}", "group", "no_group"),
    ),
    Row(
        "DescribeTopicPartitions",
        "DescribeTopicPartitions",
        (0,),
        _described,
        {
            **topics("29 Topic Describe {}"),
            "there bits": "-2147483648 Topic Describe there; bits Topic there",
        },
    ),
    Row(
        "DescribeTopicPartitions of all",
        "DescribeTopicPartitions",
        (0,),
        lambda _: {"topics": [], "response_partition_limit": 2000},
        topics("-1 Topic Describe {}", "there"),
    ),
    Row(
        "ListConfigResources",
        "ListConfigResources",
        (0, 1),
        lambda _: {},
        {"": "31 Cluster DescribeConfigs"},
    ),
    Row(
        "DescribeConfigs of a group",
        "DescribeConfigs",
        (4,),
        _configs,
        topics("30 Group DescribeConfigs {}", "group"),
    ),
    Row(
        "IncrementalAlterConfigs of a group",
        "IncrementalAlterConfigs",
        (1,),
        _configs,
        topics("30 Group AlterConfigs {}", "group"),
    ),
]
AS_BEFORE = [*topic_rows.ROWS, *transaction_rows.ROWS, *group_rows.ROWS]
BY_ID = ("Produce", "OffsetCommit", "OffsetFetch")
ROWS = [
    *OWN,
    *(
        row._replace(versions=(newest,))
        for row in AS_BEFORE
        if (newest := codec.versions(row.api, "kafka_4_3")[-1]) > row.versions[-1]
        and row.versions[-1] == codec.versions(row.api)[-1]
        and row.api not in BY_ID
        and "operations" not in row.name
    ),
]
"""Of the others, the newest versions that 3.9.1 lacks."""
