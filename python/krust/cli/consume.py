r"""`krust consume`: writes records of topics to stdout.

Bytes are written unchanged; notes and errors go to stderr. `--output json` and `ndjson` write one
JSON object a line. The command ends after `-n` records, at the end of the range, or with `-e` at
the end that the log had at the start. Otherwise it waits for more.
"""

from __future__ import annotations

import math
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from krust import _krust, offset_range
from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.interrupts import terminable, whole
from krust.cli.records import DECODERS, FormatError, FormattedRecord, formatter, to_object
from krust.errors import KafkaError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from krust.cli.options import Options
    from krust.clients.consumer import Consumer

    TopicPartitionLike = tuple[str, int]
    Assign = Callable[[Sequence[TopicPartitionLike]], list[tuple[str, int, int, int | None]]]
COMMIT_S = 5.0
_META = "%t %p %o %d{iso} key=%K value=%V headers=%H\\n"


@click.command(no_args_is_help=True)
@click.argument(
    "names",
    metavar="TOPIC[:PARTITIONS]...",
    nargs=-1,
    required=True,
    shell_complete=completion.topics,
)
@click.option(
    "-o", "--offset", "where", default="start", metavar="SPEC", show_default=True,
    help="start, end, 10, +3, -3, 10:20, :end, @-1h:end, @2026-11-01.",
)  # fmt: skip
@click.option("-n", "--num", type=click.IntRange(0), help="Stop after this number of records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the current end of the log.")
@click.option(
    "-g", "--group", metavar="GROUP", shell_complete=completion.groups,
    help="Read as a member of this group, from its commits.",
)  # fmt: skip
@click.option("-p", "--partitions", metavar="0,2,5-7", help="Only these partitions.")
@click.option("-f", "--format", "form", default=r"%v\n", show_default=True, help="See below.")
@click.option(
    "--key",
    "key",
    type=click.Choice(DECODERS),
    default="string",
    help="How to show keys or values.",
)
@click.option("--value", "value", type=click.Choice(DECODERS), default="string")
@click.option("--grep", metavar="RE", help="Only records whose key or value match.")
@click.option("--meta-only", is_flag=True, help="Sizes and offsets, no keys and values.")
@click.option("--read-committed", is_flag=True, help="Skip open and aborted transactions.")
@shared.client
@click.pass_obj
def command(options: Options, /, names: tuple[str, ...], **how: Any) -> None:
    """Print records of topics.

    With -g it begins at the group's commits (without a commit, at -o) and commits what it has
    printed. Ctrl-C and SIGTERM commit and leave the group.

    \b
    Verbs of -f:
      %t topic  %p partition  %o offset  %k key  %v value  %d timestamp  %i counter
      %T %K %V  lengths in bytes   %H number of headers   %h{%k=%v } each header
      %k{hex} %v{base64} %v{json}   %d{iso} %d{%H:%M:%S}   %%  \\n \\t \\xHH
    """  # noqa: D301, click wants the character
    begun_ms = int(time.time() * 1000)
    try:
        wanted = offset_range.parse(how["where"], begun_ms)
        show = _output_format(options, how)
        pattern = re.compile(how["grep"].encode(), re.DOTALL) if how["grep"] else None
    except (offset_range.SpecError, FormatError) as error:
        raise click.UsageError(str(error)) from error
    except re.error as error:
        raise click.UsageError(f"--grep: {error}") from error
    printer = _Printer(how["num"], pattern, show)
    isolation = "read_committed" if how["read_committed"] else "read_uncommitted"
    given = session.properties(options, isolation_level=isolation)
    asked = session.client(options)
    ends = _Ends(wanted, how["exit_at_end"], how["read_committed"])
    if how["group"]:
        if how["partitions"] or wanted.end is not None:
            raise click.UsageError("with -g the group says which partitions, and there is no end")
        session.topics(asked, names, options.bootstrap)
        with terminable(), _member(options, how["group"], given) as member:
            share = _Share(member, names, lambda places: _assignments(asked, places, ends))
            while (room := printer.room()) and not (how["exit_at_end"] and share.over()):
                share.print(printer, room)
        return
    consumer = _krust.Consumer(options.bootstrap, given)
    places = list(_partitions(asked, options, names, how["partitions"]))
    consumer.assign(_assignments(asked, places, ends))
    if wanted == offset_range.END and not how["exit_at_end"] and sys.stderr.isatty():
        session.note(options, "at the end, waiting for new records; -o start reads all")
    _run(consumer, printer)


def _output_format(
    options: Options, how: dict[str, Any]
) -> Callable[[FormattedRecord, int], bytes]:
    if options.output in ("json", "ndjson"):
        without = ("key", "value", "headers") if how["meta_only"] else ()

        def as_json(record: FormattedRecord, counter: int) -> bytes:
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


def _partitions(
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


@dataclass(frozen=True)
class _Ends:
    """Where a command begins and ends in each partition.

    wanted        the range that the user named
    stops_at_end  end at the end that the log has now
    is_committed  that end is the one of committed transactions
    """

    wanted: offset_range.OffsetRange
    stops_at_end: bool
    is_committed: bool


def _assignments(
    asked: _krust.Client,
    places: Sequence[TopicPartitionLike],
    which: _Ends,
) -> list[tuple[str, int, int, int | None]]:
    """Each partition with the offset to begin at, and the one to end before; None: no end."""

    def offsets(timestamp: int) -> dict[tuple[str, int], int]:
        moments = [(topic, partition, timestamp) for topic, partition in places]
        found = asked.list_offsets(moments, read_committed=which.is_committed)
        return {(topic, partition): offset for topic, partition, _, offset, _ in found}

    starts, ends = offsets(_krust.EARLIEST), offsets(_krust.LATEST)
    timed = {moment: offsets(moment) for moment in which.wanted.times()}
    assigned = []
    for place in places:
        at = {moment: found[place] for moment, found in timed.items()}
        first, last = which.wanted.resolve(starts[place], ends[place], at)
        if which.stops_at_end:
            last = ends[place] if last is None else min(last, ends[place])
        assigned.append((*place, first, None if last is None else max(first, last)))
    return assigned


class _Printer:
    """Writes records up to a limit."""

    def __init__(
        self,
        limit: int | None,
        pattern: re.Pattern[bytes] | None,
        show: Callable[[FormattedRecord, int], bytes],
    ) -> None:
        self._limit, self._pattern, self._show = limit, pattern, show
        self._counter = 0

    def room(self) -> int:
        """How many more records to read; 0: the limit is reached."""
        if self._limit is None:
            return 1000
        left = self._limit - self._counter
        return 1000 if self._pattern and left else min(1000, left)

    def write(self, records: list[FormattedRecord]) -> int:
        """Write the records that match. Returns how many were checked before the limit."""
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

    def _matches(self, record: FormattedRecord) -> bool:
        find = self._pattern and self._pattern.search
        return not find or bool(find(record.value or b"") or find(record.key or b""))


def _run(consumer: _krust.Consumer, printer: _Printer) -> None:
    while not consumer.done() and (room := printer.room()):
        printer.write(list(map(FormattedRecord.of, consumer.poll(1000, room)[0])))


def _member(options: Options, group_id: str, given: dict[str, object]) -> Consumer:
    """A group member without automatic commits. `_Share` commits what was written."""
    from krust.clients.consumer import Consumer

    ours = {
        "bootstrap.servers": options.bootstrap,
        "group.id": group_id,
        "session.timeout.ms": 30_000,
        "max.poll.interval.ms": 60_000,
        "partition.assignment.strategy": "range,roundrobin",
        "auto.offset.reset": "earliest",
    }
    return Consumer(ours | given | {"enable.auto.commit": False})


class _Share:
    """The partitions of a group member. A record is committed only after it was written.

    A coordinator that does not answer is no error until the session has expired.
    assign  returns where to begin in partitions without a commit, and where to end
    """

    def __init__(self, member: Consumer, names: Sequence[str], assign: Assign) -> None:
        self._member, self._assign = member, assign
        self._written: dict[TopicPartitionLike, int] = {}
        self._ends: dict[TopicPartitionLike, int] = {}
        self._begun = False
        self._commit_at = time.monotonic() + COMMIT_S
        member.subscribe(
            names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def over(self) -> bool:
        """Whether all assigned partitions have reached their end."""
        ours = self._member.assignment()
        over = {place for place in ours if self._member.position(*place) >= self._end(place)}
        self._member.pause(over - self._member.paused())
        return self._begun and len(over) == len(ours)

    def print(self, printer: _Printer, room: int) -> None:
        """Write the next records, and commit when it is time."""
        found = map(FormattedRecord.of, self._member.poll(100, room))
        records = [one for one in found if one.offset < self._end((one.topic, one.partition))]
        with whole():
            for record in records[: printer.write(records)]:
                self._written[record.topic, record.partition] = record.offset + 1
        if time.monotonic() >= self._commit_at:
            with suppress(UnreachableError):  # the next commit or the revocation will report it
                self._commit()
            self._commit_at = time.monotonic() + COMMIT_S

    def _end(self, place: TopicPartitionLike) -> float:
        return self._ends.get(place, math.inf)

    def _on_assign(self, _: Consumer, places: Sequence[TopicPartitionLike]) -> None:
        committed = self._member.committed(places)
        for topic, partition, first, end in self._assign(places):
            if (topic, partition) not in committed:
                self._member.seek(topic, partition, first)
            if end is not None:
                self._ends[topic, partition] = end
        self._begun = True

    def _on_revoke(self, *_: object) -> None:
        self._begun = False
        self._commit()

    def _on_lost(self, *_: object) -> None:
        self._begun = False
        self._written.clear()

    def _commit(self) -> None:
        from krust.clients.consumer import REJOIN_CODES

        try:
            self._member.commit(self._written)
        except KafkaError as error:  # another member may have the partitions now
            if error.code not in REJOIN_CODES:
                raise
        self._written.clear()
