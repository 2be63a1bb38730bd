"""Clients in other languages that copy records: franz-go (`go/`) and kafkajs (`node/`).

They run where KRUST_OTHER_CLIENTS=1 asks for them, because each is fetched from its registry and
built. A client is told by JSON what to do, as `copying` does it: it writes RECORDS to a topic and
reads them back.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.foreign.copying import RECORDS, ran

ON_DEMAND = [
    pytest.mark.timeout(600),
    pytest.mark.skipif("KRUST_OTHER_CLIENTS" not in os.environ, reason="KRUST_OTHER_CLIENTS=1"),
]
BUILD_S = 300
_SOURCES = Path(__file__).parent


class Task(NamedTuple):
    """Where a client copies records, and how it logs in. Empty: not at all."""

    bootstrap: str
    topic: str = "never"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    authority: Path | str = ""
    certificate: Path | str = ""
    key: Path | str = ""


class Program:
    """A client that is built.

    command  the words that run it
    """

    def __init__(self, *command: str) -> None:
        self._command = list(command)

    def __call__(self, task: Task) -> list[bytes]:
        """What it reads of the topic. ConnectionError: it cannot, and says why."""
        values = [value.decode() for value in RECORDS]
        words = {name: str(value) for name, value in task._asdict().items()}
        said = ran(self._command, json.dumps(words | {"values": values}).encode())
        return [value.encode() for value in json.loads(said)]


def franz_go(folder: Path) -> Program:
    """franz-go's client, built into a folder."""
    _needs("go")
    made = folder / "copy"
    _run(_SOURCES / "go", "go", "build", "-mod=readonly", "-o", str(made), ".")
    return Program(str(made))


def kafkajs(folder: Path) -> Program:
    """kafkajs' client, with its packages in a folder."""
    _needs("npm", "node")
    for name in ("copy.js", "package.json", "package-lock.json"):
        shutil.copy(_SOURCES / "node" / name, folder)
    _run(folder, "npm", "ci", "--silent", "--no-audit", "--no-fund")
    return Program("node", str(folder / "copy.js"))


PROGRAMS = {"franz-go": franz_go, "kafkajs": kafkajs}


def _needs(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
