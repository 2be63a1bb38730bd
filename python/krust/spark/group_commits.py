"""Commits a query's offsets to a consumer group without members, for tools that show lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.spark.client_options import common_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.spark.plan import TopicPartition


class GroupCommitter:
    """Commits offsets to a group without members."""

    def __init__(self, bootstrap: str, group_id: str, client: Mapping[str, str]) -> None:
        self._bootstrap, self._group_id = bootstrap, group_id
        self._client = client

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit. KafkaError, UnreachableError: that failed; only the shown lag is wrong."""
        from krust.clients.coordinator_client import CoordinatorClient, MemberIdentity
        from krust.coordinator.consumer_protocol import TopicPartition

        if not offsets:
            return
        named = {**common_options(self._client), "bootstrap.servers": self._bootstrap}
        patience_ms = int(self._client.get("request.timeout.ms", 10_000))
        coordinator = CoordinatorClient(self._group_id, named, patience_ms, patience_ms)
        coordinator.commit(
            {TopicPartition(*place): offset for place, offset in offsets.items()}, MemberIdentity()
        )
