"""Names that a topic may have: Kafka's rule, which also makes them names of directories."""

from __future__ import annotations

import re

from krust.controller.state import RefusedError
from krust.errors import Code

MAX_NAME = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_name(name: str) -> None:
    """Refuse a name that Kafka, or a directory, cannot have."""
    why = None
    if not name:
        why = "it can't be empty"
    elif name in (".", ".."):
        why = f"it can't be '{name}'"
    elif len(name) > MAX_NAME:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_NAME}"
    elif not _LEGAL.match(name):
        why = f"'{name}' contains a character other than ASCII alphanumerics, '.', '_' and '-'"
    if why:
        raise RefusedError(Code.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")
