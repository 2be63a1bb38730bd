"""What a broker answers to a consumer in some rack, asked without a client library."""

from __future__ import annotations

import contextlib
from typing import Any

from krust._krust import Client

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def fetch(address: str, rack: str, place: tuple[str, int, int] = ("t", 0, 0)) -> tuple[int, int]:
    """The replica that the broker names, -1 for none, and how many bytes of records it sends.

    place  topic, partition, offset
    """
    topic, partition, offset = place
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    request: dict[str, Any] = {
        "rack_id": rack,
        "replica_id": -1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }
    with contextlib.closing(Client(address, {})) as client:
        answer = client.request("Fetch", request, 11)
    [found] = answer["responses"][0]["partitions"]
    assert found["error_code"] == 0, found
    return int(found["preferred_read_replica"]), len(found["records"] or b"")
