"""The other brokers, as this one speaks to them: an ordered queue each, emptied by a thread.

A request is sent until it is answered: a broker that does not take it now is asked again after a
pause. It is given up, with None for an answer, when the broker is gone or was registered anew (what
was meant for who it was then is not for who it is now), and what this broker asks of the controller
after ASKED_MS, since a client waits for it. Order holds for one broker, in and out.
An answer REQUEST_TIMED_OUT for the whole request means: not now, say it again.
A broker that is out of reach, because a test cut the network, counts as one that does not answer.
An answer that arrives after the cut counts as lost.
Threads: any may call `reach_changed`. `follow`, `send`, `answers` and `close` are the policy
thread's and never wait for a peer; each queue has a thread of its own, from its first request to
the broker's end.
Not promised: that a request arrives once only; whoever gets it twice has to find the same.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krust.controller.state import BrokerRequest, LiveBroker
    from krust.messages import Message
ASKED_MS = 30_000
"""how long a request to the controller may take in all"""
PAUSE_S = (0.05, 1.0)
"""between two attempts: at first, at last"""
_OPTIONS = {"request.timeout.ms": 30_000, "socket.connection.setup.timeout.ms": 5_000}

_CUT = "the network to it is cut"

_log = logging.getLogger("krust.peers")


class Peers:
    """All other brokers.

    node_id   our own
    listener  the name of the listener that brokers use among each other
    wake      called by any thread when there is an answer
    reaches   whether this broker may connect to that one
    """

    def __init__(
        self,
        node_id: int,
        listener: str,
        wake: Callable[[], None],
        reaches: Callable[[int], bool],
    ) -> None:
        self.reaches = reaches
        self._node_id = node_id
        self._listener = listener
        self._wake = wake
        self._peers: dict[int, _Peer] = {}
        self._answers: deque[tuple[BrokerRequest, Message | None]] = deque()

    def follow(self, brokers: Mapping[int, LiveBroker]) -> None:
        """These are alive; queues of others, and of those registered anew, are given up."""
        for number, live in brokers.items():
            known = self._peers.get(number)
            if number != self._node_id and (known is None or known.live != live):
                if known is not None:
                    known.end()
                self._peers[number] = _Peer(number, live, self)
        for number in self._peers.keys() - brokers.keys():
            self._peers.pop(number).end()

    def send(self, asked: BrokerRequest) -> None:
        """Have a request sent, after those before it; its answer will be among `answers`."""
        peer = self._peers.get(asked.broker)
        if peer is None:
            self._answered(asked, None)
        else:
            peer.put(asked)

    def answers(self) -> list[tuple[BrokerRequest, Message | None]]:
        """What was answered since the last call; None: given up."""
        found = []
        while self._answers:
            found.append(self._answers.popleft())
        return found

    def close(self) -> None:
        """Give everything up."""
        self.follow({})

    def reach_changed(self) -> None:
        """End connections to brokers that are out of reach; ask those within reach again now."""
        for peer in list(self._peers.values()):
            peer.reach_changed()

    def address(self, live: LiveBroker) -> str | None:
        """Where brokers find a broker; None: nowhere."""
        at = live.at(self._listener)
        if at is None or at.protocol != "PLAINTEXT":
            return None
        host = f"[{at.host}]" if ":" in at.host else at.host
        return f"{host}:{at.port}"

    def options(self) -> dict[str, object]:
        """What connections are made with."""
        return {"client.id": f"krust-{self._node_id}", **_OPTIONS}

    def _answered(self, asked: BrokerRequest, message: Message | None) -> None:
        self._answers.append((asked, message))
        self._wake()


class _Peer:
    """One broker under one registration."""

    def __init__(self, number: int, live: LiveBroker, peers: Peers) -> None:
        self.live = live
        self._number = number
        self._peers = peers
        self._queue: deque[tuple[BrokerRequest, float]] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._client: Client | None = None
        self._thread: threading.Thread | None = None

    def put(self, asked: BrokerRequest) -> None:
        with self._changed:
            self._queue.append((asked, time.monotonic() + ASKED_MS / 1000))
            if self._thread is None:
                name = f"krust-peer-{self._number}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self) -> None:
        """Give up what is queued; the thread ends on its own."""
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
                asked, deadline = self._queue[0]
            if not CONTROLLER_APIS[asked.api].is_forwarded:
                deadline = float("inf")
            answer = self._delivered(asked, deadline)
            with self._changed:
                if self._ended:
                    answer = None
                self._queue.popleft()
            self._peers._answered(asked, answer)

    def _give_up(self) -> None:
        while self._queue:
            asked, _ = self._queue.popleft()
            self._peers._answered(asked, None)

    def _delivered(self, asked: BrokerRequest, deadline: float) -> Message | None:
        """Ask until there is an answer; None: there will be none."""
        pause_s, most_s = PAUSE_S
        told = ""
        while not self._ended:
            try:
                answer = self._attempt(asked)
                if answer.get("error_code") != Code.REQUEST_TIMED_OUT:
                    return answer
                why = "not now"
            except ConfigError as error:
                _log.error("%s cannot be sent: %s", asked.api, error)
                return None
            except KrustError as error:
                why = str(error)
                self._drop()
            except KeyboardInterrupt:  # somebody ended the connection
                if self._ended:
                    return None
                why = _CUT
                self._drop()
            if why != told:
                _log.warning("broker %d does not take %s: %s", self._number, asked.api, why)
                told = why
            if time.monotonic() + pause_s > deadline:
                return None
            with self._changed:
                if not self._ended:
                    self._changed.wait(pause_s)
            pause_s = min(pause_s * 2, most_s)
        return None

    def _attempt(self, asked: BrokerRequest) -> Message:
        if not self._is_reached():
            raise KrustError(_CUT)
        client = self._client or self._connected()
        try:
            answer = client.request(asked.api, asked.message)
        finally:
            if asked.api == "CreateTopics":
                self._drop()  # such a client looks for the controller, wherever that is
        if not self._is_reached():
            raise KrustError(_CUT)
        return answer

    def _connected(self) -> Client:
        address = self._peers.address(self.live)
        if address is None:
            raise KrustError("it has no PLAINTEXT listener for brokers")
        client = Client(address, self._peers.options())
        with self._changed:
            self._client = client
            if self._ended:
                client.end()
        return client

    def _drop(self) -> None:
        with self._changed:
            self._client = None
