"""Changes of quotas, credentials, ACLs and tokens, which the core gets once a turn.

The core gets all of them at once, so an answer to a client that changed some waits until it has.
Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.controller.changes import Changes
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from krust.controller.state import Request
    from krust.messages import Message

APIS = (
    "AlterClientQuotas",
    "AlterUserScramCredentials",
    "CreateAcls",
    "DeleteAcls",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
)
"""those whose answers wait"""


class WaitingAnswer(NamedTuple):
    """An answer that leaves when the core has the changes."""

    ticket: int
    request: Request[Any]
    answer: Message | Exception


class EntityChanges:
    """What changed in this turn, and who waits for it."""

    def __init__(self) -> None:
        self._changes = Changes()
        self._answers: list[WaitingAnswer] = []

    def take(self, changes: Changes) -> None:
        """Take the changes of quotas, credentials, ACLs and tokens out of these."""
        self._changes.quotas |= changes.quotas
        self._changes.credentials |= changes.credentials
        self._changes.acls |= changes.acls
        self._changes.tokens |= changes.tokens
        changes.quotas = changes.credentials = changes.acls = False
        changes.tokens = set()

    def delay(self, ticket: int, request: Request[Any], answer: Message | Exception) -> None:
        """Have an answer wait."""
        self._answers.append(WaitingAnswer(ticket, request, answer))

    def end_turn(self) -> tuple[Changes, list[WaitingAnswer]]:
        """The changes for the core, and the answers that leave after it has them."""
        ended = self._changes, self._answers
        self._changes, self._answers = Changes(), []
        return ended
