"""The policy thread of a broker: it connects the store, the controller, the coordinator, the core.

It carries out the outcomes of the controller in this order: it submits transactions to the store
(their results are a later event), applies changes to the core's image, sends requests to other
brokers, then sends answers. It makes no decision: functions of `controller/` say what is sent, when
the broker recovers its session and what it registers. It has a rule of its own: how long a turn
lasts.
Threads: the policy thread of one broker. Any thread may call `server.wakeup`.
Not promised: use after `close`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from krust._krust import Server
from krust.config import ASSIGNORS
from krust.controller import adoption, ids, recovered_ids, registration
from krust.controller.apis import CONTROLLER_APIS
from krust.controller.changes import Changes
from krust.controller.controlled_shutdown import ControlledShutdown
from krust.controller.controller import Controller, ControllerOutcome, failed_response
from krust.controller.session_recovery import RETRY_S, SessionRecovery
from krust.controller.state import NO_TOPIC_ID, BrokerRequest, ControllerState, Request
from krust.errors import KrustError, ServerError
from krust.metadata.store import MultiResult, Refusal, SessionChanged
from krust.runtime import (
    alter_partition,
    entity_changes,
    identity,
    metadata,
    provenance,
    replica_moves,
)
from krust.runtime.broker_listeners import BrokerListeners
from krust.runtime.cluster_view import ClusterView
from krust.runtime.core_settings import broker_values, threads
from krust.runtime.entity_changes import EntityChanges
from krust.runtime.image_deltas import ImageDeltas
from krust.runtime.lines import SESSION_LINES, LogLines, pass_on_core_lines
from krust.runtime.retention_rules import RetentionRules
from krust.runtime.selector_rule import SelectorRule
from krust.runtime.unclean_shutdown import UncleanShutdownCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from krust.config import Config
    from krust.controller.authorizers import Authorizer
    from krust.controller.first_users import FirstUsers
    from krust.controller.state import Steps, Transactions
    from krust.coordinator.assignors.assignor import Assignor
    from krust.messages import Message, RequestContext
    from krust.metadata.local import Tree
    from krust.metadata.shared import SharedTree
    from krust.metadata.store import Store, StoreEvent
    from krust.runtime.groups import Groups
    from krust.runtime.peers import Peers

    _Event = tuple[int, str, int, Message, RequestContext]

_WAIT_MS = 1000
"""The longest wait for events. After it, log lines of the core are passed on."""

_LEADERS_S = 10.0
"""how long a start waits until the controller has named the leaders"""

_CONTROLLED_SHUTDOWN_S = 5.0
"""how long a stop waits until the controller has moved the leaderships"""

_DELIVERY_S = 1.0
"""how long a controller that stops waits until the other brokers know the new leaders"""

_TURN_S = 0.002
"""how long a turn decides requests and slices. The rest waits for the next turn, behind groups."""

_log = logging.getLogger("krust")


class Runtime:
    """The native server, the store, the controller, and the messages between them."""

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
        first_users: FirstUsers | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.config, self._first_users = config, first_users
        self._adopt, self._tree, self._shared = adopt, memory, shared
        self._alone = shared is None and not config.text("zookeeper.connect")
        self._assignors = assignors or {}
        self.bound: list[tuple[str, str, int]] = []
        self._own_tickets = 0
        """how many tickets calls of this process have used; they are negative"""
        self._has_opened_logs = False
        """whether logs were opened whose ids have not been compared with the tree"""
        self._metadata: metadata.OpenMetadata | None = None
        self._woken = threading.Event()
        self._requests: dict[int, Request[Any]] = {}
        """clients' requests whose decisions run, by ticket"""
        self._own_answers: dict[int, Message | Exception] = {}
        """answers to calls of this process, by ticket"""
        self._start_changes: Changes | None = Changes()
        """changes of the start, until the image takes all of them at once; then None"""
        self._endpoints: list[tuple[str, str, int]] = []
        self._store_events: deque[StoreEvent] = deque()
        self._recovery = SessionRecovery()
        self._delayed_requests: list[tuple[int, Request[Any]]] = []
        """requests that wait until the session is recovered"""
        self._waiting: deque[_Event] = deque()
        self._group_events: list[_Event] = []
        self._peers: Peers | None = None
        self._entity_changes = EntityChanges()
        if self._alone:
            provenance.refuse_cluster(dirs[0])
        node_id = identity.node_id(config, dirs)
        self._listeners = BrokerListeners(config, alone=self._alone, own=authorizer)
        self._unclean_shutdown = UncleanShutdownCheck(config, dirs)
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
        self.state.kept_epoch = self._unclean_shutdown.kept_epoch
        self.view = ClusterView.of(self.state)
        """a copy of the state that other threads may read"""
        self._controller = Controller(self.state)
        self._groups: Groups | None = None
        self._shutdown_request: BrokerRequest | None = None
        """the controlled shutdown that the controller has not answered yet"""
        self._shutdown_answer: Message | None = None
        self._dirs = [] if temporary else dirs
        self._retention = RetentionRules(config, self.server)
        self._selector = SelectorRule(config, self.server)
        self._deltas = ImageDeltas(config, self.state, self._retention, alone=self._alone)
        self._lines = LogLines()

    def start(self) -> None:
        """Start the broker: read the directories, open the logs, accept connections."""
        on_disk = [each for each in self.server.load() if each["kind"] == "live"]
        self._metadata = metadata.open_metadata(
            self.config, self._dirs, self._wake, self._shared, adopt=self._adopt, memory=self._tree
        )
        self.state.session = self._store.session
        id_on_disk = self.server.cluster_id
        self._run(registration.create_cluster(self.state, id_on_disk or self.state.new_id()))
        registration.check_cluster_id(self.state, id_on_disk, self._metadata.name)
        self.server.join(self.state.cluster_id)
        if self._alone and self._dirs:
            provenance.mark(self._dirs[0])
        self._metadata.hold()
        self._run(registration.check_id_free(self.state))
        if not self._alone:
            self._controller.share()
        self._run(self._controller.claim(_now_ms()))
        logs_on_disk = [
            adoption.LogOnDisk(
                each["topic"],
                each["partition"],
                each["topic_id"] or NO_TOPIC_ID,
                each["leader_epoch"],
                each["clean"],
            )
            for each in on_disk
        ]
        self._run(adoption.adopt_at_start(self.state, logs_on_disk))
        if self._first_users is not None:
            from krust.controller.first_users import write

            self._run(write(self.state, self._first_users, _now_ms()))
        if not self._metadata.release():
            what = f"the metadata in {self._metadata.name} cannot be written"
            raise ServerError(what, hint="look at the disk, and start again")
        self._open_logs()
        self._listen()

    def _open_logs(self) -> None:
        """Apply the changes of the start to the image, which opens the logs."""
        self._listeners.secure(self.state.broker_text, self.server)
        self.state.check_listeners = self._listeners.check
        self.server.start()
        self._deltas.advertised = self._listeners.advertised
        changes, self._start_changes = self._start_changes or Changes(), None
        changes.controller = True
        self._apply(changes, self.state.cluster_id)
        self._run(self._raise_recovered_ids())
        _, logs_found, checked, _ = self.server.recovery_progress()
        if logs_found:
            what = "opened %d logs; checked %d bytes of those that were not closed in order"
            _log.info(what, logs_found, checked)

    def _listen(self) -> None:
        """Accept connections, and register."""
        self.bound = self.server.listen(self._listeners.addresses, self._listeners.tls)
        self._endpoints = self._deltas.advertised or self.bound
        self._run(self._controller.register(self._registration()))
        self._note_epoch()

    def wait_for_leaders(self, stops: Callable[[], bool]) -> None:
        """Turn until the controller has named the leaders, at most for _LEADERS_S."""
        deadline = time.monotonic() + _LEADERS_S
        while not (self.state.knows_leaders or stops()):
            if time.monotonic() > deadline:
                who = self.state.controller_id
                _log.warning("the controller (%d) has not named the leaders yet", who)
                return
            self.turn()

    def turn(self) -> bool:
        """Wait for events and answer them. False: the server has stopped."""
        due_s = min(self._store.due_s(), self._recovery.wait_s(time.monotonic()))
        most_ms = min(_WAIT_MS, due_s * 1000, max(self._controller.due_ms(_now_ms()), 0))
        if self._groups is not None:
            most_ms = self._groups.wait_ms(int(most_ms))
        is_busy = self._waiting or self._group_events or self._is_paused
        events = self.server.events(0 if is_busy else int(most_ms))
        while events:  # an event's memory is leased for as long as something refers to it
            is_for_controller = events[0][1] in CONTROLLER_APIS
            (self._waiting if is_for_controller else self._group_events).append(events.pop(0))
        self._decide_waiting()
        if events is not None:
            self._decide_group_events()
        if self._has_opened_logs:
            self._perform(self._controller.run(None, self._raise_recovered_ids()))
        self._take_store_events()
        self._apply_entities()
        if self._controller.due_ms(_now_ms()) <= 0:
            self._perform(self._controller.tick(_now_ms()))
        for request, answer in self._peers.answers() if self._peers is not None else ():
            self._take_peer_answer(request, answer)
        if self._recovery.wait_s(time.monotonic()) <= 0:
            self._recover_session()
        self._listeners.follow(self.state.broker_text, time.monotonic(), self.server)
        pass_on_core_lines()
        return events is not None

    def _decide_waiting(self) -> None:
        """Decide requests in the order they came, for as long as a turn lasts. After each request
        a long decision continues for one slice.
        """
        end_s = time.monotonic() + _TURN_S
        while (self._waiting or self._is_paused) and time.monotonic() < end_s:
            if self._waiting:
                ticket, api, version, message, client = self._waiting.popleft()
                self._decide_request(ticket, Request(api, version, message, client, _now_ms()))
            if self._is_paused:
                self._perform(self._controller.resume(job_only=self._recovery.is_running))
                self._take_store_events()

    @property
    def _is_paused(self) -> bool:
        """Whether a long decision may continue. During a recovery only a job may, because the
        recovery waits for its end.
        """
        controller = self._controller
        return controller.is_job_paused if self._recovery.is_running else controller.is_paused

    def _take_peer_answer(self, request: BrokerRequest, answer: Message | None) -> None:
        """Hand the controller the answer of another broker. An answer that it cannot read is
        logged and dropped.
        """
        if request is self._shutdown_request:
            self._shutdown_request, self._shutdown_answer = None, answer
            return
        try:
            outcome = self._controller.on_peer_answer(request, answer, _now_ms())
        except Exception:
            what = "the answer of broker %d to %s is dropped: the controller cannot read it"
            _log.exception(what, request.broker, request.api)
        else:
            self._perform(outcome)

    def _decide_group_events(self) -> None:
        """Have the coordinator decide. Its modules are loaded for the first event of a group,
        because they are a tenth of an idle broker's memory. If the user has assignors, they are
        loaded at the start.
        """
        assigns = self._assignors or self.state.broker_text(ASSIGNORS)
        if self._groups is None and not (self._group_events or assigns):
            return
        try:
            from krust.runtime.groups import Groups
        except OSError as error:  # out of descriptors: a module is a file
            _log.error("groups wait, their modules cannot be read: %s", error)
            time.sleep(RETRY_S)
            return
        if self._groups is None:
            self._groups = Groups(self.server, self.state, self._assignors)
        events, self._group_events = self._group_events, []
        self._waiting += [each for each in events if not self._groups.decides(each[1])]
        self._groups.handle([each for each in events if self._groups.decides(each[1])])

    def decide(self, api: str, message: Message) -> Message:
        """Decide a request of this process, and wait for the answer."""
        while self._recovery.is_running:
            self._wait_for_store()
        request = Request(api, 99, message, {}, _now_ms())
        answer = self._wait_for_answer(self._controller.request(self._own_ticket(), request))
        return self._log_failure(request, answer) if isinstance(answer, Exception) else answer

    def close(self, *, quietly: bool = False) -> None:
        """Stop all parts that have started.

        quietly  without a controlled shutdown, as if the broker had died
        """
        try:
            if not quietly:
                self._shut_down_controlled()
                self._note_epoch(stops=True)
        except Exception:
            _log.exception("the controlled shutdown failed")
        if self._groups is not None:
            self._groups.close()
        if self._peers is not None:
            self._peers.close()
        for each in (self._retention, self._selector, self._listeners):
            each.close()
        try:
            self.server.stop()
        except KrustError as error:
            _log.error("stopping: %s", error)
        if self._metadata is not None:
            self._metadata.close()
        pass_on_core_lines()

    def _shut_down_controlled(self) -> None:
        """Have the controller move this broker's leaderships before it stops."""
        leaving = ControlledShutdown(self.state)
        while self._recovery.is_connected:
            request = registration.controlled_shutdown(self.state)
            if request is None or leaving.is_over(self._controlled_shutdown(request)):
                break
            self._turn_until(leaving.pause_s, lambda: leaving.can_go_on)
        if self._peers is not None and self.state.is_controller:
            peers = self._peers
            self._turn_until(_DELIVERY_S, lambda: not (self._is_paused or peers.is_busy))

    def _controlled_shutdown(self, request: BrokerRequest) -> Any:
        """The controller's answer to ControlledShutdown; None: it gives none in time."""
        if not self.state.is_controller:
            self._shutdown_request, self._shutdown_answer = request, None
            self._peer_queues().send(request)
            self._turn_until(_CONTROLLED_SHUTDOWN_S, lambda: self._shutdown_request is None)
            return self._shutdown_answer
        ticket, asked = self._own_ticket(), Request(request.api, 99, request.message, {}, _now_ms())
        self._turn_until(_CONTROLLED_SHUTDOWN_S, lambda: not self._recovery.is_running)
        if not self._recovery.is_running:
            self._perform(self._controller.request(ticket, asked))
            self._turn_until(_CONTROLLED_SHUTDOWN_S, lambda: ticket in self._own_answers)
        answer = self._own_answers.pop(ticket, None)
        return self._log_failure(asked, answer) if isinstance(answer, Exception) else answer

    def _turn_until(self, seconds: float, is_true: Callable[[], bool]) -> None:
        """Turn until something is true, the time is over or the server has stopped."""
        deadline = time.monotonic() + seconds
        while not is_true() and time.monotonic() < deadline and self.turn():
            pass

    def expire(self) -> None:
        """End the session with the store, from another thread while the policy thread waits."""
        if self._metadata is not None:
            self._metadata.expire()

    def cut_off(self, brokers: frozenset[int]) -> None:
        """Connect to none of these brokers. Any thread may call it."""
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
        """Wake the policy thread: the store has events. A thread of the store calls it."""
        self._woken.set()
        self.server.wakeup()

    def _decide_request(self, ticket: int, request: Request[Any]) -> None:
        """Start the decision of a client's request. The client is answered when it ends."""
        if self._recovery.is_running:
            self._delayed_requests.append((ticket, request))
            return
        if request.api == "SelectReplicas":
            self._selector.ask(ticket, request.message["selections"], self.state)
            return
        if request.api == "AlterPartition":
            request = alter_partition.with_sender(self.state, request)
        self._requests[ticket] = request
        steps = None
        if request.api == "AlterReplicaLogDirs":
            steps = replica_moves.alter(self.server, self.state, request)
        self._perform(self._controller.request(ticket, request, steps))
        self._take_store_events()

    def _take_store_events(self) -> None:
        """Hand the controller the events of the store."""
        self._store_events += self._store.events()
        while self._store_events:
            each = self._store_events.popleft()
            if isinstance(each, MultiResult):
                self._perform(self._controller.on_transaction_done(each))
                if Refusal.UNKNOWN in each.results:
                    self._recovery.outcome_unknown()
            else:
                self._perform(self._controller.on_store_event(each, _now_ms()))
            if isinstance(each, SessionChanged):
                _log.log(*SESSION_LINES[each.state])
                self._recovery.session_changed(each.state)
            self._end_recovery()
            if not self._store_events:
                self._store_events += self._store.events()
        self._end_recovery()

    def _recover_session(self) -> None:
        """Begin to register again and to read the tree again."""
        if self._metadata is None or not self._recovery.begin(self._own_ticket()):
            return
        self.state.session = self._store.session
        try:
            self._metadata.keep()
        except ServerError as error:
            _log.error("after a kill the next start will have to wait: %s", error)
        steps = self._controller.recover(self._registration())
        self._perform(self._controller.run(self._recovery.ticket, steps))
        self._take_store_events()

    def _end_recovery(self) -> None:
        """If the recovery has ended, log how, and decide the requests that waited for it."""
        if self._recovery.ticket not in self._own_answers:
            return
        answer = self._own_answers.pop(self._recovery.ticket)
        self._recovery.end(time.monotonic(), failed=isinstance(answer, Exception))
        if isinstance(answer, Exception):
            _log.error("this broker is not in its cluster: %s", answer)
        else:
            _log.info("back in the cluster, with broker epoch %d", self.state.broker_epoch)
            self._note_epoch()
        requests, self._delayed_requests = self._delayed_requests, []
        for ticket, request in requests:
            self._decide_request(ticket, request)

    def _note_epoch(self, *, stops: bool = False) -> None:
        """Tell the next start of this broker which registration it continues."""
        if not self._alone:
            epochs = self.state.broker_epoch, self.state.kept_epoch
            self._unclean_shutdown.note(self._dirs, *epochs, stops=stops)

    def _registration(self) -> registration.Registration:
        endpoints = registration.advertised(self._endpoints, os.uname().nodename)
        rack, protocols = self.config.text("broker.rack"), self._listeners.protocols
        return registration.Registration(endpoints, rack, _now_ms(), protocols)

    def _perform(self, outcome: ControllerOutcome) -> None:
        """Carry out an outcome, in its order."""
        for token, operations in outcome.submits:
            self._store.submit(operations, token)
        for level, text in outcome.changes.lines:
            _log.log(level, "%s", text)
        for path, why in outcome.changes.faults:
            _log.error("the znode %s is passed over: %s", path, why)
        if self._start_changes is None:
            self._entity_changes.take(outcome.changes)
            self._apply(outcome.changes)
        else:
            self._start_changes.add(outcome.changes)
        for order in outcome.requests:
            self._peer_queues().send(order)
        for ticket, answer in outcome.replies:
            request = self._requests.pop(ticket, None)
            if request is None:
                self._own_answers[ticket] = answer
            elif request.api in entity_changes.APIS:
                self._entity_changes.delay(ticket, request, answer)
            else:
                self._answer(ticket, request, answer)

    def _apply_entities(self) -> None:
        """Hand the core the turn's quotas and credentials, then send the answers that waited."""
        changes, answers = self._entity_changes.end_turn()
        if changes:
            self._apply(changes)
        for each in answers:
            self._answer(*each)

    def _answer(self, ticket: int, request: Request[Any], answer: Message | Exception) -> None:
        """Answer a client."""
        if isinstance(answer, Exception):
            answer = self._log_failure(request, answer)
        self._lines.answered(request, answer, _now_ms())
        try:
            self.server.answer(ticket, answer)
        except (TypeError, ValueError) as error:
            self.server.answer(ticket, self._log_failure(request, error))

    def _log_failure(self, request: Request[Any], error: Exception) -> Message:
        """Log why a decision failed; the answer for the client."""
        _log.error("deciding %s failed", request.api, exc_info=error)
        return failed_response(request, error)

    def _run(self, steps: Generator[Transactions, list[MultiResult], Any]) -> None:
        """Run steps of a start to their end."""
        answer = self._wait_for_answer(self._controller.run(self._own_ticket(), steps))
        if isinstance(answer, Exception):
            raise answer

    def _own_ticket(self) -> int:
        """A ticket for a call of this process. No event has a negative ticket."""
        self._own_tickets -= 1
        return self._own_tickets

    def _wait_for_answer(self, outcome: ControllerOutcome) -> Message | Exception:
        """Carry out an outcome, and wait until the newest call of this process is answered."""
        ticket = self._own_tickets
        self._perform(outcome)
        self._take_store_events()
        while ticket not in self._own_answers:
            self._wait_for_store()
        self._apply_entities()
        return self._own_answers.pop(ticket)

    def _wait_for_store(self) -> None:
        """Continue a paused decision. If there is none, wait for events of the store."""
        if self._controller.is_paused:
            self._perform(self._controller.resume())
            self._take_store_events()
            return
        self._woken.wait(min(self._store.due_s(), 1.0))
        self._woken.clear()
        self._take_store_events()

    def _peer_queues(self) -> Peers:
        """The queues of the other brokers. A broker without others never loads their code."""
        if self._peers is None:
            from krust.runtime.peers import Peers

            self._peers = Peers(
                self.state.node_id,
                self._listeners.inter_broker,
                self.server.wakeup,
                lambda broker: broker not in self._cut_off,
                self._listeners.peer_options,
            )
            self._peers.follow(self.state.brokers)
        return self._peers

    def _apply(self, changes: Changes, cluster_id: str | None = None) -> None:
        """Apply changes to the image, and through it to the logs."""
        if self._groups is not None:
            self._groups.configured(changes.groups)
        self._lines.topics(changes.topics, says=self.state.is_controller and bool(self.bound))
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
        self._has_opened_logs = self._has_opened_logs or bool(delta["topics"])
        if self._groups is not None:
            self._groups.topics_changed(changes.topics)

    def _raise_recovered_ids(self) -> Steps:
        """The steps that raise the tree's ids to those that the opened logs prove."""
        self._has_opened_logs = False
        return recovered_ids.raise_in_tree(self.state, *self.server.recovered_ids())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
