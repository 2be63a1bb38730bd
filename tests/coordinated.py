"""Waits until a broker has created or replayed the partitions of its groups.

A broker serves before it has replayed its groups. Until then it answers group requests with a code
after which clients retry.
"""

from __future__ import annotations

from functools import partial

from krust._krust import Client
from tests.waiting import until

NOT_YET = (14, 15, 16)
"""the coordinator's partition is being read, or made, or its leader is not known"""


def ready(client: Client, *groups: str) -> None:
    """Return when the broker coordinates all of these groups."""
    for group in groups:
        until(partial(_is_ready, client, group))


def _is_ready(client: Client, group: str) -> bool:
    client.request("FindCoordinator", {"key": group, "coordinator_keys": [group]})
    beat = {"group_id": group, "member_id": "nobody", "generation_id": 1}
    return client.request("Heartbeat", beat, 3)["error_code"] not in NOT_YET
