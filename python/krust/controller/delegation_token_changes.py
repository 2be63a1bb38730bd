"""Delegation tokens in the tree: a broker with the key reads all at its start, then each change.

Whoever makes, changes or deletes a token names it in `/delegation_token/token_changes`
(`change_notifications`), and every broker reads that token again. Every
`delegation.token.expiry.check.interval.ms` the controller deletes the tokens that have expired. (A
login needs none of that: the core compares the time.)
A node that cannot be read is no token: nobody logs in by it. After a lost session a broker reads
all again. A broker without the key reads nothing.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from krust.controller import delegation_tokens, store_reads
from krust.controller.change_notifications import SeenNotifications, create_nodes
from krust.controller.delegation_tokens import CHANGES, DelegationToken
from krust.controller.pace import PAUSE
from krust.errors import ServerError
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Children, Create, Delete, Node, Read

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult, Result

_BATCH = 100
"""so many nodes are read in one slice"""


class TokenChangeNotifications(SeenNotifications):
    """The notifications of changed tokens that this broker has seen."""

    def __init__(self) -> None:
        super().__init__(CHANGES)

    def follow(self, state: ControllerState) -> Steps:
        """Read all tokens, and watch for changes from now on."""
        if not state.tokens.is_enabled:
            return
        yield from create_nodes(delegation_tokens.PERSISTENT)
        yield from self.begin()
        yield from load(state)

    def read_new(self, state: ControllerState, now_ms: int) -> Steps:
        """Read new notifications, and the tokens that they name."""
        if not state.tokens.is_enabled:
            return
        new = yield from self.new(now_ms)
        changed: dict[str, None] = {}
        is_known = True
        for path, node in new:
            try:
                data = node.data if isinstance(node, Node) else b""
                changed[delegation_tokens.decode_change(data)] = None
            except BadZnodeError as error:
                is_known = False
                state.fault(path, error)
        yield from reread(state, changed) if is_known else load(state)
        self.take(path for path, _ in new)


class TokenExpiry:
    """When the controller looks for tokens that have expired, and what it does with them."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._next_ms = -inf

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until it looks; a new controller does so at once."""
        if not (self._state.is_controller and self._state.tokens.is_enabled):
            self._next_ms = -inf
            return inf
        return max(self._next_ms - now_ms, 0)

    def begin(self, now_ms: int) -> Steps:
        """The steps that delete expired tokens. What fails is tried again the next time."""
        interval_ms = self._state.config.whole("delegation.token.expiry.check.interval.ms")
        self._next_ms = now_ms + interval_ms
        return self._delete_expired(now_ms)

    def _delete_expired(self, now_ms: int) -> Steps:
        for token in self._state.tokens:
            if not token.is_expired(now_ms):
                continue
            try:
                yield from self._delete(token.id, now_ms)
            except ServerError:
                return
            yield PAUSE

    def _delete(self, token_id: str, now_ms: int) -> Steps:
        state = self._state
        token, version = yield from read(state, token_id)
        if token is not None and not token.is_expired(now_ms):
            state.set_token(token_id, token)
            return
        if token is not None:
            delete = Delete(delegation_tokens.path(token_id), version)
            (done,) = yield [[state.fence(), delete, changed(token_id)]]
            if done.refused is not None:
                return
            state.note(f"delegation token {token_id} of {token.owner.shown} has expired")
        state.set_token(token_id, None)


def load_alone(state: ControllerState) -> Steps:
    """Read all tokens of a tree that only this broker uses."""
    if not state.tokens.is_enabled:
        return
    yield from create_nodes(delegation_tokens.PERSISTENT)
    yield from TokenChangeNotifications().clear()
    yield from load(state)


def load(state: ControllerState) -> Steps:
    """Read all tokens. ServerError: the tree cannot be read."""
    top = delegation_tokens.TOKENS
    (done,) = yield [[Children(top)]]
    known = {each.id: None for each in state.tokens}
    there = dict.fromkeys(store_reads.children(top, done.results[0]))
    yield from reread(state, known | there)


def reread(state: ControllerState, ids: Collection[str]) -> Steps:
    """Read these tokens. ServerError: the tree cannot be read."""
    left = list(ids)
    for start in range(0, len(left), _BATCH):
        if start:
            yield PAUSE
        some = left[start : start + _BATCH]
        results = yield from store_reads.read_many(
            Read(delegation_tokens.path(each)) for each in some
        )
        for token_id, result in zip(some, results, strict=True):
            state.set_token(token_id, _token(state, token_id, result)[0])


def read(
    state: ControllerState, token_id: str
) -> Generator[Transactions, list[MultiResult], tuple[DelegationToken | None, int]]:
    """A token as the tree has it now, and the version of its node. None: there is none that can be
    read. ServerError: the tree cannot be read.
    """
    (done,) = yield [[Read(delegation_tokens.path(token_id))]]
    return _token(state, token_id, done.results[0])


def changed(token_id: str) -> Create:
    """The write that names a changed token to every broker."""
    return Create(delegation_tokens.CHANGE, token_id.encode(), sequential=True)


def _token(
    state: ControllerState, token_id: str, result: Result
) -> tuple[DelegationToken | None, int]:
    path = delegation_tokens.path(token_id)
    try:
        node = store_reads.node(path, result)
        if node is not None:
            return DelegationToken.decode(token_id, node.data), node.stat.version
    except (BadZnodeError, store_reads.UnreadableError) as error:
        state.fault(path, f"{error}; nobody logs in by this delegation token")
    return None, -1
