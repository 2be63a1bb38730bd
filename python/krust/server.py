"""`krust.Broker`: a broker inside this process, and the life of its policy thread.

Threads: each broker has one policy thread. It starts the core, waits detached for events, hands
them to the controller in batches, brings what changed to the core's image, answers, and takes
everything down again. The store and the controller belong to it alone; other threads leave calls
in a queue and wait. The thread that makes a Broker waits for its start and can be interrupted.

States: starting -> running -> stopped, and by `start` anew; `close` ends that, and so does a first
start that fails, with the error raised to whoever started. What a bug of krust's own ends is closed
as well and says so: `failure`, and the ServerError of every later call, with the bug's exception as
its cause.
Promised: after `stop` no thread and no descriptor is left, after `close` no temporary directory
either; a directory that nobody closed goes with its Broker, and both run at the end of the
interpreter where nobody called them.
Not promised: use in a forked child: ForkedError.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from krust.controller.state import INTERNAL, NO_TOPIC_ID
from krust.errors import Code, ConfigError, ForkedError, KafkaError, KrustError, ServerError
from krust.runtime.broker import Runtime
from krust.runtime.broker_settings import settled, with_ports
from krust.runtime.temporary import remove, temporary_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from krust._krust import Record, Server
    from krust.clients.keywords import ScanSettings
    from krust.config import Config
    from krust.controller.state import Partition
    from krust.coordinator.assignors.spec import Assignor
    from krust.frames import Scan
    from krust.messages import Message
    from krust.metadata.local import Tree
    from krust.metadata.shared import SharedTree

_LOOK_S = 0.1
"""between two looks at a start"""
_READ_MS, _READ_RECORDS = 1000, 10_000

_log = logging.getLogger("krust")


class Recovery(NamedTuple):
    """How far a start is with the logs that lie in its directories."""

    opened: int = 0
    logs: int = 0
    checked: int = 0
    """bytes, of logs that were not closed in order"""
    to_check: int = 0


class Broker:
    """A Kafka broker inside this process; it runs when the constructor returns.

    data_dir   where its log lies; None: a temporary directory that goes when it is closed
    port       on 127.0.0.1 and ::1; 0 takes a free one
    config     Kafka's settings by name, `{"num.partitions": 3}`, or a Config (which then names
               directory and listeners itself)
    assignors  group-name pattern -> an assignor, or its class: krust shares the partitions of
               such groups by it, on a thread of this process; it goes before the setting
               krust.group.server.assignor
    shared     the metadata of a cluster in this process: `krust.Cluster` gives it
    cut_off    brokers of its cluster that it cannot connect to: `krust.Cluster` gives them
    watch      called with how far it is, ten times a second while it starts and once at the end; an
               exception of its ends the start
    adopt      start though its metadata is damaged or missing, with what can be read of it and
               what the directories show
    raises     ConfigError: a setting; ServerError: port or directory in use, of another cluster,
               unwritable, its
               metadata damaged or missing
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | Config | None = None,
        assignors: Mapping[str, Assignor | type[Assignor]] | None = None,
        shared: SharedTree | None = None,
        cut_off: Collection[int] = (),
        watch: Callable[[Recovery], object] | None = None,
        adopt: bool = False,
    ) -> None:
        self._pid = os.getpid()
        self._shared = shared
        self._cut_off = frozenset(cut_off)
        self._adopt = adopt
        self._assignors = {name: _made(name, kind) for name, kind in (assignors or {}).items()}
        self._config, dirs = settled(data_dir, port, config)
        self._temporary = not dirs
        self._dirs = dirs or [temporary_dir()]
        self._memory: Tree | None = None
        self._ports: dict[str, int] = {}
        self._calls: deque[_Call] = deque()
        self._core: Runtime | None = None
        self.on_failure: Callable[[], object] = _nothing
        """Called on the policy thread when that has ended by a bug."""
        self._closed = False
        self._removal = weakref.finalize(self, remove, self._dirs[0], self._pid)
        if not self._temporary:
            self._removal.detach()
        try:
            self._launch(watch)
        except (KrustError, OSError):
            self.close()
            raise

    def _launch(self, watch: Callable[[Recovery], object] | None) -> None:
        """Begin the policy thread, and wait until the broker has started."""
        self._quietly = False
        self._error: BaseException | None = None
        self._server: Server | None = None
        self._stopping = self._began = False
        self._ready = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._stands = threading.Event()
        self._thread = threading.Thread(target=self._run, name="krust-policy", daemon=True)
        atexit.register(self.stop)
        self._thread.start()
        try:
            self._wait(watch)
        except BaseException:  # Ctrl-C: recovery may have long to go, the next start begins anew
            self._stopping = True
            if self._server is not None:
                self._server.cancel_start()
            if watch is not None:
                self.stop()
            raise
        if self._core is None and self._error is not None:
            self.stop()
            raise self.failure or self._error

    def _wait(self, watch: Callable[[Recovery], object] | None) -> None:
        """Wait until it has started, or failed to."""
        if watch is None:
            self._ready.wait()
            return
        while not self._ready.wait(_LOOK_S):
            watch(self._recovery())
        if self._core is not None:
            watch(self._recovery())

    def _recovery(self) -> Recovery:
        return Recovery() if self._server is None else Recovery(*self._server.recovery_progress())

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Broker:
        import asyncio

        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"<krust.Broker {self.bootstrap if self._core else 'stopped'}>"

    def start(self) -> Broker:
        """Start again after `stop` or `kill`, with its data and its port; one that runs runs on.

        raises  ServerError: it was closed, ended by a bug, or its port is taken meanwhile
        """
        if self._core is None and self._stopping and not self._closed and self.failure is None:
            self._of_this_process()
            self._thread.join()
            self._launch(None)
        self._running()
        return self

    def kill(self) -> None:
        """Stop without a word to the controller; its session in the cluster ends at once."""
        self._quietly = True
        self.stop()

    def stop(self) -> None:
        """Close all connections and logs; `start` need not recover. Idempotent."""
        if os.getpid() != self._pid:
            return
        self._stopping = True
        core = self._core
        if core is not None:
            if not self._quietly:
                core.server.resume()
            core.server.wakeup()
        self._going.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.stop)

    def close(self) -> None:
        """Stop for good; a temporary directory goes. What `with` does at its end. Idempotent."""
        if os.getpid() == self._pid:
            self._closed = True
            self.stop()
            self._removal()

    def pause(self, *, expire: bool = False) -> None:
        """Stand still, as a process does that was sent SIGSTOP, until `resume`.

        Nobody is answered and nothing is decided any more when this returns; connections stay.
        expire  its session with its cluster ends as well, as if this had gone on for too long
        """
        core = self._running()
        if self._going.is_set():
            self._stands.clear()
            self._going.clear()
            core.server.wakeup()
            self._stands.wait()
            core.server.pause()
        if expire:
            core.expire()

    def resume(self) -> None:
        """Go on after `pause`; what has come meanwhile is answered now."""
        core = self._running()
        core.server.resume()
        self._going.set()

    def cut_off(self, brokers: Collection[int]) -> None:
        """Connect to none of these brokers of its cluster; the set replaces the one before.

        Connections that it has to them end, and answers that come afterwards do not count.
        """
        self._cut_off = frozenset(brokers)
        self._running().cut_off(self._cut_off)

    @property
    def failure(self) -> ServerError | None:
        """What ended it, where that was a bug; None: it runs, was stopped, or was refused."""
        if not self._of_a_bug(self._error):
            return None
        what = f"the broker ended by a bug: {type(self._error).__name__}: {self._error}"
        failure = ServerError(what, hint="its log says where; report that, and start it again")
        failure.exit = 1
        failure.__cause__ = self._error
        return failure

    def _of_a_bug(self, error: BaseException | None) -> bool:
        """A start may be refused, by krust or by the system; what serves is ended by bugs alone."""
        return error is not None and (self._began or not isinstance(error, KrustError | OSError))

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener."""
        core = self._running()
        _, host, port = core.bound[0]
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 (compared)
        return _address(host, port)

    @property
    def listeners(self) -> list[tuple[str, str]]:
        """Name and `host:port` of each listener, as bound."""
        return [(name, _address(host, port)) for name, host, port in self._running().bound]

    @property
    def cluster_id(self) -> str:
        """22 characters, the same for the life of the data directory."""
        return self._running().view.cluster_id

    @property
    def node_id(self) -> int:
        """The broker's number in its cluster."""
        return self._running().view.node_id

    @property
    def controller_id(self) -> int:
        """The number of its cluster's controller; -1: it knows of none."""
        return self._running().view.controller_id

    def known_brokers(self) -> set[int]:
        """The numbers of the brokers that are alive, as far as it was told."""
        return set(self._running().view.brokers)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Who leads a partition, as far as it was told; -1: nobody; None: there is none such."""
        found = self._partition(topic, partition)
        return None if found is None else found.leader

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The brokers that have a partition, the preferred leader first, as far as it was told.

        (): there is no such partition.
        """
        found = self._partition(topic, partition)
        return () if found is None else found.replicas

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition that are in sync (its ISR), as far as it was told.

        (): there is no such partition.
        """
        found = self._partition(topic, partition)
        return () if found is None else found.isr

    def partitions(self, topic: str) -> range:
        """The numbers of a topic's partitions; none: there is no such topic."""
        found = self._running().view.topics.get(topic)
        return range(0 if found is None else len(found.partitions))

    def _partition(self, topic: str, partition: int) -> Partition | None:
        found = self._running().view.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    @property
    def data_dir(self) -> Path:
        """The first log directory."""
        return self._dirs[0]

    @property
    def config(self) -> Config:
        """The settings it was started with."""
        return self._config

    def client_config(self, **extra: Any) -> dict[str, Any]:
        """Settings for confluent-kafka: `Consumer(broker.client_config(group_id="billing"))`.

        extra  more of them, with `_` for `.`
        """
        more = {name.replace("_", "."): value for name, value in extra.items()}
        return {"bootstrap.servers": self.bootstrap, **more}

    def kwargs(self, **extra: Any) -> dict[str, Any]:
        """Settings for krust's clients, kafka-python and aiokafka: `Consumer(**broker.kwargs())`.

        extra  more of them, as they are
        """
        return {"bootstrap_servers": self.bootstrap, **extra}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> None:
        """Make a topic; clients see it when this returns. KafkaError: it is there, or cannot be.

        replication_factor  None: as the setting default.replication.factor says
        """
        pairs = [{"name": key, "value": _text(value)} for key, value in (config or {}).items()]
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1 if replication_factor is None else replication_factor,
            "assignments": [],
            "configs": pairs,
        }
        response = self._call("CreateTopics", {"topics": [wanted], "validate_only": False})
        _check(response["topics"][0])

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. KafkaError: there is none of that name."""
        request = {"topics": [{"name": name, "topic_id": NO_TOPIC_ID}]}
        _check(self._call("DeleteTopics", request)["responses"][0])

    def scan(
        self,
        topic: str,
        since: str | int | datetime = "start",
        until: str | int | datetime | None = None,
        *,
        partitions: Iterable[int] | None = None,
        columns: Iterable[str] | None = None,
        **settings: Unpack[ScanSettings],
    ) -> Scan:
        """A topic of this broker as a table: `krust.scan` with `bootstrap` given."""
        from krust.frames import scan

        chosen: dict[str, Any] = {} if columns is None else {"columns": columns}
        return scan(
            topic,
            since,
            until,
            partitions=partitions,
            bootstrap=self.bootstrap,
            **chosen,
            **settings,
        )

    def records(self, topic: str) -> list[Record]:
        """Every record that a topic has now, by partition and offset; all of them in memory.

        raises  KafkaError: there is no such topic
        """
        from krust._krust import EARLIEST, LATEST, Client, Consumer

        found = self._running().view.topics.get(topic)
        if found is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
            what = f"there is no topic {topic!r}"
            raise KafkaError(what, code=code, name=code.name, retriable=True)
        numbers = range(len(found.partitions))
        client, consumer = Client(self.bootstrap), Consumer(self.bootstrap)
        try:
            starts, ends = (
                {
                    partition: offset
                    for _, partition, _, offset, _ in client.list_offsets(
                        [(topic, number, when) for number in numbers]
                    )
                }
                for when in (EARLIEST, LATEST)
            )
            consumer.assign([(topic, number, starts[number], ends[number]) for number in numbers])
            records: list[Record] = []
            while not consumer.done():
                records += consumer.poll(_READ_MS, _READ_RECORDS)[0]
        finally:
            consumer.close()
            client.close()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's internal ones, sorted."""
        return sorted(set(self._running().view.topics) - set(INTERNAL))

    def _call(self, api: str, message: Message) -> Message:
        """Have the policy thread answer a request of our own."""
        core = self._running()
        call = _Call(api, message)
        self._calls.append(call)
        core.server.wakeup()
        while not call.done.wait(1.0):
            self._running()
        if call.response is None:
            stopped = ServerError("the broker stopped before it could answer")
            raise self.failure or stopped
        return call.response

    def _running(self) -> Runtime:
        self._of_this_process()
        core = self._core
        if core is not None and not self._stopping:
            return core
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise ServerError("the broker was closed", hint="make a new one")
        raise ServerError("the broker was stopped", hint="start it again: broker.start()")

    def _of_this_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                "this broker runs in the parent process", hint="make a broker in this process"
            )

    def _run(self) -> None:
        """The policy thread's life."""
        core, shared = None, self._shared
        try:
            if self._temporary and self._memory is None:
                from krust.metadata.local import Tree

                self._memory = Tree()
            core = Runtime(
                with_ports(self._config, self._ports),
                self._dirs,
                temporary=self._temporary or (shared is not None and not shared.lasting),
                assignors=self._assignors,
                shared=shared,
                cut_off=self._cut_off,
                adopt=self._adopt,
                memory=self._memory,
            )
            self._server = core.server
            if self._stopping:
                raise ServerError("the start was given up")
            core.start()
            core.wait_for_leaders(lambda: self._stopping)
            self._ports = {name: port for name, _, port in core.bound}
            self._core = core
            self._began = True
            self._ready.set()
            while not self._stopping and core.turn():
                self._serve_calls(core)
                self._stand()
        except BaseException as error:
            if self._of_a_bug(error):
                _log.critical("the broker stops: %s", error, exc_info=error)
            self._error = error
        finally:
            self._core = None
            self._stands.set()
            if core is not None:
                core.close(quietly=self._quietly)
            if self.failure is not None:
                self._removal()
            while self._calls:
                self._calls.popleft().done.set()
            self._ready.set()
            if self.failure is not None:
                self.on_failure()

    def _stand(self) -> None:
        if not self._going.is_set():
            self._stands.set()
            self._going.wait()

    def _serve_calls(self, core: Runtime) -> None:
        while self._calls:
            call = self._calls[0]
            call.response = core.decide(call.api, call.message)
            self._calls.popleft().done.set()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _nothing() -> None:
    """What a failure calls where nobody asked to be told."""


class _Call:
    """A request by a thread of this process."""

    __slots__ = ("api", "done", "message", "response")

    def __init__(self, api: str, message: Message) -> None:
        self.api = api
        self.message = message
        self.done = threading.Event()
        self.response: Message | None = None


def _made(pattern: str, kind: Assignor | type[Assignor]) -> Assignor:
    """An assignor; ConfigError: that is none."""
    assignor = kind() if isinstance(kind, type) else kind
    if not callable(getattr(assignor, "assign", None)) or not getattr(assignor, "name", None):
        raise ConfigError(
            f"assignors[{pattern!r}] is {assignor!r}, no assignor",
            hint="it needs `name` and `assign(group, topics)`",
        )
    return assignor


def _check(result: Message) -> None:
    """Raise what a result refuses."""
    code = Code(result["error_code"])
    if code is not Code.NONE:
        raise KafkaError(result["error_message"] or code.name, code=code, name=code.name)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
