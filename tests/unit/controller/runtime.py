"""A controller over a tree in memory, driven without threads, core or clock."""

from collections.abc import Generator, Iterator
from itertools import count
from typing import Any

from krust.config import load
from krust.controller import adoption, ids, registration
from krust.controller.controller import Controller, ControllerOutcome
from krust.controller.state import ControllerState, Request
from krust.messages import Message, RequestContext
from krust.metadata.local import Tree
from krust.metadata.store import Children, MultiResult, Node, Operation, Read, StoreEvent

NOW_MS = 1_795_254_517_394
CLUSTER = "fUc4e5toQ_utsAZFiqE2qQ"
OWN = registration.Registration([("PLAINTEXT", "127.0.0.1", 19092)], None, NOW_MS)


def numbered_ids() -> Iterator[str]:
    for number in count(1):
        yield ids.from_random(number.to_bytes(16, "big"))


def write(tree: Tree, *operations: Operation) -> None:
    """Change the tree as somebody else does."""
    store = tree.session()
    store.submit(operations, None)
    (done,) = (each for each in store.events() if isinstance(each, MultiResult))
    assert done.refused is None
    store.close()


class Runtime:
    """What `krust.runtime.broker` does for a controller, one step after the other."""

    def __init__(
        self,
        options: dict[str, object] | None = None,
        *,
        tree: Tree | None = None,
        found: tuple[adoption.LogOnDisk, ...] = (),
        shared: bool = False,
    ) -> None:
        numbers = numbered_ids()
        self.tree = tree or Tree()
        self.store = self.tree.session()
        self.state = ControllerState(load(options=options), lambda: next(numbers), 0)
        self.controller = Controller(self.state)
        self.applied: list[str] = []
        self.pauses = 0
        self.faults: dict[str, str] = {}
        self.applied_acls = False
        self.state.session = self.store.session
        self.run(registration.create_cluster(self.state, CLUSTER))
        cluster = self.controller.share() if shared else None
        self.run(self.controller.claim(NOW_MS))
        self.run(adoption.adopt(self.state, found))
        self.run(cluster.register(OWN) if cluster else registration.announce(self.state, OWN))

    def run(self, steps: Generator[Any, Any, Any]) -> Any:
        return self.follow(self.controller.run(0, steps))

    def ask(
        self,
        api: str,
        message: Message,
        version: int = 99,
        client: RequestContext | None = None,
        now_ms: int = NOW_MS,
    ) -> Message:
        request = Request(api, version, message, client or {}, now_ms)
        answer = self.follow(self.controller.request(0, request))
        assert isinstance(answer, dict)
        return answer

    def follow(self, outcome: ControllerOutcome) -> Any:
        waiting = [outcome]
        answers: list[Any] = []
        while waiting:
            now = waiting.pop(0)
            self.applied += now.changes.topics
            self.faults |= dict(now.changes.faults)
            self.applied_acls |= now.changes.acls
            for token, operations in now.submits:
                self.store.submit(operations, token)
            answers += [answer for _, answer in now.replies]
            if not waiting:
                waiting += [self.take_event(each) for each in self.store.events()]
            if not waiting and self.controller.is_paused:
                self.pauses += 1
                waiting.append(self.controller.resume())
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    def take_event(self, event: StoreEvent) -> ControllerOutcome:
        if isinstance(event, MultiResult):
            return self.controller.on_transaction_done(event)
        return self.controller.on_store_event(event, NOW_MS)

    def create(self, name: str, partitions: int = 1, **configs: str) -> Message:
        pairs = [{"name": key.replace("_", "."), "value": text} for key, text in configs.items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": pairs,
        }
        (result,) = self.ask("CreateTopics", {"topics": [topic], "validate_only": False})["topics"]
        assert isinstance(result, dict)
        return result

    def nodes(self, path: str = "/") -> dict[str, tuple[str, bool]]:
        """Every znode under `path`: its data and whether it is ephemeral."""
        self.store.submit([Read(path), Children(path)], "nodes")
        (done,) = (each for each in self.store.events() if isinstance(each, MultiResult))
        node, names = done.results
        assert isinstance(node, Node)
        assert isinstance(names, tuple)
        found = {path: (node.data.decode(), node.stat.ephemeral)}
        for name in map(str, names):
            found |= self.nodes(f"{path.rstrip('/')}/{name}")
        return found
