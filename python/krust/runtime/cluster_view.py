"""What other threads see of the cluster: a copy that the policy thread publishes after each change.

Threads: made on the policy thread, read by any. It never changes.
Not promised: that it is newer than the last answer; a change that is under way is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.controller.state import ControllerState, Topic


class ClusterView(NamedTuple):
    """The cluster as this broker knew it at one moment."""

    cluster_id: str
    node_id: int
    controller_id: int
    """-1: it knows of none"""
    brokers: frozenset[int]
    """the numbers of those that are alive"""
    topics: Mapping[str, Topic]

    @staticmethod
    def of(state: ControllerState, topics: Mapping[str, Topic] | None = None) -> ClusterView:
        """A copy of the state; `topics`: those of the last copy, if none changed since."""
        return ClusterView(
            state.cluster_id,
            state.node_id,
            state.controller_id,
            frozenset(state.brokers),
            dict(state.topics) if topics is None else topics,
        )
