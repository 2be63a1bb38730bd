"""A copy of the cluster's state for other threads. The policy thread publishes it after each
change.

Threads: the policy thread makes it, any thread reads it. It never changes.
Not promised: that it has a change which is still being made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.controller.entities import Topic
    from krust.controller.state import ControllerState


class ClusterView(NamedTuple):
    """The cluster as this broker knew it at one moment."""

    cluster_id: str
    node_id: int
    controller_id: int
    """-1: not known"""
    brokers: frozenset[int]
    """the ids of the live brokers"""
    topics: Mapping[str, Topic]

    @staticmethod
    def of(state: ControllerState, topics: Mapping[str, Topic] | None = None) -> ClusterView:
        """A copy of the state. `topics`: those of the last copy if no topic has changed since."""
        return ClusterView(
            state.cluster_id,
            state.node_id,
            state.controller_id,
            frozenset(state.brokers),
            dict(state.topics) if topics is None else topics,
        )
