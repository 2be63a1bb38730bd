"""What a row of the matrix is: one request, and the checks by which its answer is decided.

A check is a code, then the permissions of which one is enough:

    "31 Cluster IdempotentWrite | Topic Write any"
    "30 Group Read group; 29 Topic Read there"     the first check that fails decides

The last word of a permission names the resource: an attribute of `Names`, `any` (one topic
whatever its name), or nothing (the cluster). Codes are Kafka's error codes; UNNAMED means that
the answer does not name the item, "bits Topic there" that it has the operations that are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.acl_matrix.codec import Body

UNNAMED = -1
UNKNOWN_BITS = -(1 << 31)
"""what an answer has for operations that nobody asked for"""


class Names(NamedTuple):
    """What the requests of one scenario are about.

    ids   of topics, by their names
    node  of the broker
    """

    there: str
    absent: str
    auto: str
    doomed: str
    group: str
    no_group: str
    txn: str
    new_txn: str
    ids: dict[str, bytes] = {}  # noqa: RUF012
    node: int = 0

    @classmethod
    def of(cls, prefix: str) -> Names:
        """Those of a scenario, which no other uses."""
        return cls(
            there=f"{prefix}-there",
            absent=f"{prefix}-absent",
            auto=f"{prefix}-auto",
            doomed=f"{prefix}-doomed",
            group=f"{prefix}-group",
            no_group=f"{prefix}-no-group",
            txn=f"{prefix}-txn",
            new_txn=f"{prefix}-new-txn",
        )


class Row(NamedTuple):
    """A request of one API, at some versions.

    checks  by item: the name of something in the answer, or "" for the answer as a whole
    krusts  the checks of krust, where it means to differ
    """

    name: str
    api: str
    versions: Sequence[int]
    body: Callable[[Names], Body]
    checks: dict[str, str]
    krusts: dict[str, str] | None = None


def topics(check: str, *items: str) -> dict[str, str]:
    """The same check of several items; `{}` in it stands for the name of the item."""
    return {item: check.replace("{}", item.split()[0]) for item in items or ("there", "absent")}


def partitions(names: Names, field: str, rows: str, **partition: Any) -> list[Body]:
    """Partition 0 of a topic that is there, and of one that is not."""
    return [{field: name, rows: [partition]} for name in (names.there, names.absent)]


def numbers(names: Names, field: str, rows: str) -> list[Body]:
    """The same, where partitions are plain numbers."""
    return [{field: name, rows: [0]} for name in (names.there, names.absent)]
