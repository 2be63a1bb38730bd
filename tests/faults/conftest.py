"""Fixtures of the fault tests: a broker's wall clock that a test can move."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says how many seconds a broker's wall clock is off.

    Every process started afterwards uses it, until LD_PRELOAD is removed from the environment.
    """
    compiler = shutil.which("cc")
    if compiler is None or not Path("/proc/self").exists():
        pytest.skip("no C compiler, or not Linux: the clock of a process cannot be moved")
    library = tmp_path / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    offset = tmp_path / "offset"
    offset.write_text("0")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(offset))
    return offset
