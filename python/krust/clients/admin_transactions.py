"""Transactions as administrators see them (KIP-664), for `krust.Admin` and `krust txn`.

A coordinator keeps each transactional id with its state; a partition keeps its producers, and where
their open transactions begin. A transaction hangs when a partition holds it open and no coordinator
will end it: readers of committed records wait there for ever. An abort marker ends it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from krust.clients.coordinator_client import MOVING, PAUSE_S, check, find, newest_at, refused
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError, KafkaError, KrustError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from krust import _krust

    Returned = TypeVar("Returned")

STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence"),
)
"""Kafka's states of transactional ids."""
HANGING_AFTER_MS = 900_000
"""transaction.max.timeout.ms by default: a coordinator has ended an older transaction"""
UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, TRANSACTIONAL_ID_NOT_FOUND = 3, 35, 105
_LIST_TRANSACTIONS, _WITH_DURATION = 66, 1
_OF_TRANSACTIONS = 1
"""Kafka's number of the coordinators of transactional ids"""
_BY_ADMINISTRATORS = 1
"""the version of WriteTxnMarkers that Kafka's own tool sends"""
_PARTITIONS_A_REQUEST = 500


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id in the list of its coordinator."""

    transactional_id: str
    state: str
    """one of STATES"""
    producer_id: int
    coordinator: int
    """the broker that coordinates it"""


@dataclass(frozen=True)
class TransactionDescription:
    """A transactional id and its transaction."""

    transactional_id: str
    state: str
    """one of STATES"""
    producer_id: int
    producer_epoch: int
    coordinator: int
    """the broker that coordinates it"""
    timeout_ms: int
    start_ms: int | None
    """when the transaction began; None: there is none"""
    partitions: list[TopicPartition]
    """of the transaction; while it ends, those that have no marker yet"""


@dataclass(frozen=True)
class ProducerState:
    """What a partition keeps of a producer."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """of its last marker; -1: none"""
    last_sequence: int
    last_timestamp_ms: int
    """of its last batch"""
    start_offset: int | None
    """where its open transaction begins; None: it has none"""


@dataclass(frozen=True)
class HangingTransaction:
    """A transaction that a partition holds open and that no coordinator will end."""

    topic: str
    partition: int
    producer: ProducerState


class OpenTransaction(NamedTuple):
    """A transaction that a partition holds open."""

    place: TopicPartition
    producer: ProducerState


class TransactionFilter(NamedTuple):
    """Which transactional ids are listed; empty and None: all.

    open_longer_than_ms  only transactions that began longer ago
    """

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    open_longer_than_ms: int | None = None


class TransactionsClient:
    """The requests, over the connections of a client.

    patience_s  how long a request is repeated while coordinators and leaders move
    """

    def __init__(self, client: _krust.Client, patience_s: float) -> None:
        self._client, self._patience_s = client, patience_s

    def listings(self, chosen: TransactionFilter) -> list[TransactionListing]:
        """The transactional ids of all coordinators, sorted. KafkaError."""
        unknown = set(chosen.states) - set(STATES)
        if unknown:
            raise ConfigError.choice("a transaction's state", STATES, min(unknown))
        found = [
            listing
            for broker in self._client.request("Metadata", {"topics": []})["brokers"]
            for listing in self._patiently(self._listed, int(broker["node_id"]), chosen)
        ]
        return sorted(found, key=lambda each: each.transactional_id)

    def _listed(self, node: int, chosen: TransactionFilter) -> list[TransactionListing]:
        body: dict[str, Any] = {
            "state_filters": list(chosen.states),
            "producer_id_filters": list(chosen.producer_ids),
        }
        if chosen.open_longer_than_ms is not None:
            newest = newest_at(self._client, node, _LIST_TRANSACTIONS, _WITH_DURATION)
            if newest < _WITH_DURATION:
                text = f"broker {node} cannot list transactions by their duration"
                raise refused(UNSUPPORTED_VERSION, text)
            body["duration_filter"] = chosen.open_longer_than_ms
        answer = self._client.request("ListTransactions", body, broker=node)
        check(answer["error_code"], f"transactions of broker {node}")
        return [
            TransactionListing(
                each["transactional_id"], each["transaction_state"], each["producer_id"], node
            )
            for each in answer["transaction_states"]
        ]

    def describe(self, transactional_id: str) -> TransactionDescription:
        """A transactional id. KafkaError: TRANSACTIONAL_ID_NOT_FOUND ..."""
        return self._patiently(self._described, transactional_id)

    def _described(self, transactional_id: str) -> TransactionDescription:
        subject = f"transactional id {transactional_id!r}"
        found = find(self._client, transactional_id, _OF_TRANSACTIONS)
        check(found["error_code"], f"coordinator of {subject}")
        node = int(found["node_id"])
        body = {"transactional_ids": [transactional_id]}
        answer = self._client.request("DescribeTransactions", body, broker=node)
        [described] = answer["transaction_states"]
        check(described["error_code"], subject)
        start_ms = described["transaction_start_time_ms"]
        return TransactionDescription(
            transactional_id,
            described["transaction_state"],
            described["producer_id"],
            described["producer_epoch"],
            node,
            described["transaction_timeout_ms"],
            start_ms if start_ms >= 0 else None,
            sorted(
                TopicPartition(topic["topic"], partition)
                for topic in described["topics"]
                for partition in topic["partitions"]
            ),
        )

    def producers(
        self, places: Collection[TopicPartition], broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The producers of partitions, as their leaders or one broker have them. KafkaError."""
        found: dict[TopicPartition, list[ProducerState]] = {}
        for some in _parts(sorted(places)):
            found |= self._patiently(self._producers, some, broker)
        return found

    def _producers(
        self, places: Sequence[TopicPartition], broker: int | None
    ) -> dict[TopicPartition, list[ProducerState]]:
        asked: dict[int, list[TopicPartition]] = {}
        leaders = {} if broker is not None else self._leaders(places)
        for place in places:
            asked.setdefault(leaders[place] if broker is None else broker, []).append(place)
        found = {}
        for node, some in asked.items():
            body = {"topics": _topics(some, "partition_indexes")}
            for topic in self._client.request("DescribeProducers", body, broker=node)["topics"]:
                for answer in topic["partitions"]:
                    place = TopicPartition(topic["name"], answer["partition_index"])
                    check(answer["error_code"], f"{place.topic}:{place.partition}")
                    found[place] = [_producer(each) for each in answer["active_producers"]]
        return found

    def _leaders(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        names = dict.fromkeys(place.topic for place in places)
        body = {
            "topics": [{"name": name} for name in names],
            "allow_auto_topic_creation": False,
        }
        leaders: dict[TopicPartition, int] = {}
        for topic in self._client.request("Metadata", body)["topics"]:
            check(topic["error_code"], f"topic {topic['name']!r}")
            for partition in topic["partitions"]:
                place = TopicPartition(topic["name"], partition["partition_index"])
                if partition["leader_id"] < 0:
                    check(partition["error_code"], f"{place.topic}:{place.partition}")
                leaders[place] = partition["leader_id"]
        for place in places:
            if place not in leaders:
                raise refused(UNKNOWN_TOPIC_OR_PARTITION, f"{place.topic}:{place.partition}")
        return leaders

    def partitions(self, topics: Sequence[str] | None, broker: int | None) -> list[TopicPartition]:
        """The partitions of topics (None: all, internal ones too) that a broker has (None: all)."""
        asked = None if topics is None else [{"name": name} for name in topics]
        body = {"topics": asked, "allow_auto_topic_creation": False}
        found = []
        for topic in self._client.request("Metadata", body)["topics"]:
            check(topic["error_code"], f"topic {topic['name']!r}")
            found += [
                TopicPartition(topic["name"], partition["partition_index"])
                for partition in topic["partitions"]
                if broker is None or broker in partition["replica_nodes"]
            ]
        return sorted(found)

    def hanging(
        self, places: Collection[TopicPartition], broker: int | None, older_than_ms: int
    ) -> list[HangingTransaction]:
        """The open transactions that no coordinator will end.

        older_than_ms  only those whose last record is older; a transaction that has just begun may
                       be open before its coordinator knows of it
        """
        now_ms = time.time() * 1000
        old = [
            OpenTransaction(place, producer)
            for place, producers in self.producers(places, broker).items()
            for producer in producers
            if producer.start_offset is not None
            and now_ms - producer.last_timestamp_ms > older_than_ms
        ]
        forgotten = self.forgotten(old)
        still = self.producers({each.place for each in forgotten}, broker)
        return [
            HangingTransaction(place.topic, place.partition, producer)
            for place, producer in forgotten
            if any(_is_same(producer, now) for now in still[place])
        ]

    def forgotten(self, opened: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """The transactions that no coordinator has with this partition."""
        if not opened:
            return []
        producer_ids = sorted({each.producer.producer_id for each in opened})
        listed = self.listings(TransactionFilter(producer_ids=producer_ids))
        held: set[tuple[int, TopicPartition]] = set()
        for listing in listed:
            try:
                described = self.describe(listing.transactional_id)
            except KafkaError as error:
                if error.code != TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                continue
            held |= {(listing.producer_id, place) for place in described.partitions}
        return [each for each in opened if (each.producer.producer_id, each.place) not in held]

    def beginning_at(self, place: TopicPartition, start_offset: int) -> OpenTransaction:
        """The open transaction that begins at an offset. KrustError: there is none."""
        opened = [each for each in self.producers([place])[place] if each.start_offset is not None]
        for producer in opened:
            if producer.start_offset == start_offset:
                return OpenTransaction(place, producer)
        starts = ", ".join(str(each.start_offset) for each in opened)
        raise KrustError(
            f"no open transaction of {place.topic}:{place.partition} begins at {start_offset}",
            hint=f"open transactions begin at {starts}" if opened else "no transaction is open",
        )

    def abort(self, opened: OpenTransaction) -> None:
        """Write an abort marker to the leader of the partition. KafkaError."""
        self._patiently(self._abort, opened)

    def _abort(self, opened: OpenTransaction) -> None:
        place, producer = opened
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": _topics([place], "partition_indexes"),
            "coordinator_epoch": max(producer.coordinator_epoch, 0),
        }
        leader = self._leaders([place])[place]
        body = {"markers": [marker]}
        answer = self._client.request("WriteTxnMarkers", body, _BY_ADMINISTRATORS, broker=leader)
        [[[written]]] = [
            [topic["partitions"] for topic in each["topics"]] for each in answer["markers"]
        ]
        check(written["error_code"], f"{place.topic}:{place.partition}")

    def _patiently(self, ask: Callable[..., Returned], *what: object) -> Returned:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return ask(*what)
            except KafkaError as error:
                moves = error.code in MOVING or error.retriable
                absent = error.code == UNKNOWN_TOPIC_OR_PARTITION
                if not moves or absent or time.monotonic() > until:
                    raise
            time.sleep(PAUSE_S)


def _is_same(before: ProducerState, now: ProducerState) -> bool:
    """Whether a producer has the same transaction open."""
    return (before.producer_id, before.start_offset) == (now.producer_id, now.start_offset)


def _producer(answer: Mapping[str, Any]) -> ProducerState:
    start = answer["current_txn_start_offset"]
    return ProducerState(
        answer["producer_id"],
        answer["producer_epoch"],
        answer["coordinator_epoch"],
        answer["last_sequence"],
        answer["last_timestamp"],
        start if start >= 0 else None,
    )


def _topics(places: Iterable[TopicPartition], field: str) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return [{"name": name, field: partitions} for name, partitions in topics.items()]


def _parts(places: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(places), _PARTITIONS_A_REQUEST):
        yield places[start : start + _PARTITIONS_A_REQUEST]
