"""`make serve` in a fresh checkout gets what serving needs, and says that it builds."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def planned(target: str, folder: Path) -> str:
    command = ["make", "--dry-run", f"VENV={folder / 'venv'}", target]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout


def test_make_serve_installs_what_builds_the_core_and_nothing_of_tests(tmp_path: Path) -> None:
    serve, dev = planned("serve", tmp_path), planned("dev", tmp_path)
    assert 'x["test"]' in dev
    assert 'x["test"]' not in serve
    assert "requirements.txt" not in serve
    for each in (serve, dev):
        assert each.count("maturin develop") == 1
        assert "the first time takes some minutes" in each
