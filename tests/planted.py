"""Bugs planted in a copy of the sources, each to be caught by the check that is meant for it.

    python -m tests.planted [NAME...]

For each bug the program changes the sources in one place. The named tests must pass before the
change and fail after it. Exit code 1: a bug survived. Each bug is a build and takes minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CARGO = ["cargo", "test", "--quiet", "--profile", "quick"]
STORAGE = "rust/src/storage/"


class StorageBug(NamedTuple):
    """One bug: the file, the old and the new text, and the tests of `storage` that must find it.

    test   of `rust/tests/storage`, or behind `lib ` of the crate itself
    """

    name: str
    path: str
    before: str
    after: str
    test: str


BUGS = [
    StorageBug(
        "records go before what supersedes them is synced",
        "cleaner/pass.rs",
        "        self.log.flush()?;\n",
        "",
        "compaction_survives_crashes::a_crash_during_compaction_of_an_unflushed_tail_loses_nothing",
    ),
    StorageBug(
        "a cleaned segment is swapped in before it is synced",
        "cleaner/output.rs",
        "self.partition_dir.log_dir.sync_data(&path, &self.file)",
        "Ok(())",
        "compaction_survives_crashes::a_crash_during_compaction_of_a_flushed_log_loses_nothing",
    ),
    StorageBug(
        "a recovery finishes a swap and leaves what it replaces",
        "listing.rs",
        "let replaced = other == base || (base..end).contains(&other);",
        "let replaced = other == base && base < end;",
        "crash_images_by_the_thousand::every_crash_image_of_a_random_run_recovers",
    ),
    StorageBug(
        "tombstones go at the first cleaning",
        "cleaner/pass.rs",
        "horizon.is_none_or(|at| self.now_ms < at)",
        "horizon.is_some_and(|at| self.now_ms < at)",
        "compaction_keeps_the_last_of_each_key::tombstones_stay",
    ),
    StorageBug(
        "a producer's last sequence is lost where a cleaning opens its batch",
        "cleaner/pass.rs",
        "let is_last = self.is_last_of_producer(batch);",
        "let is_last = self.is_last_of_producer(batch) && !discard && keep.len() > 9;",
        "compaction_keeps_the_last_of_each_key::the_last_batch_of_a_producer_stays_if_it",
    ),
    StorageBug(
        "a producer's last sequence is lost where a cleaning does not open its batch",
        "cleaner/pass.rs",
        "if self.is_last_of_producer(&batch) {",
        "if self.is_last_of_producer(&batch) && count > 9 {",
        "compaction_keeps_the_last_of_each_key::the_last_batch_of_each_producer",
    ),
    StorageBug(
        "open transactions are cleaned",
        "cleaner/choose.rs",
        "bounds.last_stable.min(active.base_offset())",
        "active.base_offset()",
        "compaction_keeps_the_last_of_each_key::nothing_at_or_above",
    ),
    StorageBug(
        "an abort marker goes with its data",
        "cleaner/transactions.rs",
        "                    self.kept.push(entry);\n                    false\n",
        "                    self.kept.push(entry);\n                    true\n",
        "lib storage::cleaner::transactions",
    ),
    StorageBug(
        "a batch that half fits into the map counts as mapped",
        "cleaner/pass.rs",
        "            if data && !put_all(&opened, start, &mut into.map) {\n",
        "            into.map.set_latest(at.last_offset);\n"
        "            if data && !put_all(&opened, start, &mut into.map) {\n",
        "compaction_keeps_the_last_of_each_key",
    ),
    StorageBug(
        "positions that readers remember outlive their segment",
        "log/read.rs",
        "is_same.then_some(",
        "(is_same || true).then_some(",
        "compaction_survives_crashes::a_reader_that_stopped",
    ),
    StorageBug(
        "a flush leaves the directory's entries unsynced",
        "log/flush.rs",
        "        self.partition_dir().log_dir.sync_dir(&path)?;\n"
        "        self.partition_dir().log_dir.sync_dir(self.partition_dir().log_dir.path())",
        "        Ok(())",
        "crash_images_recover_to_a_whole_log",
    ),
    StorageBug(
        "what is not flushed is shown in flush mode ack",
        "log/mod.rs",
        "if self.config.load().ack_flush { self.flushed_offset() } else { Offset(i64::MAX) }",
        "Offset(i64::MAX)",
        "sync_moves_the_flushed_offset",
    ),
    StorageBug(
        "a failed sync is tried again",
        "dirs.rs",
        'let error = StorageError::io("sync", path, error);\n        self.take_offline(&error);\n',
        'let error = StorageError::io("sync", path, error);\n',
        "failed_fsync_takes_directory_offline",
    ),
    StorageBug(
        "recovery trusts every checksum",
        "recovery.rs",
        "if !walker.check_crc(&batch, scratch).map_err(fail)? {",
        "if !walker.check_crc(&batch, scratch).map_err(fail)? && scratch.len() > 1 << 40 {",
        "crash_images_recover_to_a_whole_log",
    ),
    StorageBug(
        "recovery stops one batch early",
        "recovery.rs",
        "                    self.take(&batch);\n",
        "                    self.take(&batch);\n"
        "                    if batch.end() == segment.size() {\n"
        '                        return Ok((at, Some("early")));\n'
        "                    }\n",
        "recovers_after_torn_tail",
    ),
    StorageBug(
        "a recovery cuts a segment while later ones may come back",
        "cut.rs",
        "    dir.sync_dir(&partition)?;\n    if end == 0",
        "    if end == 0",
        "crash_images_recover_to_a_whole_log::what_a_recovery_has_cut",
    ),
    StorageBug(
        "what a recovery has cut off is not synced",
        "cut.rs",
        "        dir.sync_data(&segment.path(LOG), &file)\n    }\n}",
        "        Ok(())\n    }\n}",
        "crash_images_recover_to_a_whole_log::what_a_recovery_has_cut",
    ),
    StorageBug(
        "recovery forgets the producers of what it read",
        "recovery.rs",
        "self.without_producers &= batch.header",
        "let _ = batch.header",
        "crash_images_by_the_thousand::every_crash_image_of_a_random_run_recovers",
    ),
    StorageBug(
        "a truncation leaves the recovery point where it was",
        "dirs.rs",
        "        table.recovery.lower(name, point);\n",
        "",
        "crash_images_recover_to_a_whole_log::a_truncation",
    ),
    StorageBug(
        "a truncated log goes on in a file whose old end readers hold",
        "log/trim.rs",
        "if position > 0 && new_active.lent() > position {",
        "if position > 0 && new_active.lent() == u64::MAX {",
        "truncation_keeps_what_readers_hold",
    ),
    StorageBug(
        "a file that takes the place of one that is cut whole has no durable name",
        "segment/mod.rs",
        "            dir.sync_dir(&self.partition_dir.path.read())?;\n",
        "",
        "crash_images_recover_to_a_whole_log::what_a_truncation_has_cut",
    ),
    StorageBug(
        "a checkpoint gets its name before its content is synced",
        "dirs.rs",
        "        self.sync_data(&temporary, &file)?;\n        self.disk.rename",
        "        self.disk.rename",
        "crash_images",
    ),
]


def run(copy: Path, test: str) -> tuple[bool, str]:
    """Whether the tests passed, and their output."""
    where = ["--test", "storage", test]
    if test.startswith("lib "):
        where = ["--lib", test.removeprefix("lib ")]
    command = [*CARGO, *where]
    # Artefacts of its own: cargo tells two places of one package apart by nothing else.
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target/planted")}
    done = subprocess.run(
        command, cwd=copy, capture_output=True, text=True, check=False, env=environment
    )
    output = done.stdout + done.stderr
    if done.returncode and "test result: FAILED" not in output:
        sys.exit(f"no test ran:\n{output[-3000:]}")
    if re.search(r"running 0 tests", output):
        sys.exit(f"there is no test {test}")
    return done.returncode == 0, output


def main(wanted: list[str]) -> int:
    survivors = 0
    if lost := misplaced(ROOT):
        sys.exit("\n".join(lost))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "worktree", "add", "--detach", copy], cwd=ROOT, check=True)
        try:
            sound, output = run(copy, "")
            if not sound:
                sys.exit(f"the sources as they are fail:\n{output[-3000:]}")
            for bug in BUGS:
                if not wanted or any(word in bug.name for word in wanted):
                    survivors += not caught(copy, bug)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy], cwd=ROOT, check=True)
    return int(survivors > 0)


def misplaced(root: Path) -> list[str]:
    """Bugs whose place is not there once, in the sources below `root`."""
    sources = {bug.path: (root / STORAGE / bug.path).read_text() for bug in BUGS}
    counts = {bug: sources[bug.path].count(bug.before) for bug in BUGS}
    return [f"{bug.name}: {n} times in {bug.path}" for bug, n in counts.items() if n != 1]


def caught(copy: Path, bug: StorageBug) -> bool:
    path = copy / STORAGE / bug.path
    text = path.read_text()
    path.write_text(text.replace(bug.before, bug.after))
    try:
        passed, _ = run(copy, bug.test)
    finally:
        path.write_text(text)
    print(f"{'SURVIVED' if passed else 'caught  '}  {bug.name}", flush=True)
    return not passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
