"""What a machine may lack: the programs of Apache that tests run beside krust."""

from __future__ import annotations

import shutil
from collections.abc import Callable


class AbsentError(Exception):
    """A program cannot be had on this machine; the text says why."""


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
