"""`krust retention`: which policies there are, and what one would let go of a data directory.

Nothing is written; of a live directory the active segment may look smaller than it is.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krust.cli import logfacts, output, plugins, session
from krust.cli import options as shared
from krust.retention.policies import POLICIES
from krust.retention.spec import Disk, ExpiryError, Partition, Segment, validate

if TYPE_CHECKING:
    from krust.cli.options import Options

_WEEK_MS = 604_800_000


@click.group(no_args_is_help=True)
def command() -> None:
    """Try what lets old segments go."""


@command.command()
@shared.client
@click.pass_obj
def policies(options: Options) -> None:
    """List the policies: built-in ones, and those of installed packages."""
    plugins.show(options, POLICIES)


@command.command()
@click.option("--policy", "name", required=True, metavar="NAME|MODULE:CLASS", help="Which one.")
@click.option("--retention-ms", default=_WEEK_MS, show_default=True, help="As topics would say.")
@click.option("--retention-bytes", default=-1, show_default=True, help="As topics would say.")
@click.option("--free", type=click.IntRange(0), help="Bytes free on the disk; default: as it is.")
@click.argument("directory", type=click.Path(path_type=Path))
@shared.client
@click.pass_obj
def check(
    options: Options,
    name: str,
    retention_ms: int,
    retention_bytes: int,
    free: int | None,
    directory: Path,
) -> None:
    """Show what a policy would let go of the data DIRECTORY now; exit 9 if it breaks a rule."""
    policy = plugins.chosen(POLICIES, name)
    found = [
        _partition(path, retention_ms, retention_bytes) for path in logfacts.partitions(directory)
    ]
    usage = shutil.disk_usage(directory)
    disk = Disk(usage.free if free is None else free, usage.total)
    with plugins.blamed(policy.name, ExpiryError):
        answer = policy.expired(disk, found, time.time_ns() // 1_000_000)
        validate(found, answer)
    rows: list[dict[str, object]] = []
    for each in found:
        count = answer.get(each.key, 0)
        gone = each.segments[:count]
        rows.append(
            {
                "partition": f"{each.topic}-{each.number}",
                "segments": len(each.segments),
                "may_go": len(each.may_go),
                "would_go": count,
                "bytes_freed": sum(segment.size for segment in gone),
                "new_start": gone[-1].next_offset if gone else None,
            }
        )
    columns = ("partition", "segments", "may_go", "would_go", "bytes_freed", "new_start")
    output.rows(options, columns, rows)
    session.note(options, "nothing is changed")


def _partition(path: Path, retention_ms: int, retention_bytes: int) -> Partition:
    """What a broker would tell a policy of the partition that lies in `path`."""
    topic, _, number = path.absolute().name.rpartition("-")
    files = logfacts.segments(path)
    segments = [_segment(file) for file in files]
    end = segments[-1].next_offset
    mark = logfacts.checkpoints(path)["high_watermark"]
    high = end if mark is None else mark
    return Partition(topic, int(number), tuple(segments), high, retention_ms, retention_bytes)


def _segment(file: Path) -> Segment:
    end, newest = int(file.stem), -1
    for batch in logfacts.batches(file):
        if logfacts.is_good(batch):
            end, newest = batch["last_offset"] + 1, max(newest, batch["max_timestamp"])
    facts = file.stat()
    if newest < 0:
        newest = facts.st_mtime_ns // 1_000_000
    return Segment(int(file.stem), end, facts.st_size, newest)
