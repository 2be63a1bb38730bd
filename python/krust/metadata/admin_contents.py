"""The contents of znodes by which tools and brokers ask the controller for something.

As `contents.py`: Kafka 3.9's compact JSON; `decode` raises BadZnodeError with the reason.
"""

from __future__ import annotations

from krust.metadata.json_fields import BadZnodeError, JsonFields, brokers, encode
from krust.named_tuple import NamedTuple


class Partitions(NamedTuple):
    """`/admin/preferred_replica_election`, `/isr_change_notification/...`: partitions."""

    partitions: tuple[tuple[str, int], ...]

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        listed = [{"topic": topic, "partition": index} for topic, index in self.partitions]
        return encode({"version": 1, "partitions": listed})

    @staticmethod
    def decode(data: bytes) -> Partitions:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version(1)
        found = fields.rows("partitions")
        return Partitions(tuple((row.filled("topic"), row.natural("partition")) for row in found))


class Reassignment(NamedTuple):
    """`/admin/reassign_partitions`: topic, partition and its new replicas."""

    partitions: tuple[tuple[str, int, tuple[int, ...]], ...]

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        listed = [
            {"topic": topic, "partition": index, "replicas": list(replicas)}
            for topic, index, replicas in self.partitions
        ]
        return encode({"version": 1, "partitions": listed})

    @staticmethod
    def decode(data: bytes) -> Reassignment:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version(1)
        return Reassignment(
            tuple(
                (
                    row.filled("topic"),
                    row.natural("partition"),
                    brokers(row.value("replicas"), "replicas"),
                )
                for row in fields.rows("partitions")
            )
        )


class LogDirEvent(NamedTuple):
    """`/log_dir_event_notification/log_dir_event_N`: a log directory of a broker failed."""

    broker: int

    def encode(self) -> bytes:
        """Encode it as Kafka 3.9 does."""
        return encode({"version": 1, "broker": self.broker, "event": 1})

    @staticmethod
    def decode(data: bytes) -> LogDirEvent:
        """Decode it. BadZnodeError: the bytes are invalid."""
        fields = JsonFields(data)
        fields.version(1)
        if fields.whole("event") != 1:
            raise BadZnodeError("it is another event than 1")
        return LogDirEvent(fields.broker("broker"))
