"""Bugs planted in step functions, each to be caught by the simulation that runs them.

The test crate can be built with the step functions from another folder (`--cfg krust_planted`), so
a bug costs a build of the tests and not of the core. For each bug the changed functions are written
there, the tests built, and seeds run until one fails. The check that fails must be one of those
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
CARGO = ["cargo", "rustc", "--profile", "quick", "--test"]
FAILED = re.compile(r"^seed (\d+)(?:, \d+ ms)?: (\w+):", re.MULTILINE)


class PlantedBug(NamedTuple):
    """One bug: the file, the old and the new text, and the checks that are meant to find it."""

    name: str
    path: str
    before: str
    after: str
    checks: tuple[str, ...]


class Suite(NamedTuple):
    """Step functions, the tests that simulate them, and the bugs to plant."""

    test: str
    """the test crate; its simulation is the test `whatever_fails...`"""
    sources: str
    files: tuple[str, ...]
    """below `sources`; a bug knows a file by its name alone"""
    variables: str
    """the variables of the seeds without `_SEED` and `_SEEDS`"""
    bugs: tuple[PlantedBug, ...]

    def misplaced(self, root: Path) -> list[str]:
        """Bugs whose place is not there once, in the sources below `root`."""
        sources = {Path(path).name: (root / self.sources / path).read_text() for path in self.files}
        counts = {bug: sources[bug.path].count(bug.before) for bug in self.bugs}
        return [f"{bug.name}: {n} times in {bug.path}" for bug, n in counts.items() if n != 1]

    def build(self, folder: Path, bug: PlantedBug | None) -> Path:
        """Build the tests with step functions that have the bug; the program."""
        for path in self.files:
            text, name = (ROOT / self.sources / path).read_text(), Path(path).name
            if bug is not None and bug.path == name:
                text = text.replace(bug.before, bug.after)
            # A file that is included has no comment of its own.
            (folder / name).write_text(re.sub(r"^//!.*\n", "", text, flags=re.MULTILINE))
        command = [*CARGO, self.test, "--message-format", "json", "--", "--cfg", "krust_planted"]
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

    def first_failure(self, program: Path, first: int, seeds: int) -> tuple[int, str] | None:
        """The first seed that fails, counted from `first`, and the check that failed."""
        environment = {
            **os.environ,
            f"{self.variables}_SEED": str(first),
            f"{self.variables}_SEEDS": str(seeds),
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

    def main(self) -> int:
        """Plant each bug, or those that the arguments name."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--seeds", type=int, default=10_000)
        parser.add_argument("--first", type=int, default=0)
        parser.add_argument("names", nargs="*")
        arguments = parser.parse_args()
        if lost := self.misplaced(ROOT):
            sys.exit("\n".join(lost))
        needed: list[int] = []
        survivors = 0
        with tempfile.TemporaryDirectory() as folder:
            for bug in self.bugs:
                if arguments.names and not any(word in bug.name for word in arguments.names):
                    continue
                program = self.build(Path(folder), bug)
                found = self.first_failure(program, arguments.first, arguments.seeds)
                is_caught = found is not None and found[1] in bug.checks
                survivors += not is_caught
                needed += [found[0]] if found else []
                how = f"by {found[1]} in seed {found[0]}" if found else "in no seed"
                print(f"{'caught  ' if is_caught else 'SURVIVED'}  {bug.name}: {how}", flush=True)
        if needed:
            print(f"seeds needed: median {statistics.median(needed):g}, most {max(needed)}")
        return int(survivors > 0)
