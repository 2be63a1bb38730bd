"""Delegation tokens in the tree: a broker with the key reads all at its start, then each change.

Whoever makes, changes or deletes a token creates a node in `/delegation_token/token_changes` that
names it, and every broker reads that token again. The controller deletes such a node 15 minutes
after it has seen it, as Kafka's brokers do, and every `delegation.token.expiry.check.interval.ms`
the tokens that have expired. (A login needs none of that: the core compares the time.)
A node that cannot be read is no token: nobody logs in by it. After a lost session a broker reads
all again. A broker without the key reads nothing.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from krust.controller import delegation_tokens, store_reads
from krust.controller.controller_election import RetryLaterError
from krust.controller.delegation_tokens import CHANGES, DelegationToken
from krust.controller.pace import PAUSE
from krust.errors import ServerError
from krust.metadata.contents import BadZnodeError
from krust.metadata.store import Children, Create, Delete, Node, Read, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult, Result

KEEP_MS = 15 * 60 * 1000
_BATCH = 100
"""so many nodes are read in one slice"""
_LATER = (Refusal.NOT_APPLIED, Refusal.UNKNOWN)
"""why a notification cannot be read now"""


class TokenChangeNotifications:
    """The notifications of changed tokens that this broker has seen."""

    def __init__(self) -> None:
        self._last = -1
        """the number of the last one"""
        self._since: dict[str, int] = {}
        """path -> when it was seen first"""

    def follow(self, state: ControllerState) -> Steps:
        """Read all tokens, and watch for changes from now on."""
        if not state.tokens.is_enabled:
            return
        yield from create_nodes()
        names = yield from _notifications()
        self._last = max(map(_number_of, names), default=-1)
        yield from load(state)

    def read_new(self, state: ControllerState, now_ms: int) -> Steps:
        """Read new notifications, and the tokens that they name."""
        if not state.tokens.is_enabled:
            return
        paths = [f"{CHANGES}/{name}" for name in (yield from _notifications())]
        self._since = {path: self._since.get(path, now_ms) for path in paths}
        new = [path for path in paths if _number_of(path) > self._last]
        changed: dict[str, None] = {}
        is_known = True
        results = yield from store_reads.read_many_in_slices(map(Read, new))
        for path, node in zip(new, results, strict=True):
            if node in _LATER:
                raise RetryLaterError(f"{path}: {node}")
            try:
                changed[delegation_tokens.decode_change(_data(node))] = None
            except BadZnodeError as error:
                is_known = False
                state.fault(path, error)
        yield from reread(state, changed) if is_known else load(state)
        self._last = max([self._last, *map(_number_of, new)])

    def purge(self, state: ControllerState, now_ms: int) -> Steps:
        """Delete notifications that all brokers had the time to see."""
        for path in [each for each, since in self._since.items() if now_ms - since >= KEEP_MS]:
            yield [[state.fence(), Delete(path)]]
            self._since.pop(path, None)

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until a notification has to be deleted."""
        return min(self._since.values(), default=inf) + KEEP_MS - now_ms


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
    """Read all tokens of a tree that only this broker uses.

    Nobody else watches, so the notifications of its last run are deleted.
    """
    if not state.tokens.is_enabled:
        return
    yield from create_nodes()
    names = yield from _notifications()
    yield [[Delete(f"{CHANGES}/{name}")] for name in names]
    yield from load(state)


def create_nodes() -> Steps:
    """Create the nodes above those of tokens and their changes."""
    answers = yield [[Create(path)] for path in delegation_tokens.PERSISTENT]
    for path, done in zip(delegation_tokens.PERSISTENT, answers, strict=True):
        if done.refused not in (None, Refusal.NODE_EXISTS):
            why = done.refused.value
            raise ServerError(f"{path} cannot be created: {why}", hint="look at the store")


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


def _data(node: Result) -> bytes:
    return node.data if isinstance(node, Node) else b""


def _notifications() -> Generator[Transactions, list[MultiResult], tuple[str, ...]]:
    """The names of the notifications; watches them."""
    (done,) = yield [[Children(CHANGES, watch=True)]]
    return store_reads.children(CHANGES, done.results[0])


def _number_of(name: str) -> int:
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
