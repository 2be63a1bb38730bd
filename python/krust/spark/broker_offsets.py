"""Reads offsets of topics from brokers: Metadata, ListOffsets, DescribeLogDirs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from krust.errors import KafkaError, KrustError
from krust.spark.client_options import common_options
from krust.spark.errors import LOG
from krust.spark.offset_reader import UNKNOWN_TOPIC, OffsetReader, bytes_per_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.spark.plan import EndOffsets, Offsets, TopicPartition


class BrokerOffsetReader(OffsetReader):
    """The brokers that the options name."""

    @property
    def where(self) -> str:
        """Their addresses."""
        return self._source.bootstrap

    @cached_property
    def _client(self) -> Any:
        from krust import _krust

        return _krust.Client(self._source.bootstrap, common_options(self._source.client))

    def bytes_per_offset(
        self, spans: Mapping[TopicPartition, EndOffsets]
    ) -> dict[TopicPartition, float]:
        """By DescribeLogDirs."""
        sizes: dict[TopicPartition, int] = {}
        for broker in self._client.request("Metadata", {"topics": []})["brokers"]:
            topics: dict[str, list[int]] = {}
            for topic, partition in spans:
                topics.setdefault(topic, []).append(partition)
            wanted = [{"topic": name, "partitions": ps} for name, ps in topics.items()]
            try:
                answer = self._client.request(
                    "DescribeLogDirs", {"topics": wanted}, broker=broker["node_id"]
                )
            except KrustError as error:
                LOG.warning("Sizes of partitions are guessed: %s", error)
                continue
            for directory in answer["results"]:
                for topic in directory["topics"]:
                    for one in topic["partitions"]:
                        place = (topic["name"], one["partition_index"])
                        sizes[place] = max(sizes.get(place, 0), one["partition_size"])
        return bytes_per_offset(spans, sizes)

    def _partitions(self, topics: Iterable[str] | None) -> tuple[list[TopicPartition], set[str]]:
        wanted = None if topics is None else [{"name": name} for name in sorted(set(topics))]
        body = {"topics": wanted, "allow_auto_topic_creation": False}
        found, missing = [], set()
        for topic in self._client.request("Metadata", body)["topics"]:
            if topic["error_code"] == UNKNOWN_TOPIC:
                missing.add(topic["name"])
            elif topic["error_code"]:
                raise _refused(topic["error_code"], f"topic {topic['name']!r}")
            elif topics is not None or not topic["is_internal"]:
                found += [(topic["name"], one["partition_index"]) for one in topic["partitions"]]
        return sorted(found), missing

    def _at(self, moments: list[tuple[str, int, int]]) -> Offsets:
        if not moments:
            return {}
        committed = self._source.read_committed
        answers = self._client.list_offsets(moments, read_committed=committed)
        return {(topic, partition): offset for topic, partition, _, offset, _ in answers}

    def _forget(self) -> None:
        self.__dict__.pop("_client", None)


def _refused(code: int, subject: str) -> KafkaError:
    from krust.clients.coordinator_client import refused

    return refused(code, subject)
