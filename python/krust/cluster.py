"""Several brokers inside this process: a cluster for tests that kill brokers, without a JVM.

    with krust.Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=6, replication_factor=3)
        lost = cluster.leader("orders", 0)
        cluster.kill(lost)                            # another replica becomes the leader
        cluster.start(lost)                           # with its data, its number and its port
        cluster.wait_in_sync("orders")                # every replica has every record again
        cluster.pause(1)                              # it hangs, and the others notice
        cluster.resume(1)
        cluster.partition_network(0, {1, 2})          # 0 and the others do not reach each other
        cluster.heal()

Each broker has its own threads, sockets and log directory. A tree in memory takes the place of
ZooKeeper, with sessions, watches and a controller election. Brokers send each other Kafka's control
requests over their sockets. For these each has a second listener on a free port of 127.0.0.1, which
no client knows. The first listener refuses them, because a client's StopReplica would delete
records. Settings that name listeners replace both.
A network partition cuts connections between brokers only. Clients and the tree stay connected.
Threads: any, one call at a time.
Not promised: that a killed broker's log is as after a power failure. Its files are closed cleanly.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from krust.closing import Closing
from krust.errors import Code, ConfigError, KafkaError, ServerError
from krust.metadata.shared import SharedTree
from krust.runtime import provenance
from krust.runtime.temporary import temporary_dir
from krust.security.reachable import Reachable, opened
from krust.server import Broker

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krust.metadata.saved import TreeFiles
    from krust.security.opened import OpenSecurity
    from krust.security.security import Security

WAIT_MS = 30_000
_LOOK_S = 0.001
_CLIENTS, _BROKERS = "PLAINTEXT", "BROKERS"
"""The names of the listeners for clients and for brokers."""
_LISTENERS = frozenset({"listeners", "inter.broker.listener.name", "advertised.listeners"})
"""Settings of listeners."""


class Cluster(Closing, Reachable):
    """Brokers with the ids 0, 1, ... They run when the constructor returns.

    brokers   the number of brokers
    data_dir  the directory of their log directories and metadata; None: a temporary one
    port      the port of broker 0 on localhost; the others have the next ones; 0: free ports
    zookeeper a running ZooKeeper for the metadata, "HOSTS/CHROOT"
    config    Kafka's settings by name, for all brokers
    racks     `broker.rack` of brokers 0, 1, ...; after the last rack the first one follows again
    adopt     start although the metadata is damaged or missing, as `krust.Broker`
    secure    True, or a `krust.Security`: TLS, logins and ACLs, as `krust.Broker`. Users and
              certificates are kept in data_dir/security
    raises    ConfigError, ServerError: as `krust.Broker`
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        zookeeper: str | None = None,
        config: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        adopt: bool = False,
        secure: bool | Security | OpenSecurity = False,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"{brokers} brokers are no cluster", hint="ask for one at least")
        self._config = dict(config or {})
        self._racks = tuple(racks)
        self._tree: SharedTree | None
        self._temporary = data_dir is None
        self._folder = temporary_dir() if data_dir is None else Path(data_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        if zookeeper is None:
            self._tree = SharedTree(None if self._temporary else _kept(self._folder, adopt=adopt))
        else:
            self._tree = None
            self._config["zookeeper.connect"] = zookeeper
        self._ports = {number: port + number if port else 0 for number in range(brokers)}
        self.brokers: dict[int, Broker] = {}
        """The running brokers by id, including paused ones."""
        self._paused: set[int] = set()
        self._cuts: set[tuple[int, int]] = set()
        """pairs of brokers: the first cannot connect to the second"""
        try:
            self.security = opened(secure, self._folder / "security")
            self.start(0)
            self._start_together(range(1, brokers))
            if self.security is not None:
                self.security.started(self.bootstrap)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<krust.Cluster {self.bootstrap or 'stopped'}>"

    @property
    def bootstrap(self) -> str:
        """`host:port` of each running broker, separated by commas."""
        return ",".join(broker.bootstrap for _, broker in sorted(self.brokers.items()))

    @property
    def controller(self) -> int:
        """The id of the controller; -1: there is none now."""
        reported = {broker.controller_id for broker in self._awake()}
        return reported.pop() if len(reported) == 1 else -1

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition; -1: none. KafkaError: there is no such partition."""
        leaders = {broker.leader(topic, partition) for broker in self._awake()}
        if None in leaders:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(f"there is no {topic}:{partition}", code=code, name=code.name)
        reported = [one for one in leaders if one is not None]
        return reported[0] if len(reported) == 1 else -1

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition, the preferred leader first.

        KafkaError: there is no such partition.
        """
        return self._informed(topic, partition).replicas(topic, partition)

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition that are in sync (its ISR).

        KafkaError: there is no such partition.
        """
        return self._informed(topic, partition).in_sync(topic, partition)

    def wait_in_sync(
        self, topic: str, partition: int | None = None, *, timeout_ms: int = WAIT_MS
    ) -> None:
        """Wait until all replicas of a partition (None: of every partition) are in sync.

        raises  ServerError: they are not in time; KafkaError: there is no such partition
        """

        def lagging() -> list[str]:
            broker = self._informed(topic, partition or 0)
            count = len(broker.partitions(topic))
            return [
                f"{topic}:{number}"
                for number in (range(count) if partition is None else (partition,))
                if set(broker.in_sync(topic, number)) < set(broker.replicas(topic, number))
            ]

        self._wait(
            lambda: not lagging(), lambda: f"not in sync: {', '.join(lagging())}", timeout_ms
        )

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic. Every broker knows its leaders when this returns.

        replication_factor  the number of replicas of each partition; None: the setting
                            default.replication.factor, which is 1
        raises              KafkaError: it exists, or is invalid
        """
        deadline = time.monotonic() + WAIT_MS / 1000
        while True:
            try:
                asked = self.brokers.get(self.controller)
                if asked is not None:
                    asked.create_topic(
                        name, partitions, config, replication_factor=replication_factor
                    )
                    break
            except KafkaError as error:
                if error.code != Code.NOT_CONTROLLER or time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise ServerError("the cluster has no controller", hint="start a broker")
            time.sleep(_LOOK_S)
        self._wait_known(
            f"topic {name}",
            lambda: all(
                broker.leader(name, partition) not in (None, -1)
                for broker in self._awake()
                for partition in range(partitions)
            ),
        )

    def start(self, number: int) -> Broker:
        """Start a stopped broker. It has its data, its id and its port again."""
        if number in self.brokers:
            return self.brokers[number]
        if number not in self._ports:
            raise ConfigError(f"this cluster has no broker {number}", hint="they count from 0")
        given: dict[str, object] = {"broker.id": number, **self._config}
        if self.security is None:
            given |= self._listeners(self._ports[number])
        else:
            port = self._ports[number]
            given = self.security.broker_settings(given, port, has_peers=True)
        if self._racks:
            given["broker.rack"] = self._racks[number % len(self._racks)]
        broker = Broker(
            self._folder / f"broker-{number}",
            port=self._ports[number],
            config=given,
            shared=self._tree,
            cut_off=self._cut_off(number),
            secure=self.security or False,
        )
        self._ports[number] = int(broker.bootstrap.rpartition(":")[2])
        self.brokers[number] = broker
        return broker

    def stop(self, number: int) -> None:
        """Stop a broker after a controlled shutdown."""
        broker = self._running(number)
        self._paused.discard(number)
        del self.brokers[number]
        broker.stop()

    def kill(self, number: int) -> None:
        """Stop a broker without a controlled shutdown. The others know when this returns.

        Its session in a ZooKeeper ends at once, without waiting for the timeout.
        """
        broker = self._running(number)
        self._paused.discard(number)
        del self.brokers[number]
        broker.kill()
        self._missed(number)

    def pause(self, number: int, *, expire: bool = True) -> None:
        """Pause a broker, as SIGSTOP does: it answers no request, its connections stay open.

        expire  end its session, as if the pause had exceeded the timeout. The others know when this
                returns. False: a pause that ends before the cluster notices
        """
        broker = self._running(number)
        self._paused.add(number)
        broker.pause(expire=expire)
        if expire:
            self._missed(number)

    def resume(self, number: int) -> None:
        """Continue a paused broker. The others know it again when this returns."""
        broker = self._running(number)
        self._paused.discard(number)
        broker.resume()
        self._wait_known(
            f"the return of broker {number}",
            lambda: all(number in broker.known_brokers() for broker in self._awake()),
        )

    def partition_network(
        self, a: int | Iterable[int], b: int | Iterable[int], *, both: bool = True
    ) -> None:
        """Cut the connections between brokers, until `heal`. Clients reach all brokers.

        a, b  a broker, or several. Brokers of one side reach each other.
        both  False: cut only connections that `a` opens. A follower `a` cannot fetch from `b`, and
              a controller `b` can still send requests to `a`.
        raises  ConfigError: this cluster has no such broker, or one is on both sides
        """
        sides = [{side} if isinstance(side, int) else set(side) for side in (a, b)]
        unknown = sorted((sides[0] | sides[1]) - self._ports.keys())
        if unknown:
            raise ConfigError(f"this cluster has no broker {unknown[0]}", hint="they count from 0")
        if sides[0] & sides[1]:
            raise ConfigError(f"broker {min(sides[0] & sides[1])} is on both sides of the cut")
        for one in sides[0]:
            for other in sides[1]:
                self._cuts |= {(one, other), (other, one)} if both else {(one, other)}
        self._tell_cuts()

    def heal(self) -> None:
        """Undo every `partition_network`."""
        self._cuts.clear()
        self._tell_cuts()

    def close(self) -> None:
        """Stop all brokers. Idempotent."""
        self._cuts.clear()
        self._tell_cuts()  # a broker that is cut off would wait long for the controller
        for number in self._paused & self.brokers.keys():
            self.brokers.pop(number).kill()  # it hangs, so it cannot ask the controller
        for number in sorted(self.brokers, reverse=True):
            self.stop(number)
        if self._tree is not None:
            self._tree.close()
        if self._temporary:
            import shutil  # here, because with its archive formats it would cost each start 2 ms

            shutil.rmtree(self._folder, ignore_errors=True)

    def _start_together(self, numbers: range) -> None:
        """Start several brokers at once. Raises the error of the first that could not start.

        It uses threads, because importing `concurrent.futures` takes 2 ms.
        """
        errors: dict[int, BaseException] = {}

        def start(number: int) -> None:
            try:
                self.start(number)
            except BaseException as error:
                errors[number] = error

        threads = [threading.Thread(target=start, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:  # also after Ctrl-C, so that `close` stops the brokers that have started
            for thread in threads:
                thread.join()
        for number in sorted(errors):
            raise errors[number]

    def _running(self, number: int) -> Broker:
        """A running broker. ConfigError: it does not run."""
        if number in self.brokers:
            return self.brokers[number]
        run = ", ".join(map(str, sorted(self.brokers))) or "none"
        raise ConfigError(f"broker {number} does not run here; those that do: {run}")

    def _listeners(self, port: int) -> dict[str, object]:
        """The listeners of a broker: at `port` for clients, at a free port for brokers."""
        if _LISTENERS & self._config.keys():
            return {}
        protocols = self._config.get("listener.security.protocol.map", f"{_CLIENTS}:PLAINTEXT")
        return {
            "listeners": f"{_CLIENTS}://localhost:{port},{_BROKERS}://127.0.0.1:0",
            "listener.security.protocol.map": f"{protocols},{_BROKERS}:PLAINTEXT",
            "inter.broker.listener.name": _BROKERS,
        }

    def _cut_off(self, number: int) -> set[int]:
        """The brokers that a broker cannot connect to."""
        return {to for of, to in self._cuts if of == number}

    def _tell_cuts(self) -> None:
        for number, broker in self.brokers.items():
            broker.cut_off(self._cut_off(number))

    def _informed(self, topic: str, partition: int) -> Broker:
        """The broker that knows a partition best: the controller, or any running one.

        KafkaError: there is no such partition.
        """
        awake = self._awake()
        if not awake:
            raise ServerError("no broker of this cluster runs", hint="start one: cluster.start(0)")
        broker = next((each for each in awake if each.controller_id == each.node_id), awake[0])
        if not 0 <= partition < len(broker.partitions(topic)):
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(f"there is no {topic}:{partition}", code=code, name=code.name)
        return broker

    def _awake(self) -> list[Broker]:
        return [one for number, one in list(self.brokers.items()) if number not in self._paused]

    def _missed(self, number: int) -> None:
        self._wait_known(
            f"the loss of broker {number}",
            lambda: all(number not in broker.known_brokers() for broker in self._awake()),
        )

    def _wait_known(self, what: str, true: Callable[[], bool]) -> None:
        self._wait(true, lambda: f"not every broker knows of {what}", WAIT_MS)

    def _wait(self, true: Callable[[], bool], why: Callable[[], str], timeout_ms: int) -> None:
        deadline = time.monotonic() + timeout_ms / 1000
        while not true():
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{why()} after {timeout_ms:,} ms", hint="look at the log lines of `krust`"
                )
            time.sleep(_LOOK_S)


def _kept(folder: Path, *, adopt: bool) -> TreeFiles:
    """The files of a cluster's metadata. ServerError: the directory belongs to a lone broker."""
    from krust.metadata.saved import tree_files

    provenance.refuse_broker(folder)
    known = provenance.served_by_krust(sorted(folder.glob("broker-*")))
    return tree_files(folder / provenance.CLUSTER_FILE)._replace(known=known, adopt=adopt)
