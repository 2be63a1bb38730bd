"""The contract of a replica selector: which replica a consumer of some rack reads (KIP-392).

A selector is any object with a `name` and a `select`. It needs no base class:

    class Leader:
        name = "leader"

        def select(self, topic, partition, rack, replicas):
            return None

It depends only on its arguments. krust asks it once for a partition and a rack, and again when the
in-sync set or the brokers change. It may raise; the leader is read then. `validate` checks its
result. All types here are plain data and can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

from krust.named_tuple import NamedTuple
from krust.plugins import Plugins, shown

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of the partition.

    broker      the id of its broker
    rack        `broker.rack` of its broker; None: it has none, or is not alive
    is_leader   whether it is the leader
    is_in_sync  whether it has all committed records
    """

    broker: int
    rack: str | None
    is_leader: bool
    is_in_sync: bool


class Question(TypedDict):
    """What the core asks of a partition that this broker leads."""

    topic: str
    partition: int
    rack: str
    isr: list[int]
    replicas: list[int]


class Selection(NamedTuple):
    """One call of a selector: its arguments."""

    topic: str
    partition: int
    rack: str
    replicas: tuple[Replica, ...]


@runtime_checkable
class ReplicaSelector(Protocol):
    """Decides which replica the consumers of a rack read."""

    name: str

    def select(
        self, topic: str, partition: int, rack: str, replicas: Sequence[Replica]
    ) -> int | None:
        """The broker to read from; None: the leader.

        rack      what the consumer calls its rack (`client.rack`); any text up to 255 bytes
        replicas  all replicas, the preferred leader first
        """


class SelectionError(ValueError):
    """A result breaks a rule; the message names the rule and the partition."""


def validate(selection: Selection, answer: object) -> int:
    """The broker that a result of user code names; -1: the leader.

    raises  SelectionError: it is no in-sync replica
    """
    if answer is None:
        return -1
    in_sync = [replica.broker for replica in selection.replicas if replica.is_in_sync]
    if type(answer) is not int or answer not in in_sync:
        name = f"{selection.topic}-{selection.partition}"
        raise SelectionError(f"{name}: {shown(answer)} is none of its in-sync replicas {in_sync}")
    return answer


SELECTORS: Plugins[ReplicaSelector] = Plugins(
    "replica selector",
    "krust.replica_selectors",
    {},
    "select",
    "`name` and `select(topic, partition, rack, replicas)`",
)
"""Selectors of packages (entry points of `krust.replica_selectors`), and by import path."""
