"""Requests to the other brokers: each broker has a queue and a thread that empties it in order.

A request is sent again, after a pause, until it is answered, also while this broker's certificate
or password for other brokers cannot be read. REQUEST_TIMED_OUT for the whole request counts as no
answer. A request is given up, with None for an answer, when the broker leaves
the cluster or registers again, because the request was meant for its earlier registration. A
request to the controller on this broker's behalf is also given up after FORWARDED_MS, because a
client waits for it. AlterPartition is sent once: its leader repeats it, and has to know that a copy
may be on its way. Requests to one broker keep their order, and so do their answers.
A broker that a test has cut off does not answer. An answer that arrives after the cut is lost.
Threads: the policy thread calls `follow`, `send`, `answers` and `close`, which never wait for a
peer. Any thread may call `reach_changed`. The thread of a queue runs from its first request until
the broker leaves.
Not promised: that another request arrives only once. A broker that gets it twice must do the same
twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from krust._krust import Client
from krust.controller.apis import CONTROLLER_APIS
from krust.errors import Code, ConfigError, KrustError
from krust.listeners import OFFERED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krust.controller.entities import LiveBroker
    from krust.controller.state import BrokerRequest
    from krust.messages import Message
FORWARDED_MS = 30_000
"""how long all attempts of a request to the controller may take"""
_ONCE = ("AlterPartition",)
PAUSE_S = (0.05, 1.0)
"""between two attempts: the first pause, the longest pause"""
_OPTIONS = {"request.timeout.ms": 30_000, "socket.connection.setup.timeout.ms": 5_000}

_CUT_OFF = "the network to it is cut"

_log = logging.getLogger("krust.peers")


class Peers:
    """The queues of all other brokers.

    node_id   this broker's id
    listener  the name of the listener between brokers
    wake      called by any thread when there is an answer
    reaches   whether this broker may connect to that one
    security  the client options of that listener's security protocol, for each new connection
    """

    def __init__(
        self,
        node_id: int,
        listener: str,
        wake: Callable[[], None],
        reaches: Callable[[int], bool],
        security: Callable[[], Mapping[str, object]],
    ) -> None:
        self._security = security
        self.reaches = reaches
        self._node_id = node_id
        self._listener = listener
        self._wake = wake
        self._queues: dict[int, _PeerQueue] = {}
        self._answers: deque[tuple[BrokerRequest, Message | None]] = deque()

    def follow(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Keep queues for these live brokers. Queues of other brokers, and of brokers that have
        registered again, are given up.
        """
        for number, live in brokers.items():
            known = self._queues.get(number)
            if number != self._node_id and (known is None or known.live != live):
                if known is not None:
                    known.end()
                self._queues[number] = _PeerQueue(number, live, self)
        for number in self._queues.keys() - brokers.keys():
            self._queues.pop(number).end()

    def send(self, request: BrokerRequest) -> None:
        """Queue a request. `answers` will return its answer."""
        queue = self._queues.get(request.broker)
        if queue is None:
            self.add_answer(request, None)
        else:
            queue.put(request)

    def answers(self) -> list[tuple[BrokerRequest, Message | None]]:
        """The answers since the last call; None: the request was given up."""
        taken = []
        while self._answers:
            taken.append(self._answers.popleft())
        return taken

    @property
    def is_busy(self) -> bool:
        """Whether another broker has still to answer a request."""
        return any(queue.is_busy for queue in self._queues.values())

    def close(self) -> None:
        """Give up all requests."""
        self.follow({})

    def reach_changed(self) -> None:
        """End connections to brokers that are cut off, and try the other brokers again now."""
        for queue in list(self._queues.values()):
            queue.reach_changed()

    def address(self, live: LiveBroker) -> str | None:
        """The address of a broker for other brokers; None: it has none."""
        at = live.at(self._listener)
        if at is None or at.protocol not in OFFERED:
            return None
        host = f"[{at.host}]" if ":" in at.host else at.host
        return f"{host}:{at.port}"

    def options(self) -> dict[str, object]:
        """The options of the connections."""
        return {"client.id": f"krust-{self._node_id}", **_OPTIONS, **self._security()}

    def add_answer(self, request: BrokerRequest, message: Message | None) -> None:
        """Add an answer and wake the policy thread. Any thread may call it."""
        self._answers.append((request, message))
        self._wake()


class _PeerQueue:
    """The requests to one registration of a broker."""

    def __init__(self, number: int, live: LiveBroker, peers: Peers) -> None:
        self.live = live
        self._number = number
        self._peers = peers
        self._queue: deque[tuple[BrokerRequest, float]] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._client: Client | None = None
        self._thread: threading.Thread | None = None
        self._logged = ""
        """the failure of the last attempt, which was logged; empty: it succeeded"""

    def put(self, request: BrokerRequest) -> None:
        with self._changed:
            self._queue.append((request, time.monotonic() + FORWARDED_MS / 1000))
            if self._thread is None:
                name = f"krust-peer-{self._number}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify()

    @property
    def is_busy(self) -> bool:
        """Whether the broker has still to answer a request."""
        return bool(self._queue)

    def end(self) -> None:
        """Give up all requests; the thread ends soon."""
        with self._changed:
            self._ended = True
            if self._client is not None:
                self._client.end()
            self._changed.notify()
            if self._thread is None:
                self._give_up()

    def reach_changed(self) -> None:
        with self._changed:
            if self._client is not None and not self._is_reached():
                self._client.end()
            self._changed.notify()

    def _is_reached(self) -> bool:
        return self._peers.reaches(self._number)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._ended:
                    self._changed.wait()
                if self._ended:
                    self._give_up()
                    return
                request, deadline = self._queue[0]
            if not CONTROLLER_APIS[request.api].is_forwarded:
                deadline = float("inf")
            answer = self._deliver(request, deadline)
            with self._changed:
                if self._ended:
                    answer = None
                self._queue.popleft()
            self._peers.add_answer(request, answer)

    def _give_up(self) -> None:
        while self._queue:
            request, _ = self._queue.popleft()
            self._peers.add_answer(request, None)

    def _deliver(self, request: BrokerRequest, deadline: float) -> Message | None:
        """Send a request until there is an answer; None: the request is given up."""
        pause_s, longest_s = PAUSE_S
        while not self._ended:
            try:
                answer = self._attempt(request)
                if answer.get("error_code") != Code.REQUEST_TIMED_OUT:
                    self._logged = ""
                    return answer
                why = "not now"
            except ConfigError as error:
                _log.error("%s cannot be sent: %s", request.api, error)
                return None
            except KrustError as error:
                why = str(error)
                self._drop()
            except KeyboardInterrupt:  # another thread ended the connection
                if self._ended:
                    return None
                why = _CUT_OFF
                self._drop()
            if why != self._logged:
                _log.warning("broker %d does not take %s: %s", self._number, request.api, why)
                self._logged = why
            if request.api in _ONCE or time.monotonic() + pause_s > deadline:
                return None
            with self._changed:
                if not self._ended:
                    self._changed.wait(pause_s)
            pause_s = min(pause_s * 2, longest_s)
        return None

    def _attempt(self, request: BrokerRequest) -> Message:
        if not self._is_reached():
            raise KrustError(_CUT_OFF)
        client = self._client or self._connect()
        try:
            answer = client.request(request.api, request.message)
        finally:
            if request.api == "CreateTopics":
                self._drop()  # the client has connected to the controller, which may change
        if not self._is_reached():
            raise KrustError(_CUT_OFF)
        return answer

    def _connect(self) -> Client:
        address = self._peers.address(self.live)
        if address is None:
            raise KrustError("it has no listener for brokers that krust can use")
        try:
            client = Client(address, self._peers.options())
        except ConfigError as error:
            raise KrustError(f"its connection cannot be set up: {error}") from None
        with self._changed:
            self._client = client
            if self._ended:
                client.end()
        return client

    def _drop(self) -> None:
        with self._changed:
            self._client = None
