"""The metadata tree of one cluster, as a transfer between two stores reads it.

It is a copy of one moment; nothing here writes to a store.
Threads: any; the tree does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.metadata import znodes
from krust.metadata.contents import ClusterId, TopicAssignment
from krust.metadata.json_fields import BadZnodeError, number
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClusterTree(NamedTuple):
    """The persistent nodes of a tree, and the brokers that run on it."""

    name: str
    """for messages"""
    nodes: Mapping[str, bytes]
    """persistent nodes by path"""
    alive: tuple[str, ...]
    """paths of `/controller` and of registered brokers"""

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None: the tree has no cluster. BadZnodeError: it cannot be read."""
        data = self.nodes.get(znodes.CLUSTER_ID)
        return None if data is None else ClusterId.decode(data).id

    @property
    def epoch(self) -> int:
        """The controller epoch. BadZnodeError: it cannot be read."""
        data = self.nodes.get(znodes.CONTROLLER_EPOCH)
        return 0 if data is None else number(data)

    def topics(self) -> dict[str, TopicAssignment]:
        """The topics that can be read."""
        found = {}
        for path, data in self.nodes.items():
            parent, _, name = path.rpartition("/")
            if parent == znodes.TOPICS:
                try:
                    found[name] = TopicAssignment.decode(data)
                except BadZnodeError:
                    continue
        return found
