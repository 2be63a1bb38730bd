"""The Python of README.md and docs/*.md runs: each block as a program, or by pytest where it tests.

A broker of this process stands where a block says `localhost:9092`. What earlier blocks of the same
document define, later ones may use. A loop over a consumer has no end in the documents; here it is
interrupted when it has printed a line.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import krust
from krust.settings import BROKER, TOPIC

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"
ENDLESS = re.compile(r"^ *for \w+ in consumer:$", re.MULTILINE)
PATIENCE_S = 200
SPARK_PATIENCE_S = 280


class Block(NamedTuple):
    """A block and where it stands."""

    place: str
    code: str


def blocks() -> list[Block]:
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text, defined = path.read_text(), ""
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(f"{path.name}:{line}", defined + match[1]))
            if re.search(r"^class ", match[1], re.MULTILINE):
                defined += match[1] + "\n\n"
    return found


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with krust.Broker() as broker:
        broker.create_topic("orders", partitions=3)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.produce("orders", b"first")
        yield broker.bootstrap


@pytest.mark.timeout(SPARK_PATIENCE_S + 20)
@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.place)
def test_a_block_of_python_runs(block: Block, bootstrap: str, tmp_path: Path) -> None:
    patience_s = PATIENCE_S
    if "pyspark" in block.code:
        pytest.importorskip("pyspark", reason="no pyspark here")
        if shutil.which("java") is None:
            pytest.skip("no Java here")
        patience_s = SPARK_PATIENCE_S
    file = tmp_path / "test_block.py"
    file.write_text(block.code.replace(ADDRESS, bootstrap))
    tests = re.search(r"^(?:async )?def test_", block.code, re.MULTILINE)
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if tests else ["-u"]
    with subprocess.Popen(
        [sys.executable, *command, str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        assert run.stdout is not None
        shown = ""
        if ENDLESS.search(block.code):
            shown = run.stdout.readline()
            run.send_signal(signal.SIGINT)
        shown += run.communicate(timeout=patience_s)[0]
    assert run.returncode == 0 or shown.endswith("KeyboardInterrupt\n"), shown


def test_there_are_blocks() -> None:
    places = {block.place.partition(":")[0] for block in blocks()}
    assert {"README.md", "assignors.md"} <= places


def test_what_the_page_of_threats_names_exists() -> None:
    text = (ROOT / "docs/threats.md").read_text()
    names = re.findall(r"`([a-z][a-z0-9_./]*[a-z0-9])`", text)
    files = {name for name in names if "/" in name}
    settings = {name for name in names if "." in name} - files
    assert len(files) > 10
    assert len(settings) > 10
    assert not [name for name in sorted(files) if not (ROOT / name).is_file()]
    known = BROKER.keys() | TOPIC.keys()
    assert settings <= known, settings - known
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    limits = [row for row in rows if row[1].strip() != "what"]
    assert not [row[1] for row in limits if "`" not in row[4]], "a limit without a test"
