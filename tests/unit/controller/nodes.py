"""Several brokers' controllers over one tree in memory, driven without threads, cores or clocks.

A request to another broker is recorded, and answered as a healthy broker answers it.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from krust.config import load
from krust.controller import adoption, ids, registration
from krust.controller.controller import Controller, ControllerOutcome
from krust.controller.state import BrokerRequest, ControllerState, Request
from krust.messages import Message, RequestContext
from krust.metadata.local import Tree
from krust.metadata.store import (
    Children,
    Create,
    Delete,
    MultiResult,
    Node,
    Operation,
    Read,
    SessionChanged,
    SessionState,
    SetData,
    StoreEvent,
)

NOW_MS = 1_795_254_517_394
CLUSTER = "fUc4e5toQ_utsAZFiqE2qQ"
_NUMBERS = count(1)


def _id() -> str:
    return ids.from_random(next(_NUMBERS).to_bytes(16, "big"))


class Member:
    """One broker, without its records."""

    def __init__(self, nodes: Nodes, node_id: int, /, **options: object) -> None:
        self.id = node_id
        kept = options.pop("kept", -1)
        assert isinstance(kept, int)
        self.kept = kept
        self.nodes = nodes
        self.config = load(options=options)
        self.submitted: list[list[Operation]] = []
        self.answers: dict[int, Any] = {}
        self.lines: list[str] = []
        self.faults: dict[str, str] = {}
        self.tickets = 0
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.store = self.nodes.tree.session()
        self.state = ControllerState(self.config, _id, self.id)
        self.state.session = self.store.session
        self.state.kept_epoch = self.kept
        self.controller = Controller(self.state)
        self.cluster = self.controller.share()
        where = [("PLAINTEXT", f"host{self.id}", 9092)]
        rack = self.config.text("broker.rack")
        self.registration = registration.Registration(where, rack, NOW_MS)
        self.nodes.members[self.id] = self
        self.run(registration.create_cluster(self.state, CLUSTER))
        self.run(registration.check_id_free(self.state))
        self.run(self.cluster.claim(NOW_MS))
        if self.state.is_controller:
            self.run(adoption.adopt(self.state, ()))
        self.run(self.cluster.register(self.registration))

    def die(self) -> None:
        """The process is gone, and its session."""
        del self.nodes.members[self.id]
        self.store.close()
        self.nodes.rest()

    def expire(self) -> None:
        """The session is gone; the process lives and has another."""
        self.store.close()
        self.nodes.rest(but=self.id)
        self.take_event(SessionChanged(SessionState.EXPIRED))
        self.store = self.nodes.tree.session()
        self.state.session = self.store.session
        self.take_event(SessionChanged(SessionState.CONNECTED))
        self.run(self.controller.recover(self.registration))

    def run(self, steps: Any) -> None:
        self.tickets += 1
        self.perform(self.controller.run(self.tickets, steps))
        answer = self.answer(self.tickets)
        if isinstance(answer, Exception):
            raise answer

    def ask(
        self,
        api: str,
        message: Message,
        version: int = 99,
        client: RequestContext | None = None,
    ) -> Message:
        answer = self.answer(self.send(api, message, version, client))
        assert isinstance(answer, dict), answer
        return answer

    def send(
        self,
        api: str,
        message: Message,
        version: int = 99,
        client: RequestContext | None = None,
    ) -> int:
        self.tickets += 1
        request = Request(api, version, message, client or {}, self.nodes.now_ms)
        self.perform(self.controller.request(self.tickets, request))
        return self.tickets

    def answer(self, ticket: int) -> Any:
        self.nodes.rest()
        return self.answers.pop(ticket)

    def create(self, name: str, partitions: int = 1, factor: int = 1, **config: str) -> Message:
        pairs = [{"name": key.replace("_", "."), "value": text} for key, text in config.items()]
        fields = {"num_partitions": partitions, "replication_factor": factor, "assignments": []}
        topic = {"name": name, **fields, "configs": pairs}
        answer = self.ask("CreateTopics", {"topics": [topic], "validate_only": False})
        (result,) = answer["topics"]
        assert isinstance(result, dict)
        return result

    def take_event(self, event: StoreEvent) -> None:
        if isinstance(event, MultiResult):
            self.perform(self.controller.on_transaction_done(event))
        else:
            self.perform(self.controller.on_store_event(event, self.nodes.now_ms))

    def perform(self, outcome: ControllerOutcome) -> None:
        for token, operations in outcome.submits:
            self.submitted.append(operations)
            self.store.submit(operations, token)
        self.nodes.sent += outcome.requests
        self.nodes.waiting += [(self, each) for each in outcome.requests]
        self.answers |= dict(outcome.replies)
        self.lines += [text for _, text in outcome.changes.lines]
        self.faults |= dict(outcome.changes.faults)


class Nodes:
    """A tree, and who is there."""

    def __init__(self, *node_ids: int, **options: object) -> None:
        self.tree = Tree()
        self.members: dict[int, Member] = {}
        self.sent: list[BrokerRequest] = []
        self.waiting: list[tuple[Member, BrokerRequest]] = []
        self.now_ms = NOW_MS
        self.tool = self.tree.session()
        for node_id in node_ids:
            Member(self, node_id, **options)
        self.rest()

    @property
    def leader(self) -> Member:
        (found,) = [each for each in self.members.values() if each.state.is_controller]
        return found

    def rest(self, but: int | None = None) -> None:
        """Until nothing happens any more."""
        busy = True
        while busy:
            busy = False
            for member in list(self.members.values()):
                for event in member.store.events() if member.id != but else ():
                    member.take_event(event)
                    busy = True
                if member.controller.is_paused:
                    member.perform(member.controller.resume())
                    busy = True
            waiting, self.waiting = self.waiting, []
            for sender, asked in waiting:
                message = self.reached(asked)
                outcome = sender.controller.on_peer_answer(asked, message, self.now_ms)
                sender.perform(outcome)
                busy = True

    def reached(self, asked: BrokerRequest) -> Message | None:
        """The answer of the broker that is asked; None: it is not there."""
        member = self.members.get(asked.broker)
        if member is None:
            return None
        if asked.api in ("CreateTopics", "AllocateProducerIds"):
            ticket = member.send(asked.api, asked.message)
            found: Message = member.answer(ticket)
            return found
        if asked.message["broker_epoch"] < member.state.broker_epoch:
            return None
        return {"error_code": 0, "topics": [], "partition_errors": []}

    def requests_to(self, broker: int, api: str) -> list[Message]:
        """The requests to a broker since the last call of `forget`."""
        return [each.message for each in self.sent if (each.broker, each.api) == (broker, api)]

    def forget(self) -> None:
        self.sent.clear()

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for member in list(self.members.values()):
            member.perform(member.controller.tick(self.now_ms))
        self.rest()

    def write(self, *operations: Operation) -> None:
        """What a tool does."""
        self.tool.submit(list(operations), "tool")
        (done,) = [each for each in self.tool.events() if isinstance(each, MultiResult)]
        assert done.refused is None, done
        self.rest()

    def node(self, path: str) -> str | None:
        """The contents of a node; None: there is no node."""
        self.tool.submit([Read(path)], "tool")
        (done,) = [each for each in self.tool.events() if isinstance(each, MultiResult)]
        found = done.results[0]
        return found.data.decode() if isinstance(found, Node) else None

    def children(self, path: str) -> list[str]:
        self.tool.submit([Children(path)], "tool")
        (done,) = [each for each in self.tool.events() if isinstance(each, MultiResult)]
        return [str(each) for each in done.results[0] or ()]  # type: ignore[union-attr]


def writes(operations: list[Operation]) -> list[Create | SetData | Delete]:
    return [each for each in operations if isinstance(each, Create | SetData | Delete)]
