"""Apache Kafka's consumer of 0.8.2, whose group lives in ZooKeeper, as a process beside a test."""

from __future__ import annotations

import functools
import queue
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.peers.absent import why
from tests.peers.java_source import program
from tests.peers.zookeeper import fetched

PROGRAM = Path(__file__).parents[1] / "foreign/java/OldConsumer.java"
WAIT_S = 60.0
_PARTS = (("org.apache.kafka", "kafka_2.10", "0.8.2.2"),)
_JAVA = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
Record = tuple[str, int, int, str]


@functools.cache
def missing() -> str | None:
    """Why it is not available here; None: it is."""
    return why(lambda: fetched("0.8.2.2", _PARTS))


class OldConsumer:
    """A process with its streams, which runs until `stop`.

    what      a topic, or `white:` or `black:` and a pattern
    settings  Kafka's keys with `_` for `.`
    """

    def __init__(self, folder: Path, what: str, threads: int, **settings: object) -> None:
        kind, _, name = what.rpartition(":")
        command = ["java", *_JAVA, *program(PROGRAM, fetched("0.8.2.2", _PARTS))]
        command += [kind or "topic", name, str(threads)]
        command += [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        self.records: list[Record] = []
        self._said: queue.Queue[str] = queue.Queue()
        with (folder / "old-consumer.out").open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._wait("ready")

    def commit(self) -> None:
        """Make it commit its offsets."""
        assert self.process.stdin is not None
        self.process.stdin.write("commit\n")
        self.process.stdin.flush()
        self._wait("committed")

    def stop(self) -> None:
        """Make it leave its group and end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            assert self.process.wait(WAIT_S) == 0
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it without warning."""
        self.process.kill()
        self.process.wait()
        self._listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split(maxsplit=3)
            if len(words) == 4:
                self.records.append((words[0], int(words[1]), int(words[2]), words[3].strip()))
            else:
                self._said.put(line.strip())

    def _wait(self, word: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._said.get(timeout=max(deadline - time.monotonic(), 0.1)) != word:
            pass
