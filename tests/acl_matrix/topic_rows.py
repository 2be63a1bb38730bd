"""Requests about topics and their records."""

from __future__ import annotations

import struct
import zlib

from aiokafka.record.util import calc_crc32c

from tests.acl_matrix.codec import Body
from tests.acl_matrix.rows import Names, Row, numbers, partitions, topics

TRANSACTIONAL = 16
BITS = "there bits"


def batch(attributes: int, producer_id: int) -> bytes:
    """A batch of one record with the value "x"."""
    record = b"\x0e\0\0\0\x01\x02x\0"
    sequence = 0 if producer_id >= 0 else -1
    rest = struct.pack(">hiqqqhii", attributes, 0, 0, 0, producer_id, sequence, sequence, 1)
    rest += record
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, calc_crc32c(rest)) + rest


def _message() -> bytes:
    """A message of 2014."""
    content = struct.pack(">bbii", 0, 0, -1, 1) + b"x"
    return struct.pack(">qiI", 0, len(content) + 4, zlib.crc32(content)) + content


def _produce(names: Names, records: bytes, transactional_id: str | None = None) -> Body:
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": partitions(names, "name", "partition_data", records=records),
    }


def _fetch(names: Names, **more: object) -> Body:
    wanted = [
        {
            "topic": name,
            "topic_id": names.ids.get(name),
            "partitions": [
                {"current_leader_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1000}
            ],
        }
        for name in (names.there, names.absent)
        if name in names.ids or "replica_state" not in more
    ]
    common = {"replica_id": -1, "max_bytes": 1000, "session_epoch": -1, "topics": wanted}
    return {**common, **more}


def _fetch_by_id(names: Names, **more: object) -> Body:
    return _fetch(names, replica_state={"replica_id": -1, "replica_epoch": -1, **more})


def _metadata(*wanted: str, auto: bool = False, bits: bool = False) -> Body:
    return {
        "topics": [{"name": name} for name in wanted],
        "allow_auto_topic_creation": auto,
        "include_topic_authorized_operations": bits,
    }


def _created(names: Names) -> Body:
    rows = [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in (names.there, names.absent)
    ]
    return {"topics": rows, "timeout_ms": 10_000, "validate_only": True}


def _configs(kind: int, *wanted: str) -> Body:
    rows = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]}
        for name in wanted
    ]
    return {"resources": rows, "validate_only": True}


PRODUCE = [
    Row(
        "Produce of 2014",
        "Produce",
        (0, 2),
        lambda names: _produce(names, _message()),
        topics("29 Topic Write {}"),
    ),
    Row(
        "Produce",
        "Produce",
        (3, 11),
        lambda names: _produce(names, batch(0, -1)),
        topics("29 Topic Write {}"),
    ),
    Row(
        "Produce, idempotent",
        "Produce",
        (3, 11),
        lambda names: _produce(names, batch(0, 5000)),
        topics("29 Topic Write {}"),
    ),
    Row(
        "Produce, transactional",
        "Produce",
        (3, 11),
        lambda names: _produce(names, batch(TRANSACTIONAL, 5000), names.txn),
        topics("53 TransactionalId Write txn; 29 Topic Write {}"),
    ),
    Row(
        "Produce, plain records with a transactional id",
        "Produce",
        (3, 11),
        lambda names: _produce(names, batch(0, -1), names.txn),
        topics("29 Topic Write {}"),
    ),
]
READ = [
    Row("Fetch", "Fetch", (0, 4, 12), _fetch, topics("29 Topic Read {}")),
    Row("Fetch by id", "Fetch", (13, 17), _fetch_by_id, topics("29 Topic Read {}", "there")),
    Row(
        "ListOffsets",
        "ListOffsets",
        (0, 1, 9),
        lambda names: {
            "replica_id": -1,
            "topics": partitions(
                names,
                "name",
                "partitions",
                timestamp=-1,
                max_num_offsets=1,
                current_leader_epoch=-1,
            ),
        },
        topics("29 Topic Describe {}"),
    ),
    Row(
        "OffsetForLeaderEpoch",
        "OffsetForLeaderEpoch",
        (0, 3, 4),
        lambda names: {
            "replica_id": -1,
            "topics": partitions(names, "topic", "partitions", current_leader_epoch=-1),
        },
        topics("29 Cluster ClusterAction | Topic Describe {}"),
    ),
    Row(
        "DescribeProducers",
        "DescribeProducers",
        (0,),
        lambda names: {"topics": numbers(names, "name", "partition_indexes")},
        topics("29 Topic Read {}"),
    ),
]
METADATA = [
    Row(
        "Metadata",
        "Metadata",
        (4, 12),
        lambda names: _metadata(names.there, names.absent),
        topics("29 Topic Describe {}"),
    ),
    Row(
        "Metadata by id",
        "Metadata",
        (12,),
        lambda names: {"topics": [{"topic_id": names.ids[names.there]}]},
        topics("29 Topic Describe {}", "there"),
    ),
    Row(
        "Metadata of all topics",
        "Metadata",
        (1, 12),
        lambda _: {"topics": None},
        topics("-1 Topic Describe {}", "there"),
    ),
    Row(
        "Metadata of all topics, as of 2013",
        "Metadata",
        (0,),
        lambda _: {"topics": []},
        topics("-1 Topic Describe {}", "there"),
    ),
    Row(
        "Metadata that creates",
        "Metadata",
        (0, 4, 12),
        lambda names: _metadata(names.auto, auto=True),
        topics("29 Topic Describe {}; 29 Cluster Create | Topic Create {}", "auto"),
    ),
    Row(
        "Metadata with operations",
        "Metadata",
        (8, 12),
        lambda names: _metadata(names.there, bits=True),
        {BITS: "-2147483648 Topic Describe there; bits Topic there"},
    ),
    Row(
        "Metadata with operations on the cluster",
        "Metadata",
        (8, 10),
        lambda names: {"topics": [], "include_cluster_authorized_operations": True},
        {" bits": "0 Cluster Describe; bits Cluster"},
    ),
]
CHANGES = [
    Row(
        "CreateTopics",
        "CreateTopics",
        (1, 4),
        _created,
        topics("29 Cluster Create | Topic Create {}"),
    ),
    Row(
        "CreateTopics that shows configs",
        "CreateTopics",
        (5, 7),
        _created,
        {
            **topics("29 Cluster Create | Topic Create {}"),
            **topics("29 Topic DescribeConfigs {}", "absent configs"),
        },
    ),
    Row(
        "CreatePartitions",
        "CreatePartitions",
        (0, 3),
        lambda names: {
            "topics": [{"name": name, "count": 1} for name in (names.there, names.absent)],
            "timeout_ms": 10_000,
            "validate_only": True,
        },
        topics("29 Topic Alter {}"),
    ),
    Row(
        "DeleteRecords",
        "DeleteRecords",
        (0, 2),
        lambda names: {
            "topics": partitions(names, "name", "partitions", offset=0),
            "timeout_ms": 10_000,
        },
        topics("29 Topic Delete {}"),
    ),
    Row(
        "DescribeConfigs of topics",
        "DescribeConfigs",
        (0, 4),
        lambda names: _configs(2, names.there, names.absent),
        topics("29 Topic DescribeConfigs {}"),
    ),
    Row(
        "AlterConfigs of topics",
        "AlterConfigs",
        (0, 2),
        lambda names: _configs(2, names.there, names.absent),
        topics("29 Topic AlterConfigs {}"),
    ),
    Row(
        "IncrementalAlterConfigs of topics",
        "IncrementalAlterConfigs",
        (0, 1),
        lambda names: _configs(2, names.there, names.absent),
        topics("29 Topic AlterConfigs {}"),
    ),
    Row(
        "AlterReplicaLogDirs",
        "AlterReplicaLogDirs",
        (1, 2),
        lambda names: {
            "dirs": [{"path": "/nowhere", "topics": numbers(names, "name", "partitions")}]
        },
        topics("31 Cluster Alter"),
    ),
]
DELETIONS = [
    Row(
        "DeleteTopics by id",
        "DeleteTopics",
        (6,),
        lambda names: {"topics": [{"topic_id": names.ids[names.doomed]}]},
        topics("29 Topic Describe {}; 29 Topic Delete {}", "doomed"),
    ),
    Row(
        "DeleteTopics",
        "DeleteTopics",
        (1, 5, 6),
        lambda names: {
            "topic_names": [names.doomed, names.absent],
            "topics": [{"name": names.doomed}, {"name": names.absent}],
        },
        topics("29 Topic Delete {}", "doomed", "absent"),
    ),
]
OF_BROKERS = [
    Row(
        "Fetch of a follower",
        "Fetch",
        (0, 12),
        lambda names: _fetch(names, replica_id=1),
        topics("29 Cluster ClusterAction"),
    ),
    Row(
        "Fetch of a follower by id",
        "Fetch",
        (17,),
        lambda names: _fetch_by_id(names, replica_id=1),
        topics("29 Cluster ClusterAction", "there"),
    ),
]
ROWS = [*PRODUCE, *READ, *METADATA, *CHANGES]
