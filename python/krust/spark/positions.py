"""Where a pipeline begins, has come to, and how much is left: offsets of tables and brokers.

No Spark here: `krust pipeline check` and `status` use it too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from krust import spec
from krust.errors import ConfigError, KrustError
from krust.spark.recipe import Pipeline, begin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust import _krust
    from krust.spark.tables import Offsets

RECORD_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
EARLIEST, LATEST = -2, -1
_UNKNOWN_TOPIC = 3


class Position:
    """Offsets of the topics of a pipeline, as its brokers have them."""

    def __init__(self, pipeline: Pipeline, timeout_ms: int = 10_000) -> None:
        self._pipeline = pipeline
        self._client = client(pipeline, timeout_ms)

    def places(self) -> list[tuple[str, int]]:
        """The partitions there are. KrustError: a topic does not exist."""
        made = self._pipeline
        names = None if made.pattern else [{"name": name} for name in made.topics]
        asked = {"topics": names, "allow_auto_topic_creation": False}
        found = self._client.request("Metadata", asked)["topics"]
        if made.pattern:
            import re

            wanted = re.compile(made.topics[0])
            found = [
                one for one in found if wanted.fullmatch(one["name"]) and not one["is_internal"]
            ]
        for one in found:
            if one["error_code"] == _UNKNOWN_TOPIC:
                raise KrustError(
                    f'topic "{one["name"]}" does not exist on {made.bootstrap}',
                    hint=f"create it: krust topic create {one['name']}",
                )
        return sorted(
            (one["name"], partition["partition_index"])
            for one in found
            for partition in one["partitions"]
        )

    def at(self, places: Iterable[tuple[str, int]], moment: int) -> dict[tuple[str, int], int]:
        """An offset of each partition: -1 the end, -2 the start, or by a time in ms (-1: none)."""
        moments = [(topic, partition, moment) for topic, partition in places]
        found = self._client.list_offsets(moments, read_committed=committed_only(self._pipeline))
        return {(topic, partition): offset for topic, partition, _, offset, _ in found}


def committed_only(pipeline: Pipeline) -> bool:
    """Whether records of open transactions are left out."""
    options = {name.lower(): value for name, value in pipeline.source_options.items()}
    return options.get("kafka.isolation.level", "") == "read_committed"


def client(pipeline: Pipeline, timeout_ms: int) -> _krust.Client:
    """A client for questions to a pipeline's brokers."""
    from krust import _krust

    if not pipeline.bootstrap:
        raise ConfigError("no broker is named", hint='[source] bootstrap = "localhost:9092", or -b')
    security = pipeline.source_options.get("kafka.security.protocol", "PLAINTEXT")
    options: dict[str, object] = {"request.timeout.ms": timeout_ms, "security.protocol": security}
    options["socket.connection.setup.timeout.ms"] = timeout_ms
    return _krust.Client(pipeline.bootstrap, options)


def starting(pipeline: Pipeline, known: Offsets) -> dict[str, str]:
    """The source's options for a new checkpoint.

    known   what the table has: there it goes on, whatever `since` says
    """
    place = begin(pipeline.since)
    if not known and place == spec.START:
        return {"startingOffsets": "earliest"}
    if not known and place == spec.END:
        return {"startingOffsets": "latest"}
    position = Position(pipeline)
    places = position.places()
    starts, ends = position.at(places, EARLIEST), position.at(places, LATEST)
    by_time = {time: position.at(places, time) for time in place.times()}
    chosen: dict[str, dict[str, int]] = {}
    for one in places:
        topic, partition = one
        table = known.get(topic, {}).get(str(partition))
        if table is None:
            moments = {time: found[one] for time, found in by_time.items()}
            first, _ = place.resolve(starts[one], ends[one], moments)
            table = EARLIEST if known and topic in known else first
        chosen.setdefault(topic, {})[str(partition)] = table
    return {"startingOffsets": json.dumps(chosen)}


@dataclass(frozen=True)
class Lag:
    """How far one partition has come. `start` is the first offset that the broker still has."""

    topic: str
    partition: int
    start: int
    reached: int | None
    end: int

    @property
    def records(self) -> int:
        """Offsets that are still to be read."""
        first = self.start if self.reached is None else max(self.start, self.reached)
        return max(0, self.end - first)


def lags(position: Position, reached: Offsets) -> list[Lag]:
    """Each partition of a pipeline, in order."""
    places = position.places()
    starts, ends = position.at(places, EARLIEST), position.at(places, LATEST)
    found: list[Any] = []
    for topic, partition in places:
        done = reached.get(topic, {}).get(str(partition))
        place = (topic, partition)
        found.append(Lag(topic, partition, starts[place], done, ends[place]))
    return found
