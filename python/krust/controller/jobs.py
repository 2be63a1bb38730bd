"""The jobs of a broker whose tree is shared: what the controller does without a request.

Every event (a watch fires, a session ends, a broker answers) marks *jobs*. A job reads the tree
again, sets watches, and writes what is missing. Jobs run one after the other, so no job runs beside
another. Client requests run beside jobs: each write checks versions, and one of the two fails. A
job that the store interrupts starts again.
The controller reads the whole tree (`_initialize`) before `is_controller` becomes true. Then it
sends the whole state to all brokers, and from then on the changes, whenever no job is running.
Another broker reads who the controller is, settings, features, ACLs and delegation tokens
(`OF_EVERY_BROKER`). It learns topics and brokers from the controller's requests
(`control_request_handlers.py`).
A decision or job that started in one term ends with that term (`Controller.on_transaction_done`).
Threads: the policy thread.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from krust.controller import (
    acl_changes,
    acl_nodes,
    admin_znodes,
    balancing,
    brokers,
    config_changes,
    controller_election,
    delegation_token_changes,
    delegation_tokens,
    deletion,
    features,
    isr_changes,
    loading,
    log_dirs,
    reassignment,
    registration,
    store_reads,
    topic_plans,
)
from krust.controller.changes import Changes
from krust.controller.control_requests import ControlRequests
from krust.controller.controller_election import RetryLaterError
from krust.controller.state import NO_NODE_VERSION, BrokerRequest, ControllerState
from krust.errors import Code, ServerError
from krust.metadata import znodes
from krust.metadata.admin_contents import LogDirEvent
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import (
    Children,
    Delete,
    Exists,
    Node,
    Read,
    Refusal,
    SessionState,
    WatchFired,
)
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from krust.controller.entities import Topic
    from krust.controller.own_requests import AutoCreateRequest
    from krust.controller.pace import Pace
    from krust.controller.state import Request, Steps, Transactions
    from krust.messages.create_topics import CreateTopicsRequest
    from krust.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from krust.metadata.store import MultiResult, SessionChanged

_AFTER_EVERYTHING = 2**63
"""later than any zxid: used until this process knows when it registered"""

RETRY_MS = 200
"""until an interrupted job starts again"""

OF_EVERY_BROKER = ("acls", "tokens", "election", "registration", "settings", "features")
"""The jobs of every broker; a broker that is not the controller has no others."""


class _DelayedDeletion(NamedTuple):
    """An answer to DeleteTopics that waits until its topics are gone."""

    ticket: int
    message: DeleteTopicsResponse
    names: list[str]
    until_ms: float


class ControllerJobs:
    """The jobs that wait, and the control requests that the other brokers got."""

    def __init__(self, state: ControllerState) -> None:
        self.control_requests = ControlRequests()
        self.now_ms = 0
        self._state = state
        self._config_changes = config_changes.ConfigChangeNotifications()
        self._acl_changes = acl_changes.AclChangeNotifications()
        self._token_changes = delegation_token_changes.TokenChangeNotifications()
        self._jobs: dict[str, Callable[[], Steps]] = {
            "acls": lambda: self._acl_changes.read_new(state, self.now_ms),
            "tokens": lambda: self._token_changes.read_new(state, self.now_ms),
            "election": self._elect,
            "registration": self._registration,
            "brokers": self._brokers,
            "topics": self._topics,
            "leaders": self._leaders,
            "settings": self._settings,
            "features": lambda: features.read(state),
            "deletions": self._deletions,
            "finished_deletions": self._finished_deletions,
            "preferred_elections": self._preferred_elections,
            reassignment.JOB: self._moves,
            "reassignments": lambda: self._znode_reassignments.continue_begun(state),
            "log_dirs": self._log_dirs,
            "purge_notifications": lambda: self._config_changes.purge(state, self.now_ms),
            "purge_acl_changes": lambda: self._acl_changes.purge(state, self.now_ms),
            "purge_token_changes": lambda: self._token_changes.purge(state, self.now_ms),
            "isr_changes": lambda: isr_changes.read_notifications(state),
            "balance": lambda: balancing.balance(state),
        }
        """THE table of jobs. Waiting jobs run in this order."""
        self._watches = {
            znodes.CONTROLLER: "election",
            f"{znodes.BROKERS}/{state.node_id}": "registration",
            znodes.BROKERS: "brokers",
            znodes.TOPICS: "topics",
            znodes.CONFIG_CHANGES: "settings",
            znodes.FEATURE: "features",
            znodes.DELETE_TOPICS: "deletions",
            znodes.PREFERRED_ELECTION: "preferred_elections",
            znodes.REASSIGNMENT: "reassignments",
            znodes.LOG_DIR_EVENTS: "log_dirs",
            znodes.ISR_CHANGES: "isr_changes",
            **dict.fromkeys(acl_nodes.CHANGES.values(), "acls"),
            delegation_tokens.CHANGES: "tokens",
        }
        """THE table of watches: a path or its parent, and the job that a change starts."""
        self._own_registration: registration.Registration | None = None
        self._registered_at, self._was_controller = _AFTER_EVERYTHING, True
        self._wanted: set[str] = set()
        self._open = False
        self._initialized_term: int | None = None
        """the term in which this broker, as the controller, has read the tree and elected missing
        leaders"""
        self._follows_config_changes = False
        """whether the watch on changed settings is set"""
        self._initializing_term: int | None = None
        """the term that `_initialize` reads the tree for"""
        self._pending = Changes()
        self._inquiries: deque[Iterator[BrokerRequest]] = deque()
        """brokers that were registered again, and may lead in an earlier epoch"""
        self._swept_again = False
        """a sweep met outdated states, and was repeated; it is repeated only once"""
        self._outdated_topics: set[str] = set()
        self._announced: set[reassignment.AnnouncedPartition] = set()
        """partitions that are being reassigned, as their leaders know"""
        self._znode_reassignments = admin_znodes.ZnodeReassignments()
        self._delayed_deletions: list[_DelayedDeletion] = []
        self._retry_ms = inf
        self._last_error = ""
        self._balance_ms = inf

    # Events.

    def on_store_event(self, event: WatchFired | SessionChanged) -> None:
        """A watch fired, or the session is in another state."""
        if isinstance(event, WatchFired):
            above = event.path.rpartition("/")[0]
            job = self._watches.get(event.path) or self._watches.get(above)
            if job == "topics" and event.path != znodes.TOPICS:
                self._outdated_topics.add(event.path.rpartition("/")[2])
            if job is not None:
                self._wanted.add(job)
        elif event.state is not SessionState.CONNECTED:
            self._open = False
            if event.state in (SessionState.OVERDUE, SessionState.EXPIRED):
                self._state.set_controller(-1)

    def on_fenced(self) -> None:
        """A write was refused because another broker is the controller."""
        self._state.set_controller(-1)
        self._wanted.add("election")

    def on_peer_answer(self, asked: BrokerRequest, message: Any) -> None:
        """A broker answered a control request."""
        state = self._state
        if message["error_code"] == Code.STALE_CONTROLLER_EPOCH:
            self._wanted.add("election")
        elif asked.api == "StopReplica":
            deletion.replica_stopped(state, asked.broker, asked.message, message)
            self._wanted.add("finished_deletions")
        elif asked.api == "LeaderAndIsr" and message["error_code"] == Code.NONE:
            for topic in message.get("topics") or ():
                name = state.names.get(topic["topic_id"])
                for each in topic["partition_errors"]:
                    if name is not None and each["error_code"] == Code.KAFKA_STORAGE_ERROR:
                        state.offline.add(asked.broker, (name, each["partition_index"]))
                        self._wanted.add("leaders")

    # Steps of the runtime.

    def claim(self, now_ms: int) -> Steps:
        """At the start: become the controller if there is none, and read the tree or settings."""
        self.now_ms = now_ms
        state = self._state
        yield from self._acl_changes.follow(state)
        yield from self._token_changes.follow(state)
        try:
            if (yield from controller_election.elect(state, now_ms)):
                if state.node_id not in state.brokers:
                    state.add_broker(state.node_id, brokers.unread_own_broker(state))
                state.serve_as_controller()
                yield from brokers.read_live_brokers(state)
                yield from loading.load(state, self._without_stale_leaders)
            else:
                yield from loading.settings(state)
        except RetryLaterError as error:
            raise ServerError(str(error), hint="look at the metadata store") from None

    def register(self, own_registration: registration.Registration) -> Steps:
        """At the end of the start: register this broker, and start the jobs."""
        self._own_registration = own_registration
        yield from registration.announce(self._state, own_registration)
        self._registered_at, self._was_controller = (
            self._state.broker_epoch,
            self._state.is_controller,
        )
        self._open = True
        self._wanted |= {"election", "registration"}

    def recover(self, own_registration: registration.Registration) -> Steps:
        """After the connection was lost: read ACLs and delegation tokens, elect a controller, which
        reads the tree, register, report failed log directories.

        raises  ServerError: this failed, and may be tried again
        """
        self._open, self._initialized_term, self._follows_config_changes = True, None, False
        self._retry_ms, self._own_registration = inf, own_registration
        self._wanted.clear()
        self.now_ms = max(self.now_ms, own_registration.now_ms)
        yield from self._acl_changes.follow(self._state)
        yield from self._token_changes.follow(self._state)
        try:
            yield from self._elect()
        except RetryLaterError as error:
            raise ServerError(f"the cluster: {error}", hint="look at the store") from None
        yield from registration.announce(self._state, own_registration)
        if not self._open:
            raise ServerError("the connection went again", hint="look at the store")
        self._wanted.add("registration")
        yield from log_dirs.report_failed(self._state)

    # Results.

    @property
    def _serves(self) -> bool:
        """Whether this broker is the controller, and has begun its term."""
        return self._state.is_controller and self._initialized_term == self._state.term

    def next_job(self) -> tuple[Steps, bool] | None:
        """The next job, and whether it ends with the term. None: no job waits."""
        if not self._open or self.now_ms < self._retry_ms < inf:
            return None
        self._retry_ms = inf
        left = self._state.for_jobs
        if left.outdated or left.wanted:
            self._state.for_jobs = type(left)()
            self._read_again(left.outdated)
            self._wanted |= left.wanted
        for name in self._jobs if self._wanted else ():
            if name in self._wanted:
                self._wanted.remove(name)
                if name in OF_EVERY_BROKER or self._serves:
                    return self._guarded(name), name not in OF_EVERY_BROKER
        return None

    def next_requests(self) -> list[BrokerRequest]:
        """The next slice of requests for other brokers; called when no job is running.

        Empty while a partition waits for the election of a leader in a new epoch.
        """
        state = self._state
        if not self._serves:
            self.control_requests.clear()
            self._pending, self._inquiries = Changes(), deque()
            return []
        if state.returned:
            return []
        pending, self._pending = self.control_requests.split(self._pending)
        if self.control_requests.needs_election(state, pending):
            self._wanted.add("leaders")
        if any(topic is None for topic in pending.topics.values()):
            self._wanted.add("finished_deletions")
        return self.control_requests.for_changes(state, pending) + self._next_inquiry()

    def _next_inquiry(self) -> list[BrokerRequest]:
        """The next slice of what brokers are asked about their replicas."""
        while self._inquiries:
            if (request := next(self._inquiries[0], None)) is not None:
                return [request]
            self._inquiries.popleft()
        return []

    @property
    def has_unsent_requests(self) -> bool:
        """Whether `after` has another slice to send."""
        state = self._state
        if not self._serves or state.returned:
            return False
        waiting = self._pending.topics or self._pending.live or self._inquiries
        return bool(waiting) or self.control_requests.has_unsent(state)

    def deposed_error(self) -> RetryLaterError | None:
        """The error that ends the running steps if they initialize a term that is over."""
        if self._initializing_term in (None, self._state.term):
            return None
        return RetryLaterError("this broker is no longer the controller")

    def queue_changes(self, changes: Changes) -> None:
        """Keep changes; they are sent to the other brokers when no job is running."""
        self._pending.add(changes)
        if self._announced:
            moving = {each.topic_id for each in self._announced}
            if any(each is None or each.id in moving for each in changes.topics.values()):
                self._wanted.add(reassignment.JOB)

    def create_topics(self, request: Request[AutoCreateRequest]) -> CreateTopicsRequest:
        """The CreateTopics that asks the controller for the topics of an AutoCreate."""
        names = dict.fromkeys(request.message["topics"])
        topics = [topic_plans.with_own_numbers(self._state, name) for name in names]
        return {"topics": topics, "timeout_ms": 30_000, "validate_only": False}

    def delay_deletion_answer(
        self, ticket: int, asked: DeleteTopicsRequest, message: DeleteTopicsResponse
    ) -> bool:
        """Delay the answer to DeleteTopics until the topics are deleted. False: they are."""
        state = self._state
        names = [each["name"] for each in message["responses"] if each["name"] in state.deletions]
        if not names:
            return False
        until = self.now_ms + max(asked.get("timeout_ms", 30_000), 0)
        self._delayed_deletions.append(_DelayedDeletion(ticket, message, names, until))
        return True

    def due_deletion_answers(self) -> list[tuple[int, DeleteTopicsResponse]]:
        """The delayed answers to send: only dead brokers have replicas left, or they timed out."""
        state = self._state
        out = []
        if not self._delayed_deletions:
            return []
        for each in self._delayed_deletions:
            deletions = [state.deletions[name] for name in each.names if name in state.deletions]
            soon = any(not one.waiting - state.brokers.keys() for one in deletions)
            if not (state.is_controller and soon) or self.now_ms >= each.until_ms:
                out.append(each)
        self._delayed_deletions = [each for each in self._delayed_deletions if each not in out]
        return [(each.ticket, each.message) for each in out]

    # Time.

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self.now_ms = now_ms
        if not self._state.is_controller:
            return
        if self._config_changes.due_ms(now_ms) <= 0:
            self._wanted.add("purge_notifications")
        if self._acl_changes.due_ms(now_ms) <= 0:
            self._wanted.add("purge_acl_changes")
        if self._token_changes.due_ms(now_ms) <= 0:
            self._wanted.add("purge_token_changes")
        if now_ms >= self._balance_ms:
            self._wanted.add("balance")
            self._balance_ms = self._next_balance()

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until `tick` has something to do."""
        due = [self._retry_ms - now_ms if self._open else inf]
        due += [each.until_ms - now_ms for each in self._delayed_deletions]
        if self._state.is_controller and self._open:
            due += [self._config_changes.due_ms(now_ms), self._balance_ms - now_ms]
            due += [self._acl_changes.due_ms(now_ms), self._token_changes.due_ms(now_ms)]
        return max(min(due), 0)

    def _next_balance(self, most_ms: float = inf) -> float:
        state = self._state
        if state.broker_text("auto.leader.rebalance.enable") == "false":
            return inf
        interval_ms = 1000 * state.whole("leader.imbalance.check.interval.seconds")
        return self.now_ms + min(interval_ms, most_ms)

    # The jobs.

    def _guarded(self, name: str) -> Steps:
        try:
            yield from self._jobs[name]()
        except brokers.BrokersChangedError:
            self._wanted |= {name, "brokers"}
        except (RetryLaterError, ServerError) as error:
            self._wanted.add(name)
            self._retry_ms = self.now_ms + RETRY_MS
            if self._open and str(error) != self._last_error:
                self._last_error = str(error)
                self._state.warn(f"{name}: {error}; tried again")

    def _elect(self) -> Steps:
        """Elect the controller. A new controller reads the whole tree first."""
        state = self._state
        if not (yield from controller_election.elect(state, self.now_ms)):
            self._initialized_term = None
            if not self._follows_config_changes:
                yield from self._config_changes.begin()
                yield from loading.settings(state)
                yield from config_changes.reread_topic_configs(state, list(state.topics))
                self._follows_config_changes = True
        elif not self._serves:
            yield from self._initialize()

    def _registration(self) -> Steps:
        """Register this broker again if its node was deleted."""
        path = f"{znodes.BROKERS}/{self._state.node_id}"
        (read,) = yield [[Exists(path, watch=True)]]
        if read.results[0] is Refusal.NO_NODE and self._own_registration is not None:
            yield from registration.announce(self._state, self._own_registration)
        self._wanted |= {"brokers"} if self._state.is_controller else set()

    def _initialize(self) -> Steps:
        self._initializing_term = self._state.term
        try:
            yield from self._initialize_term(self._initializing_term)
        finally:
            self._initializing_term = None

    def _initialize_term(self, term: int) -> Steps:
        state = self._state
        self._follows_config_changes = False
        yield from self._config_changes.begin()
        yield from brokers.read_live_brokers(state)
        yield from loading.load(state, self._without_stale_leaders)
        yield from deletion.read_marks(state)
        if state.term != term or state.epoch_version == NO_NODE_VERSION:
            raise RetryLaterError("this broker is no longer the controller")
        state.serve_as_controller()
        yield from features.cap(state)
        yield from self._leaders()
        if state.term != term:
            raise RetryLaterError("this broker is no longer the controller")
        self.control_requests.clear()
        self._initialized_term, self._follows_config_changes = term, True
        self._balance_ms = self._next_balance(balancing.FIRST_MS)
        self._announced.clear()
        self._znode_reassignments.clear()
        self._wanted |= {
            "topics",
            "finished_deletions",
            "preferred_elections",
            "reassignments",
            "log_dirs",
        }
        self._wanted.add("isr_changes")

    def _without_stale_leaders(
        self, topic: Topic, written: Mapping[tuple[str, int], int], pace: Pace
    ) -> Generator[Transactions, list[MultiResult], Topic]:
        return brokers.without_stale_leaders(
            self._state,
            topic,
            written,
            self._registered_at,
            pace,
            was_controller=self._was_controller,
        )

    def _brokers(self) -> Steps:
        returned = yield from brokers.read_live_brokers(self._state)
        self._state.offline.retain(self._state.brokers.keys() - returned.restarted)
        # A leader that is gone may have acted on a lower min.insync.replicas: the ELR ends with it.
        yield from self._config_changes.read_new(self._state, self.now_ms)
        yield from features.cap(self._state)
        yield from self._leaders()

    def _leaders(self) -> Steps:
        outdated = yield from brokers.elect_missing_leaders(self._state, list(self._state.topics))
        self._read_again(outdated)
        if outdated and not self._swept_again:
            self._swept_again = True
            self._wanted.add("leaders")
        else:
            self._swept_again = False
            self._state.returned.clear()

    def _read_again(self, outdated: set[str]) -> None:
        if outdated:
            self._outdated_topics |= outdated
            self._wanted.add("topics")

    def _topics(self) -> Steps:
        """Read topics that others created or changed, and outdated ones."""
        state = self._state
        known = set(state.topics)
        (read,) = yield [[Children(znodes.TOPICS, watch=True)]]
        names = set(store_reads.children(znodes.TOPICS, read.results[0]))
        outdated, self._outdated_topics = self._outdated_topics & names, set()
        unknown = names - state.topics.keys() - state.deletions.keys() - state.damaged
        try:
            found = yield from loading.topics(state, sorted(outdated | unknown))
        except ServerError:
            self._outdated_topics |= outdated
            raise
        for topic in found:
            if topic.name not in state.deletions:
                state.merge_topic(topic)
        for name in known & state.topics.keys() - names:
            state.lose_topic(name, "it is gone; its files are kept")
        self._wanted.add(reassignment.JOB)

    def _settings(self) -> Steps:
        """Read changed settings: they may say who can lead now."""
        yield from self._config_changes.read_new(self._state, self.now_ms)
        if self._serves:
            self._wanted.add("leaders")

    def _deletions(self) -> Steps:
        yield from deletion.read_marks(self._state)
        self._wanted.add("finished_deletions")

    def _finished_deletions(self) -> Steps:
        yield from deletion.delete_znodes(self._state)
        if any(not each.waiting for each in self._state.deletions.values()):
            raise RetryLaterError("a topic that goes is changed by others")

    def _moves(self) -> Steps:
        before = set(self._announced)
        yield from reassignment.continue_moves(self._state, self._announced)
        if before - self._announced:
            self._wanted.add("reassignments")

    def _preferred_elections(self) -> Steps:
        self._read_again((yield from admin_znodes.elect_preferred(self._state)))

    def _log_dirs(self) -> Steps:
        """A broker's disk failed: ask the broker which replicas are lost."""
        state, path = self._state, znodes.LOG_DIR_EVENTS
        (read,) = yield [[Children(path, watch=True)]]
        for name in store_reads.children(path, read.results[0]):
            (one,) = yield [[Read(f"{path}/{name}")]]
            node = one.results[0]
            if isinstance(node, Node):
                try:
                    broker = LogDirEvent.decode(node.data).broker
                    self._inquiries.append(self.control_requests.inquiry(state, broker))
                    if broker == state.node_id:  # this broker knows them
                        self._wanted.add("leaders")
                except BadZnodeError as error:
                    state.fault(f"{path}/{name}", error)
                yield [[state.fence(), Delete(f"{path}/{name}")]]
