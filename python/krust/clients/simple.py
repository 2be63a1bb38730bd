"""`SimpleConsumer`: reads from one broker exactly what the caller asks for, without a group.

    with SimpleConsumer("localhost:9092") as consumer:
        [begin] = consumer.get_offsets_before("orders", 0, EARLIEST)
        for record in consumer.fetch(FetchRequest("orders", 0, begin)):
            print(record.offset, record.value)

A request is one round trip. The errors of a partition (6: it moved, 1: the offset does not exist)
are returned, and the caller decides what to do, as with Kafka's simple consumer of 2013. Offset
requests go to the coordinator of the group, which is looked up when it is needed. Threads: one at a
time. Source: the simple consumer of Apache Kafka 0.8, with names in Python's style. Not done:
hiding aborted transactions (it reads as read_uncommitted).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from krust import _krust
from krust.clients import options
from krust.clients.coordinator_client import (
    CommittedOffset,
    CoordinatorClient,
    MemberIdentity,
    check,
    refused,
)
from krust.closing import Closing
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from krust._krust import Record
    from krust.clients.keywords import CommonSettings
    from krust.errors import KafkaError

LATEST, EARLIEST = _krust.LATEST, _krust.EARLIEST
"""Times for `get_offsets_before`: the end of a partition, its start."""
_BY_NAME = 12
_LIST_OFFSETS = 2


class FetchRequest(NamedTuple):
    """A request for one partition: from `offset`, about `max_bytes`, at least one batch."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """The response for one partition. Iterating yields its records, or raises `error`."""

    topic: str
    partition: int
    error: KafkaError | None
    high_watermark: int
    """the offset after the last committed record; -1: there is an error"""
    records: list[Record] = field(repr=False)

    def __iter__(self) -> Iterator[Record]:
        if self.error is not None:
            raise self.error
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


class SimpleConsumer(Closing):
    """Reads from one broker.

    broker  "host:port"
    more    client.id, request.timeout.ms, ... as keywords; see `CommonSettings`
    """

    def __init__(self, broker: str, **more: Unpack[CommonSettings]) -> None:
        self._given = options.read(options.COMMON, {options.BOOTSTRAP: broker}, more)
        core = options.core(self._given, options.COMMON)
        self._client = _krust.Client(str(self._given[options.BOOTSTRAP]), core)
        self._managers: dict[str, CoordinatorClient] = {}

    def fetch(
        self, request: FetchRequest, *, max_wait_ms: int = 500, min_bytes: int = 1
    ) -> Fetched:
        """Records of one partition, waiting up to `max_wait_ms` until there are `min_bytes`.

        raises  KafkaError: the broker does not lead the partition, or the offset is out of range
        """
        [fetched] = self.multifetch([request], max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        if fetched.error is not None:
            raise fetched.error
        return fetched

    def multifetch(
        self, requests: Sequence[FetchRequest], *, max_wait_ms: int = 500, min_bytes: int = 1
    ) -> list[Fetched]:
        """Records of several partitions in one round trip, in the order of the requests.

        A partition that fails has an `error`, beside the records of the others.
        raises  ConfigError: a partition has two different requests
        """
        topics: dict[str, dict[int, FetchRequest]] = {}
        for request in requests:
            partitions = topics.setdefault(request.topic, {})
            if partitions.setdefault(request.partition, request) != request:
                place = f"{request.topic}:{request.partition}"
                raise ConfigError(f"{place} is asked for twice", hint="make two fetches of it")
        body = {
            "replica_id": -1,
            "max_wait_ms": max_wait_ms,
            "min_bytes": min_bytes,
            "topics": [
                {"topic": topic, "partitions": [_wanted(one) for one in partitions.values()]}
                for topic, partitions in topics.items()
            ],
        }
        answer = self._client.request("Fetch", body, _BY_NAME)
        check(answer.get("error_code", 0), "Fetch")
        found = {
            (topic["topic"], partition["partition_index"]): partition
            for topic in answer["responses"]
            for partition in topic["partitions"]
        }
        return [_fetched(one, found.get((one.topic, one.partition))) for one in requests]

    def get_offsets_before(
        self, topic: str, partition: int, time: int = LATEST, max_offsets: int = 1
    ) -> list[int]:
        """The first offsets of segments that are older than `time` (ms, LATEST or EARLIEST).

        They descend, at most `max_offsets`. A broker without ListOffsets 0 (Kafka from 4 on) gives
        one offset, of the first record at or after `time`, or none.
        raises  KafkaError: the broker does not lead the partition
        """
        wanted = {"partition_index": partition, "timestamp": time, "max_num_offsets": max_offsets}
        body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}
        [oldest] = [first for key, _, first, _ in self._client.versions() if key == _LIST_OFFSETS]
        answer = self._client.request("ListOffsets", body, 0 if oldest == 0 else None)
        [found] = answer["topics"][0]["partitions"]
        check(found["error_code"], f"offsets of {topic}:{partition}")
        if oldest == 0:
            return list(found["old_style_offsets"])
        return [found["offset"]] if found["offset"] >= 0 else []

    def commit_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], metadata: str = ""
    ) -> None:
        """Commit offsets of a group, with metadata.

        raises  KafkaError: the first refusal; a group with members refuses (25)
        """
        places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._manager(group_id).commit(places, MemberIdentity(), metadata)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits of a group. Partitions without a commit are left out."""
        places = [TopicPartition(*place) for place in partitions]
        return self._manager(group_id).commits(places)

    def close(self) -> None:
        """End the connections and all waiting calls. Idempotent."""
        self._client.end()
        self._client.close()
        for manager in self._managers.values():
            manager.end()
            manager.close()

    def _manager(self, group_id: str) -> CoordinatorClient:
        if group_id not in self._managers:
            patience_ms = options.number(self._given, "request.timeout.ms", 30_000)
            self._managers[group_id] = CoordinatorClient(
                group_id, self._given, patience_ms, patience_ms
            )
        return self._managers[group_id]


def _wanted(request: FetchRequest) -> dict[str, Any]:
    return {
        "partition": request.partition,
        "fetch_offset": request.offset,
        "partition_max_bytes": request.max_bytes,
    }


def _fetched(request: FetchRequest, answer: Mapping[str, Any] | None) -> Fetched:
    topic, partition, offset, _ = request
    subject = f"{topic}:{partition} from offset {offset}"
    if answer is None:
        return Fetched(topic, partition, refused(-1, subject), -1, [])
    if answer["error_code"]:
        return Fetched(topic, partition, refused(answer["error_code"], subject), -1, [])
    records = _krust.records(topic, partition, offset, answer["records"] or b"")
    return Fetched(topic, partition, None, answer["high_watermark"], records)
