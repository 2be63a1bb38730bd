"""The contents of znodes: a type for each, with its codec.

Format: compact JSON with the keys in the order of Kafka 3.9. Numbers that Kafka writes as strings
are strings here too (`tests/data/znodes-3.9.1.json`). As in Kafka, the decoder accepts keys in any
order and ignores unknown ones. It reads every older version that a Kafka has written.

The bytes may come from any client of the ZooKeeper. `decode` returns a value whose fields have
their types and bounds, or raises BadZnodeError with the reason.
Not checked: whether a value is consistent with other nodes.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from krust.metadata.json_fields import (
    BadZnodeError,
    JsonFields,
    brokers,
    by_partition,
    encode,
    whole,
)
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT = 2**31
_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z", re.ASCII)
_ENDPOINT = r"([^:/\s]+)://(?:\[([^\]\s]*)\]|([^:\s]*)):([0-9]{1,5})\Z"
_OWN = "krust"
"""The key of what krust adds to a node of Kafka's, which Kafka leaves alone."""
NO_ID = ""
"""the id of a topic that was created before topics had ids"""


ASSUMED = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""The settings of a topic whose settings are not known: nothing is deleted."""


class ClusterId(NamedTuple):
    """`/cluster/id`."""

    id: str

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        return encode({"version": "1", "id": self.id})

    @staticmethod
    def decode(data: bytes) -> ClusterId:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version_text("1")
        return ClusterId(fields.filled("id"))


class ControllerRegistration(NamedTuple):
    """`/controller`: the controller, and since when."""

    broker: int
    timestamp_ms: int

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        head = {"version": 2, "brokerid": self.broker, "timestamp": str(self.timestamp_ms)}
        return encode({**head, "kraftControllerEpoch": -1})

    @staticmethod
    def decode(data: bytes) -> ControllerRegistration:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version(1, 2)
        return ControllerRegistration(fields.broker("brokerid"), fields.long_text("timestamp", 0))


class Endpoint(NamedTuple):
    """An advertised listener of a broker."""

    listener: str
    protocol: str
    host: str
    port: int


class BrokerRegistration(NamedTuple):
    """`/brokers/ids/N`; versions 1 to 5 are read, 5 is written.

    features    of which versions, from and to
    kept_epoch  the broker still has all records of its registrations from this epoch on; -1: it may
                have lost some. Only krust writes it, and Kafka leaves it alone; None: it is not
                there
    """

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    features: tuple[tuple[str, int, int], ...] = ()
    jmx_port: int = -1
    kept_epoch: int | None = None

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        plain = [each for each in self.endpoints if each.protocol == "PLAINTEXT"]
        features = {
            name: {"min_version": low, "max_version": high} for name, low, high in self.features
        }
        fields: dict[str, Any] = {
            "features": features,
            "listener_security_protocol_map": {
                each.listener: each.protocol for each in self.endpoints
            },
            "endpoints": [
                f"{each.listener}://{_bracketed(each.host)}:{each.port}" for each in self.endpoints
            ],
            "jmx_port": self.jmx_port,
            "port": plain[0].port if plain else -1,
            "host": plain[0].host if plain else None,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        own = {} if self.kept_epoch is None else {_OWN: {"kept_epoch": self.kept_epoch}}
        return encode({**({"rack": self.rack} if self.rack else {}), **fields, **own})

    @staticmethod
    def decode(data: bytes) -> BrokerRegistration:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        version = fields.version(1, 2, 3, 4, 5)
        if version == 1:
            at = Endpoint("PLAINTEXT", "PLAINTEXT", fields.filled("host"), fields.port("port"))
            endpoints: tuple[Endpoint, ...] = (at,)
        else:
            protocols = JsonFields.of(fields.mapping("listener_security_protocol_map", {}))
            endpoints = tuple(
                _endpoint(text, protocols) for text in fields.texts("endpoints") if text
            )
        if not endpoints:
            raise BadZnodeError("it has no endpoint")
        features = []
        for name, value in fields.mapping("features", {}).items():
            span = JsonFields.of(value)
            features.append((name, span.whole("min_version"), span.whole("max_version")))
        rack = fields.text("rack") if fields.has("rack") else None
        stamp = fields.long_text("timestamp", 0)
        jmx_port, kept = fields.whole("jmx_port", -1), None
        if fields.has(_OWN):
            own = JsonFields.of(fields.value(_OWN))
            kept = own.long("kept_epoch", -1)
        return BrokerRegistration(endpoints, rack or None, stamp, tuple(features), jmx_port, kept)


class TopicAssignment(NamedTuple):
    """`/brokers/topics/T`: a topic's id and replicas, by partition; versions 1 to 3."""

    replicas: tuple[tuple[int, ...], ...]
    topic_id: str = NO_ID
    adding: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(partition, brokers that will get a replica)"""
    removing: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(partition, brokers that will lose their replica)"""

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        fields: dict[str, Any] = {
            "partitions": {str(index): list(each) for index, each in enumerate(self.replicas)}
        }
        if self.topic_id:
            fields["topic_id"] = self.topic_id
        fields["adding_replicas"] = {str(index): list(each) for index, each in self.adding}
        fields["removing_replicas"] = {str(index): list(each) for index, each in self.removing}
        return encode({**fields, "version": 3})

    @staticmethod
    def decode(data: bytes) -> TopicAssignment:
        """Decode it. BadZnodeError: the bytes are invalid."""
        return TopicAssignment.of(TopicAssignment.parse(data))

    @staticmethod
    def parse(data: bytes) -> JsonFields:
        """The first half of `decode`: with 3,000 partitions, each half takes 1 ms."""
        return JsonFields(data)

    @staticmethod
    def of(fields: JsonFields) -> TopicAssignment:
        """The second half of `decode`. BadZnodeError: the fields are invalid."""
        fields.version(1, 2, 3)
        replicas = _of_all_partitions(fields.mapping("partitions"))
        if not replicas or not all(replicas):
            raise BadZnodeError("a partition has no replica, or there is no partition")
        changes = []
        for name in ("adding_replicas", "removing_replicas"):
            found = by_partition(fields.mapping(name, {}))
            if max(found, default=0) >= len(replicas):
                raise BadZnodeError(f"{name} names partitions that there are not")
            changes.append(tuple(sorted(found.items())))
        topic_id = fields.text("topic_id") if fields.has("topic_id") else NO_ID
        if topic_id != NO_ID and _ID.match(topic_id) is None:
            raise BadZnodeError(f"{topic_id[:40]!r} is no topic id")
        return TopicAssignment(replicas, topic_id, changes[0], changes[1])


class PartitionState(NamedTuple):
    """`/brokers/topics/T/partitions/P/state`: the leader and the ISR.

    elr, lossy  as in `controller/leaders.py`. Only krust writes them, where there are any; a Kafka
                that writes the state leaves them out
    """

    controller_epoch: int
    leader: int
    """-1: none"""
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    lossy: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        head = {"controller_epoch": self.controller_epoch, "leader": self.leader, "version": 1}
        rows = {"elr": list(self.elr), "lossy": list(self.lossy)} if self.elr or self.lossy else {}
        own = {_OWN: rows} if rows else {}
        rest = {"leader_epoch": self.leader_epoch, "isr": list(self.isr), **own}
        return encode({**head, **rest})

    @staticmethod
    def decode(data: bytes) -> PartitionState:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version(1)
        leader = fields.whole("leader")
        if leader < -2:
            raise BadZnodeError(f"leader is {leader}")
        elr: tuple[int, ...] = ()
        lossy: tuple[int, ...] = ()
        if fields.has(_OWN):
            own = JsonFields.of(fields.mapping(_OWN))
            elr = brokers(own.value("elr", []), "elr")
            lossy = brokers(own.value("lossy", []), "lossy")
        isr = brokers(fields.value("isr"), "isr")
        epochs = fields.natural("controller_epoch"), fields.natural("leader_epoch")
        return PartitionState(epochs[0], leader, epochs[1], isr, elr, lossy)


class EntityConfig(NamedTuple):
    """`/config/...`: the settings of a topic, a broker, a client or a user."""

    config: Mapping[str, str]

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        return encode({"version": 1, "config": dict(self.config)})

    @staticmethod
    def decode(data: bytes) -> EntityConfig:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        if fields.empty:
            return EntityConfig({})
        fields.version(1)
        config = fields.mapping("config")
        if not all(isinstance(text, str) for text in config.values()):
            raise BadZnodeError("a setting is no text")
        return EntityConfig(config)


class ConfigChange(NamedTuple):
    """`/config/changes/config_change_N`: whose settings changed; versions 1 and 2.

    path   `topics/orders`, `users/carl%20x/clients/<default>`: names as in URLs
    """

    path: str

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        return encode({"version": 2, "entity_path": self.path})

    @staticmethod
    def decode(data: bytes) -> ConfigChange:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        if fields.version(1, 2) == 2:
            return ConfigChange(fields.filled("entity_path"))
        return ConfigChange(f"{fields.filled('entity_type')}/{fields.filled('entity_name')}")


class ProducerIds(NamedTuple):
    """`/latest_producer_id_block`: the block `first..=last` is `broker`'s."""

    broker: int
    first: int
    last: int

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        block = {"block_start": str(self.first), "block_end": str(self.last)}
        return encode({"version": 1, "broker": self.broker, **block})

    @staticmethod
    def decode(data: bytes) -> ProducerIds | None:
        """Decode it; None: no block was given out yet. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        if fields.empty:
            return None
        fields.version(1)
        first, last = fields.long_text("block_start"), fields.long_text("block_end")
        if not 0 <= first <= last:
            raise BadZnodeError(f"its block is {first} to {last}")
        return ProducerIds(fields.broker("broker"), first, last)


class Features(NamedTuple):
    """`/feature`: the features of the cluster, with their levels."""

    levels: Mapping[str, int]
    enabled: bool = True

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        fields: dict[str, Any] = {"features": dict(self.levels), "version": 2}
        return encode({**fields, "status": int(self.enabled)})

    @staticmethod
    def decode(data: bytes) -> Features:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        version = fields.version(1, 2)
        status = fields.whole("status")
        if status not in (0, 1):
            raise BadZnodeError(f"status is {status}")
        levels = fields.mapping("features", {})
        if version == 1:  # {"name": {"min_version_level": 1, "max_version_level": 3}}
            each = {name: JsonFields.of(value) for name, value in levels.items()}
            levels = {name: value.value("max_version_level") for name, value in each.items()}
        return Features({name: whole(value, name) for name, value in levels.items()}, status == 1)


class ConsumerRegistration(NamedTuple):
    """`/consumers/G/ids/ID`: the topics of an old consumer, and its threads for each.

    subscription   topic or pattern -> threads
    pattern        static, white_list or black_list: the kind of the subscription's names
    """

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        head = {"version": 1, "subscription": dict(self.subscription), "pattern": self.pattern}
        return encode({**head, "timestamp": str(self.timestamp_ms)})

    @staticmethod
    def decode(data: bytes) -> ConsumerRegistration:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version(1)
        counts = fields.mapping("subscription")
        pattern = fields.text("pattern")
        if pattern not in ("static", "white_list", "black_list"):
            raise BadZnodeError(f"pattern is {pattern[:100]!r}")
        subscription = {name: whole(count, name) for name, count in counts.items()}
        return ConsumerRegistration(subscription, pattern, fields.long_text("timestamp", 0))


def _of_all_partitions(value: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """The replicas of partition 0, 1 and so on: the keys are these numbers and no others."""
    numbers = list(map(str, range(len(value))))
    if list(value) != numbers:
        if value.keys() != set(numbers):
            by_partition(value)
            raise BadZnodeError(f"its {len(value)} partitions are not numbered from 0")
        value = {number: value[number] for number in numbers}
    found = _all_brokers(list(value.values()))
    if found is not None:
        return found
    return tuple(brokers(each, f"partition {number}") for number, each in value.items())


def _all_brokers(lists: list[Any]) -> tuple[tuple[int, ...], ...] | None:
    """The same as `brokers` of each list, without a call for each; None: one is invalid.

    Most partitions of a topic have the same few sets of replicas: each is checked once.
    """
    if set(map(type, lists)) != {list} or set(map(type, chain.from_iterable(lists))) != {int}:
        return None
    replicas = tuple(map(tuple, lists))
    for each in set(replicas):
        if len(set(each)) < len(each) or not all(0 <= broker < _INT for broker in each):
            return None
    return replicas


def _endpoint(text: str, protocols: JsonFields) -> Endpoint:
    found = re.match(_ENDPOINT, text, re.ASCII)
    if found is None or int(found[4]) > 65535:
        raise BadZnodeError(f"{text[:100]!r} is no endpoint")
    listener = found[1]
    protocol = protocols.text(listener) if protocols.has(listener) else listener
    return Endpoint(
        listener, protocol, found[2] if found[2] is not None else found[3], int(found[4])
    )


def _bracketed(host: str) -> str:
    """A host, in brackets if it is an IPv6 address."""
    return f"[{host}]" if ":" in host else host
