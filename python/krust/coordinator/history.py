"""The last rebalances of a group and why they happened, for `krust group describe`.

Limits: 20 rebalances, 50 reasons each (the first ones, then a count), 255 characters a reason, 4096
characters a traceback.
It travels in DescribeGroups under a tagged field that Kafka does not use, to clients that ask for
it with the same tag.
The history is in memory only; a restart begins a new one. Each rebalance is also a line of the log.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.messages.describe_groups import GroupRebalance

MAX_REBALANCES = 20
MAX_REASONS = 50
REASON_CHARS = 255
TRACEBACK_CHARS = 4096
LOGGED_REASONS = 3
"""how many reasons a line of the log has"""

_log = logging.getLogger("krust.groups")


@dataclass(slots=True)
class RebalanceRecord:
    """One rebalance, from the first reason to the stored assignment."""

    started_ms: int
    ended_ms: int | None = None
    """None: it has not ended, or the next one replaced it"""
    generation: int | None = None
    members: int = 0
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """member id and why"""
    unlisted_reasons: int = 0
    """reasons that are not listed"""
    assignor_error: str | None = None
    """the traceback of an assignor that failed"""
    assignor: str | None = None
    """the assignor of krust that assigned; None: a member assigned"""

    def as_message(self) -> GroupRebalance:
        """The rebalance in `krust_history` of DescribeGroups."""
        return {
            "started_ms": self.started_ms,
            "ended_ms": -1 if self.ended_ms is None else self.ended_ms,
            "generation": -1 if self.generation is None else self.generation,
            "members": self.members,
            "reasons": [{"member_id": who, "why": why} for who, why in self.reasons],
            "more": self.unlisted_reasons,
            "trouble": self.assignor_error,
            "assignor": self.assignor,
        }


class History:
    """The last rebalances of one group."""

    __slots__ = ("_group_id", "_rebalances", "current")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.current: RebalanceRecord | None = None
        self._rebalances: deque[RebalanceRecord] = deque(maxlen=MAX_REBALANCES)

    def add_reason(self, member_id: str, why: str, now_ms: int) -> None:
        """Add a reason to the current rebalance, or to the next one once the joins are answered."""
        if self.current is None or self.current.generation is not None:
            self.current = RebalanceRecord(now_ms)
            self._rebalances.append(self.current)
        if len(self.current.reasons) < MAX_REASONS:
            self.current.reasons.append((member_id, why[:REASON_CHARS]))
        else:
            self.current.unlisted_reasons += 1

    def on_generation(self, generation: int, members: int) -> None:
        """The joins are answered: a generation is formed."""
        if self.current is not None:
            self.current.generation = generation
            self.current.members = members
            if _log.isEnabledFor(logging.INFO):
                _log.info("%s", self._line(self.current))

    def _line(self, made: RebalanceRecord) -> str:
        """The line for the log. Clients give reasons, which may have any characters."""
        why = "; ".join(f"{who} {text}".strip() for who, text in made.reasons[:LOGGED_REASONS])
        more = made.unlisted_reasons + len(made.reasons[LOGGED_REASONS:])
        text = f"{why}; and {more} more" if more else why
        plain = "".join(each if each.isprintable() else "?" for each in text)
        made_of = f"members {made.members}" if made.members else "empty"
        return f"group {self._group_id!r}: generation {made.generation}, {made_of}: {plain}"

    def note_assignor(self, line: str | None, assignor: str | None = None) -> None:
        """Note the traceback of an assignor that failed, and the assignor that assigned."""
        if self.current is None:
            return
        self.current.assignor = assignor
        if line is not None:
            self.current.assignor_error = line[:TRACEBACK_CHARS]

    def end(self, now_ms: int) -> None:
        """The assignment is stored, or no member is left."""
        if self.current is not None:
            self.current.ended_ms = now_ms
            self.current = None

    def as_message(self) -> list[GroupRebalance]:
        """All rebalances as a response has them, oldest first."""
        return [each.as_message() for each in self._rebalances]

    def rebalances(self) -> list[RebalanceRecord]:
        """Oldest first."""
        return list(self._rebalances)
