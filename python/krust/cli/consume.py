r"""`krust consume`: records of topics on stdout.

Bytes leave as they came; notes and errors go to stderr. With `--output json` or `ndjson`, one JSON
object a line. Ends at `-n` records, at the end of the range, or with `-e` where the log ended when
the command began; otherwise it waits for more.
"""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from krust import _krust, spec
from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.records import DECODERS, FormatError, Record, formatter, to_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krust.cli.options import Options
LATEST, EARLIEST = -1, -2
_META = "%t %p %o %d{iso} key=%K value=%V headers=%H\\n"


@click.command(no_args_is_help=True)
@click.argument("names", metavar="TOPIC[:PARTITIONS]...", nargs=-1, required=True)
@click.option(
    "-o", "--offset", "where", default="start", metavar="SPEC", show_default=True,
    help="start, end, 10, +3, -3, 10:20, :end, @-1h:end, @2026-11-01.",
)  # fmt: skip
@click.option("-n", "--num", type=click.IntRange(0), help="Stop after so many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop where the log ends now.")
@click.option("-p", "--partitions", metavar="0,2,5-7", help="Only these partitions.")
@click.option("-f", "--format", "form", default=r"%v\n", show_default=True, help="See below.")
@click.option("--key", "key", type=click.Choice(DECODERS), default="string", help="How to show.")
@click.option("--value", "value", type=click.Choice(DECODERS), default="string")
@click.option("--grep", metavar="RE", help="Only where key or value match.")
@click.option("--meta-only", is_flag=True, help="Sizes and places, no keys and values.")
@click.option("--read-committed", is_flag=True, help="Nothing of open or aborted transactions.")
@shared.client
@click.pass_obj
def command(options: Options, /, names: tuple[str, ...], **how: Any) -> None:
    r"""Print records of topics.

    \b
    Verbs of -f:
      %t topic  %p partition  %o offset  %k key  %v value  %d timestamp  %i counter
      %T %K %V  lengths in bytes   %H number of headers   %h{%k=%v } each header
      %k{hex} %v{base64} %v{json}   %d{iso} %d{%H:%M:%S}   %%  \n \t \xHH
    """
    begun_ms = int(time.time() * 1000)
    try:
        wanted = spec.parse(how["where"], begun_ms)
        show = _shown(options, how)
        pattern = re.compile(how["grep"].encode(), re.DOTALL) if how["grep"] else None
    except (spec.SpecError, FormatError) as error:
        raise click.UsageError(str(error)) from error
    except re.error as error:
        raise click.UsageError(f"--grep: {error}") from error
    asked = session.client(options)
    places = list(_places(asked, options, names, how["partitions"]))
    assigned = _assign(asked, places, (wanted, how["exit_at_end"], how["read_committed"]))
    isolation = "read_committed" if how["read_committed"] else "read_uncommitted"
    consumer = _krust.Consumer(
        options.bootstrap, session.properties(options, isolation_level=isolation)
    )
    consumer.assign(assigned)
    if wanted == spec.END and not how["exit_at_end"] and sys.stderr.isatty():
        session.note(options, "at the end, waiting for new records; -o start reads all")
    _run(consumer, (how["num"], pattern), show)


def _shown(options: Options, how: dict[str, Any]) -> Callable[[Record, int], bytes]:
    if options.output in ("json", "ndjson"):
        without = ("key", "value", "headers") if how["meta_only"] else ()

        def as_json(record: Record, counter: int) -> bytes:
            fields = to_object(record, how["key"], how["value"])
            if without:
                fields["key_bytes"] = len(record.key or b"")
                fields["value_bytes"] = len(record.value or b"")
            kept = {name: value for name, value in fields.items() if name not in without}
            return output.to_json(kept, compact=True).encode() + b"\n"

        return as_json
    if options.output == "csv":
        raise FormatError("consume writes no csv; use -f '%o,%k,%v\\n'")
    return formatter(_META if how["meta_only"] else how["form"], how["key"], how["value"])


def _places(
    asked: _krust.Client, options: Options, names: tuple[str, ...], only: str | None
) -> Iterator[tuple[str, int]]:
    chosen = session.numbers(only) if only else None
    for text in names:
        name, partitions = session.partitions_of(text)
        topic = session.topics(asked, [name], options.bootstrap)[name]
        known = [partition["partition_index"] for partition in topic["partitions"]]
        wanted = partitions if partitions is not None else chosen
        for partition in known if wanted is None else wanted:
            if partition not in known:
                hint = f"it has {len(known)}, counted from 0"
                text = f'topic "{name}" has no partition {partition}'
                raise session.refused(session.UNKNOWN_TOPIC, text, hint=hint)
            yield name, partition


def _assign(
    asked: _krust.Client,
    places: list[tuple[str, int]],
    how: tuple[spec.Spec, bool, bool],
) -> list[tuple[str, int, int, int | None]]:
    wanted, to_end, committed = how

    def offsets(timestamp: int) -> dict[tuple[str, int], int]:
        moments = [(topic, partition, timestamp) for topic, partition in places]
        found = asked.list_offsets(moments, read_committed=committed)
        return {(topic, partition): offset for topic, partition, _, offset, _ in found}

    starts, ends = offsets(EARLIEST), offsets(LATEST)
    timed = {moment: offsets(moment) for moment in wanted.times()}
    assigned = []
    for place in places:
        at = {moment: found[place] for moment, found in timed.items()}
        first, last = wanted.resolve(starts[place], ends[place], at)
        if to_end:
            last = ends[place] if last is None else min(last, ends[place])
        assigned.append((*place, first, None if last is None else max(first, last)))
    return assigned


def _run(
    consumer: _krust.Consumer,
    limits: tuple[int | None, re.Pattern[bytes] | None],
    show: Callable[[Record, int], bytes],
) -> None:
    limit, pattern = limits
    out, counter = sys.stdout.buffer, 0
    while not consumer.done() and (limit is None or counter < limit):
        room = 1000 if limit is None or pattern else min(1000, limit - counter)
        lines = []
        for record in map(Record._make, consumer.poll(1000, room)):
            if pattern and not (
                pattern.search(record.value or b"") or pattern.search(record.key or b"")
            ):
                continue
            counter += 1
            lines.append(show(record, counter))
            if counter == limit:
                break
        out.write(b"".join(lines))
        out.flush()
