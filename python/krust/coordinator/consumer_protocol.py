"""The subscriptions and assignments that consumers exchange through JoinGroup and SyncGroup.

Format: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, v0-3: an int16 version,
then fields of fixed layout, big-endian, never compact. As in Kafka:
    a version above 3 is read as 3, and bytes behind the known fields are ignored
    v1 adds the owned partitions, v2 their generation, v3 the rack
Limits: a count is accepted only if that many of the smallest possible elements fit into the rest of
the bytes, so n bytes never cost more than a small multiple of n.
Not promised: that bytes of another protocol type can be read. The caller checks the type.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PROTOCOL_TYPE = "consumer"
NEWEST = 3
_MOST_TEXT = 32_767
_INT32 = range(-(2**31), 2**31)


class TopicPartition(NamedTuple):
    """One partition of one topic; compares equal to a plain `(topic, partition)`."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member sends with JoinGroup.

    owned       the partitions that it has and wants to keep; empty before v1
    generation  the generation of `owned`; -1: not known (before v2, or it never had one)
    rack        None: not known (before v3, or it has none)
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    version: int = NEWEST


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member receives with SyncGroup."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    version: int = NEWEST


def read_subscription(data: bytes) -> Subscription:
    """The subscription in a member's metadata.

    raises  ValueError: cut short, an impossible count, text that is no UTF-8, a negative version
    """
    reader = _ByteReader(data, "subscription")
    version = reader.version()
    topics = tuple(reader.text() for _ in range(reader.count(2, "topics")))
    user_data = reader.blob()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.number(">i", "generation") if version >= 2 else -1
    rack = reader.text_or_none() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, rack, version)


def read_assignment(data: bytes) -> Assignment:
    """The assignment of a member. No bytes stand for no partitions, as in SyncGroup.

    raises  ValueError: as `read_subscription`
    """
    if not data:
        return Assignment(())
    reader = _ByteReader(data, "assignment")
    version = reader.version()
    return Assignment(reader.partitions(), reader.blob(), version)


def write_subscription(subscription: Subscription) -> bytes:
    """The bytes of a subscription at its own version; fields of later versions are left out.

    raises  ValueError: a version that is not 0-3, a text or number that does not fit its field
    """
    version = _written(subscription.version)
    parts = [struct.pack(">hi", version, len(subscription.topics))]
    parts += map(_text, subscription.topics)
    parts.append(_blob(subscription.user_data))
    if version >= 1:
        parts += _partitions(subscription.owned)
    if version >= 2:
        parts.append(_int32(subscription.generation))
    if version >= 3:
        rack = subscription.rack
        parts.append(struct.pack(">h", -1) if rack is None else _text(rack))
    return b"".join(parts)


def write_assignment(assignment: Assignment) -> bytes:
    """The bytes of an assignment, grouped by topic, in the order given.

    raises  ValueError: as `write_subscription`
    """
    head = struct.pack(">h", _written(assignment.version))
    return head + b"".join(_partitions(assignment.partitions)) + _blob(assignment.user_data)


class _ByteReader:
    """A cursor over bytes from a client."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = bytes(data)
        self._at = 0
        self._what = what

    def version(self) -> int:
        """The version to read with: a newer version is read as the newest known one."""
        version = self.number(">h", "version")
        if version < 0:
            raise self._wrong(f"version {version}")
        return min(version, NEWEST)

    def number(self, form: str, field: str) -> int:
        """One integer."""
        (value,) = struct.unpack(form, self._take(struct.calcsize(form), field))
        return int(value)

    def count(self, smallest: int, field: str) -> int:
        """The length of an array whose elements take `smallest` bytes or more."""
        count = self.number(">i", f"number of {field}")
        left = len(self._data) - self._at
        if count < 0 or count * smallest > left:
            raise self._wrong(f"{count} {field} in {left} bytes")
        return count

    def text(self) -> str:
        """A string that must be there."""
        text = self.text_or_none()
        if text is None:
            raise self._wrong("a null string")
        return text

    def text_or_none(self) -> str | None:
        """A string, or null."""
        length = self.number(">h", "length of a string")
        if length < 0:
            if length == -1:
                return None
            raise self._wrong(f"a string of {length} bytes")
        try:
            return self._take(length, "string").decode()
        except UnicodeDecodeError as error:
            raise self._wrong("a string that is no UTF-8") from error

    def blob(self) -> bytes | None:
        """Bytes, or null."""
        length = self.number(">i", "length of user data")
        if length < 0:
            if length == -1:
                return None
            raise self._wrong(f"user data of {length} bytes")
        return self._take(length, "user data")

    def partitions(self) -> tuple[TopicPartition, ...]:
        """An array of topics, each with an array of partitions."""
        found: list[TopicPartition] = []
        for _ in range(self.count(6, "topics")):
            topic = self.text()
            count = self.count(4, "partitions")
            numbers = struct.unpack(f">{count}i", self._take(4 * count, "partitions"))
            found += [TopicPartition(topic, number) for number in numbers]
        return tuple(found)

    def _take(self, length: int, field: str) -> bytes:
        end = self._at + length
        if end > len(self._data):
            left = len(self._data) - self._at
            raise self._wrong(f"{field} takes {length} bytes, {left} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _wrong(self, why: str) -> ValueError:
        return ValueError(f"bad consumer {self._what} of {len(self._data)} bytes: {why}")


def _written(version: int) -> int:
    if not 0 <= version <= NEWEST:
        raise ValueError(f"there is no version {version} of the consumer protocol; 0-{NEWEST} are")
    return version


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _MOST_TEXT:
        raise ValueError(f"a string of {len(encoded)} bytes; {_MOST_TEXT} fit")
    return struct.pack(">h", len(encoded)) + encoded


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _int32(number: int) -> bytes:
    if number not in _INT32:
        raise ValueError(f"{number} does not fit 32 bits")
    return struct.pack(">i", number)


def _partitions(partitions: Iterable[TopicPartition]) -> list[bytes]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_text(topic), struct.pack(">i", len(numbers)), *map(_int32, numbers)]
    return parts
