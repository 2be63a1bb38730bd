"""The policy thread's shell: where store, controller, coordinator and the core (`_krust`) meet.

What is decided elsewhere is done here, in this order: transactions go to the store, changes to the
core's image, then answers leave. Nothing here decides.
Threads: the policy thread of one broker; `server.nudge` may be called by any.
Not promised: use after `close`.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from krust._krust import Server, logs
from krust.config import listeners, properties
from krust.controller import adoption, ids, registration
from krust.controller.controller import Controller, Outcome, failure
from krust.controller.state import INTERNAL, NO_TOPIC_ID, Changes, Request, State, Topic
from krust.errors import KrustError, ServerError
from krust.metadata.local import Tree
from krust.metadata.store import Done
from krust.settings import BROKER

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from krust.config import Config
    from krust.controller.state import Asked, Message
    from krust.coordinator.assignors.spec import Assignor
    from krust.metadata.store import Store
    from krust.shell.groups import Groups

METADATA = "krust-metadata.db"
"""The store's file, in the first log directory."""

_WAIT_MS = 1000
"""Longest wait for events: so often log lines of the core get their turn."""

_OWN = 0
"""No event has this ticket: the answer is for a call of our own."""

_log = logging.getLogger("krust")


class Shell:
    """The native server, the store, the controller, and what goes between them."""

    def __init__(
        self,
        config: Config,
        dirs: list[Path],
        *,
        temporary: bool,
        assignors: Mapping[str, Assignor] | None = None,
    ) -> None:
        self.config = config
        self._assignors = assignors or {}
        self.bound: list[tuple[str, str, int]] = []
        self._version = 0
        self._tree: Tree | None = None
        self._store: Store | None = None
        node_id = _node_id(config, dirs)
        self.server = Server(
            {
                "node_id": node_id,
                "cluster_id": None,
                "log_dirs": [str(each) for each in dirs],
                "temporary": temporary,
                "threads": _threads(config),
                "settings": _typed(config),
            }
        )
        self.state = State(config, lambda: ids.from_random(os.urandom(16)), node_id)
        self._controller = Controller(self.state)
        self._groups: Groups | None = None
        self._path = None if temporary else dirs[0] / METADATA

    def start(self) -> None:
        """Become a broker, from the directories to the first connection."""
        on_disk = [each for each in self.server.load() if each["kind"] == "live"]
        self._tree = Tree(self._path)
        self._store = self._tree.session()
        known = self.server.cluster_id
        self._steps(registration.found(self.state, known or self.state.new_id()))
        if known is not None and known != self.state.cluster_id:
            raise ServerError(
                f"the directory belongs to cluster {known}, its {METADATA} to cluster "
                f"{self.state.cluster_id}",
                hint="put the file back that belongs there, or start in an empty --data-dir",
            )
        self.server.join(self.state.cluster_id)
        self._steps(registration.claim(self.state, _now_ms()))
        self._steps(registration.load(self.state))
        found = [
            adoption.Found(
                each["topic"],
                each["partition"],
                each["topic_id"] or NO_TOPIC_ID,
                each["leader_epoch"],
                each["clean"],
            )
            for each in on_disk
        ]
        self._steps(adoption.take_over(self.state, found))
        self.server.start()
        advertised = str(self.config.text("advertised.listeners") or "")
        endpoints = listeners(advertised) if advertised else []
        rack = self.config.text("broker.rack")
        first = {
            "cluster_id": self.state.cluster_id,
            "controller_id": self.state.node_id,
            "brokers": [{"id": self.state.node_id, "rack": rack, "endpoints": endpoints}],
        }
        self._apply(self.state.take_changes(), first)
        self.bound = self.server.listen(listeners(str(self.config.text("listeners"))))
        own = registration.Registration(endpoints or self.bound, rack, _now_ms())
        self._steps(registration.announce(self.state, own))

    def turn(self) -> bool:
        """Wait for events and answer them; False: the server has stopped."""
        groups = self._groups or self._load_groups()
        events = self.server.events(groups.wait_ms(_WAIT_MS))
        of_groups = []
        for event in events or ():
            ticket, api, version, message, client = event
            if groups.decides(api):
                of_groups.append(event)
            else:
                self._answer(ticket, Request(api, version, message, client, _now_ms()))
        if events is not None:
            groups.handle(of_groups)
        _drain()
        return events is not None

    def _load_groups(self) -> Groups:
        """The coordinator; its modules load behind the start, which nobody has to wait for."""
        from krust.shell.groups import Groups

        self._groups = Groups(self.server, self.state, self._assignors)
        return self._groups

    def decide(self, api: str, message: Message) -> Message:
        """Answer a request of this process."""
        return self._decide(Request(api, 99, message, {}, _now_ms()))

    def close(self) -> None:
        """Take everything down, whatever of it there is."""
        if self._groups is not None:
            self._groups.close()
        try:
            self.server.stop()
        except KrustError as error:
            _log.error("stopping: %s", error)
        if self._store is not None:
            self._store.close()
        if self._tree is not None:
            self._tree.close()
        _drain()

    def _answer(self, ticket: int, request: Request) -> None:
        """Decide one request of a client's and answer it."""
        response = self._decide(request)
        try:
            self.server.answer(ticket, response)
        except (TypeError, ValueError) as error:
            _log.exception("the answer to %s is no message", request.api)
            self.server.answer(ticket, failure(request, error))

    def _decide(self, request: Request) -> Message:
        """Run one request's policy to its end."""
        try:
            outcome = self._controller.request(_OWN, request)
            answered = self._follow(outcome)
        except Exception as error:
            _log.exception("deciding %s failed", request.api)
            return failure(request, error)
        if isinstance(answered, KrustError):
            return failure(request, answered)
        return answered

    def _steps(self, steps: Generator[Asked, list[Done], Any]) -> None:
        """Run a start's steps; the image hears of their changes later."""
        changes = Changes()
        outcome = self._controller.run(_OWN, steps)
        self._follow(outcome, changes)
        self.state.changes.topics |= changes.topics

    def _follow(self, outcome: Outcome, held: Changes | None = None) -> Message | KrustError:
        """Do what an outcome says until its policy has answered.

        held   where changes are collected instead of being brought to the image at once
        """
        store = self._store
        if store is None:
            raise ServerError("the metadata store is closed", hint="start again")
        waiting = [outcome]
        while waiting:
            now = waiting.pop(0)
            for token, operations in now.submits:
                store.submit(operations, token)
            if held is not None:
                held.topics |= now.changes.topics
            else:
                self._apply(now.changes, {})
            if now.replies:
                return now.replies[0][1]
            if not waiting:
                events = store.events()
                waiting += [
                    self._controller.done(each) for each in events if isinstance(each, Done)
                ]
        raise ServerError("a policy waits for an answer that the store owes", hint="report this")

    def _apply(self, changes: Changes, more: dict[str, Any]) -> None:
        """Bring changes to the image, and through it to the logs."""
        topics: dict[str, Topic | None] = dict(changes.topics)
        if changes.brokers:
            topics = {**self.state.topics, **topics}
            more = {**more, "settings": _typed(self.config, self.state)}
        if not topics and not more:
            return
        self._version += 1
        delta = {
            "version": self._version,
            "topics": {name: self._shown(topic) for name, topic in topics.items()},
            **more,
        }
        for name, partition, why in self.server.apply(delta):
            _log.error("partition %s-%d is offline: %s", name, partition, why)
        if self._groups is not None:
            self._groups.topics_changed(changes.topics)

    def _shown(self, topic: Topic | None) -> dict[str, Any] | None:
        """A topic as the image takes it."""
        if topic is None:
            return None
        return {
            "id": topic.id or NO_TOPIC_ID,
            "internal": topic.name in INTERNAL,
            "config": self.state.topic_values(topic),
            "partitions": [
                {
                    "leader": each.leader,
                    "leader_epoch": each.leader_epoch,
                    "isr": list(each.isr),
                    "replicas": list(each.replicas),
                }
                for each in topic.partitions
            ],
        }


def _node_id(config: Config, dirs: list[Path]) -> int:
    """The broker's number: as set, or as its directories say, or 0."""
    wanted = config.whole("broker.id")
    for each in dirs:
        try:
            meta = properties((each / "meta.properties").read_text())
            stored = int(meta.get("broker.id", meta.get("node.id", "-1")))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ServerError(
                f"{each / 'meta.properties'} cannot be read: {error}", hint="mend or remove it"
            ) from None
        if wanted not in (-1, stored):
            raise ServerError(
                f"broker.id is {wanted}, but {each} belongs to broker {stored}",
                hint=f"set broker.id={stored}, or start in another --data-dir",
            )
        wanted = stored
    return max(wanted, 0)


def _threads(config: Config) -> int:
    """Network threads; 0: as the core sees fit."""
    wanted = config.whole("krust.threads")
    if wanted == 0 and config.source("num.network.threads").kind != "default":
        wanted = min(config.whole("num.network.threads"), os.cpu_count() or 1)
    return wanted


def _typed(config: Config, state: State | None = None) -> dict[str, Any]:
    """The broker's settings that act, typed, with what changed since the start."""
    text = state.broker_text if state is not None else config.text
    return {
        name: setting.parse(text(name))
        for name, setting in BROKER.items()
        if setting.support == "yes"
    }


def _drain() -> None:
    """Hand the core's log lines to Python's logging."""
    for level, name, text in logs():
        logging.getLogger(name).log(level, "%s", text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
