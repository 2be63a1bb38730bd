"""`krust log`: inspects log files on disk, without a broker. Only `repair --yes` writes."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust import _krust, offset_range
from krust.cli import internal, log_files, log_repair, output, session
from krust.cli import options as shared
from krust.cli.exits import Exit
from krust.cli.records import decode, when
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krust.cli.options import Options
_FLAGS = ("transactional", "control", "log_append_time", "delete_horizon")


@click.group(no_args_is_help=True)
def command() -> None:
    """Inspect and repair a log directory, without a broker."""


@command.command()
@click.argument("path")
@click.option("-o", "--offset", "where", metavar="SPEC", help="Only offsets such as 10:20.")
@click.option("--records", is_flag=True, help="Show records too.")
@click.option("--headers", is_flag=True, help="Show records with their headers.")
@shared.client
@click.pass_obj
def dump(options: Options, path: str, where: str | None, records: bool, headers: bool) -> None:
    """Print the batches of PATH: a .log file, a partition's directory, or DATA-DIR/TOPIC/P."""
    wanted = _range(where)
    found = _batches(_files(path), records=records or headers)
    _show(options, (one for one in found if _overlaps(one, wanted)), wanted, headers=headers)


@command.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@shared.client
@click.pass_obj
def verify(options: Options, directories: tuple[str, ...]) -> None:
    """Check all files of partitions, or of a whole data directory. Exit 9: damaged.

    It shows the file and position of each problem, what it means and what to do. Stop the broker
    first. After a kill, files of the last segments may be behind the log.
    """
    partitions = [
        found for directory in directories for found in log_files.directories(Path(directory))
    ]
    rows = log_files.metadata_problems(directories)
    with click.progressbar(
        partitions, label="verify", file=_progress(options), hidden=len(partitions) < 2
    ) as bar:
        for partition in bar:
            rows += _problems(_krust.log_verify(str(partition)))
    for directory in directories:
        if Path(directory) not in partitions:
            rows += _problems(_krust.log_dir_verify(directory))
    if rows or options.output not in ("table", "wide"):
        output.rows(options, ("file", "position", "problem", "remedy"), rows)
    session.note(
        options, f"{counted(len(partitions), 'partition')}, {counted(len(rows), 'problem')}"
    )
    if rows:
        session.sys_exit(Exit.PROBLEMS)


@command.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@shared.client
@click.pass_obj
def stat(options: Options, directories: tuple[str, ...]) -> None:
    """Show sizes, offsets and checkpoints of partitions, or of a whole data directory.

    Of several, one that cannot be read is a row of its own, `offline`. Copies on their way to
    another log directory (`future`) and what is kept of partitions that went elsewhere (`stray`)
    are shown.
    """
    found: list[dict[str, object]] = []
    for each in directories:
        try:
            found += [
                log_files.shape(path) for path in log_files.partitions(Path(each), every=True)
            ]
        except OSError as error:
            if len(directories) == 1:
                raise
            found.append({"partition": each, "kind": "offline", "problem": str(error)})
    columns = (
        "partition",
        "kind",
        "segments",
        "bytes",
        "first_offset",
        "end_offset",
        "batches",
        "records",
    )
    output.rows(options, (*columns, "recovery_point", "clean_to", "problem"), found)
    if any(row.get("problem") for row in found):
        session.sys_exit(Exit.PROBLEMS)


@command.command()
@click.argument("path")
@click.option("-n", "--batches", "count", type=click.IntRange(1), default=5, show_default=True)
@shared.client
@click.pass_obj
def tail(options: Options, path: str, count: int) -> None:
    """Print the last batches of PATH with their records, and what is wrong at the end."""
    last = deque(_batches(_files(path)[-2:], records=True), count)
    _show(options, last, (0, None), headers=True)


@command.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@shared.client
@click.pass_obj
def repair(options: Options, directories: tuple[str, ...]) -> None:
    """Cut logs at their first bad batch. Shows the cuts, and makes them with --yes.

    The bytes are kept beside the segment, in a file that ends in .cut. Records behind a bad batch
    are cut too: get them from another replica, or from the .cut file. A log that has lost its end
    is not cut. Its offsets continue at its current end.
    """
    rows: list[dict[str, object]] = []
    for partition in (path for each in directories for path in log_files.partitions(Path(each))):
        bad = log_files.first_bad(partition) or log_files.lost_end(partition)
        if bad is None:
            continue
        cuts = log_repair.plan(bad)
        row: dict[str, object] = {
            "partition": partition.absolute().name,
            "offset": bad.offset,
            "file": bad.file.name,
            "position": bad.position,
            "problem": bad.problem,
            "bytes_to_cut": sum(file.stat().st_size - at for file, at in cuts),
        }
        row["kept_in"] = [str(side) for side in log_repair.repair(bad)] if options.yes else []
        rows.append(row)
    columns = ("partition", "offset", "file", "position", "bytes_to_cut", "problem")
    output.rows(options, columns, rows)
    if rows and not options.yes:
        session.note(options, "nothing is changed; --yes does it")
        session.sys_exit(Exit.PROBLEMS)


@command.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only count. A broker compacts.")
@shared.client
@click.pass_obj
def compact(options: Options, directories: tuple[str, ...], *, dry_run: bool) -> None:
    """Count what compaction would leave of the sealed segments. Needs --dry-run."""
    if not dry_run:
        raise click.UsageError("a log is compacted by its broker; --dry-run shows what that does")
    found = [
        log_files.compacted(path)
        for each in directories
        for path in log_files.partitions(Path(each))
    ]
    columns = ("partition", "segments", "bytes", "records", "keys", "would_stay", "would_go")
    output.rows(options, (*columns, "tombstones", "without_key", "clean_to"), found)


def _problems(found: list[tuple[str, int, str, str]]) -> list[dict[str, object]]:
    return [
        {"file": path, "position": position, "problem": what, "remedy": remedy}
        for path, position, what, remedy in found
    ]


def _progress(options: Options) -> Any:
    import os
    import sys

    quiet = options.quiet or not sys.stderr.isatty()
    return Path(os.devnull).open("w") if quiet else sys.stderr


def _files(path: str) -> list[Path]:
    given = Path(path)
    if given.is_file():
        return [given]
    if not given.is_dir():  # DATA-DIR/TOPIC/P
        topic = given.parent
        given = topic.with_name(f"{topic.name}-{given.name}") if topic.name else given
    if not given.is_dir():
        raise FileNotFoundError(f"{path}: no such log file or partition directory")
    files = sorted(given.glob("*.log"))
    if not files:
        raise FileNotFoundError(f"{given} holds no .log file")
    return files


def _range(where: str | None) -> tuple[int, int | None]:
    if where is None:
        return 0, None
    try:
        wanted = offset_range.parse(where, 0)
    except offset_range.SpecError as error:
        raise click.UsageError(str(error)) from error
    places = [place for place in (wanted.begin, wanted.end) if place is not None]
    counted = (
        offset_range.PositionKind.OFFSET,
        offset_range.PositionKind.LENGTH,
        offset_range.PositionKind.START,
    )
    if any(place.kind not in counted for place in places):
        raise click.UsageError("log dump knows offsets only; write 10, 10:20, 10:+5 or :20")
    return wanted.resolve(0, 2**63 - 1)


def _overlaps(batch: dict[str, Any], wanted: tuple[int, int | None]) -> bool:
    first, end = wanted
    if "base_offset" not in batch:
        return True
    return batch["last_offset"] >= first and (end is None or batch["base_offset"] < end)


def _batches(files: list[Path], *, records: bool) -> Iterator[dict[str, Any]]:
    for file in files:
        for batch in log_files.batches(file, records=records):
            yield {"file": str(file), **batch}


def _topic(batch: dict[str, Any]) -> str:
    """The topic of a batch, from the directory of its file."""
    return Path(batch["file"]).absolute().parent.name.rpartition("-")[0]


def _shown(
    record: tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    topic: str,
    *,
    headers: bool,
) -> dict[str, object]:
    offset, timestamp, key, value, given = record
    shown: dict[str, object] = {
        "offset": offset,
        "timestamp_ms": timestamp,
        "key": decode(key, "string"),
        "value": decode(value, "string"),
    }
    if topic in internal.TABLE and (meaning := internal.decoded(topic, key, value)):
        shown["decoded"] = meaning
    if headers:
        shown["headers"] = [{"key": name, "value": decode(v, "string")} for name, v in given]
    return shown


def _show(
    options: Options,
    batches: Iterable[dict[str, Any]],
    wanted: tuple[int, int | None],
    *,
    headers: bool,
) -> None:
    """Print batches, and records if asked for. Exit 9: a batch is damaged."""
    bad = 0
    for batch in batches:
        bad += not log_files.is_good(batch)
        if "records" in batch:
            batch["records"] = [
                _shown(record, _topic(batch), headers=headers)
                for record in batch["records"]
                if wanted[0] <= record[0] and (wanted[1] is None or record[0] < wanted[1])
            ]
        if options.output in ("json", "ndjson"):
            click.echo(output.to_json(batch, compact=True))
        else:
            _print(batch)
    if bad:
        session.note(options, f"{counted(bad, 'batch', 'batches')} damaged")
        session.sys_exit(Exit.PROBLEMS)


def _print(batch: dict[str, Any]) -> None:
    if "base_offset" not in batch:
        click.echo(f"BAD    at {batch['position']} of {batch['file']}: {batch['problem']}")
        return
    crc = "ok" if batch["crc_ok"] else "WRONG"
    line = f"batch  base {batch['base_offset']} last {batch['last_offset']}"
    if "count" in batch:
        line += f" count {batch['count']:,}"
    line += f" magic {batch['magic']} {batch.get('codec', '')} {batch['size_bytes']:,} B crc {crc}"
    if batch.get("producer_id", -1) >= 0:
        line += f"  producer {batch['producer_id']}/{batch['producer_epoch']}"
        line += f" seq {batch['base_sequence']}"
    if "leader_epoch" in batch:
        line += f"  epoch {batch['leader_epoch']}"
    flags = [name.replace("_", "-") for name in _FLAGS if batch.get(name)]
    time = when(batch["max_timestamp"], "iso")
    click.echo("  ".join(part for part in (line, *flags, time) if part))
    if "problem" in batch:
        click.echo(f"  BAD  {batch['problem']}")
    for record in batch.get("records", ()):
        parts = [str(record["offset"])]
        if "decoded" in record:
            kind, *rest = record["decoded"].items()
            parts.append(kind[1])
            parts += [f"{name} {_text(value)}" for name, value in rest]
        else:
            parts += [f"key {_text(record['key'])}", f"value {_text(record['value'])}"]
        if record.get("headers"):
            pairs = (f"{header['key']}={_text(header['value'])}" for header in record["headers"])
            parts.append("headers " + " ".join(pairs))
        click.echo("  " + "  ".join(parts))


def _text(value: object) -> str:
    return "null" if value is None else output.to_json(value, compact=True)
