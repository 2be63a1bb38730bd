"""The controller: which policy answers which request, and how far each has come.

Every method but `due_ms` returns an Outcome and does nothing else: the shell submits its
transactions to the store, brings its changes to the image, sends its requests to other brokers,
then gives its answers. A policy that waits for the store is kept under a token until all its
transactions are answered.
Threads: the policy thread.
Not promised: an order between requests that wait for the store at the same time; transactions
that cross are told apart by versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from krust.controller import (
    configs,
    consumer_offsets,
    election,
    following,
    producer_ids,
    reassignment,
    topics,
)
from krust.controller.state import Changes, Message, Policy, Request, State
from krust.errors import Code, KrustError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from krust.controller.state import Asked, ToBroker
    from krust.metadata.store import Done, Operation, SessionChanged, Watched

POLICIES: dict[str, Callable[[State, Request], Policy]] = {
    "CreateTopics": topics.create,
    "DeleteTopics": topics.delete,
    "CreatePartitions": topics.create_partitions,
    "AutoCreate": topics.auto_create,
    "DescribeConfigs": configs.describe,
    "AlterConfigs": configs.alter,
    "IncrementalAlterConfigs": configs.incremental_alter,
    "ListConfigResources": configs.list_resources,
    "ElectLeaders": election.elect,
    "ListPartitionReassignments": reassignment.list_ongoing,
    "AllocateProducerIds": producer_ids.allocate,
    "OffsetCommit": consumer_offsets.commit,
    "OffsetFetch": consumer_offsets.fetch,
    **following.POLICIES,
}
"""THE table of decisions: the API's name, and who decides."""


@dataclass(slots=True)
class Outcome:
    """What the shell has to do, in this order."""

    submits: list[tuple[int, list[Operation]]] = field(default_factory=list)
    """token and transaction, for the store"""
    changes: Changes = field(default_factory=Changes)
    """what the image has to learn before an answer goes out"""
    requests: list[ToBroker] = field(default_factory=list)
    """for other brokers, in this order for each"""
    replies: list[tuple[int, Message | Exception]] = field(default_factory=list)
    """ticket and response; an error: a start that cannot be, our own bug, nobody decides this"""


@dataclass(slots=True)
class _Waiting:
    """A policy between two steps."""

    ticket: int
    steps: Generator[Asked, list[Done], Any]
    answers: list[Done | None]
    open: int


class Controller:
    """Runs policies over a State."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._token = 0
        self._places: dict[int, tuple[_Waiting, int]] = {}

    def request(self, ticket: int, request: Request) -> Outcome:
        """A request came."""
        policy = POLICIES.get(request.api)
        outcome = Outcome()
        if policy is None:
            outcome.replies.append((ticket, KrustError(f"nobody decides {request.api}")))
            return outcome
        return self.run(ticket, policy(self.state, request))

    def run(self, ticket: int, steps: Generator[Asked, list[Done], Any]) -> Outcome:
        """Start a policy."""
        outcome = Outcome()
        self._step(_Waiting(ticket, steps, [], 0), outcome)
        outcome.changes = self.state.take_changes()
        return outcome

    def done(self, done: Done) -> Outcome:
        """The store answered one transaction."""
        outcome = Outcome()
        if not isinstance(done.token, int) or done.token not in self._places:
            return outcome
        waiting, place = self._places.pop(done.token)
        waiting.answers[place] = done
        waiting.open -= 1
        if waiting.open == 0:
            self._step(waiting, outcome)
            outcome.changes = self.state.take_changes()
        return outcome

    def heard(self, event: Watched | SessionChanged, now_ms: int) -> Outcome:
        """The store tells of a change."""
        del event, now_ms
        return Outcome()

    def answered(self, asked: ToBroker, message: Message | None, now_ms: int) -> Outcome:
        """Another broker answered a request of an Outcome.

        message  None: it cannot be delivered; the broker is gone, or was registered anew
        """
        del asked, message, now_ms
        return Outcome()

    def tick(self, now_ms: int) -> Outcome:
        """Time has passed; called when `due_ms` says, or later."""
        del now_ms
        return Outcome()

    def due_ms(self, now_ms: int) -> float:
        """In how many milliseconds `tick` has to be called; inf: not at all."""
        del now_ms
        return inf

    def _step(self, waiting: _Waiting, outcome: Outcome) -> None:
        """Resume a policy until it waits, answers or fails."""
        answers = [done for done in waiting.answers if done is not None]
        try:
            asked = waiting.steps.send(answers) if answers else next(waiting.steps)
            while not asked:
                asked = waiting.steps.send([])
        except StopIteration as stop:
            outcome.replies.append((waiting.ticket, stop.value))
            return
        except Exception as error:
            outcome.replies.append((waiting.ticket, error))
            return
        waiting.answers = [None] * len(asked)
        waiting.open = len(asked)
        for place, operations in enumerate(asked):
            self._token += 1
            self._places[self._token] = (waiting, place)
            outcome.submits.append((self._token, operations))


def failure(request: Request, error: Exception) -> Message:
    """The answer to a request whose policy has a bug: every item refused, nothing hidden."""
    text = f"{type(error).__name__}: {error}"
    facts: Message = {"error_code": Code.UNKNOWN_SERVER_ERROR, "error_message": text}
    message = request.message
    if request.api in ("CreateTopics", "CreatePartitions", "AutoCreate"):
        if request.api == "AutoCreate":
            return {"topics": [{"name": n, "error_code": -1} for n in message["topics"]]}
        named = [each["name"] for each in message["topics"]]
        key = "results" if request.api == "CreatePartitions" else "topics"
        return {key: [{"name": name, **facts} for name in named]}
    if request.api == "DeleteTopics":
        asked = [{"name": name} for name in message.get("topic_names") or []]
        asked += message.get("topics") or []
        return {"responses": [{**each, **facts} for each in asked]}
    if request.api in following.POLICIES:
        return {"error_code": Code.UNKNOWN_SERVER_ERROR, "partition_errors": [], "topics": []}
    if request.api in ("OffsetCommit", "OffsetFetch"):
        return _failed_offsets(message)
    if request.api in ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"):
        key = "results" if request.api == "DescribeConfigs" else "responses"
        kept = ("resource_type", "resource_name")
        return {key: [{**{k: each[k] for k in kept}, **facts} for each in message["resources"]]}
    return {"error_code": Code.UNKNOWN_SERVER_ERROR}


def _failed_offsets(message: Message) -> Message:
    """Every partition of an OffsetCommit 0 or OffsetFetch 0, refused."""
    code = Code.UNKNOWN_SERVER_ERROR
    topics = []
    for topic in message["topics"] or []:
        indexes = topic.get("partition_indexes") or [
            each["partition_index"] for each in topic.get("partitions", ())
        ]
        partitions = [
            {"partition_index": n, "committed_offset": -1, "metadata": "", "error_code": code}
            for n in indexes
        ]
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}
