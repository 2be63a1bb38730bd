"""Members of groups as child processes (member.py), and the topics they share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON_KINDS = (
    "confluent-range",
    "confluent-cooperative",
    "kafka-python",
    "kafka-python-0.9",
    "aiokafka",
)
JAVA_KINDS = ("java-3.9.1", "java-4.3.0")
CONSUMER_KINDS = ("confluent-consumer", "java-4.3.0-consumer")
PARTITIONS = 6
PATIENCE_S = 60
SHOWN = 80


class Member:
    """A process in a group, and its output so far."""

    def __init__(self, kind: str, bootstrap: str, group: str, topic: str) -> None:
        self.kind = kind
        self.reports: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        command = [sys.executable, "-m", "tests.foreign.member", kind, bootstrap, group, topic]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the member ends
        self.trouble = ""
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.reports.append(json.loads(line))
                self.changed.notify_all()

    def owned(self) -> set[int]:
        """Its current partitions, by its output."""
        owned: set[int] = set()
        for report in list(self.reports):
            owned |= set(report.get("assigned", ()))
            owned -= set(report.get("revoked", ()))
        return owned

    def places(self, what: str) -> list[tuple[int, int]]:
        """Partition and offset of its records or commits, in order."""
        return [
            (report[what][0], report[what][1]) for report in list(self.reports) if what in report
        ]

    def offsets(self, what: str) -> dict[int, list[int]]:
        """The offsets of its records or commits by partition, in order."""
        found = defaultdict(list)
        for partition, offset in self.places(what):
            found[partition].append(offset)
        return found

    def leave(self) -> None:
        """Have it leave its group and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._end()

    def kill(self) -> None:
        """Kill it and its Java process without warning."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._end()

    def freeze(self) -> None:
        """Suspend it, like a long pause of its machine."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def story(self) -> str:
        """Its last output, once it ended."""
        shown = "\n".join(json.dumps(report) for report in self.reports[-SHOWN:])
        return f"{self.kind}:\n{shown}\n{self.trouble[-SHOWN * 100 :]}"

    def _end(self) -> None:
        self.reader.join()
        if not self.errors.closed:
            self.errors.seek(0)
            self.trouble = self.errors.read().decode(errors="replace")
            self.errors.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def members(*made: Member) -> Iterator[None]:
    """They end with the block; if it fails, their output is printed."""
    try:
        yield
    except BaseException:
        for each in made:
            each.kill()
            print(each.story())
        raise
    finally:
        for each in made:
            each.kill()


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def fill(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Records with numbers for values, `count` to each partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        for partition in range(PARTITIONS):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def make(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
