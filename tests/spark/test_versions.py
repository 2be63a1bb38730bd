"""The same scenario on other Sparks: `KRUST_OLD_SPARKS=folder:folder`, made by
`pip install --target FOLDER pyspark==4.0.1`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = [folder for folder in os.environ.get("KRUST_OLD_SPARKS", "").split(":") if folder]


@pytest.mark.parametrize("folder", FOLDERS or [None], ids=lambda folder: str(folder))
def test_krust_works_with_other_versions_of_spark(
    bootstrap: str, name: str, tmp_path: Path, folder: str | None
) -> None:
    if folder is None:
        pytest.skip("KRUST_OLD_SPARKS names no folder with another Spark")
    path = ":".join((folder, ".", os.environ.get("PYTHONPATH", "")))
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.scenario", bootstrap, name, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
    )
    assert run.returncode == 0, run.stderr[-4000:]
    results = json.loads(run.stdout.splitlines()[-1])
    print(results)
    assert [fact for fact, holds in results.items() if not holds] == []
    if results["version"] < "4.2":
        assert "Before Spark 4.2 a Python source has limits" in run.stderr
