"""Apache's programs that tests run beside krust come from Maven; a machine may lack them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class AbsentError(Exception):
    """A program is not available on this machine; the text says why."""


def kept() -> Path:
    """The folder of the jars: KAFKA_JARS (~/.cache/krust/kafka)."""
    return Path(os.environ.get("KAFKA_JARS") or Path.home() / ".cache/krust/kafka")


@contextmanager
def fetching() -> Iterator[None]:
    """Only one process fetches jars at a time, because half a jar of another would look whole."""
    kept().mkdir(parents=True, exist_ok=True)
    with (kept() / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def need_java_and_maven() -> None:
    """AbsentError: one of them is not there."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise AbsentError(f"no {tool} here")


def why(*fetches: Callable[[], object]) -> str | None:
    """Why one of these cannot be fetched here; None: all can."""
    try:
        for fetch in fetches:
            fetch()
    except AbsentError as error:
        return str(error)
    return None
