"""The answers of real Kafkas, as a file keeps them, and how two sets of answers differ.

For each world and each row with its version: the outcomes that there are, and a letter for each
scenario, in their order; "." where it does not ask that version.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

from tests.acl_matrix.matrix import Cells, World

FILE = Path(__file__).parents[1] / "data/acl-matrix.json"
LETTERS = string.ascii_letters + string.digits
NOT_ASKED = "."
SHOWN = 40


def load(world: World) -> Cells:
    """What Kafka answered."""
    users = [each.user for each in world.scenarios]
    kept = json.loads(FILE.read_text())[world.name]
    return {row: dict(_unpacked(users, *each)) for row, each in kept.items()}


def _unpacked(users: list[str], outcomes: list[str], letters: str) -> list[tuple[str, str]]:
    return [
        (user, outcomes[LETTERS.index(letter)])
        for user, letter in zip(users, letters, strict=True)
        if letter != NOT_ASKED
    ]


def save(world: World, cells: Cells) -> None:
    """Keep what Kafka answered."""
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    users = [each.user for each in world.scenarios]
    kept[world.name] = {row: _packed(users, each) for row, each in cells.items()}
    lines = (
        f"{json.dumps(name)}: {{\n" + ",\n".join(_lines(rows)) + "\n}"
        for name, rows in kept.items()
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(rows: dict[str, Any]) -> list[str]:
    return [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in rows.items()]


def _packed(users: list[str], cells: dict[str, str]) -> list[Any]:
    outcomes = sorted(set(cells.values()))
    letters = (
        LETTERS[outcomes.index(cells[user])] if user in cells else NOT_ASKED for user in users
    )
    return [outcomes, "".join(letters)]


def differences(found: Cells, wanted: Cells) -> list[str]:
    """Where two differ: row, outcomes, and some of the users."""
    users: dict[tuple[str, str, str], list[str]] = {}
    for row in found.keys() | wanted.keys():
        ours, theirs = found.get(row, {}), wanted.get(row, {})
        for user in ours.keys() | theirs.keys():
            pair = ours.get(user, "not asked"), theirs.get(user, "not asked")
            if pair[0] != pair[1]:
                users.setdefault((row, *pair), []).append(user)
    return [
        f"{row}: {ours}, not {theirs}: {len(who)} users, as {sorted(who)[0]}"
        for (row, ours, theirs), who in sorted(users.items())
    ][:SHOWN]


def count(cells: Cells) -> int:
    """How many cells these are."""
    return sum(map(len, cells.values()))
