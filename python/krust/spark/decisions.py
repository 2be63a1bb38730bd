"""What a write with exactlyOnce is named, and the decision that commits a micro-batch. Pure.

Each task writes in a transaction of its own and leaves it open. The decision names these
transactions. From then on they count as committed, whatever happens to them: `exactly_once` commits
them, or writes their rows again from the log if a broker has aborted them.
    krust-spark:<query>           the transactional id of the decisions of a query
    krust-spark:<query>:<task>    that of a task
The query is Spark's id, which the checkpoint keeps, or the jobId of a batch write. A query that is
started again has the same ids, so it fences what an earlier driver or attempt left behind.
A decision is a record in the topic `__krust_spark_commits`. Its key is the query, its value this
JSON. The last one of a query counts. Offsets of a group would be less to read, but they expire, and
have no room for the transactions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from krust.named_tuple import NamedTuple

TOPIC = "__krust_spark_commits"
_PREFIX = "krust-spark"
_FORMAT = 1


class RowRange(NamedTuple):
    """Where rows of a transaction are. Records of others may be between them."""

    topic: str
    partition: int
    first: int
    """the offset of the first row"""
    last: int
    """the offset of the last row"""
    rows: int


@dataclass(frozen=True)
class TaskTransaction:
    """The transaction of a task, with all rows delivered.

    is_v2  EndTxn 5 ends it; otherwise EndTxn 4 or less
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool
    ranges: tuple[RowRange, ...]


@dataclass(frozen=True)
class Decision:
    """The last micro-batch of a query that is committed, and the transactions with its rows.

    run  the run of the query, which is another one after each restart
    """

    query: str
    batch: int
    run: str
    transactions: tuple[TaskTransaction, ...]

    def without(self, lost: set[str]) -> Decision:
        """The decision after the rows of these transactional ids were written otherwise."""
        kept = (one for one in self.transactions if one.transactional_id not in lost)
        return replace(self, transactions=tuple(kept))

    def names(self, transaction: TaskTransaction) -> bool:
        """Whether this transaction counts as committed."""
        return transaction in self.transactions

    def to_json(self) -> str:
        """The value of its record."""
        fields = {"format": _FORMAT, "batch": self.batch, "run": self.run}
        found = [
            [one.transactional_id, one.producer_id, one.epoch, one.is_v2, list(one.ranges)]
            for one in self.transactions
        ]
        return json.dumps({**fields, "transactions": found}, separators=(",", ":"))

    @classmethod
    def of_json(cls, query: str, text: bytes) -> Decision:
        """Read the value of a record. ValueError: a later krust has written it."""
        fields = json.loads(text)
        if fields["format"] != _FORMAT:
            raise ValueError(f"a later version has written the decision of {query!r}")
        transactions = tuple(
            TaskTransaction(name, producer_id, epoch, is_v2, tuple(RowRange(*row) for row in rows))
            for name, producer_id, epoch, is_v2, rows in fields["transactions"]
        )
        return cls(query, fields["batch"], fields["run"], transactions)


def query_transactional_id(query: str) -> str:
    """The transactional id of a query's decisions."""
    return f"{_PREFIX}:{query}"


def task_transactional_id(query: str, task: int) -> str:
    """The transactional id of a task: the number of its partition."""
    return f"{query_transactional_id(query)}:{task}"
