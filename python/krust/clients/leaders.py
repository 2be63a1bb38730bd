"""The leaders of a topic's partitions, as a broker knows them. It may know a new topic late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust._krust import Client

_BETWEEN_S = 0.02


def leaders(client: Client, topic: str) -> dict[int, int]:
    """Partition -> leader; -1: none. Empty: the broker does not know the topic."""
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return {
        partition["partition_index"]: partition["leader_id"]
        for one in client.request("Metadata", body)["topics"]
        for partition in one["partitions"]
    }


def wait_for_leaders(client: Client, topic: str, partitions: int, patience_s: float) -> bool:
    """Wait until `partitions` partitions have leaders. False: not in time."""
    deadline = time.monotonic() + patience_s
    while True:
        nodes = leaders(client, topic).values()
        if len(nodes) >= partitions and min(nodes) >= 0:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_BETWEEN_S)
