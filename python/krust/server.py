"""`krust.Broker`: a broker inside this process, and its policy thread.

Threads: each broker has one policy thread. It starts the core, waits detached for events, has the
controller and the coordinator decide them, carries out the outcomes, and stops everything at the
end. Only this thread uses the store and the controller. Other threads put calls into a queue and
wait. The thread that creates a Broker waits for its start, and Ctrl-C ends the wait.
States: starting -> running -> stopped, and back by `start`. `close` ends the broker. A first start
that fails ends it too, and the error is raised. A bug of krust ends it too: `failure` names it, and
every later call raises a ServerError with the bug's exception as its cause.
Promised: after `stop` no thread and no descriptor is left; after `close` no temporary directory is
left. At the end of the interpreter krust stops and closes what the user did not.
Not promised: use in a forked child, which raises ForkedError.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Unpack

from krust.controller.state import INTERNAL, NO_TOPIC_ID
from krust.errors import Code, ForkedError, KafkaError, KrustError, ServerError
from krust.named_tuple import NamedTuple
from krust.runtime.broker import Runtime
from krust.runtime.broker_settings import (
    assignor_of,
    authorizer_of,
    with_authorizer,
    with_defaults,
    with_ports,
)
from krust.runtime.temporary import remove_when_dead, temporary_dir
from krust.security.reachable import Reachable, beside, opened, secured

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from krust._krust import Record, Server
    from krust.clients.keywords import ScanSettings
    from krust.config import Config
    from krust.controller.authorizers import Authorizer
    from krust.controller.entities import Partition
    from krust.coordinator.assignors.assignor import Assignor
    from krust.frames import Scan
    from krust.messages import Message
    from krust.metadata.local import Tree
    from krust.metadata.shared import SharedTree
    from krust.security.opened import OpenSecurity
    from krust.security.security import Security

_LOOK_S = 0.1
"""between two reports of a start's progress"""
_READ_MS, _READ_RECORDS = 1000, 10_000

_log = logging.getLogger("krust")


class Recovery(NamedTuple):
    """The progress of a start with the logs in its directories."""

    opened: int = 0
    logs: int = 0
    checked: int = 0
    """bytes of logs that were not closed cleanly"""
    to_check: int = 0


class Broker(Reachable):
    """A Kafka broker inside this process. It runs when the constructor returns.

    data_dir   the log directory; None: a temporary directory that is removed at the end
    port       a port of 127.0.0.1 and ::1; 0: a free one
    config     Kafka's settings by name, `{"num.partitions": 3}`, or a Config, whose directories and
               listeners are then used
    assignors  pattern of group names -> an assignor or its class. It assigns the partitions of
               these groups, on a thread of this process. It comes before the setting
               krust.group.server.assignor
    authorizer an authorizer or its class: it says what clients may do, on a thread of this
               process, in place of the one that the setting authorizer.class.name names
    shared     the metadata of a cluster in this process; `krust.Cluster` sets it
    cut_off    brokers of its cluster that it cannot connect to; `krust.Cluster` sets them
    watch      called with the progress of the start, ten times a second and once at the end. If it
               raises, the start ends
    adopt      start although the metadata is damaged or missing, with what can be read and what the
               directories show
    secure     True, or a `krust.Security`: TLS, logins and ACLs, with users that `client_settings`
               is for. Users and certificates are kept beside a data_dir, in DATA_DIR-security
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
        authorizer: Authorizer | type[Authorizer] | None = None,
        shared: SharedTree | None = None,
        cut_off: Collection[int] = (),
        watch: Callable[[Recovery], object] | None = None,
        adopt: bool = False,
        secure: bool | Security | OpenSecurity = False,
    ) -> None:
        self._pid = os.getpid()
        self._shared = shared
        self._cut_off = frozenset(cut_off)
        self._adopt = adopt
        self._assignors = {
            name: assignor_of(name, kind) for name, kind in (assignors or {}).items()
        }
        self._authorizer = authorizer_of(authorizer)
        self.security = opened(secure, beside(data_dir))
        self._owns_security = self.security is not secure
        if self._owns_security:
            config = secured(self.security, config, port)
        config, dirs = with_defaults(data_dir, port, config)
        self._config = with_authorizer(config, self._authorizer)
        self._temporary = not dirs
        self._dirs = dirs or [temporary_dir()]
        self._memory: Tree | None = None
        self._ports: dict[str, int] = {}
        self._calls: deque[_BrokerCall] = deque()
        self._core: Runtime | None = None
        self.on_failure: Callable[[], object] = _nothing
        """Called on the policy thread after a bug has ended it."""
        self._closed = False
        self._removal = weakref.finalize(self, remove_when_dead, self._dirs[0], self._pid)
        if not self._temporary:
            self._removal.detach()
        try:
            self._launch(watch)
            if self.security is not None and self._owns_security:
                self.security.started(self.bootstrap)
        except (KrustError, OSError):
            self.close()
            raise

    def _launch(self, watch: Callable[[Recovery], object] | None) -> None:
        """Start the policy thread, and wait until the broker has started."""
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
        except BaseException:  # Ctrl-C: a recovery may take long; the next start repeats it
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
        """Wait until the start has succeeded or failed."""
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
        """Start again after `stop` or `kill`, with its data and its port. A running broker
        continues.

        raises  ServerError: it was closed or ended by a bug, or its port is in use
        """
        if self._core is None and self._stopping and not self._closed and self.failure is None:
            self._of_this_process()
            self._thread.join()
            self._launch(None)
        self._running()
        return self

    def kill(self) -> None:
        """Stop without a controlled shutdown. Its session in the cluster ends at once."""
        self._quietly = True
        self.stop()

    def stop(self) -> None:
        """Close all connections and logs, so that `start` need not recover. Idempotent."""
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
        """Stop for good, and remove a temporary directory. `with` calls it. Idempotent."""
        if os.getpid() == self._pid:
            self._closed = True
            self.stop()
            self._removal()
            if self.security is not None and self._owns_security:
                self.security.close()

    def pause(self, *, expire: bool = False) -> None:
        """Pause, like a process after SIGSTOP, until `resume`.

        When this returns, no request is answered or decided any more. Connections stay open.
        expire  end its session with the cluster, as if the pause had exceeded the timeout
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
        """Continue after `pause`, and answer the requests that have arrived meanwhile."""
        core = self._running()
        core.server.resume()
        self._going.set()

    def cut_off(self, brokers: Collection[int]) -> None:
        """Connect to none of these brokers of its cluster. The set replaces the last one.

        Connections to them end, and answers that arrive later are ignored.
        """
        self._cut_off = frozenset(brokers)
        self._running().cut_off(self._cut_off)

    @property
    def failure(self) -> ServerError | None:
        """The bug that ended the broker; None: it runs, was stopped, or its start was refused."""
        if not self._of_a_bug(self._error):
            return None
        what = f"the broker ended by a bug: {type(self._error).__name__}: {self._error}"
        failure = ServerError(what, hint="its log says where; report that, and start it again")
        failure.exit = 1
        failure.__cause__ = self._error
        return failure

    def _of_a_bug(self, error: BaseException | None) -> bool:
        """Whether an error is a bug. A start can also be refused, by krust or by the system."""
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
        """The cluster id: 22 characters, which a data directory keeps for ever."""
        return self._running().view.cluster_id

    @property
    def node_id(self) -> int:
        """The id of the broker."""
        return self._running().view.node_id

    @property
    def controller_id(self) -> int:
        """The id of the controller; -1: not known."""
        return self._running().view.controller_id

    def known_brokers(self) -> set[int]:
        """The ids of the live brokers, as far as this broker knows."""
        return set(self._running().view.brokers)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The leader of a partition, as far as this broker knows; -1: none; None: no such
        partition.
        """
        found = self._partition(topic, partition)
        return None if found is None else found.leader

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition, the preferred leader first, as far as this broker knows.

        (): there is no such partition.
        """
        found = self._partition(topic, partition)
        return () if found is None else found.replicas

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition that are in sync (its ISR), as far as this broker knows.

        (): there is no such partition.
        """
        found = self._partition(topic, partition)
        return () if found is None else found.isr

    def partitions(self, topic: str) -> range:
        """The numbers of a topic's partitions; empty: there is no such topic."""
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

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic. Clients see it when this returns. KafkaError: it exists, or is invalid.

        replication_factor  None: the setting default.replication.factor
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
        """Delete a topic and its records. KafkaError: it does not exist."""
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
        isolation_level: str = "read_uncommitted",
        **settings: Unpack[ScanSettings],
    ) -> Scan:
        """A topic of this broker as a table: `krust.scan` with this `bootstrap`."""
        from krust.frames import scan

        own = {name.replace(".", "_"): value for name, value in self._core_options().items()}
        chosen: dict[str, Any] = {**own, **settings}
        if columns is not None:
            chosen["columns"] = columns
        return scan(
            topic,
            since,
            until,
            partitions=partitions,
            bootstrap=self.bootstrap,
            isolation_level=isolation_level,
            **chosen,
        )

    def records(self, topic: str, *, isolation_level: str = "read_uncommitted") -> list[Record]:
        """All records of a topic, by partition and offset, in memory.

        isolation_level  "read_committed": no records of open and aborted transactions
        raises           KafkaError: there is no such topic; ConfigError: another isolation level
        """
        from krust._krust import EARLIEST, LATEST, Client, Consumer

        found = self._running().view.topics.get(topic)
        if found is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
            what = f"there is no topic {topic!r}"
            raise KafkaError(what, code=code, name=code.name, retriable=True)
        numbers = range(len(found.partitions))
        own = self._core_options()
        consumer = Consumer(self.bootstrap, {**own, "isolation.level": isolation_level})
        client, committed = Client(self.bootstrap, own), isolation_level.lower() == "read_committed"
        try:
            starts, ends = (
                {
                    partition: offset
                    for _, partition, _, offset, _ in client.list_offsets(
                        [(topic, number, when) for number in numbers], read_committed=committed
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
        """The names of all topics except internal ones, sorted."""
        return sorted(set(self._running().view.topics) - set(INTERNAL))

    def _call(self, api: str, message: Message) -> Message:
        """Have the policy thread decide a request of this process."""
        core = self._running()
        call = _BrokerCall(api, message)
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
        """Run the policy thread."""
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
                authorizer=self._authorizer,
                shared=shared,
                cut_off=self._cut_off,
                adopt=self._adopt,
                memory=self._memory,
                first_users=self.security.first_users() if self.security else None,
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
    """The default of `on_failure`."""


class _BrokerCall:
    """A request of a thread of this process."""

    __slots__ = ("api", "done", "message", "response")

    def __init__(self, api: str, message: Message) -> None:
        self.api = api
        self.message = message
        self.done = threading.Event()
        self.response: Message | None = None


def _check(result: Message) -> None:
    """Raise a KafkaError if the result has an error code."""
    code = Code(result["error_code"])
    if code is not Code.NONE:
        raise KafkaError(result["error_message"] or code.name, code=code, name=code.name)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
