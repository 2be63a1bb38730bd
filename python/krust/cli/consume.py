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

    from krust.cli.membership import Member
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
@click.option("-g", "--group", metavar="GROUP", help="Share the work, go on where it was left.")
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

    With -g, the group's offsets say where to begin (-o does for what it never read), and what is
    printed is committed.

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
    printer = _Printer(how["num"], pattern, show)
    isolation = "read_committed" if how["read_committed"] else "read_uncommitted"
    consumer = _krust.Consumer(
        options.bootstrap, session.properties(options, isolation_level=isolation)
    )
    asked = session.client(options)
    reach = (wanted, how["exit_at_end"], how["read_committed"])
    if how["group"]:
        if how["partitions"] or wanted.end is not None:
            raise click.UsageError("with -g the group says which partitions, and there is no end")
        session.topics(asked, names, options.bootstrap)
        from krust.cli.membership import Member

        _run_member(consumer, Member(options, how["group"], names), printer, reach)
        return
    places = list(_places(asked, options, names, how["partitions"]))
    consumer.assign(_assign(asked, places, reach))
    if wanted == spec.END and not how["exit_at_end"] and sys.stderr.isatty():
        session.note(options, "at the end, waiting for new records; -o start reads all")
    _run(consumer, printer)


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


class _Printer:
    """Writes records until there are enough."""

    def __init__(
        self,
        limit: int | None,
        pattern: re.Pattern[bytes] | None,
        show: Callable[[Record, int], bytes],
    ) -> None:
        self._limit, self._pattern, self._show = limit, pattern, show
        self._counter = 0

    def room(self) -> int:
        """How many records to ask for; 0: there are enough."""
        if self._limit is None:
            return 1000
        left = self._limit - self._counter
        return 1000 if self._pattern and left else min(1000, left)

    def write(self, records: list[Record]) -> int:
        """Write those that match; how many were looked at before there were enough."""
        lines: list[bytes] = []
        looked = 0
        for record in records:
            if not self.room():
                break
            looked += 1
            if self._matches(record):
                self._counter += 1
                lines.append(self._show(record, self._counter))
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        return looked

    def _matches(self, record: Record) -> bool:
        find = self._pattern and self._pattern.search
        return not find or bool(find(record.value or b"") or find(record.key or b""))


def _run(consumer: _krust.Consumer, printer: _Printer) -> None:
    while not consumer.done() and (room := printer.room()):
        printer.write(list(map(Record.of, consumer.poll(1000, room)[0])))


def _run_member(
    consumer: _krust.Consumer,
    member: Member,
    printer: _Printer,
    reach: tuple[spec.Spec, bool, bool],
) -> None:
    """Read what the group gives us. After an error, the session timeout ends the membership."""
    try:
        ours = _taken_up(consumer, member, reach)
        while (room := printer.room()) and not (reach[1] and consumer.done()):
            if not member.beat():
                ours = _taken_up(consumer, member, reach)
            elif not ours:
                time.sleep(0.5)
            else:
                records = list(map(Record.of, consumer.poll(1000, room)[0]))
                for record in records[: printer.write(records)]:
                    member.took((record.topic, record.partition), record.offset + 1)
    except (KeyboardInterrupt, BrokenPipeError):
        member.leave()
        raise
    member.leave()


def _taken_up(
    consumer: _krust.Consumer, member: Member, reach: tuple[spec.Spec, bool, bool]
) -> list[tuple[str, int]]:
    """Join, and go on where the group has committed; never before what there still is."""
    places = member.join()
    committed = member.committed()
    starts = member.asked.offsets(places, EARLIEST)
    assigned = []
    for topic, partition, first, last in _assign(member.asked.client, places, reach):
        place = (topic, partition)
        begin = max(committed[place], starts[place]) if place in committed else first
        assigned.append((*place, begin, None if last is None else max(begin, last)))
    consumer.assign(assigned)
    return places
