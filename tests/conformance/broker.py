"""A krust that is started for one foreign suite and stopped after it.

Production mode, since the suites were written against Kafka's defaults; a temporary data directory;
`ready.json` says when clients can connect.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START_LIMIT_S = 30


@contextlib.contextmanager
def serving(settings: Mapping[str, str], *, port: int = 0) -> Iterator[str]:
    """Run `krust serve` with `settings`; yield its bootstrap address.

    raises  RuntimeError: it ended, or was not ready within START_LIMIT_S; its stderr is in the text
    """
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "krust", "serve", "--prod", "--port", str(port)]
        command += ["--data-dir", f"{folder}/data", "--ready-file", str(ready)]
        for key, value in settings.items():
            command += ["-o", f"{key}={value}"]
        with (Path(folder) / "stderr").open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
        try:
            yield _bootstrap(process, ready, Path(stderr.name))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            process.wait(START_LIMIT_S)


def _bootstrap(process: subprocess.Popen[bytes], ready: Path, stderr: Path) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready.exists():
            return str(json.loads(ready.read_text())["bootstrap"])
        time.sleep(0.01)
    raise RuntimeError(f"krust serve is not ready: {stderr.read_text()}")
