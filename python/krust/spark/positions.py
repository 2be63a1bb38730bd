"""The start, the position and the lag of a pipeline, from offsets of tables and brokers.

It needs no Spark: `krust pipeline check` and `status` use it too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krust import offset_range
from krust.errors import ConfigError, KrustError
from krust.spark import options
from krust.spark.plan import EARLIEST, EndOffsets, TopicPartition, from_json, to_json
from krust.spark.planner import offset_reader
from krust.spark.recipe import Pipeline, begin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.spark.table import Offsets


class Position:
    """The offsets of a pipeline's topics on the brokers."""

    def __init__(self, pipeline: Pipeline, timeout_ms: int = 10_000) -> None:
        if not pipeline.bootstrap:
            hint = '[source] bootstrap = "localhost:9092", or -b'
            raise ConfigError("no broker is named", hint=hint)
        self._where = pipeline.bootstrap
        given = {name: str(value) for name, value in source_options(pipeline).items()}
        given |= {"kafka.request.timeout.ms": str(timeout_ms), "fetchOffset.numRetries": "1"}
        given["kafka.socket.connection.setup.timeout.ms"] = str(timeout_ms)
        self._offset_reader = offset_reader(options.source(given, options.STREAM))

    def spans(self) -> dict[TopicPartition, EndOffsets]:
        """The offsets of each partition, sorted. KrustError: a topic does not exist."""
        found, missing = self._offset_reader.survey()
        for name in sorted(missing):
            raise KrustError(
                f'topic "{name}" does not exist on {self._where}',
                hint=f"create it: krust topic create {name}",
            )
        return dict(sorted(found.items()))

    def at(self, places: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """The first offset of each partition at or after a time; -1: none."""
        return self._offset_reader.at([(*place, time_ms) for place in places])


def source_options(pipeline: Pipeline) -> dict[str, str]:
    """The options of `format("krust")` for a pipeline's source."""
    found = {"kafka.bootstrap.servers": pipeline.bootstrap}
    found["subscribePattern" if pipeline.pattern else "subscribe"] = ",".join(pipeline.topics)
    return found | dict(pipeline.source_options)


def starting(pipeline: Pipeline, known: Offsets) -> dict[str, str]:
    """The source's options for a new checkpoint.

    known   the table's offsets, where it continues, regardless of `since`
    """
    place = begin(pipeline.since)
    if not known and place == offset_range.START:
        return {"startingOffsets": "earliest"}
    if not known and place == offset_range.END:
        return {"startingOffsets": "latest"}
    position = Position(pipeline)
    spans, table = position.spans(), from_json(known)
    by_time = {time: position.at(spans, time) for time in place.times()}
    chosen: dict[TopicPartition, int] = {}
    for one, span in spans.items():
        moments = {time: found[one] for time, found in by_time.items()}
        first, _ = place.resolve(span.earliest, span.latest, moments)
        chosen[one] = table.get(one, EARLIEST if one[0] in known else first)
    return {"startingOffsets": json.dumps(to_json(chosen))}


@dataclass(frozen=True)
class Lag:
    """The lag of one partition. `start` is the broker's first offset."""

    topic: str
    partition: int
    start: int
    reached: int | None
    end: int

    @property
    def records(self) -> int:
        """The offsets to read."""
        first = self.start if self.reached is None else max(self.start, self.reached)
        return max(0, self.end - first)


def lags(position: Position, reached: Offsets) -> list[Lag]:
    """The lag of each partition of a pipeline, sorted."""
    done = from_json(reached)
    return [
        Lag(*place, span.earliest, done.get(place), span.latest)
        for place, span in position.spans().items()
    ]
