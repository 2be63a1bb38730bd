"""What changed in the controller's state: the core has to apply it before the next answer.

Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.controller.entities import Topic


class Changes:
    """What the core has to apply before the next answer."""

    def __init__(
        self, *, quotas: bool = False, credentials: bool = False, live: bool = False
    ) -> None:
        self.topics: dict[str, Topic | None] = {}
        """whole topics; None: gone"""
        self.brokers = False
        """the broker's settings are others: every topic's defaults may be"""
        self.groups: set[str] = set()
        """groups whose own settings are others"""
        self.quotas = quotas
        """what users, clients and addresses may use is another"""
        self.credentials = credentials
        """what proves who users are is another"""
        self.acls = False
        """who may do what is another"""
        self.tokens: set[str] = set()
        """delegation tokens that are others, or gone"""
        self.live = live
        """brokers of the cluster came, went, or are others"""
        self.controller = False
        """another broker is the controller, or nobody is"""
        self.strays: set[tuple[str, int]] = set()
        """replicas that are here no more and whose files are kept; of any other they are deleted"""
        self.faults: list[tuple[str, str]] = []
        """znodes that were passed over, and why; for the log"""
        self.lines: list[tuple[int, str]] = []
        """for the log, with its level"""

    def __bool__(self) -> bool:
        """Whether anything changed."""
        changed = self.topics or self.live or self.brokers or self.controller or self.groups
        entities = self.quotas or self.credentials or self.acls or self.tokens
        return bool(changed or entities or self.strays or self.faults or self.lines)

    def add(self, later: Changes) -> None:
        """Add later changes."""
        self.topics |= later.topics
        self.live |= later.live
        self.strays |= later.strays
        self.groups |= later.groups
        self.brokers |= later.brokers
        self.quotas |= later.quotas
        self.credentials |= later.credentials
        self.acls |= later.acls
        self.tokens |= later.tokens
        self.controller |= later.controller
        self.faults += later.faults
        self.lines += later.lines
