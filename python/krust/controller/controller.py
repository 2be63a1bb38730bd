"""The controller: starts the decision of each request, and resumes it when the store answers.

Each method returns a ControllerOutcome and has no other effect. The runtime submits its
transactions to the store, applies its changes to the image, sends its requests to other brokers,
then sends its replies. A decision that waits for the store is kept until all its transactions
are answered. One that pauses (`pace.py`) is kept until `resume`. If other brokers use the tree
too, `jobs.py` adds what the controller does without a request.
A decision is a generator that decides one request (`state.py`).
Threads: the policy thread.
Not promised: an order between requests that wait for the store at the same time. Versions decide
which of two concurrent transactions succeeds.
"""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from krust.controller import registration, stored_passwords
from krust.controller.apis import CONTROLLER_APIS, refusal
from krust.controller.changes import Changes
from krust.controller.delegation_token_changes import TokenExpiry
from krust.controller.pace import PAUSE
from krust.controller.state import (
    NO_NODE_VERSION,
    BrokerRequest,
    ControllerState,
    Decision,
    Request,
)
from krust.errors import Code, KrustError
from krust.metadata import znodes
from krust.metadata.store import Check, Refusal

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.jobs import ControllerJobs
    from krust.controller.registration import Registration
    from krust.controller.state import Steps, Transactions
    from krust.messages import Message
    from krust.messages.allocate_producer_ids import AllocateProducerIdsRequest
    from krust.messages.alter_partition import AlterPartitionRequest
    from krust.messages.create_topics import CreateTopicsRequest
    from krust.metadata.store import MultiResult, Operation, SessionChanged, WatchFired

_NOT_CONTROLLER_TEXT = "This is not the correct controller for this cluster."


class ControllerOutcome:
    """What the runtime has to do after a call, in this order."""

    def __init__(self) -> None:
        self.submits: list[tuple[int, list[Operation]]] = []
        """token and transaction, for the store"""
        self.changes = Changes()
        """what the image has to learn before an answer goes out"""
        self.requests: list[BrokerRequest] = []
        """for other brokers, in this order for each"""
        self.replies: list[tuple[int, Any]] = []
        """ticket and response; an error: a start that cannot be, our own bug, an unknown API"""


class _RunningSteps:
    """A decision, a job or steps of the runtime, until they end.

    ticket  None: no answer is sent
    term    the controller's term in which it began; it ends with that term
    """

    def __init__(
        self,
        ticket: int | None,
        steps: Generator[Transactions, list[MultiResult], Any],
        request: Request[Any] | None = None,
        term: int | None = None,
    ) -> None:
        self.ticket = ticket
        self.steps = steps
        self.request = request
        self.term = term
        self.answers: list[MultiResult | None] = []
        self.open = 0


class Controller:
    """Runs decisions and jobs over the state."""

    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self._token = 0
        self._waiting_for: dict[int, tuple[_RunningSteps, int, int]] = {}
        self._cluster: ControllerJobs | None = None
        self._token_expiry = TokenExpiry(state)
        self._runs: deque[_RunningSteps] = deque()
        self._paused: deque[_RunningSteps] = deque()
        self._running: _RunningSteps | None = None
        self._forwarded: list[tuple[BrokerRequest, int, Request[Any]]] = []

    def share(self) -> ControllerJobs:
        """Share the tree with other brokers: jobs run from now on."""
        from krust.controller import jobs

        self.state.shared = True
        self._cluster = jobs.ControllerJobs(self.state)
        return self._cluster

    def request(
        self, ticket: int, request: Request[Any], steps: Decision[Any] | None = None
    ) -> ControllerOutcome:
        """Start the decision of a request.

        steps   the decision, if it takes more than the state; None: the table names it
        """
        outcome = ControllerOutcome()
        if steps is not None:
            self._step(_RunningSteps(ticket, steps, request), outcome)
            return self._finished(outcome)
        api = CONTROLLER_APIS.get(request.api)
        if self._cluster is not None:
            self._cluster.now_ms = max(self._cluster.now_ms, request.now_ms)
        elif api is not None and api.is_between_brokers and not api.is_forwarded:
            api = None
        if api is None:
            outcome.replies.append((ticket, KrustError(f"nobody decides {request.api}")))
            return outcome
        term = None
        if self.state.shared and api.by_controller:
            term = self.state.term
            if not self.state.is_controller:
                self._elsewhere(ticket, request, outcome)
                return self._finished(outcome)
        steps = api.decide(self.state, request)
        self._step(_RunningSteps(ticket, steps, request, term), outcome)
        return self._finished(outcome)

    def run(
        self, ticket: int | None, steps: Generator[Transactions, list[MultiResult], Any]
    ) -> ControllerOutcome:
        """Run the runtime's own steps after those before them and after the running job.

        ticket   None: no answer is sent; an error is logged
        """
        self._runs.append(_RunningSteps(ticket, steps))
        return self._finished(ControllerOutcome())

    @property
    def is_paused(self) -> bool:
        """Whether a decision, or requests for other brokers, wait for `resume`."""
        if self._paused:
            return True
        return (
            self._cluster is not None
            and self._running is None
            and self._cluster.has_unsent_requests
        )

    @property
    def is_job_paused(self) -> bool:
        """Whether the job, or the runtime's own steps, wait for `resume`."""
        return self._running in self._paused

    def resume(self, *, job_only: bool = False) -> ControllerOutcome:
        """Run the next slice of the decision that paused first, or send the next requests.

        job_only   only the job or the runtime's own steps; decisions of requests wait
        """
        outcome = ControllerOutcome()
        if job_only and self._running is not None:
            if self.is_job_paused:
                self._paused.remove(self._running)
                self._step(self._running, outcome)
        elif self._paused:
            self._step(self._paused.popleft(), outcome)
        return self._finished(outcome)

    def claim(self, now_ms: int) -> Steps:
        """The steps of a start: become the controller if there is none, and read the tree."""
        yield from stored_passwords.renew(self.state)
        if self._cluster is None:
            yield from registration.claim_and_load(self.state, now_ms)
        else:
            yield from self._cluster.claim(now_ms)

    def register(self, own_registration: Registration) -> Steps:
        """The last steps of a start: register this broker, whose listeners are bound."""
        if self._cluster is None:
            return registration.announce(self.state, own_registration)
        return self._cluster.register(own_registration)

    def recover(self, own_registration: Registration) -> Steps:
        """The steps to run when the store is connected again, or when an answer was lost."""
        if self._cluster is None:
            return registration.register_again(self.state, own_registration)
        return self._cluster.recover(own_registration)

    def on_transaction_done(self, done: MultiResult) -> ControllerOutcome:
        """The store answered one transaction."""
        outcome = ControllerOutcome()
        if not isinstance(done.token, int) or done.token not in self._waiting_for:
            return outcome
        waiting, index, fence = self._waiting_for.pop(done.token)
        lost = fence == self.state.epoch_version and done.results[0] is Refusal.BAD_VERSION
        if lost and self._cluster is not None:
            self._cluster.on_fenced()
        waiting.answers[index] = done
        waiting.open -= 1
        if waiting.open == 0:
            self._step(waiting, outcome)
        return self._finished(outcome)

    def on_store_event(self, event: WatchFired | SessionChanged, now_ms: int) -> ControllerOutcome:
        """A watch fired, or the session is in another state."""
        if self._cluster is not None:
            self._cluster.now_ms = now_ms
            self._cluster.on_store_event(event)
        return self._finished(ControllerOutcome())

    def on_peer_answer(
        self, asked: BrokerRequest, message: Message | None, now_ms: int
    ) -> ControllerOutcome:
        """Another broker answered a request of a ControllerOutcome.

        message  None: it cannot be delivered; the broker is gone, or was registered again
        """
        outcome = ControllerOutcome()
        for each in self._forwarded:
            if each[0] is asked:
                self._forwarded.remove(each)
                outcome.replies.append((each[1], _forwarded_answer(each[2], message)))
                return outcome
        if self._cluster is not None:
            self._cluster.now_ms = now_ms
            if message is not None:
                self._cluster.on_peer_answer(asked, message)
        return self._finished(outcome)

    def tick(self, now_ms: int) -> ControllerOutcome:
        """Time has passed; called when `due_ms` says, or later."""
        if self._cluster is not None:
            self._cluster.tick(now_ms)
        if self._token_expiry.due_ms(now_ms) <= 0:
            self._runs.append(_RunningSteps(None, self._token_expiry.begin(now_ms)))
        return self._finished(ControllerOutcome())

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until `tick` has to be called; inf: never."""
        of_jobs = self._cluster.due_ms(now_ms) if self._cluster is not None else inf
        return min(of_jobs, self._token_expiry.due_ms(now_ms))

    def _elsewhere(self, ticket: int, request: Request[Any], outcome: ControllerOutcome) -> None:
        """Forward this broker's own request to the controller; refuse those of others."""
        state = self.state
        asked: CreateTopicsRequest | AllocateProducerIdsRequest | AlterPartitionRequest | None = (
            None
        )
        if request.api == "AutoCreate" and self._cluster is not None:
            asked = self._cluster.create_topics(request)
        elif request.api == "AllocateProducerIds":
            broker = request.message.get("broker_id", state.node_id)
            if broker == state.node_id:
                asked = {"broker_id": broker, "broker_epoch": state.broker_epoch}
        elif request.api == "AlterPartition" and request.message["broker_id"] == state.node_id:
            asked = request.message
        if asked is None:
            outcome.replies.append(
                (ticket, refusal(request, Code.NOT_CONTROLLER, _NOT_CONTROLLER_TEXT))
            )
        elif state.controller_id in (-1, state.node_id):
            outcome.replies.append((ticket, _forwarded_answer(request, None)))
        else:
            api = "CreateTopics" if request.api == "AutoCreate" else request.api
            order = BrokerRequest(state.controller_id, api, asked)
            self._forwarded.append((order, ticket, request))
            outcome.requests.append(order)

    def _finished(self, outcome: ControllerOutcome) -> ControllerOutcome:
        """Begin the next runs and jobs; collect the changes, and one slice of requests."""
        while True:
            if self.state.changes:
                changes = self.state.take_changes()
                outcome.changes.add(changes)
                if self._cluster is not None:
                    self._cluster.queue_changes(changes)
            if self._cluster is not None and self._running is None and not outcome.requests:
                outcome.requests += self._cluster.next_requests()
            if self._running is not None or not self._begin(outcome):
                break
        if self._cluster is not None:
            outcome.replies += self._cluster.due_deletion_answers()
        return outcome

    def _begin(self, outcome: ControllerOutcome) -> bool:
        """Start the next run or job; False: there is none."""
        if self._runs:
            self._running = self._runs.popleft()
        else:
            job = self._cluster.next_job() if self._cluster is not None else None
            if job is None:
                return False
            steps, bound = job
            term = self.state.term if bound else None
            self._running = _RunningSteps(None, steps, term=term)
        self._step(self._running, outcome)
        return True

    def _step(self, waiting: _RunningSteps, outcome: ControllerOutcome) -> None:
        """Resume steps until they wait, answer or fail."""
        answers = [done for done in waiting.answers if done is not None]
        answer: Message | Exception
        if waiting.term not in (None, self.state.term):
            waiting.steps.close()
            answer = {}
            if waiting.request is not None:
                answer = refusal(
                    waiting.request, Code.NOT_CONTROLLER, "the controller moved; ask again"
                )
        else:
            cluster = self._cluster if waiting is self._running else None
            deposed = cluster.deposed_error() if cluster is not None else None
            try:
                if deposed is not None:
                    asked = waiting.steps.throw(deposed)
                else:
                    asked = waiting.steps.send(answers) if answers else next(waiting.steps)
                while not asked and asked is not PAUSE:
                    asked = waiting.steps.send([])
            except StopIteration as stop:
                answer = stop.value
            except Exception as error:
                answer = error
            else:
                if asked is PAUSE:
                    waiting.answers = []
                    self._paused.append(waiting)
                else:
                    self._submit(waiting, asked, outcome)
                return
        self._end(waiting, answer, outcome)

    def _submit(
        self, waiting: _RunningSteps, asked: Transactions, outcome: ControllerOutcome
    ) -> None:
        """Submit transactions, and remember the controller epoch that each checks."""
        waiting.answers = [None] * len(asked)
        waiting.open = len(asked)
        for index, operations in enumerate(asked):
            self._token += 1
            first = operations[0] if operations else None
            fence = NO_NODE_VERSION
            if isinstance(first, Check) and first.path == znodes.CONTROLLER_EPOCH:
                fence = first.version
            self._waiting_for[self._token] = (waiting, index, fence)
            outcome.submits.append((self._token, operations))

    def _end(self, waiting: _RunningSteps, answer: Any, outcome: ControllerOutcome) -> None:
        """Steps have ended."""
        if waiting is self._running:
            self._running = None
        if waiting.ticket is None:
            if isinstance(answer, Exception):
                text = f"the controller: {type(answer).__name__}: {answer}"
                self.state.changes.lines.append((logging.ERROR, text))
            return
        request, cluster = waiting.request, self._cluster
        if cluster and request is not None and not isinstance(answer, Exception):
            deleting = request.api == "DeleteTopics"
            if deleting and cluster.delay_deletion_answer(waiting.ticket, request.message, answer):
                return
        outcome.replies.append((waiting.ticket, answer))


def failed_response(request: Request[Any], error: Exception) -> Message:
    """The answer to a request whose decision failed: every item is refused with the error."""
    return refusal(request, Code.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")


def _forwarded_answer(request: Request[Any], message: Message | None) -> Message:
    """The answer to a forwarded request. `message` is None if the controller did not answer."""
    if request.api == "AutoCreate":
        codes_of = {each["name"]: each["error_code"] for each in (message or {}).get("topics", ())}
        fine = (Code.NONE, Code.TOPIC_ALREADY_EXISTS)
        codes = {
            name: codes_of.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
            for name in dict.fromkeys(request.message["topics"])
        }
        return {
            "topics": [
                {"name": name, "error_code": Code.NONE if code in fine else code}
                for name, code in codes.items()
            ]
        }
    if message is None or message["error_code"] != Code.NONE:
        return {"error_code": Code.COORDINATOR_LOAD_IN_PROGRESS}
    return message
