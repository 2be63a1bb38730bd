"""Requests about the cluster: ACLs, quotas, users, log directories, and what brokers ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.acl_matrix.codec import Body
from tests.acl_matrix.rows import Names, Row, numbers, topics

ACTION = "31 Cluster ClusterAction"
ALTER = "31 Cluster Alter"
DESCRIBE = "31 Cluster Describe"
NOBODY = "User:nobody"
WRONG_ACL = {
    "resource_type": 4,
    "resource_name": "not kafka-cluster",
    "resource_pattern_type": 3,
    "principal": NOBODY,
    "host": "*",
    "operation": 7,
    "permission_type": 3,
}
NO_ACL = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": NOBODY,
    "operation": 3,
    "permission_type": 3,
}


def _row(
    api: str, versions: Sequence[int], check: str, body: Callable[[Names], Body], name: str = ""
) -> Row:
    return Row(name or api, api, versions, body, {"": check})


def _configs(kind: int) -> Callable[[Names], Body]:
    return lambda names: {
        "resources": [{"resource_type": kind, "resource_name": str(names.node), "configs": []}],
        "validate_only": True,
    }


def _nothing(_: Names) -> Body:
    return {}


def _of_another_controller(names: Names) -> Body:
    """A request of a controller, or to it, that its epochs make invalid."""
    return {
        "controller_id": names.node,
        "controller_epoch": -7,
        "broker_id": 99,
        "broker_epoch": -7,
    }


def _quota(_: Names) -> Body:
    entity = [{"entity_type": "user", "entity_name": "nobody"}]
    change = {"key": "producer_byte_rate", "value": 1e6}
    return {"entries": [{"entity": entity, "ops": [change]}], "validate_only": True}


ROWS = [
    _row("ApiVersions", (0,), "", _nothing),
    _row("DescribeAcls", (0, 3), DESCRIBE, lambda _: NO_ACL),
    _row("CreateAcls", (0, 3), ALTER, lambda _: {"creations": [WRONG_ACL]}),
    _row("DeleteAcls", (0, 3), ALTER, lambda _: {"filters": [NO_ACL]}),
    _row(
        "DescribeConfigs",
        (0, 4),
        "31 Cluster DescribeConfigs",
        _configs(4),
        "DescribeConfigs of a broker",
    ),
    _row(
        "DescribeConfigs",
        (4,),
        "31 Cluster DescribeConfigs",
        _configs(8),
        "DescribeConfigs of loggers",
    ),
    _row(
        "AlterConfigs", (0, 2), "31 Cluster AlterConfigs", _configs(4), "AlterConfigs of a broker"
    ),
    _row(
        "IncrementalAlterConfigs",
        (0, 1),
        "31 Cluster AlterConfigs",
        _configs(4),
        "IncrementalAlterConfigs of a broker",
    ),
    _row(
        "IncrementalAlterConfigs",
        (1,),
        "31 Cluster AlterConfigs",
        _configs(8),
        "IncrementalAlterConfigs of loggers",
    ),
    Row(
        "DescribeLogDirs",
        "DescribeLogDirs",
        (3, 4),
        lambda names: {"topics": [{"topic": names.there, "partitions": [0]}]},
        topics(DESCRIBE, "there"),
    ),
    Row(
        "DescribeLogDirs before 3",
        "DescribeLogDirs",
        (1, 2),
        lambda names: {"topics": [{"topic": names.there, "partitions": [0]}]},
        topics("-1 Cluster Describe", "there"),
    ),
    Row(
        "ElectLeaders",
        "ElectLeaders",
        (0, 2),
        lambda names: {
            "topic_partitions": numbers(names, "topic", "partitions"),
            "timeout_ms": 9000,
        },
        topics(ALTER),
    ),
    _row(
        "AlterPartitionReassignments",
        (0,),
        ALTER,
        lambda names: {
            "topics": [{"name": names.absent, "partitions": [{"replicas": None}]}],
            "timeout_ms": 9000,
        },
    ),
    _row("ListPartitionReassignments", (0,), DESCRIBE, lambda _: {"timeout_ms": 9000}),
    _row("DescribeClientQuotas", (0, 1), "31 Cluster DescribeConfigs", _nothing),
    _row("AlterClientQuotas", (0, 1), "31 Cluster AlterConfigs", _quota),
    _row("DescribeUserScramCredentials", (0,), DESCRIBE, lambda _: {"users": [{"name": "nobody"}]}),
    _row(
        "AlterUserScramCredentials",
        (0,),
        ALTER,
        lambda _: {"deletions": [{"name": "nobody", "mechanism": 1}]},
    ),
    _row(
        "UpdateFeatures",
        (0, 1),
        ALTER,
        lambda _: {
            "feature_updates": [{"feature": "nothing", "max_version_level": 1}],
            "upgrade_type": 1,
        },
    ),
    Row(
        "DescribeCluster",
        "DescribeCluster",
        (0, 1),
        lambda _: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        {"": "", " bits": "0 Cluster Describe; bits Cluster"},
    ),
]
OF_BROKERS = [
    _row("LeaderAndIsr", (0, 2, 7), ACTION, _of_another_controller),
    _row("StopReplica", (0, 4), ACTION, _of_another_controller),
    _row("UpdateMetadata", (0, 8), ACTION, _of_another_controller),
    _row("ControlledShutdown", (0, 3), ACTION, _of_another_controller),
    _row("AlterPartition", (2, 3), ACTION, _of_another_controller),
    _row("AllocateProducerIds", (0,), ACTION, _of_another_controller),
]
