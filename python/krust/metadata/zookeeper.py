"""The store in a real ZooKeeper, with kazoo (the contract is `store.Store`).

`open_store` waits for a session and creates the chroot. kazoo's connection has one thread. It puts
everything that it receives, in order, into a queue that `events` empties.

Invariant: a list is in exactly one place: submitted to kazoo (answered by `_Answered`); lost
(`_lost`: it waits for a connection); looked up (a `_Submitted` that `settles` it); or answered. The
session's deadline runs from the submission of the last list that was answered. If the caller
submits nothing, `events` reads the root, so it has to be called every `due_s`.
Threads: the policy thread. kazoo's thread only appends to `_arrived` and calls `wake`.
Not promised: the ACLs of nodes that exist already.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from krust.errors import ServerError
from krust.metadata import unknown_writes
from krust.metadata.ensemble import Access, Credentials, access
from krust.metadata.store import (
    LARGEST,
    Change,
    Create,
    Created,
    Delete,
    Exists,
    MultiResult,
    Node,
    Operation,
    Query,
    Read,
    Refusal,
    Result,
    SessionChanged,
    SessionState,
    SetData,
    Stat,
    StoreEvent,
    WatchFired,
    Write,
    fault,
    size,
)
from krust.metadata.zookeeper_client import ENDED, LONGEST_PAUSE_S, client, connect, end
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from krust.metadata.ensemble import Ensemble

_REFUSALS: dict[type[Exception], Refusal] = {
    exceptions.NoNodeError: Refusal.NO_NODE,
    exceptions.NodeExistsError: Refusal.NODE_EXISTS,
    exceptions.BadVersionError: Refusal.BAD_VERSION,
    exceptions.NotEmptyError: Refusal.NOT_EMPTY,
    exceptions.NoChildrenForEphemeralsError: Refusal.NO_CHILDREN_FOR_EPHEMERALS,
    exceptions.BadArgumentsError: Refusal.BAD_ARGUMENTS,
    exceptions.NoAuthError: Refusal.NOT_ALLOWED,
    exceptions.RolledBackError: Refusal.ROLLED_BACK,
    exceptions.RuntimeInconsistency: Refusal.ROLLED_BACK,
    exceptions.SessionMovedError: Refusal.NOT_APPLIED,
}

_GONE = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.OperationTimeoutError,
    exceptions.AuthFailedError,
)
"""After these errors, and after errors that are not ZooKeeper's, a write may have been made or not.
"""

_CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.CHANGED: Change.CHANGED,
    EventType.DELETED: Change.DELETED,
    EventType.CHILD: Change.CHILDREN,
}

_ACCESS: dict[Access, list[Any]] = {
    Access.OPEN: [*OPEN_ACL_UNSAFE],
    Access.READABLE: [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    Access.HIDDEN: [*CREATOR_ALL_ACL],
}

_log = logging.getLogger("krust.zookeeper")


class _Submitted:
    """A list that was submitted to kazoo."""

    __slots__ = ("at", "before", "late", "open", "operations", "results", "session", "settles")

    def __init__(self, operations: Sequence[Operation], at: float) -> None:
        self.operations = operations
        self.results: list[Result] = [None] * len(operations)
        self.open = len(operations)
        self.at = at
        self.before = 0
        self.session = 0
        self.late: list[StoreEvent] = []
        """watches of this list that fired before it was answered"""
        self.settles: _Submitted | None = None


class _Answered(NamedTuple):
    """kazoo's answer to one request."""

    asked: _Submitted
    position: int
    """in the list; -1: the answer to a list of writes"""
    answer: Any


class _ConnectionChanged(NamedTuple):
    """The state of kazoo's connection changed."""

    state: str
    session: int
    at: float


class ZooKeeperStore:
    """One session with a ZooKeeper."""

    def __init__(
        self, ensemble: Ensemble, wake: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self.session = 0
        self._root = ensemble.root
        self._protect = ensemble.protect
        self._wake = wake
        self._clock = clock
        self._arrived: deque[_Answered | _ConnectionChanged | WatchFired | MultiResult] = deque()
        self._tokens: dict[_Submitted, Hashable] = {}
        self._lost: list[_Submitted] = []
        self._state = SessionState.CONNECTED
        self._overdue = False
        self._again = 0.0
        self._zxid = 0
        self._heard = self._asked_at = clock()
        self._open = True
        self._begun = threading.Event()
        self._client, self._timeout_s = client(ensemble)
        self._client.add_listener(self._turned)

    def start(self, seconds: float) -> None:
        """Wait for a session, and create the chroot. ServerError: there is none in time."""
        connect(self._client, seconds)
        self._begun.wait(seconds)  # kazoo wakes waiting threads before it calls its listeners
        first = self._arrived.popleft()
        if isinstance(first, _ConnectionChanged):
            self.session = first.session
        retry = KazooRetry(-1, delay=0.05, max_delay=LONGEST_PAUSE_S, deadline=seconds)
        parts = self._root.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:depth])
            try:
                if retry(self._client.exists, path) is None:
                    retry(self._client.create, path, b"", acl=self._access(path))
            except exceptions.NodeExistsError:
                continue
            except exceptions.KazooException as error:
                raise ServerError(
                    f"the chroot {self._root} cannot be made in ZooKeeper: {error!r}",
                    hint="make it by hand, or fix its access list",
                ) from None
        self._heard = self._asked_at = self._clock()

    @property
    def timeout_s(self) -> float:
        """The session timeout that the server granted."""
        return self._timeout_s[0]

    @property
    def credentials(self) -> Credentials:
        """The id and password of this session, with which another process can end it."""
        ident = self._client.client_id or (0, b"")
        return Credentials(*ident)

    def submit(self, operations: Sequence[Operation], token: Hashable) -> None:
        """Send a list. `events` returns its answer."""
        wrong = fault(operations)
        if wrong is None and size(operations) + len(operations) * len(self._root) > LARGEST:
            wrong = Refusal.TOO_LARGE
        if wrong is None and not self._connected:
            wrong = Refusal.NOT_APPLIED
        if wrong is not None or not operations:
            refused = () if wrong is None else (wrong,) * len(operations)
            self._arrived.append(MultiResult(token, refused))
            return
        asked = _Submitted(operations, self._clock())
        self._tokens[asked] = token
        self._send(asked)

    def events(self) -> list[StoreEvent]:
        """Handle what has arrived, check the session's deadline, and keep the session alive."""
        events: list[StoreEvent] = []
        while self._arrived:
            events += self._take(self._arrived.popleft())
        if not self._open:
            return [each for each in events if isinstance(each, MultiResult)]
        now = self._clock()
        expired = self._state is SessionState.EXPIRED
        if not (expired or self._overdue) and now - self._heard > self.timeout_s:
            self._overdue = True
            events.insert(0, SessionChanged(SessionState.OVERDUE))
        if self._client.connected and now - self._asked_at > self.timeout_s / 4:
            self._send(_Submitted([Exists("/")], now))
        if self._client.client_state in ENDED and now > self._again:
            self._again = now + LONGEST_PAUSE_S
            self._client.start_async()
        return events

    def due_s(self) -> float:
        """The seconds until the session has to be kept alive or its deadline passes."""
        if self._client.connected:
            due = self._asked_at + self.timeout_s / 4
        elif self._overdue or self._state is SessionState.EXPIRED:
            return LONGEST_PAUSE_S
        else:
            due = self._heard + self.timeout_s
        return max(due - self._clock(), 0.01)

    def close(self) -> None:
        """End the session. Without a connection the server ends it at its timeout."""
        if not self._open:
            return
        self._open = False
        self._tokens.clear()
        self._lost.clear()
        end(self._client)
        self._arrived.clear()

    @property
    def _connected(self) -> bool:
        live = self._state is SessionState.CONNECTED and not self._overdue
        return self._open and live and bool(self._client.connected)

    # From here to the next mark: what kazoo's thread calls.

    def _turned(self, state: str) -> None:
        ident = self._client.client_id
        self._arrived.append(_ConnectionChanged(state, ident[0] if ident else 0, self._clock()))
        self._begun.set()
        self._wake()

    def _saw(self, event: Any) -> None:
        change = _CHANGES.get(event.type)
        if change is not None:
            path = event.path.removeprefix(self._root) or "/"
            self._arrived.append(WatchFired(change, path))
            self._wake()

    def _answered(self, asked: _Submitted, position: int, answer: Any) -> None:
        self._arrived.append(_Answered(asked, position, answer))
        self._wake()

    # The policy thread again.

    def _send(self, asked: _Submitted) -> None:
        """Submit a list to kazoo."""
        self._asked_at = asked.at
        self._zxid = max(self._zxid, self._client.last_zxid)
        asked.before, asked.session = self._zxid, self.session
        writes = [each for each in asked.operations if isinstance(each, Write)]
        if writes:
            answer = self._write(writes)
            answer.rawlink(partial(self._answered, asked, -1))
            return
        for position, each in enumerate(asked.operations):
            if isinstance(each, Query):
                self._query(each).rawlink(partial(self._answered, asked, position))

    def _query(self, operation: Query) -> Any:
        path = self._full(operation.path)
        watch = self._saw if operation.watch else None
        if isinstance(operation, Read):
            return self._client.get_async(path, watch=watch)
        if isinstance(operation, Exists):
            return self._client.exists_async(path, watch=watch)
        return self._client.get_children_async(path, watch=watch)

    def _write(self, writes: list[Write]) -> Any:
        """Send writes as one request. Only a request with one write returns the zxid.

        A node without data is created without any, as by Kafka: it takes an empty
        `/latest_producer_id_block` for a damaged one.
        """
        client, first = self._client, writes[0]
        if len(writes) == 1 and isinstance(first, Create):
            return client.create_async(
                self._full(first.path),
                first.data or None,
                acl=self._access(first.path),
                ephemeral=first.ephemeral,
                sequence=first.sequential,
                include_data=True,
            )
        if len(writes) == 1 and isinstance(first, SetData):
            return client.set_async(self._full(first.path), first.data, first.version)
        if len(writes) == 1 and isinstance(first, Delete):
            return client.delete_async(self._full(first.path), first.version)
        request = client.transaction()
        for each in writes:
            path = self._full(each.path)
            if isinstance(each, Create):
                # kazoo's `create` would cut the last slash, and with it the empty name.
                flags = each.ephemeral + 2 * each.sequential
                access = self._access(each.path)
                made = serialization.Create(path, each.data or None, access, flags)
                request.operations.append(made)
            elif isinstance(each, SetData):
                request.set_data(path, each.data, each.version)
            elif isinstance(each, Delete):
                request.delete(path, each.version)
            else:
                request.check(path, each.version)
        return request.commit_async()

    def _take(
        self, arrival: _Answered | _ConnectionChanged | WatchFired | MultiResult
    ) -> Iterator[StoreEvent]:
        """The events of one arrival."""
        if isinstance(arrival, MultiResult):
            yield arrival
        elif isinstance(arrival, WatchFired):
            yield from self._fired(arrival)
        elif isinstance(arrival, _ConnectionChanged):
            yield from self._change_session_state(arrival)
        else:
            yield from self._answer(arrival)

    def _fired(self, watched: WatchFired) -> Iterator[StoreEvent]:
        """The event of a watch; it comes after the answer to the list that set it."""
        for asked in self._tokens:
            results = zip(asked.operations, asked.results, strict=True)
            if any(each.path == watched.path and result is not None for each, result in results):
                asked.late.append(watched)
                return
        yield watched

    def _change_session_state(self, changed: _ConnectionChanged) -> Iterator[StoreEvent]:
        if changed.state == KazooState.CONNECTED:
            self._state = SessionState.CONNECTED
            self._overdue = False
            self.session = changed.session
            self._heard = max(self._heard, changed.at)
            yield SessionChanged(SessionState.CONNECTED)
            for asked in self._lost:
                self._settle(asked)
            self._lost.clear()
        elif changed.state == KazooState.SUSPENDED:
            self._state = SessionState.SUSPENDED
            yield SessionChanged(SessionState.SUSPENDED)
        elif self._open:
            self._state = SessionState.EXPIRED
            self._overdue = False
            yield SessionChanged(SessionState.EXPIRED)

    def _answer(self, arrival: _Answered) -> Iterator[StoreEvent]:
        asked, error = arrival.asked, arrival.answer.exception
        if error is not None and not _definite(error):
            if arrival.position < 0:
                self._lost.append(asked)
                return
            asked.results[arrival.position] = Refusal.NOT_APPLIED
        else:
            self._heard = max(self._heard, asked.at)
            in_time = self._clock() - self._heard <= self.timeout_s
            if self._overdue and in_time and self._state is SessionState.CONNECTED:
                self._overdue = False
                yield SessionChanged(SessionState.CONNECTED)
            if arrival.position < 0:
                asked.results = self._written(asked.operations, arrival.answer)
                asked.open = 1
            else:
                asked.results[arrival.position] = _found(arrival.answer)
        asked.open -= 1
        if asked.open == 0:
            yield from self._report(asked)

    def _report(self, asked: _Submitted) -> Iterator[StoreEvent]:
        """The events of a list that is answered."""
        if asked.settles is not None:
            yield from self._settled(asked, asked.settles)
        elif asked in self._tokens:
            yield MultiResult(self._tokens.pop(asked), tuple(asked.results))
            yield from asked.late

    def _settle(self, asked: _Submitted) -> None:
        """Read the tree to find out whether a list was made whose answer is lost."""
        paths = dict.fromkeys(each.path for each in asked.operations)
        lookup = _Submitted([Read(path) for path in paths], self._clock())
        lookup.settles = asked
        self._client.sync_async(self._full("/"))
        self._send(lookup)

    def _settled(self, lookup: _Submitted, asked: _Submitted) -> Iterator[StoreEvent]:
        if Refusal.NOT_APPLIED in lookup.results:
            if self._connected:
                self._settle(asked)
            else:
                self._lost.append(asked)
            return
        paths = [each.path for each in lookup.operations]
        now = dict(zip(paths, lookup.results, strict=True))
        writes = [each for each in asked.operations if isinstance(each, Write)]
        session = asked.session if asked.session == self.session else 0
        results = unknown_writes.find_answer(
            unknown_writes.UnansweredWrites(writes, asked.before, session), now
        )
        asked.results = list(results)
        yield from self._report(asked)

    def _written(self, operations: Sequence[Operation], answer: Any) -> list[Result]:
        """The answer to a list of writes."""
        values: Iterable[Any] = [answer.exception or answer.value]
        if isinstance(answer.value, list):
            values = answer.value
        results = [self._result(value) for value in values]
        missing = [Refusal.FAILED] * (len(operations) - len(results))
        return results + list(missing)

    def _result(self, value: Any) -> Result:
        if isinstance(value, Exception):
            return _refusal(value)
        if isinstance(value, bool):
            return None
        if isinstance(value, str):
            return Created(value.removeprefix(self._root), 0)
        if len(value) == 2:
            path, stat = value
            return Created(path.removeprefix(self._root), stat.czxid)
        return _stat(value)

    def _full(self, path: str) -> str:
        return self._root + path if path != "/" else self._root or "/"

    def _access(self, path: str) -> list[Any]:
        """The ACL of a new node."""
        return _ACCESS[access(path) if self._protect else Access.OPEN]


def open_store(
    ensemble: Ensemble,
    wake: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> ZooKeeperStore:
    """Open a store with a new session.

    wake    called by another thread when `events` has something
    raises  ConfigError: `connect` is invalid; ServerError: no server answers in time
    """
    store = ZooKeeperStore(ensemble, wake, clock)
    try:
        store.start(ensemble.connection_timeout_ms / 1000)
    except BaseException:
        store.close()
        raise
    return store


def end_session(ensemble: Ensemble, credentials: Credentials) -> bool:
    """End the session of an earlier process. False: it had ended already.

    raises  ServerError: no server answers in time
    """
    made, _ = client(ensemble, credentials)
    try:
        connect(made, ensemble.connection_timeout_ms / 1000)
        ident = made.client_id
        return ident is not None and ident[0] == credentials.session
    finally:
        end(made)


def _found(answer: Any) -> Result:
    """The answer to a read."""
    if answer.exception is not None:
        return _refusal(answer.exception)
    value = answer.value
    if value is None:
        return Refusal.NO_NODE
    if isinstance(value, list):
        return tuple(sorted(value))
    if len(value) == 2:
        data, stat = value
        return Node(data or b"", _stat(stat))
    return _stat(value)


def _stat(stat: Any) -> Stat:
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.version,
        stat.cversion,
        stat.ephemeralOwner,
        stat.numChildren,
    )


def _definite(error: Exception) -> bool:
    """Whether an error proves that nothing was written."""
    return isinstance(error, exceptions.ZookeeperError) and not isinstance(error, _GONE)


def _refusal(error: Exception) -> Refusal:
    for kind, refusal in _REFUSALS.items():
        if isinstance(error, kind):
            return refusal
    _log.error("ZooKeeper refuses: %r", error)
    return Refusal.FAILED
