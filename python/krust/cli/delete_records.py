"""`krust topic delete-records`: deletes the records before an offset of each partition.

The offsets are arguments, TOPIC:PARTITION:OFFSET, or in the JSON file that Kafka's
`kafka-delete-records.sh --offset-json-file` reads:
{"partitions": [{"topic": "orders", "partition": 0, "offset": 100}], "version": 1}. `end` and -1
stand for all records. Consumers cannot read deleted records; the bytes are deleted with their
segments.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.errors import KrustError
from krust.named_tuple import NamedTuple
from krust.quantities import counted

if TYPE_CHECKING:
    from krust import _krust
    from krust.cli.options import Options

END = -1


class DeletedRange(NamedTuple):
    """The records of a partition before `offset`; END: all."""

    topic: str
    partition: int
    offset: int


@click.command("delete-records")
@click.argument(
    "places", metavar="TOPIC:PARTITION:OFFSET...", nargs=-1, shell_complete=completion.topics
)
@click.option(
    "--file", type=click.Path(path_type=Path), help="Read more of them from Kafka's JSON file."
)
@shared.client
@click.pass_obj
def delete_records(options: Options, places: tuple[str, ...], file: Path | None) -> None:
    """Delete records before an offset (end: all). Asks first on a terminal unless --yes."""
    cuts = [*map(_read, places), *([] if file is None else _read_file(file))]
    if not cuts:
        raise click.UsageError("nothing to delete; give TOPIC:PARTITION:OFFSET, or --file")
    twice = {cut[:2] for cut in cuts if sum(cut[:2] == other[:2] for other in cuts) > 1}
    if twice:
        topic, partition = min(twice)
        raise click.UsageError(f"{topic}:{partition} is named twice")
    session.confirm(options, f"Delete records of {counted(len(cuts), 'partition')}?")
    asked = session.client(options)
    many = session.ItemResults(len(cuts))
    rows: list[dict[str, object]] = []
    for topic in dict.fromkeys(cut.topic for cut in cuts):
        wanted = [cut for cut in cuts if cut.topic == topic]
        try:
            answers = _ask(asked, options, topic, wanted)
        except KrustError as error:
            answers = [error] * len(wanted)
        for cut, answer in zip(wanted, answers, strict=True):
            with many.item():
                if isinstance(answer, Exception):
                    raise answer
                session.check(answer, f"{cut.topic}:{cut.partition}")
                place = {"topic": cut.topic, "partition": cut.partition}
                rows.append({**place, "start_offset": answer["low_watermark"]})
    if rows:
        output.rows(options, ("topic", "partition", "start_offset"), rows)
    many.raise_failure()


def _ask(asked: _krust.Client, options: Options, topic: str, cuts: list[DeletedRange]) -> list[Any]:
    """The responses of the leaders, or the error of a partition without a leader."""
    described = session.topics(asked, [topic], options.bootstrap)[topic]
    leader = {one["partition_index"]: one["leader_id"] for one in described["partitions"]}
    found: dict[int, Any] = {}
    for node in sorted({leader.get(cut.partition, -1) for cut in cuts} - {-1}):
        wanted = [
            {"partition_index": cut.partition, "offset": cut.offset}
            for cut in cuts
            if leader.get(cut.partition) == node
        ]
        body = {
            "topics": [{"name": topic, "partitions": wanted}],
            "timeout_ms": options.timeout_ms,
        }
        for answered in asked.request("DeleteRecords", body, broker=node)["topics"]:
            found |= {one["partition_index"]: one for one in answered["partitions"]}
    unled = {
        cut.partition: session.refused(
            session.LEADER_NOT_AVAILABLE if cut.partition in leader else session.UNKNOWN_TOPIC,
            f"{topic}:{cut.partition}: "
            + ("it has no leader" if cut.partition in leader else "there is no such partition"),
            hint=f"what there is: krust topic describe {topic}",
        )
        for cut in cuts
        if cut.partition not in found
    }
    return [found.get(cut.partition, unled.get(cut.partition)) for cut in cuts]


def _read(text: str) -> DeletedRange:
    """Read TOPIC:PARTITION:OFFSET."""
    topic, _, rest = text.partition(":")
    partition, colon, offset = rest.partition(":")
    known = offset.isdecimal() or offset in ("end", str(END))
    if not (topic and colon and partition.isdecimal() and known):
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION:OFFSET; write orders:0:100")
    return DeletedRange(topic, int(partition), int(offset) if offset.isdecimal() else END)


def _read_file(file: Path) -> list[DeletedRange]:
    """Read the JSON file of Kafka's tool."""
    try:
        content = json.loads(file.read_bytes())
        cuts = [
            DeletedRange(one["topic"], one["partition"], one["offset"])
            for one in content["partitions"]
        ]
        version = content.get("version", 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise click.BadParameter(f"{file}: {_why(error)}", param_hint="--file") from None
    whole = all(
        isinstance(topic, str)
        and all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
        and numbers[0] >= 0
        and numbers[1] >= END
        for topic, *numbers in cuts
    )
    if version != 1 or not whole:
        words = "it is not a list of topic, partition and offset in version 1"
        raise click.BadParameter(f"{file}: {words}", param_hint="--file")
    return cuts


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    return f"no JSON of Kafka's ({type(error).__name__}: {error})"
