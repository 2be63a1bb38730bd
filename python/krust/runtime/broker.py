"""The policy thread: where store, controller, coordinator and the core (`_krust`) meet.

What is decided elsewhere is done here, in this order: transactions go to the store, changes to the
core's image, then answers leave. Nothing here decides.
Threads: the policy thread of one broker; `server.wakeup` may be called by any.
Not promised: use after `close`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from krust._krust import Server, log_requests, logs
from krust.config import ASSIGNORS, inter_broker_listener, listeners
from krust.controller import adoption, ids, loading, recovered_ids, registration
from krust.controller.apis import CONTROLLER_APIS
from krust.controller.controller import Controller, ControllerOutcome, failure
from krust.controller.state import (
    NO_TOPIC_ID,
    BrokerRequest,
    Changes,
    ControllerState,
    Request,
)
from krust.errors import KrustError, ServerError
from krust.metadata.store import Done, Refusal, SessionState, Watched
from krust.runtime import identity, metadata, placing, provenance
from krust.runtime.cluster_view import ClusterView
from krust.runtime.core_settings import broker_values, threads
from krust.runtime.image_deltas import ImageDeltas
from krust.runtime.lines import SESSION_LINES, Lines
from krust.runtime.retention_rules import Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from krust.config import Config
    from krust.controller.state import Steps, Transactions
    from krust.coordinator.assignors.spec import Assignor
    from krust.messages import Message, RequestContext
    from krust.metadata.local import Tree
    from krust.metadata.shared import SharedTree
    from krust.metadata.store import Store, StoreEvent
    from krust.runtime.groups import Groups
    from krust.runtime.peers import Peers

    _Event = tuple[int, str, int, Message, RequestContext]

_WAIT_MS = 1000
"""Longest wait for events: so often log lines of the core get their turn."""

_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 (compared)
"""Addresses that nobody can connect to."""

_PLACED_S = 10.0
"""how long a start waits for the controller to say who leads what"""

_GOODBYE_S = 5.0
"""how long a stop waits for the controller to take leaderships away"""

_RETRY_S = 1.0
"""between two attempts to be in the cluster again"""

_TURN_S = 0.002
"""how long a turn decides requests and slices; the rest waits for the next, behind groups'"""

_log = logging.getLogger("krust")
_requests = logging.getLogger("krust.requests")


class Runtime:
    """The native server, the store, the controller, and what goes between them."""

    def __init__(
        self,
        config: Config,
        dirs: list[Path],
        *,
        temporary: bool,
        assignors: Mapping[str, Assignor] | None = None,
        shared: SharedTree | None = None,
        cut_off: frozenset[int] = frozenset(),
        adopt: bool = False,
        memory: Tree | None = None,
    ) -> None:
        self.config = config
        self._adopt, self._tree = adopt, memory
        self._shared = shared
        self._alone = shared is None and not config.text("zookeeper.connect")
        self._assignors = assignors or {}
        self.bound: list[tuple[str, str, int]] = []
        self._own = self._returning = 0
        self._opened = False
        self._metadata: metadata.Metadata | None = None
        self._woken = threading.Event()
        self._asked: dict[int, Request[Any]] = {}
        self._answers: dict[int, Message | Exception] = {}
        self._held: Changes | None = Changes()
        self._endpoints: list[tuple[str, str, int]] = []
        self._news: deque[StoreEvent] = deque()
        self._connected = True
        self._return_at = inf
        self._later: list[tuple[int, Request[Any]]] = []
        self._waiting: deque[_Event] = deque()
        self._group_events: list[_Event] = []
        self._quotas_due = False
        self._peers: Peers | None = None
        self._unsent: list[tuple[int, Request[Any], Message | Exception]] = []
        """answers that wait for quotas to hold"""
        if self._alone:
            provenance.refuse_cluster(dirs[0])
        node_id = identity.node_id(config, dirs)
        self.server = Server(
            {
                "node_id": node_id,
                "cluster_id": None,
                "log_dirs": [str(each) for each in dirs],
                "temporary": temporary,
                "threads": threads(config),
                "settings": broker_values(config, None, alone=self._alone),
            }
        )
        self.cut_off(cut_off)
        self.state = ControllerState(config, lambda: ids.from_random(os.urandom(16)), node_id)
        self.view = ClusterView.of(self.state)
        """what other threads may read"""
        self._controller = Controller(self.state)
        self._groups: Groups | None = None
        self._goodbye: BrokerRequest | None = None
        self._dirs = [] if temporary else dirs
        self._retention = Retention(config, self.server)
        self._deltas = ImageDeltas(config, self.state, self._retention, alone=self._alone)
        self._lines = Lines()

    def start(self) -> None:
        """Become a broker, from the directories to the first connection."""
        on_disk = [each for each in self.server.load() if each["kind"] == "live"]
        self._metadata = metadata.opened(
            self.config, self._dirs, self._wake, self._shared, adopt=self._adopt, memory=self._tree
        )
        self.state.session = self._store.session
        known = self.server.cluster_id
        self._steps(registration.found(self.state, known or self.state.new_id()))
        if known is not None and known != self.state.cluster_id:
            raise ServerError(
                f"the directory belongs to cluster {known}, {self._metadata.name} to cluster "
                f"{self.state.cluster_id}",
                hint="put back what belongs there, or start in an empty --data-dir",
            )
        self.server.join(self.state.cluster_id)
        if self._alone and self._dirs:
            provenance.mark(self._dirs[0])
        self._metadata.hold()
        self._steps(registration.free(self.state))
        cluster = None if self._alone else self._controller.share()
        if cluster is None:
            self._steps(registration.claim(self.state, _now_ms()))
            self._steps(loading.load(self.state))
        else:
            self._steps(cluster.claim(_now_ms()))
        found = [
            adoption.LogOnDisk(
                each["topic"],
                each["partition"],
                each["topic_id"] or NO_TOPIC_ID,
                each["leader_epoch"],
                each["clean"],
            )
            for each in on_disk
        ]
        if self.state.leading:
            fresh = self._alone or self.state.is_new_cluster
            self._steps(adoption.take_over(self.state, found, unknown_too=fresh))
        else:
            self.state.logs_on_disk = {(each["topic"], each["partition"]) for each in on_disk}
        if not self._metadata.release():
            what = f"the metadata in {self._metadata.name} cannot be written"
            raise ServerError(what, hint="look at the disk, and start again")
        self.server.start()
        advertised = str(self.config.text("advertised.listeners") or "")
        self._deltas.advertised = endpoints = listeners(advertised) if advertised else []
        held, self._held = self._held or Changes(), None
        held.controller = True
        self._apply(held, self.state.cluster_id)
        self._steps(self._proven())
        _, logs_found, checked, _ = self.server.recovery_progress()
        if logs_found:
            what = "opened %d logs; checked %d bytes of those that were not closed in order"
            _log.info(what, logs_found, checked)
        self.bound = self.server.listen(listeners(str(self.config.text("listeners"))))
        self._endpoints = endpoints or self.bound
        words = self._own_words()
        if cluster is None:
            self._steps(registration.announce(self.state, words))
        else:
            self._steps(cluster.opened(words))

    def settle(self, stops: Callable[[], bool]) -> None:
        """Turn until it is known who leads what; where the controller is silent, not for long."""
        deadline = time.monotonic() + _PLACED_S
        while not (self.state.knows_leaders or stops()):
            if time.monotonic() > deadline:
                who = self.state.controller_id
                _log.warning("the controller (%d) has not said yet who leads what", who)
                return
            self.turn()

    def turn(self) -> bool:
        """Wait for events and answer them; False: the server has stopped."""
        return_s = inf if self._returning else max(self._return_at - time.monotonic(), 0)
        due_s = min(self._store.due_s(), return_s)
        most_ms = min(_WAIT_MS, due_s * 1000, max(self._controller.due_ms(_now_ms()), 0))
        if self._groups is not None:
            most_ms = self._groups.wait_ms(int(most_ms))
        is_busy = self._waiting or self._group_events or self._is_paused
        events = self.server.events(0 if is_busy else int(most_ms))
        while events:  # an event's memory is leased for as long as anything names it
            is_ours = events[0][1] in CONTROLLER_APIS
            (self._waiting if is_ours else self._group_events).append(events.pop(0))
        self._decide_waiting()
        if events is not None:
            self._decide_group_events()
        if self._opened:
            self._perform(self._controller.run(None, self._proven()))
        self._hear()
        self._let_quotas_hold()
        if self._controller.due_ms(_now_ms()) <= 0:
            self._perform(self._controller.tick(_now_ms()))
        for asked, answer in self._peers.answers() if self._peers is not None else ():
            self._answered(asked, answer)
        if time.monotonic() >= self._return_at and not self._returning:
            self._return()
        _drain()
        return events is not None

    def _decide_waiting(self) -> None:
        """Decide requests in the order they came, for as long as a turn lasts; after each of them
        one that takes long goes on for a slice.
        """
        end_s = time.monotonic() + _TURN_S
        while (self._waiting or self._is_paused) and time.monotonic() < end_s:
            if self._waiting:
                ticket, api, version, message, client = self._waiting.popleft()
                self._ask(ticket, Request(api, version, message, client, _now_ms()))
            if self._is_paused:
                self._perform(self._controller.resume(job_only=bool(self._returning)))
                self._hear()

    @property
    def _is_paused(self) -> bool:
        """Whether a long decision may go on: only a job, while the return waits for its end."""
        controller = self._controller
        return controller.is_job_paused if self._returning else controller.is_paused

    def _answered(self, asked: BrokerRequest, answer: Message | None) -> None:
        """Another broker answered; whatever it says costs no more than a line."""
        if asked is self._goodbye:
            self._goodbye = None
            return
        try:
            outcome = self._controller.answered(asked, answer, _now_ms())
        except Exception:
            _log.exception("what broker %d answers to %s is passed over", asked.broker, asked.api)
        else:
            self._perform(outcome)

    def _decide_group_events(self) -> None:
        """Have the coordinator decide. Its modules load for the first event of a group, because
        they are a tenth of an idle broker's memory; assignors of a user's start with the broker.
        """
        assigns = self._assignors or self.state.broker_text(ASSIGNORS)
        if self._groups is None and not (self._group_events or assigns):
            return
        try:
            from krust.runtime.groups import Groups
        except OSError as error:  # out of descriptors: a module is a file
            _log.error("groups wait, their modules cannot be read: %s", error)
            time.sleep(_RETRY_S)
            return
        if self._groups is None:
            self._groups = Groups(self.server, self.state, self._assignors)
        events, self._group_events = self._group_events, []
        self._waiting += [each for each in events if not self._groups.decides(each[1])]
        self._groups.handle([each for each in events if self._groups.decides(each[1])])

    def decide(self, api: str, message: Message) -> Message:
        """Answer a request of this process; waits for it."""
        while self._returning:
            self._look()
        request = Request(api, 99, message, {}, _now_ms())
        answer = self._finished(self._controller.request(self._own_ticket(), request))
        return self._shown_failure(request, answer) if isinstance(answer, Exception) else answer

    def close(self, *, quietly: bool = False) -> None:
        """Take everything down, whatever of it there is.

        quietly  the controller is not told, as if the broker had died
        """
        try:
            if not quietly:
                self._say_goodbye()
        except Exception:
            _log.exception("the controller is not told of the stop")
        if self._groups is not None:
            self._groups.close()
        if self._peers is not None:
            self._peers.close()
        self._retention.close()
        try:
            self.server.stop()
        except KrustError as error:
            _log.error("stopping: %s", error)
        if self._metadata is not None:
            self._metadata.close()
        _drain()

    def _say_goodbye(self) -> None:
        """Have the controller take this broker's leaderships away before it stops."""
        others = self.state.brokers.keys() - {self.state.node_id}
        if not others or not self._connected or not self.config.true("controlled.shutdown.enable"):
            return
        message = {"broker_id": self.state.node_id, "broker_epoch": self.state.broker_epoch}
        if self.state.leading:
            self.decide("ControlledShutdown", message)
            return
        self._goodbye = BrokerRequest(self.state.controller_id, "ControlledShutdown", message)
        self._others().send(self._goodbye)
        deadline = time.monotonic() + _GOODBYE_S
        while self._goodbye is not None and time.monotonic() < deadline and self.turn():
            pass

    def expire(self) -> None:
        """End the session with the store from another thread, while this one stands still."""
        if self._metadata is not None:
            self._metadata.expire()

    def cut_off(self, brokers: frozenset[int]) -> None:
        """Connect to none of these brokers; another thread may say so."""
        self._cut_off = brokers
        self.server.cut_off(set(brokers))
        if self._peers is not None:
            self._peers.reach_changed()

    @property
    def _store(self) -> Store:
        if self._metadata is None:
            raise ServerError("the metadata store is closed", hint="start again")
        return self._metadata.store

    def _wake(self) -> None:
        """The store has news; called by its own thread."""
        self._woken.set()
        self.server.wakeup()

    def _ask(self, ticket: int, request: Request[Any]) -> None:
        """Decide a request of a client's; it is answered when its policy is through."""
        if self._returning:
            self._later.append((ticket, request))
            return
        self._asked[ticket] = request
        steps = None
        if request.api == "AlterReplicaLogDirs":
            steps = placing.alter(self.server, self.state, request)
        self._perform(self._controller.request(ticket, request, steps))
        self._hear()

    def _hear(self) -> None:
        """Take what the store has to say."""
        self._news += self._store.events()
        while self._news:
            each = self._news.popleft()
            if isinstance(each, Done):
                self._perform(self._controller.done(each))
                if Refusal.UNKNOWN in each.results:
                    self._return_at = 0  # the tree says what happened
            elif isinstance(each, Watched):
                self._perform(self._controller.heard(each, _now_ms()))
            else:
                self._perform(self._controller.heard(each, _now_ms()))
                self._turned(each.state)
            self._returned()
            if not self._news:
                self._news += self._store.events()
        self._returned()

    def _turned(self, state: SessionState) -> None:
        """The session with the store is another, or in another state."""
        _log.log(*SESSION_LINES[state])
        self._connected = state is SessionState.CONNECTED
        self._return_at = 0 if self._connected else inf

    def _return(self) -> None:
        """Be in the tree again, and learn what it says now; requests wait meanwhile. A reason for
        it that comes up on the way is one to do it once more.
        """
        self._return_at = inf
        if self._metadata is None or not self._connected:
            return
        self.state.session = self._store.session
        try:
            self._metadata.keep()
        except ServerError as error:
            _log.error("after a kill the next start will have to wait: %s", error)
        self._returning = self._own_ticket()
        steps = self._controller.back(self._own_words())
        self._perform(self._controller.run(self._returning, steps))
        self._hear()

    def _returned(self) -> None:
        """Where the way back has come to its end: go on, or try again."""
        if self._returning not in self._answers:
            return
        answer = self._answers.pop(self._returning)
        self._returning = 0
        if isinstance(answer, Exception):
            _log.error("this broker is not in its cluster: %s", answer)
            self._return_at = min(self._return_at, time.monotonic() + _RETRY_S)
        else:
            _log.info("back in the cluster, with broker epoch %d", self.state.broker_epoch)
        later, self._later = self._later, []
        for ticket, request in later:
            self._ask(ticket, request)

    def _own_words(self) -> registration.Registration:
        told = [
            (name, os.uname().nodename if host in _ANYWHERE else host, port)
            for name, host, port in self._endpoints
        ]
        return registration.Registration(told, self.config.text("broker.rack"), _now_ms())

    def _perform(self, outcome: ControllerOutcome) -> None:
        """Do what an outcome says, in its order."""
        for token, operations in outcome.submits:
            self._store.submit(operations, token)
        for level, text in outcome.changes.lines:
            _log.log(level, "%s", text)
        for path, why in outcome.changes.faults:
            _log.error("the znode %s is passed over: %s", path, why)
        if self._held is None:
            self._quotas_due |= outcome.changes.quotas
            outcome.changes.quotas = False
            self._apply(outcome.changes)
        else:
            self._held.add(outcome.changes)
        for asked in outcome.requests:
            self._others().send(asked)
        for ticket, answer in outcome.replies:
            request = self._asked.pop(ticket, None)
            if request is None:
                self._answers[ticket] = answer
            elif request.api == "AlterClientQuotas":
                self._unsent.append((ticket, request, answer))
            else:
                self._answer(ticket, request, answer)

    def _let_quotas_hold(self) -> None:
        """Hand the core the whole table, once a turn however many changed; then answer."""
        if self._quotas_due:
            self._quotas_due = False
            self._apply(Changes(quotas=True))
        unsent, self._unsent = self._unsent, []
        for each in unsent:
            self._answer(*each)

    def _answer(self, ticket: int, request: Request[Any], answer: Message | Exception) -> None:
        """Answer a client."""
        if isinstance(answer, Exception):
            answer = self._shown_failure(request, answer)
        self._lines.answered(request, answer, _now_ms())
        try:
            self.server.answer(ticket, answer)
        except (TypeError, ValueError) as error:
            self.server.answer(ticket, self._shown_failure(request, error))

    def _shown_failure(self, request: Request[Any], error: Exception) -> Message:
        _log.error("deciding %s failed", request.api, exc_info=error)
        return failure(request, error)

    def _steps(self, steps: Generator[Transactions, list[Done], Any]) -> None:
        """Run a start's steps to their end."""
        answer = self._finished(self._controller.run(self._own_ticket(), steps))
        if isinstance(answer, Exception):
            raise answer

    def _own_ticket(self) -> int:
        """A ticket that no event has: the answer is for a call of our own."""
        self._own -= 1
        return self._own

    def _finished(self, outcome: ControllerOutcome) -> Message | Exception:
        """Do what an outcome says until the newest call of our own is answered."""
        ticket = self._own
        self._perform(outcome)
        self._hear()
        while ticket not in self._answers:
            self._look()
        self._let_quotas_hold()
        return self._answers.pop(ticket)

    def _look(self) -> None:
        """Wait for the store, and take what it has to say; what paused goes on."""
        if self._controller.is_paused:
            self._perform(self._controller.resume())
            self._hear()
            return
        self._woken.wait(min(self._store.due_s(), 1.0))
        self._woken.clear()
        self._hear()

    def _others(self) -> Peers:
        """The other brokers; most brokers never load this code."""
        if self._peers is None:
            from krust.runtime.peers import Peers

            listener = inter_broker_listener(self.config)
            self._peers = Peers(
                self.state.node_id,
                listener,
                self.server.wakeup,
                lambda broker: broker not in self._cut_off,
            )
            self._peers.follow(self.state.brokers)
        return self._peers

    def _apply(self, changes: Changes, cluster_id: str | None = None) -> None:
        """Apply changes to the image, and through it to the logs."""
        if self._groups is not None:
            self._groups.configured(changes.groups)
        self._lines.topics(changes.topics, says=self.state.leading and bool(self.bound))
        if self._peers is not None and (changes.live or changes.controller):
            self._peers.follow(self.state.brokers)
        if changes.topics or changes.live or changes.controller:
            kept = None if changes.topics else self.view.topics
            self.view = ClusterView.of(self.state, kept)
        delta = self._deltas.delta(changes, cluster_id)
        if delta is None:
            return
        for name, partition, why in self.server.apply(delta):
            _log.error("partition %s-%d is offline: %s", name, partition, why)
        self._opened = self._opened or bool(delta["topics"])
        if self._groups is not None:
            self._groups.topics_changed(changes.topics)

    def _proven(self) -> Steps:
        """What to do about logs that prove more than the tree knows."""
        self._opened = False
        return recovered_ids.bring(self.state, *self.server.recovered_ids())


def _drain() -> None:
    """Hand the core's log lines to Python's logging, those of requests where they are wanted."""
    log_requests(_requests.isEnabledFor(logging.DEBUG))
    for level, name, text in logs():
        logging.getLogger(name).log(level, "%s", text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
