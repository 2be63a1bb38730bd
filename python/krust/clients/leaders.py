"""Who leads the partitions of a topic, as a broker tells: it may hear of a new topic late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust._krust import Client

_BETWEEN_S = 0.02


def leaders(client: Client, topic: str) -> dict[int, int]:
    """Each partition's leader; -1: it has none. Empty: the broker knows no such topic."""
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return {
        partition["partition_index"]: partition["leader_id"]
        for one in client.request("Metadata", body)["topics"]
        for partition in one["partitions"]
    }


def wait_for_leaders(client: Client, topic: str, partitions: int, patience_s: float) -> bool:
    """Return when so many partitions have leaders; False: they had not in that time."""
    deadline = time.monotonic() + patience_s
    while True:
        nodes = leaders(client, topic).values()
        if len(nodes) >= partitions and min(nodes) >= 0:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_BETWEEN_S)
