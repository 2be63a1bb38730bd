"""Bugs planted in the step functions of replication, each to be caught by the simulation.

    python -m tests.planted_replication [--seeds N] [--first N] [NAME...]

The test crate can be built with the step functions from another folder (`--cfg krust_planted`), so
a bug costs a build of the tests and not of the core. For each bug the program writes the changed
functions there, builds, and runs seeds until one fails. The check that fails must be one of those
that the bug names. Exit code 1: a bug survived, or another check found it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = "rust/src/broker/replica/"
FILES = ("leader.rs", "follower.rs")
CARGO = ["cargo", "rustc", "--profile", "quick", "--no-default-features", "--test", "replica"]
FAILED = re.compile(r"^seed (\d+), \d+ ms: (\w+):", re.MULTILINE)


class PlantedBug(NamedTuple):
    """One bug: the file, the old and the new text, and the checks that are meant to find it."""

    name: str
    path: str
    before: str
    after: str
    checks: tuple[str, ...]


BUGS = [
    PlantedBug(
        "the high watermark does not wait for a replica whose addition is on its way",
        "leader.rs",
        "        self.additions.contains(&replica) || self.member(replica).is_some()\n",
        "        self.member(replica).is_some()\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "the high watermark does not wait for a replica whose removal is on its way",
        "leader.rs",
        "        self.additions.contains(&replica) || self.member(replica).is_some()\n",
        "        if let Proposal::Sent(proposed) | Proposal::Repeat(proposed) = &self.proposal {\n"
        "            return proposed.isr.iter().any(|member| member.replica == replica);\n"
        "        }\n"
        "        self.additions.contains(&replica) || self.member(replica).is_some()\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "the high watermark moves while too few replicas are in sync",
        "leader.rs",
        "        if !self.has_enough_in_sync() {\n            return effects;\n        }\n",
        "",
        ("D1", "R1", "R5", "R6"),
    ),
    PlantedBug(
        "the high watermark falls with the in-sync set",
        "leader.rs",
        "        if lowest > self.high_watermark {\n",
        "        if lowest != self.high_watermark {\n",
        ("D1", "R1", "R2", "liveness"),
    ),
    PlantedBug(
        "a new leader takes everything in its log for committed",
        "leader.rs",
        "            high_watermark,\n            epoch_start: moment.log_end,\n",
        "            high_watermark: high_watermark.max(moment.log_end),\n"
        "            epoch_start: moment.log_end,\n",
        ("R2", "R5"),
    ),
    PlantedBug(
        "a follower joins below the start of the leader's epoch",
        "leader.rs",
        "            && follower.log_end >= self.epoch_start\n",
        "",
        ("D1", "R1", "R2"),
    ),
    PlantedBug(
        "a follower joins below the high watermark",
        "leader.rs",
        "            && follower.log_end >= self.high_watermark\n"
        "            && follower.log_end >= self.epoch_start\n",
        "",
        ("D1", "R2"),
    ),
    PlantedBug(
        "a proposal of unknown outcome is forgotten",
        "leader.rs",
        "                self.has_lost_copy = true;\n"
        "                self.proposal = Proposal::Repeat(proposed.clone());\n",
        "                self.additions.clear();\n"
        "                self.proposal = Proposal::None;\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "a refused proposal is forgotten while a copy of it is on its way",
        "leader.rs",
        "        if !self.has_lost_copy {\n            self.additions.clear();\n        }\n",
        "        self.additions.clear();\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "a second proposal counts instead of the first",
        "leader.rs",
        "        for IsrMember { replica, .. } in &isr {\n",
        "        self.additions.clear();\n        for IsrMember { replica, .. } in &isr {\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "an older state of the partition is taken for a newer one",
        "leader.rs",
        "            || leadership.partition_epoch <= self.leadership.partition_epoch\n",
        "            || leadership.partition_epoch == self.leadership.partition_epoch\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "the state of another leader epoch is taken",
        "leader.rs",
        "        if leadership.leader_epoch != self.leadership.leader_epoch\n"
        "            || leadership",
        "        if leadership",
        ("R3",),
    ),
    PlantedBug(
        "a leader applies a proposed in-sync set at once",
        "leader.rs",
        "        self.proposal = Proposal::Sent(proposed.clone());\n        proposed\n",
        "        self.proposal = Proposal::Sent(proposed.clone());\n"
        "        self.leadership.isr.clone_from(&proposed.isr);\n"
        "        proposed\n",
        ("D1", "D2", "R2", "R3"),
    ),
    PlantedBug(
        "acks=all is answered by fewer replicas than must be in sync",
        "leader.rs",
        "        self.leadership.isr.len() >= wanted\n",
        "        self.leadership.isr.len() + 1 >= wanted\n",
        ("D2",),
    ),
    PlantedBug(
        "a silent follower never leaves the in-sync set",
        "leader.rs",
        "!it.is_caught_up(moment, self.settings.lag_time_max_ms)",
        "it.replica < 0 && moment.now_ms < 0",
        ("liveness",),
    ),
    PlantedBug(
        "a follower appends the answer to an earlier question",
        "follower.rs",
        "        if self.request(log) != Some(request) {\n"
        "            return FollowerEffect::None;\n"
        "        }\n",
        "        let _ = request;\n",
        ("L1", "R4", "R5", "R6", "P1"),
    ),
    PlantedBug(
        "a follower names no epoch of its last batch",
        "follower.rs",
        "        let last_fetched_epoch = log.last_batch_epoch();\n",
        "        let last_fetched_epoch = Epoch::NONE;\n",
        ("R1", "R4", "R5", "D1", "liveness"),
    ),
    PlantedBug(
        "a follower drops no more than the leader's end of an epoch that it lacks",
        "follower.rs",
        "            (own_end.min(log_end), false)\n",
        "            (end_offset.min(log_end), true)\n",
        ("R4", "R5", "R6", "D1", "liveness"),
    ),
    PlantedBug(
        "a follower keeps what its leader does not have in their common epoch",
        "follower.rs",
        "            (own_end.min(end_offset).min(log_end), true)\n",
        "            (own_end.min(log_end), true)\n",
        ("R4", "R5", "D1", "liveness"),
    ),
    PlantedBug(
        "a follower truncates one record too much",
        "follower.rs",
        "        if to < log_end { FollowerEffect::TruncateTo(to) }",
        "        let to = if to < log_end { Offset(to.0 - 1) } else { to };\n"
        "        if to < log_end { FollowerEffect::TruncateTo(to) }",
        ("R6",),
    ),
    PlantedBug(
        "a follower below the leader's log start does not start again",
        "follower.rs",
        "        FollowerEffect::TruncateFullyAndStartAt(log_start)\n",
        "        FollowerEffect::TruncateTo(log_start)\n",
        ("liveness",),
    ),
]


def misplaced(root: Path) -> list[str]:
    """Bugs whose place is not there once, in the sources below `root`."""
    sources = {path: (root / SOURCES / path).read_text() for path in FILES}
    counts = {bug: sources[bug.path].count(bug.before) for bug in BUGS}
    return [f"{bug.name}: {n} times in {bug.path}" for bug, n in counts.items() if n != 1]


def build(folder: Path, bug: PlantedBug | None) -> Path:
    """Build the tests with step functions that have the bug; the program."""
    for path in FILES:
        text = (ROOT / SOURCES / path).read_text()
        if bug is not None and bug.path == path:
            text = text.replace(bug.before, bug.after)
        # A file that is included has no comment of its own.
        (folder / path).write_text(re.sub(r"^//!.*\n", "", text, flags=re.MULTILINE))
    command = [*CARGO, "--message-format", "json", "--", "--cfg", "krust_planted"]
    environment = {**os.environ, "KRUST_PLANTED": str(folder)}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        messages = (json.loads(line) for line in done.stdout.splitlines())
        rendered = [it["message"]["rendered"] for it in messages if "message" in it]
        sys.exit("\n".join(rendered) or done.stderr)
    built = [json.loads(line) for line in done.stdout.splitlines()]
    programs = [it["executable"] for it in built if it.get("executable")]
    return Path(programs[-1])


def first_failure(program: Path, first: int, seeds: int) -> tuple[int, str] | None:
    """The first seed that fails, counted from `first`, and the check that failed."""
    environment = {
        **os.environ,
        "KRUST_REPLICA_SEED": str(first),
        "KRUST_REPLICA_SEEDS": str(seeds),
        "RUST_BACKTRACE": "0",
    }
    done = subprocess.run(
        [program, "whatever_fails", "--nocapture"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return None
    found = FAILED.search(output)
    if found is None:
        sys.exit(f"no seed failed:\n{output[-3000:]}")
    return int(found[1]) - first + 1, found[2]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if lost := misplaced(ROOT):
        sys.exit("\n".join(lost))
    needed: list[int] = []
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        for bug in BUGS:
            if arguments.names and not any(word in bug.name for word in arguments.names):
                continue
            program = build(Path(folder), bug)
            found = first_failure(program, arguments.first, arguments.seeds)
            is_caught = found is not None and found[1] in bug.checks
            survivors += not is_caught
            needed += [found[0]] if found else []
            how = f"by {found[1]} in seed {found[0]}" if found else "in no seed"
            print(f"{'caught  ' if is_caught else 'SURVIVED'}  {bug.name}: {how}", flush=True)
    if needed:
        print(f"seeds needed: median {statistics.median(needed):g}, most {max(needed)}")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
