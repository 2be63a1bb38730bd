"""Endless commits leave `__consumer_offsets` bounded, with the last commit of each partition."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from krust import _krust
from tests.coordinated import ready
from tests.serving import ServedBroker
from tests.waiting import until

COMMITS, PARTITIONS = 400, 50
SEGMENT_BYTES = 65_536
OPTIONS: dict[str, object] = {
    "log.cleaner.backoff.ms": 20,
    "log.cleaner.min.cleanable.ratio": 0.1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "log.segment.delete.delay.ms": 0,
    "log.retention.check.interval.ms": 50,
}


def commit(client: _krust.Client, number: int) -> None:
    rows = [{"partition_index": n, "committed_offset": number} for n in range(PARTITIONS)]
    message = {
        "group_id": "endless",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "data", "partitions": rows}],
    }
    answer = client.request("OffsetCommit", message, 8)
    codes = {row["error_code"] for row in answer["topics"][0]["partitions"]}
    assert codes == {0}, answer


def fetched(client: _krust.Client) -> dict[str, Any]:
    places = [{"name": "data", "partition_indexes": list(range(PARTITIONS))}]
    return client.request("OffsetFetch", {"group_id": "endless", "topics": places}, 7)


def committed(client: _krust.Client) -> set[int]:
    return {row["committed_offset"] for row in fetched(client)["topics"][0]["partitions"]}


def size(data: Path) -> int:
    while True:
        with suppress(FileNotFoundError):  # the cleaner takes one away as we look
            return sum(log.stat().st_size for log in (data / "__consumer_offsets-0").glob("*.log"))


def test_endless_commits_leave_a_bounded_log_and_the_last_survives_a_restart(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with ServedBroker(data, options=dict(OPTIONS)) as broker:
        client = _krust.Client(broker.bootstrap)
        topic = {"name": "data", "num_partitions": PARTITIONS, "replication_factor": 1}
        client.request("CreateTopics", {"topics": [topic], "timeout_ms": 10_000})
        ready(client, "endless")
        for number in range(COMMITS):
            commit(client, number)
        written = COMMITS * PARTITIONS * 80
        assert written / 4 > 3 * SEGMENT_BYTES
        until(lambda: size(data) < 3 * SEGMENT_BYTES)
        commit(client, COMMITS + 1)
    with ServedBroker(data, options=dict(OPTIONS)) as broker:
        client = _krust.Client(broker.bootstrap)
        ready(client, "endless")
        assert committed(client) == {COMMITS + 1}
