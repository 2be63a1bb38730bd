"""Reads a partition's directory: its segments and batches, and what compaction would leave.

Nothing is written or locked. In the directory of a running broker the last batch may look cut.
A directory `topic-N.<32 hex>-future` is a copy that will replace the partition's directory, and may
end anywhere. `-stray` belongs to a partition that this broker no longer has, `-delete` is being
deleted.
Checkpoints: lines of `topic partition offset` in the data directory; a missing one is None.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust import _krust
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHECKPOINTS = {
    "recovery_point": "recovery-point-offset-checkpoint",
    "log_start": "log-start-offset-checkpoint",
    "high_watermark": "replication-offset-checkpoint",
    "clean_to": "cleaner-offset-checkpoint",
}


_NAME = re.compile(r"(?P<owner>.+-\d+?)(?:\.[0-9a-f]{32}-(?P<kind>future|stray|delete))?")


def metadata_problems(directories: Iterable[str]) -> list[dict[str, object]]:
    """The problems of the metadata in data directories. A directory without metadata has none."""
    from krust.metadata.saved import verify
    from krust.runtime.metadata import FILE

    remedy = "start the broker: the whole copy replaces the other one, or the error says what to do"
    return [
        {"file": str(path), "position": 0, "problem": problem, "remedy": remedy}
        for path in (Path(directory) / FILE for directory in directories)
        for problem in verify(path)
    ]


class BadPosition(NamedTuple):
    """The first position of a partition without a good batch."""

    file: Path
    position: int
    offset: int
    """the offset after the last good batch before it"""
    problem: str


def segments(partition: Path) -> list[Path]:
    """The `.log` files, oldest first; the last one is active."""
    return sorted(partition.glob("*.log"))


def owner(partition: Path) -> str:
    """The partition of a directory: `topic-N`."""
    name = partition.absolute().name
    found = _NAME.fullmatch(name)
    return found["owner"] if found else name


def kind(partition: Path) -> str:
    """The kind of a partition's directory: `live`, `future`, `stray`, `delete`."""
    found = _NAME.fullmatch(partition.absolute().name)
    return (found and found["kind"]) or "live"


def partitions(directory: Path, *, every: bool = False) -> list[Path]:
    """The partitions' directories in a data directory, or this one if it is a partition's.

    every   also those that a broker does not serve
    raises  FileNotFoundError: it is no directory
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a directory")
    if any(directory.glob("*.log")):
        return [directory]
    found = sorted({path.parent for path in directory.glob("*-*/*.log")})
    return [path for path in found if every or kind(path) == "live"]


def directories(directory: Path) -> list[Path]:
    """As `partitions`, and those without a `.log` file."""
    found = partitions(directory)
    if found == [directory]:
        return found
    named = (path for path in directory.iterdir() if _NAME.fullmatch(path.name) and path.is_dir())
    return sorted({*found, *(path for path in named if kind(path) == "live")})


def batches(file: Path, *, records: bool = False) -> Iterator[dict[str, Any]]:
    """The batches of a file, as `LogDump` describes them."""
    opened = _krust.LogDump(file)
    while found := opened.read(100, records=records):
        yield from found


def is_good(batch: dict[str, Any]) -> bool:
    """Whether it is a whole batch with the right checksum."""
    return "problem" not in batch and bool(batch.get("crc_ok"))


def checkpoints(partition: Path) -> dict[str, int | None]:
    """The checkpoints of a live partition."""
    topic, _, number = owner(partition).rpartition("-")
    found: dict[str, int | None] = dict.fromkeys(CHECKPOINTS)
    if kind(partition) != "live":
        return found
    for name, file in CHECKPOINTS.items():
        found[name] = read_checkpoint(partition.absolute().parent / file).get((topic, number))
    return found


def read_checkpoint(path: Path) -> dict[tuple[str, str], int]:
    """(topic, partition) -> offset; empty: there is no such file."""
    try:
        lines = path.read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    rows = (line.split() for line in lines)
    return {(row[0], row[1]): int(row[2]) for row in rows if len(row) == 3}


def shape(partition: Path) -> dict[str, object]:
    """The sizes, offsets, times and codecs of a partition, and its first bad position."""
    files = segments(partition)
    codecs: Counter[str] = Counter()
    count = records = end = 0
    newest = -1
    for file in files:
        for batch in batches(file):
            if is_good(batch):
                count += 1
                records += batch.get("count", 1)
                end = batch["last_offset"] + 1
                newest = max(newest, batch["max_timestamp"])
                codecs[batch.get("codec", f"magic {batch['magic']}")] += 1
    bad, remembered = first_bad(partition), checkpoints(partition)
    if kind(partition) in ("future", "delete"):
        bad = None
    return {
        "partition": owner(partition),
        "kind": kind(partition),
        "segments": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "first_offset": max(int(files[0].stem) if files else 0, remembered["log_start"] or 0),
        "end_offset": max(end, int(files[-1].stem)) if files else 0,
        "batches": count,
        "records": records,
        "max_timestamp": newest,
        "codecs": dict(codecs),
        **remembered,
        "problem": bad and f"{bad.file.name} at {bad.position}: {bad.problem}",
    }


def first_bad(partition: Path) -> BadPosition | None:
    """The first bad position of the log. Nothing behind it can be trusted."""
    end = 0
    for file in segments(partition):
        base = int(file.stem)
        if base < end:
            return BadPosition(
                file, 0, end, f"begins at {base}, below the end of the segment before"
            )
        end = base
        at = 0
        for batch in batches(file):
            if not is_good(batch):
                problem = str(batch.get("problem", "wrong checksum"))
                return BadPosition(file, int(batch.get("position", at)), end, problem)
            if batch["base_offset"] < end and batch["magic"] == 2:
                return BadPosition(file, int(batch["position"]), end, "an offset falls")
            end = batch["last_offset"] + 1
            at = batch["position"] + batch["size_bytes"]
    return None


def lost_end(partition: Path) -> BadPosition | None:
    """The end of a whole log if the checkpoints prove that it was longer. A broker serves such a
    log and appends nothing, so that no offset is used twice.
    """
    files, remembered = segments(partition), checkpoints(partition)
    point, high = remembered["recovery_point"] or 0, remembered["high_watermark"]
    if not files:
        return None
    last = files[-1]
    end = max((batch["last_offset"] + 1 for batch in batches(last)), default=int(last.stem))
    if end >= point or (high is not None and high <= end):
        return None
    problem = f"the log ends too early: offsets {end} to {point - 1} are lost"
    return BadPosition(last, last.stat().st_size, end, problem)


def compacted(partition: Path) -> dict[str, object]:
    """What compaction of the sealed segments would leave, by the last offset of each key.

    Tombstones and control records are counted separately: when they are removed depends on when
    compaction saw them first.
    """
    last: dict[bytes, int] = {}
    total = tombstones = keyless = control = 0
    sealed = segments(partition)[:-1]
    for offset, key, value in _data(sealed):
        total += 1
        if key is None:
            keyless += 1
        else:
            last[key] = offset
            tombstones += value is None
    for file in sealed:
        control += sum(bool(batch.get("control")) for batch in batches(file))
    kept = sum(last.get(key) == offset for offset, key, _ in _data(sealed) if key is not None)
    return {
        "partition": partition.absolute().name,
        "segments": len(sealed),
        "bytes": sum(file.stat().st_size for file in sealed),
        "clean_to": checkpoints(partition)["clean_to"],
        "records": total,
        "keys": len(last),
        "would_go": total - kept,
        "would_stay": kept,
        "tombstones": tombstones,
        "without_key": keyless,
        "control_batches": control,
    }


def _data(files: list[Path]) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    for file in files:
        for batch in batches(file, records=True):
            if is_good(batch) and not batch.get("control"):
                for offset, _, key, value, _ in batch["records"]:
                    yield offset, key, value
