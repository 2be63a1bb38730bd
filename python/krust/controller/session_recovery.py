"""When a broker recovers its session with the metadata store.

A broker that recovers reads again what may have changed in the tree, and registers again
(`registration.register_again`, `jobs.recover`). A recovery is due each time the store is connected
again, because the registration may be gone, and after each write whose outcome is unknown, because
the tree says what happened.
Requests wait while the broker recovers. A new reason during a recovery makes another one due.
Time: seconds on a monotonic clock, handed in.
"""

from __future__ import annotations

from math import inf

from krust.metadata.store import SessionState

RETRY_S = 1.0
"""between two attempts"""


class SessionRecovery:
    """What is known about the session, and when the next recovery is due."""

    def __init__(self) -> None:
        self.is_connected = True
        self.ticket = 0
        """the ticket of the recovery that runs; 0: none"""
        self._due_s = inf

    @property
    def is_running(self) -> bool:
        """Whether the broker recovers now."""
        return self.ticket != 0

    def session_changed(self, state: SessionState) -> None:
        """The session is in another state. A recovery is due once it is connected."""
        self.is_connected = state is SessionState.CONNECTED
        self._due_s = 0 if self.is_connected else inf

    def outcome_unknown(self) -> None:
        """The store cannot say whether it made a write: a recovery is due."""
        self._due_s = 0

    def wait_s(self, now_s: float) -> float:
        """The seconds until a recovery is due; inf: none is."""
        return inf if self.is_running else max(self._due_s - now_s, 0)

    def begin(self, ticket: int) -> bool:
        """Begin the recovery that is due. False: there is no connection, so it waits for one."""
        self._due_s = inf
        if self.is_connected:
            self.ticket = ticket
        return self.is_connected

    def end(self, now_s: float, *, failed: bool) -> None:
        """The recovery has ended. After a failure the next one is due soon."""
        self.ticket = 0
        if failed:
            self._due_s = min(self._due_s, now_s + RETRY_S)
