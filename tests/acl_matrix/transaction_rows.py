"""Requests about transactions."""

from __future__ import annotations

from tests.acl_matrix.codec import Body
from tests.acl_matrix.rows import Names, Row, numbers, partitions, topics

WRITE = "53 TransactionalId Write txn"


def _step(names: Names) -> Body:
    """A step of a producer that the coordinator does not know."""
    wanted = numbers(names, "name", "partitions")
    return {
        "transactional_id": names.txn,
        "group_id": names.group,
        "producer_epoch": 0,
        "v3_and_below_transactional_id": names.txn,
        "v3_and_below_topics": wanted,
        "transactions": [
            {"transactional_id": names.txn, "verify_only": True, "topics": wanted},
        ],
    }


def _commit(names: Names) -> Body:
    rows = partitions(names, "name", "partitions", committed_leader_epoch=-1)
    return {**_step(names), "generation_id": -1, "topics": rows}


ROWS = [
    Row(
        "FindCoordinator of a transaction",
        "FindCoordinator",
        (1, 3),
        lambda names: {"key": names.txn, "key_type": 1},
        {"": "53 TransactionalId Describe txn"},
    ),
    Row(
        "FindCoordinator of transactions",
        "FindCoordinator",
        (4, 6),
        lambda names: {"coordinator_keys": [names.txn, names.new_txn], "key_type": 1},
        topics("53 TransactionalId Describe {}", "txn", "new_txn"),
    ),
    Row(
        "DescribeTransactions",
        "DescribeTransactions",
        (0,),
        lambda names: {"transactional_ids": [names.txn, names.new_txn]},
        topics("53 TransactionalId Describe {}", "txn", "new_txn"),
    ),
    Row(
        "DescribeTransactions and its topics",
        "DescribeTransactions",
        (0,),
        lambda names: {"transactional_ids": [names.txn]},
        topics("53 TransactionalId Describe txn; -1 Topic Describe {}", "there"),
    ),
    Row(
        "ListTransactions",
        "ListTransactions",
        (0, 1),
        lambda _: {"duration_filter": -1},
        {"txn": "-1 TransactionalId Describe txn"},
    ),
    Row(
        "InitProducerId",
        "InitProducerId",
        (0, 5),
        lambda _: {"producer_id": -1, "producer_epoch": -1},
        {"": "31 Cluster IdempotentWrite | Topic Write any"},
    ),
    Row(
        "InitProducerId for transactions",
        "InitProducerId",
        (0, 5),
        lambda names: {
            "transactional_id": names.new_txn,
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        {"": "53 TransactionalId Write new_txn"},
    ),
    Row(
        "AddPartitionsToTxn",
        "AddPartitionsToTxn",
        (0, 3),
        _step,
        topics(f"{WRITE}; 29 Topic Write {{}}"),
    ),
    Row(
        "AddOffsetsToTxn",
        "AddOffsetsToTxn",
        (0, 4),
        _step,
        {"": f"{WRITE}; 30 Group Read group"},
    ),
    Row(
        "TxnOffsetCommit",
        "TxnOffsetCommit",
        (0, 4),
        _commit,
        topics(f"{WRITE}; 30 Group Read group; 29 Topic Read {{}}"),
    ),
    Row("EndTxn", "EndTxn", (0, 4), _step, {"": WRITE}),
]
OF_BROKERS = [
    Row(
        "AddPartitionsToTxn of brokers",
        "AddPartitionsToTxn",
        (4, 5),
        _step,
        topics("31 Cluster ClusterAction"),
    ),
    Row(
        "WriteTxnMarkers",
        "WriteTxnMarkers",
        (0, 1),
        lambda names: {
            "markers": [
                {
                    "producer_id": 5000,
                    "topics": [{"name": names.absent, "partition_indexes": [0]}],
                }
            ]
        },
        topics("31 Cluster Alter | Cluster ClusterAction", "absent"),
    ),
]
