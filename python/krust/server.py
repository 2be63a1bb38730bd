"""`krust.Broker`: the one place where settings, store, controller and the core (`_krust`) meet.

Threads: each broker has one policy thread. It starts the core, waits detached for events, hands
them to the controller in batches, brings what changed to the core's image, answers, and takes
everything down again. The store and the controller belong to it alone; other threads leave calls
in a queue and wait. The thread that makes a Broker waits for its start and can be interrupted.

States: starting -> running -> stopped; a start that fails ends in stopped, with the error raised
to whoever started. Promised: after `stop` no thread, descriptor or temporary directory is left;
`stop` runs at the end of the interpreter where nobody called it.
Not promised: use in a forked child: ForkedError.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust._krust import Server, logs
from krust.config import Config, listeners, load, properties
from krust.controller import adoption, ids, registration
from krust.controller.controller import Controller, Outcome, failure
from krust.controller.state import INTERNAL, NO_TOPIC_ID, Changes, Request, State, Topic
from krust.errors import Code, ConfigError, ForkedError, KafkaError, KrustError, ServerError
from krust.metadata.local import Tree
from krust.metadata.store import Done
from krust.settings import BROKER

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from krust.controller.state import Asked, Message
    from krust.metadata.store import Store

METADATA = "krust-metadata.db"
"""The store's file, in the first log directory."""

_WAIT_MS = 1000
"""Longest wait for events: so often log lines of the core get their turn."""

_OWN = 0
"""No event has this ticket: the answer is for a call of our own."""

_log = logging.getLogger("krust")


class Broker:
    """A Kafka broker inside this process; it runs when the constructor returns.

    data_dir   where its log lies; None: a temporary directory that goes when it stops
    port       on 127.0.0.1 and ::1; 0 takes a free one
    config     Kafka's settings by name, `{"num.partitions": 3}`, or a Config (which then names
               directory and listeners itself)
    raises     ConfigError: a setting; ServerError: port or directory in use, of another cluster,
               unwritable
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | Config | None = None,
    ) -> None:
        self._pid = os.getpid()
        self._config, dirs = _settle(data_dir, port, config)
        self._temporary = not dirs
        self._dirs = dirs or [_temporary_dir()]
        self._calls: deque[_Call] = deque()
        self._error: BaseException | None = None
        self._core: _Core | None = None
        self._stopping = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="krust-policy", daemon=True)
        atexit.register(self.stop)
        self._thread.start()
        try:
            self._ready.wait()
        except BaseException:  # Ctrl-C: recovery may go on for long, nobody waits for it
            self._stopping = True
            raise
        if self._error is not None:
            self.stop()
            raise self._error

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<krust.Broker {self.bootstrap if self._core else 'stopped'}>"

    def start(self) -> Broker:
        """Nothing but a check: a broker runs from its making on. ServerError: it was stopped."""
        self._running()
        return self

    def stop(self) -> None:
        """Close all connections and logs; the next start need not recover. Idempotent."""
        if os.getpid() != self._pid:
            return
        self._stopping = True
        core = self._core
        if core is not None:
            core.server.nudge()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.stop)

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener."""
        core = self._running()
        _, host, port = core.bound[0]
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 (compared)
        return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"

    @property
    def cluster_id(self) -> str:
        """22 characters, the same for the life of the data directory."""
        return self._running().state.cluster_id

    @property
    def node_id(self) -> int:
        """The broker's number in its cluster."""
        return self._running().state.node_id

    @property
    def data_dir(self) -> Path:
        """The first log directory."""
        return self._dirs[0]

    @property
    def config(self) -> Config:
        """The settings it was started with."""
        return self._config

    def client_config(self) -> dict[str, str]:
        """Settings for confluent-kafka: `Producer(broker.client_config())`."""
        return {"bootstrap.servers": self.bootstrap}

    def kwargs(self) -> dict[str, str]:
        """Settings for kafka-python and aiokafka: `KafkaProducer(**broker.kwargs())`."""
        return {"bootstrap_servers": self.bootstrap}

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Make a topic; clients see it when this returns. KafkaError: it is there, or cannot be."""
        pairs = [{"name": key, "value": _text(value)} for key, value in (config or {}).items()]
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": pairs,
        }
        response = self._call("CreateTopics", {"topics": [wanted], "validate_only": False})
        _check(response["topics"][0])

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. KafkaError: there is none of that name."""
        request = {"topics": [{"name": name, "topic_id": NO_TOPIC_ID}]}
        _check(self._call("DeleteTopics", request)["responses"][0])

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's internal ones, sorted."""
        return sorted(set(self._running().state.topics) - set(INTERNAL))

    def _call(self, api: str, message: Message) -> Message:
        """Have the policy thread answer a request of our own."""
        core = self._running()
        call = _Call(api, message)
        self._calls.append(call)
        core.server.nudge()
        while not call.done.wait(1.0):
            self._running()
        if call.response is None:
            raise ServerError("the broker stopped before it could answer", hint="start a new one")
        return call.response

    def _running(self) -> _Core:
        if os.getpid() != self._pid:
            raise ForkedError(
                "this broker runs in the parent process", hint="make a broker in this process"
            )
        if self._core is None or self._stopping:
            raise ServerError("the broker was stopped", hint="make a new one")
        return self._core

    def _run(self) -> None:
        """The policy thread's life."""
        core = None
        try:
            core = _Core(self._config, self._dirs, temporary=self._temporary)
            core.start()
            self._core = core
            self._ready.set()
            while not self._stopping and core.turn(self._calls):
                pass
        except BaseException as error:
            if self._ready.is_set():
                _log.critical("the broker stops: %s", error, exc_info=error)
            self._error = error
        finally:
            self._core = None
            if core is not None:
                core.close()
            if self._temporary:
                import shutil

                shutil.rmtree(self._dirs[0], ignore_errors=True)
            while self._calls:
                self._calls.popleft().done.set()
            self._ready.set()


class _Call:
    """A request by a thread of this process."""

    __slots__ = ("api", "done", "message", "response")

    def __init__(self, api: str, message: Message) -> None:
        self.api = api
        self.message = message
        self.done = threading.Event()
        self.response: Message | None = None


class _Core:
    """What the policy thread holds: the native server, the store, the controller."""

    def __init__(self, config: Config, dirs: list[Path], *, temporary: bool) -> None:
        self.config = config
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

    def turn(self, calls: deque[_Call]) -> bool:
        """Wait for events and answer them; False: the server has stopped."""
        events = self.server.events(_WAIT_MS)
        for ticket, api, version, message, client in events or ():
            request = Request(api, version, message, client, _now_ms())
            self._answer(ticket, request)
        while calls:
            call = calls.popleft()
            call.response = self._decide(Request(call.api, 99, call.message, {}, _now_ms()))
            call.done.set()
        _drain()
        return events is not None

    def close(self) -> None:
        """Take everything down, whatever of it there is."""
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


def _temporary_dir() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="krust-"))


def _settle(
    data_dir: str | os.PathLike[str] | None,
    port: int,
    config: Mapping[str, object] | Config | None,
) -> tuple[Config, list[Path]]:
    """The settings that hold, and the log directories ([]: a temporary one)."""
    if isinstance(config, Config):
        settled = config
        named = True
    else:
        options = dict(config or {})
        options.setdefault("listeners", f"PLAINTEXT://localhost:{port}")
        settled = load(options=options)
        for notice in settled.notices:
            _log.warning("%s", notice)
        named = "log.dirs" in options or "log.dir" in options
    if data_dir is not None:
        return settled, [Path(data_dir)]
    if not named:
        return settled, []
    text = settled.text("log.dirs") or settled.text("log.dir") or ""
    dirs = [Path(each.strip()) for each in text.split(",") if each.strip()]
    if not dirs:
        raise ConfigError("log.dirs names no directory", hint="name one, or leave it out")
    return settled, dirs


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


def _check(result: Message) -> None:
    """Raise what a result refuses."""
    code = Code(result["error_code"])
    if code is not Code.NONE:
        raise KafkaError(result["error_message"] or code.name, code=code, name=code.name)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _drain() -> None:
    """Hand the core's log lines to Python's logging."""
    for level, name, text in logs():
        logging.getLogger(name).log(level, "%s", text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
