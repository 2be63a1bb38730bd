"""`krust serve` as a process, for tests that kill it, limit it or share it.

Readiness is a line on a pipe (`--ready-fd`), never a sleep. The child ends with its parent: its
standard input is a pipe, and `--exit-on-stdin-close` is set.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waiting import is_readable

READY_S = 60
AT_ONCE: dict[str, object] = {  # groups settle without a pause on every broker
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
}
OURS = {  # no settings of the broker
    "KRUST_CLUSTER_ROUNDS",
    "KRUST_CLUSTER_SEED",
    "KRUST_CLUSTER_SEEDS",
    "KRUST_COPIER_KILLS",
    "KRUST_CRASH_ROUNDS",
    "KRUST_DISK_FILLS",
    "KRUST_KAFKA_CLUSTER",
    "KRUST_MIXED_RECORDS",
    "KRUST_OLD_SPARKS",
    "KRUST_OTHER_CLIENTS",
    "KRUST_POWER_CUTS",
    "KRUST_POWER_SEED",
    "KRUST_REPLICATED_BURST",
    "KRUST_REPLICATED_LASTS_S",
    "KRUST_REPLICATED_ROUNDS",
    "KRUST_REPLICATED_SEED",
    "KRUST_REPLICATED_TOTALS",
    "KRUST_REPLICATION_CASES",
    "KRUST_SPARK_ALL",
    "KRUST_SPARK_JARS",
    "KRUST_SPARK_KILLS",
    "KRUST_SPARK_SEED",
    "KRUST_SPARK_TABLES",
    "KRUST_TEST_BOOTSTRAP",
    "KRUST_TEST_KAFKA39",
    "KRUST_TEST_KAFKA43",
    "KRUST_TURNS",
    "KRUST_TXN_KILLS",
    "KRUST_TXN_ROUNDS",
    "KRUST_TXN_RUNS",
    "KRUST_TXN_SEED",
    "KRUST_TXN_VERSION",
    "KRUST_WORKER_KILLS",
}
STOP_S = 60


def environment() -> dict[str, str]:
    """The environment of a krust command: this process's, without the variables of the tests."""
    return {name: text for name, text in os.environ.items() if name not in OURS}


class NotReadyError(AssertionError):
    """The process ended or did not become ready; `.code` is its exit code, `.stderr` its output."""

    def __init__(self, code: int | None, stderr: str) -> None:
        super().__init__(f"krust serve: exit {code}\n{stderr}")
        self.code, self.stderr = code, stderr


class ServedBroker:
    """A broker process: `with Served(directory) as broker: broker.bootstrap`.

    settings  Kafka's keys, with `_` for `.` or as they are (in `options`)
    limit     called in the child before it becomes krust, to set resource limits
    port      of the listener; None: the options name listeners
    within    the words before the command, such as those that enter a network namespace
    """

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        options: dict[str, object] | None = None,
        port: int | None = 0,
        limit: Callable[[], None] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        ready, child = os.pipe()
        command = [*within, sys.executable, "-m", "krust", "serve"]
        command += [] if port is None else ["--port", str(port)]
        command += ["--data-dir", str(data_dir), "--ready-fd", str(child), "--exit-on-stdin-close"]
        for key, value in (options or {}).items():
            command += ["-o", f"{key}={value}"]
        self.log = data_dir.parent / f"{data_dir.name}.stderr"
        with self.log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*command, *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[child],
                preexec_fn=limit,
                env=environment(),
            )
        os.close(child)
        with os.fdopen(ready, "rb") as pipe:
            line = pipe.readline() if is_readable(pipe, READY_S) else b""
        if not line:
            self.process.kill()
            code = self.process.wait()
            self._close()
            raise NotReadyError(code, self.stderr())
        self.ready: dict[str, object] = json.loads(line)

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        return self.process.pid

    def stderr(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill it without warning, like a crash of the process."""
        self.process.kill()
        self.process.wait(STOP_S)
        self._close()

    def stop(self) -> int:
        """Ask it to end, as a service manager does; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_S)
        self._close()
        return code

    def _close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is not None:
            self._close()
            return
        try:
            code = self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        if kind is None:
            assert code == 0, self.stderr()
