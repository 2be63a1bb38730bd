"""A stream writes with exactlyOnce while its driver, its workers and the broker are killed at
random moments, and the driver also at named steps of its commit: each row is there once for
read_committed readers.

KRUST_SPARK_KILLS: how many kills, which `make chaos-spark` sets; without it the test is skipped.
KRUST_SPARK_SEED: the seed of its choices (1).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.conftest import committed_values
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.spark.conftest import create, fill, settings, until
from tests.spark.processes import workers

pytest.importorskip("pyspark", reason="no pyspark here: pip install '.[spark]'")

from tests.spark.killing import STEPS, Job, start_driver

KILLS = int(os.environ.get("KRUST_SPARK_KILLS", "0"))
SEED = int(os.environ.get("KRUST_SPARK_SEED", "1"))
ROWS = 600
"""records written before each kill: two micro-batches"""


class Run:
    """A broker, the driver of a stream, and what was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.rng = folder, free_port(), random.Random(SEED)
        self.broker = self._serve()
        for topic in ("in", "out"):
            create(self.broker.bootstrap, topic, 3)
        self.kills: Counter[str] = Counter()
        self.rows = self.given_up = 0
        self.step: str | None = None
        self.driver = self._start()

    def _serve(self) -> ServedBroker:
        return ServedBroker(self.folder / "broker", "--prod", port=self.port)

    def _start(self, *, endless: bool = True) -> subprocess.Popen[bytes]:
        """A driver. Every other one kills itself in the commit of a later micro-batch."""
        is_armed = endless and self.rng.random() < 0.5
        self.step = self.rng.choice(sorted(STEPS)) if is_armed else None
        job: Job = {
            "bootstrap": self.broker.bootstrap,
            "topic": "in",
            "out": "out",
            "checkpoint": str(self.folder / "checkpoint"),
            "step": self.step,
            "batch": self.committed() + self.rng.randrange(2, 5),
            "endless": endless,
            "conf": settings(self.folder, []),
        }
        return start_driver(job, self.folder / "driver.log")

    def committed(self) -> int:
        """The last micro-batch that is done; -1: none."""
        folder = self.folder / "checkpoint/commits"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def feed(self) -> None:
        """Write more rows, and wait until a micro-batch is done or the driver has ended."""
        before = self.committed()
        fill(self.broker.bootstrap, "in", ROWS, first=self.rows)
        self.rows += ROWS
        until(lambda: self.committed() > before or self.driver.poll() is not None, 180)

    def kill(self) -> None:
        """Kill something at a random moment, and start it again."""
        time.sleep(self.rng.uniform(0, 1))
        if self.driver.poll() is not None:
            if self.step is not None:
                self.kills[f"driver {self.step}"] += 1
            else:
                self.given_up += 1
            self.driver = self._start()
            return
        what = self.rng.choice(("driver", "worker", "worker", "broker", "broker"))
        if what == "driver":
            os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait()
            self.driver = self._start()
        elif what == "broker":
            self.broker.kill()
            time.sleep(self.rng.uniform(0, 2))
            self.broker = self._serve()
        else:
            found = workers()
            if not found:
                return
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(found), signal.SIGKILL)
        self.kills[what] += 1

    def finish(self) -> None:
        """Copy what is left, and end."""
        with suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.driver = self._start(endless=False)
        assert self.driver.wait(300) == 0, (self.folder / "driver.log").read_text()[-2000:]


@pytest.mark.skipif(not KILLS, reason="make chaos-spark runs it")
@pytest.mark.timeout(300 + 60 * KILLS)
def test_each_row_is_there_once_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="no pyspark here: pip install '.[spark]'")
    run = Run(tmp_path)
    try:
        while sum(run.kills.values()) < KILLS:
            run.feed()
            run.kill()
        run.finish()
        found = sorted(int(one[1:]) for one in committed_values(run.broker.bootstrap, "out"))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.driver.pid, signal.SIGKILL)
        run.broker.kill()
    kills = dict(sorted(run.kills.items()))
    with capsys.disabled():
        print(f"\nseed {SEED}: {kills} killed, {run.given_up} drivers gave up;", end=" ")
        print(f"{run.rows} rows in {run.committed()} micro-batches")
    assert found == list(range(run.rows))
