"""The connector: a member of a group that is kept in ZooKeeper, and its thread.

The thread owns the session with ZooKeeper. It registers the member, watches members, brokers and
topics, and computes the assignment after every change (`sharing`). It stops reading partitions of
other members, commits their offsets and releases them. It claims its own partitions (`owners`) and
reads them from the stored offset (`offsets`). If another member still has a partition, the thread
tries again when that changes, or after `rebalance.backoff.ms`.
    the session expires: all partitions are given up, the member registers again and rebalances
    ZooKeeper is silent for a session timeout: the streams pause until it answers
Source: `ZookeeperConsumerConnector` of Apache Kafka 0.8.2. Difference: partitions that stay with a
    member are read without a pause.
Not done: `roundrobin`, decoders, TLS and passwords for ZooKeeper.
Not promised: each record once, if a member dies after it returned the record and before the commit.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from krust.clients import options
from krust.clients.zookeeper import settings, sharing
from krust.clients.zookeeper.offsets import GroupOffsets
from krust.clients.zookeeper.owners import PartitionOwners
from krust.clients.zookeeper.stream import KafkaStream
from krust.clients.zookeeper.tree import AwayError, GroupTree
from krust.closing import Closing
from krust.errors import ConfigError, ForkedError, KafkaError, KrustError, UnreachableError
from krust.metadata import znodes
from krust.metadata.contents import BrokerRegistration, ConsumerRegistration, TopicAssignment
from krust.metadata.store import Create, Exists, Refusal, SessionChanged, SessionState, Stat

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from krust.clients.zookeeper.sharing import TopicFilter
    from krust.coordinator.consumer_protocol import TopicPartition

IDLE_S = 1.0
LAST_S = 3.0
"""how long a shutdown waits for ZooKeeper"""
_log = logging.getLogger("krust.clients.zookeeper")
_living: weakref.WeakSet[ConsumerConnector] = weakref.WeakSet()


class RebalanceFailedError(KrustError):
    """Other members kept our partitions for `rebalance.max.retries`. It keeps trying."""

    retriable = True


class ConsumerConnector(Closing):
    """A member; see the module, and `krust.clients.zookeeper.settings` for its settings.

    config, more  settings: group.id, zookeeper.connect, auto.commit.enable, auto.offset.reset
                  (largest or smallest), offsets.storage (zookeeper or kafka), ...
    raises        ConfigError: an unknown or invalid setting, or no kazoo;
                  ServerError: ZooKeeper does not answer
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **more: object) -> None:
        self._config = settings.read(config, more)
        self._pid = os.getpid()
        self._tree = GroupTree(self._config.ensemble, self._bad)
        self._offsets = GroupOffsets(self._config, self._tree)
        self._owners = PartitionOwners(self._config.group, self._tree)
        self._member: ConsumerRegistration | None = None
        self._streams: dict[tuple[str | None, str], KafkaStream] = {}
        self._owned: dict[TopicPartition, str] = {}
        """partition -> the thread that reads it"""
        self._unstored: dict[TopicPartition, int] = {}
        """the positions of released partitions that are not committed yet"""
        self._bootstrap = ""
        self._registered = self._ended = False
        self._stale, self._away = True, False
        self._tries, self._again_s = 0, 0.0
        self._first: Future[None] = Future()
        self._orders: deque[Future[None]] = deque()
        self._commit_s = time.monotonic() + (self._config.commit_s or 0)
        self._faults: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="krust-zookeeper", daemon=True)

    def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[KafkaStream]]:
        """Join the group and read topics, each with a number of streams. Callable once.

        raises  RebalanceFailedError: others keep our partitions; ConfigError: it was called before
        """
        if not topics or any(count < 1 for count in topics.values()):
            raise ConfigError("name a topic, and at least one stream of each")
        made = {name: [self._stream() for _ in range(count)] for name, count in topics.items()}
        member = self._config.member
        threads: dict[tuple[str | None, str], KafkaStream] = {
            (name, f"{member}-{number}"): stream
            for name, streams in made.items()
            for number, stream in enumerate(streams)
        }
        self._join(topics, sharing.STATIC, threads)
        return made

    def create_message_streams_by_filter(
        self, topics: TopicFilter, streams: int = 1
    ) -> list[KafkaStream]:
        """Join the group and read all topics that a filter allows, also future ones.

        raises  RebalanceFailedError: others keep our partitions; ConfigError: it was called before
        """
        if streams < 1:
            raise ConfigError("there is at least one stream")
        made = [self._stream() for _ in range(streams)]
        member = self._config.member
        threads: dict[tuple[str | None, str], KafkaStream] = {
            (None, f"{member}-{number}"): stream for number, stream in enumerate(made)
        }
        self._join({topics.regex: streams}, topics.pattern, threads)
        return made

    def commit_offsets(self) -> None:
        """Commit the positions of all streams.

        raises  KafkaError, UnreachableError, AwayError: they are not committed
        """
        self._usable()
        if self._member is None:
            return
        order: Future[None] = Future()
        self._orders.append(order)
        self._tree.wake()
        if not self._thread.is_alive():
            self._refuse()
        order.result()

    def shutdown(self) -> None:
        """Commit (if automatic), end the streams and leave the group. Idempotent."""
        if self._ended:
            return
        if os.getpid() != self._pid:
            raise ForkedError("this connector belongs to the process that made it")
        self._ended = True
        self._tree.hurry(LAST_S)
        if self._thread.ident:
            self._thread.join()
        else:
            self._tree.close()
        _living.discard(self)

    close = shutdown

    def _usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError("this connector belongs to the process that made it")
        if self._ended:
            raise ConfigError("this connector is shut down")

    def _stream(self) -> KafkaStream:
        config = self._config
        return KafkaStream(
            options.core(config.given, options.FETCH), config.reset, config.patience_s
        )

    def _join(
        self,
        wanted: Mapping[str, int],
        pattern: str,
        threads: dict[tuple[str | None, str], KafkaStream],
    ) -> None:
        self._usable()
        if self._member is not None:
            raise ConfigError("this connector has its streams", hint="make another connector")
        self._member = ConsumerRegistration({**wanted}, pattern, int(time.time() * 1000))
        self._streams = threads
        _living.add(self)
        self._thread.start()
        self._first.result()

    # Methods of the connector's thread.

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while not self._ended:
                self._turn()
            self._leave()
        except BaseException as error:
            failure = error
            _log.exception("the consumer %s ends", self._config.member)
        finally:
            for stream in {*self._streams.values()}:
                stream.close(failure)
            self._refuse()
            self._offsets.close()
            self._tree.close()
            if not self._first.done():
                self._first.set_exception(failure or ConfigError("this connector is shut down"))

    def _turn(self) -> None:
        """Handle events, then do what is due. What fails is tried again later."""
        self._hear(self._idle_s())
        if self._stale and not self._away and time.monotonic() >= self._again_s:
            self._stale = False
            try:
                self._rebalance()
            except (AwayError, UnreachableError, KafkaError) as error:
                self._failed(error)
        self._commit_what_is_due(time.monotonic())

    def _idle_s(self) -> float:
        """The seconds until something is due."""
        now = time.monotonic()
        if self._ended or self._orders:
            return 0.0
        due = now + IDLE_S
        if self._stale and not self._away:
            due = min(due, self._again_s)
        if self._config.commit_s is not None:
            due = min(due, self._commit_s)
        return max(due - now, 0.0)

    def _hear(self, seconds: float) -> None:
        for each in self._tree.take_events(seconds):
            if isinstance(each, SessionChanged):
                self._turned(each.state)
            else:
                self._stale, self._again_s = True, 0.0

    def _turned(self, state: SessionState) -> None:
        """The state of the session changed."""
        self._away = state is not SessionState.CONNECTED
        if state is SessionState.CONNECTED:
            self._stale, self._again_s = True, 0.0
            self._halt(False)
        elif state is SessionState.OVERDUE:
            self._halt(True)
        elif state is SessionState.EXPIRED:
            _log.warning("the ZooKeeper session of %s is over", self._config.member)
            self._registered = False
            for stream in {*self._streams.values()}:
                stream.drop(stream.places)
            self._offsets.forget([*self._owned])
            self._owners.forget()
            self._unstored.clear()
            self._owned.clear()

    def _halt(self, halted: bool) -> None:
        for stream in {*self._streams.values()}:
            stream.halt(halted)

    def _failed(self, error: KrustError) -> None:
        """Try again later. A caller that waits for the first rebalance gets the error at last."""
        self._stale = True
        self._tries += 1
        self._again_s = time.monotonic() + self._config.backoff_s
        if self._tries <= self._config.retries:
            return
        if not self._first.done():
            self._first.set_exception(error)
        elif self._tries == self._config.retries + 1:
            _log.error("%s cannot share its group: %s", self._config.member, error)

    def _rebalance(self) -> None:
        """Compute the assignment; release and claim partitions."""
        self._let_go()
        if not self._register():
            self._failed(RebalanceFailedError(f"a member {self._config.member} is there already"))
            return
        mine = self._share()
        self._release(place for place, thread in self._owned.items() if mine.get(place) != thread)
        wanted = {place: thread for place, thread in mine.items() if place not in self._owned}
        claimed = self._owners.claim(wanted)
        if claimed:
            self._begin({place: wanted[place] for place in claimed})
        if blocked := wanted.keys() - claimed:
            topic, partition = min(blocked)
            self._failed(RebalanceFailedError(f"{topic}:{partition} is still another's"))
            return
        self._tries = 0
        if not self._first.done():
            self._first.set_result(None)

    def _begin(self, claimed: Mapping[TopicPartition, str]) -> None:
        """Read claimed partitions from the stored offsets."""
        try:
            stored = self._offsets.fetch(claimed.keys())
        except KrustError:
            self._owners.leave(claimed)
            raise
        self._owned |= claimed
        by_stream: dict[KafkaStream, dict[TopicPartition, int | None]] = {}
        for place, thread in claimed.items():
            stream = self._reader(place.topic, thread)
            by_stream.setdefault(stream, {})[place] = stored.get(place)
        for stream, offsets in by_stream.items():
            stream.take(offsets)

    def _reader(self, topic: str, thread: str) -> KafkaStream:
        """The stream of one of the member's threads."""
        return self._streams.get((topic, thread)) or self._streams[None, thread]

    def _register(self) -> bool:
        """Register the member. False: another member has its name."""
        if self._registered or self._member is None:
            return True
        path = znodes.consumer_member(self._config.group, self._config.member)
        self._tree.make([path.rpartition("/")[0], znodes.consumer_owners(self._config.group)])
        [answer] = self._tree.ask(Create(path, self._member.encode(), ephemeral=True))
        if answer is Refusal.NODE_EXISTS:
            [stat] = self._tree.ask(Exists(path, watch=True))
            if not isinstance(stat, Stat) or stat.owner != self._tree.store.session:
                return False
        self._registered = True
        return True

    def _share(self) -> dict[TopicPartition, str]:
        """Read the group, with watches. Returns our partitions and their threads."""
        tree, config = self._tree, self._config
        brokers = tree.children(znodes.BROKERS, watch=True)
        if not self._connected(brokers):
            return self._owned
        folder = znodes.consumer_members(config.group)
        names = tree.children(folder, watch=True)
        nodes = tree.read(f"{folder}/{name}" for name in names)
        members: dict[str, ConsumerRegistration] = {}
        for path, node in nodes.items():
            answer = tree.decoded(path, node.data, ConsumerRegistration.decode)
            if isinstance(answer, ConsumerRegistration):
                members[path.rpartition("/")[2]] = answer
        patterns = any(each.pattern != sharing.STATIC for each in members.values())
        topics = tree.children(znodes.TOPICS, watch=True) if patterns else ()
        asked = {name: self._threads(name, each, topics) for name, each in members.items()}
        ours = asked.get(config.member, {})
        partitions = self._partitions(ours)
        shares = sharing.share(asked.values(), partitions)
        return {place: name for place, name in shares.items() if name in ours[place.topic]}

    def _threads(
        self, name: str, member: ConsumerRegistration, topics: Collection[str]
    ) -> dict[str, list[str]]:
        try:
            return sharing.threads(name, member, topics, internal=self._config.internal)
        except ConfigError as error:
            self._bad(name, error)
            return {}

    def _partitions(self, topics: Iterable[str]) -> dict[str, range]:
        """The partitions of existing topics."""
        paths = {znodes.topic(name): name for name in topics}
        found = {}
        for path, node in self._tree.read(paths, watch=True).items():
            answer = self._tree.decoded(path, node.data, TopicAssignment.decode)
            if isinstance(answer, TopicAssignment):
                found[paths[path]] = range(len(answer.replicas))
        return found

    def _connected(self, brokers: Iterable[str]) -> bool:
        """Use the brokers that exist now. False: there is none."""
        bootstrap = self._config.bootstrap
        if bootstrap is None:
            paths = [f"{znodes.BROKERS}/{name}" for name in brokers]
            found = set()
            for path, node in self._tree.read(paths).items():
                answer = self._tree.decoded(path, node.data, BrokerRegistration.decode)
                if isinstance(answer, BrokerRegistration):
                    found |= {
                        f"[{at.host}]:{at.port}" if ":" in at.host else f"{at.host}:{at.port}"
                        for at in answer.endpoints
                        if at.protocol == self._config.protocol
                    }
            bootstrap = ",".join(sorted(found))
        if bootstrap and bootstrap != self._bootstrap:
            for stream in {*self._streams.values()}:
                stream.connect(bootstrap, options.core(self._config.given, options.COMMON))
            self._offsets.connect(bootstrap)
            self._bootstrap = bootstrap
        return bool(bootstrap)

    def _release(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading partitions, commit their positions, and release them."""
        gone = {*places}
        for stream in {self._reader(place.topic, self._owned[place]) for place in gone}:
            self._unstored |= stream.drop(gone)
        for place in gone:
            del self._owned[place]
        self._owners.leave(gone)
        self._let_go()

    def _let_go(self) -> None:
        """Commit the positions of released partitions, then delete their owner nodes."""
        try:
            if self._config.commit_s is not None:
                self._offsets.commit(self._unstored)
        except (KafkaError, UnreachableError) as error:
            _log.error("offsets of %s are not stored: %s", self._config.member, error)
        self._offsets.forget([*self._unstored])
        self._unstored.clear()
        self._owners.let_go()

    def _commit_what_is_due(self, now: float) -> None:
        if self._config.commit_s is not None and now >= self._commit_s and not self._away:
            self._commit_s = now + self._config.commit_s
            try:
                self._offsets.commit(self._positions())
            except (AwayError, UnreachableError, KafkaError) as error:
                _log.warning("offsets of %s are not stored: %s", self._config.member, error)
        while self._orders:
            order = self._orders.popleft()
            try:
                if self._away:
                    raise AwayError("there is no connection to ZooKeeper")
                self._offsets.commit(self._positions())
            except KrustError as error:
                order.set_exception(error)
            else:
                order.set_result(None)

    def _positions(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for stream in {*self._streams.values()}:
            found |= stream.positions()
        return {place: at for place, at in found.items() if place in self._owned}

    def _leave(self) -> None:
        """Leave: stop all reading, commit the offsets, then release all partitions."""
        for stream in {*self._streams.values()}:
            stream.close()
        self._hear(0.0)
        with suppress(AwayError):
            if not self._away:
                self._release([*self._owned])

    def _refuse(self) -> None:
        while self._orders:
            self._orders.popleft().set_exception(ConfigError("this connector is shut down"))

    def _bad(self, path: str, error: object) -> None:
        """Log a bad node, once."""
        if path not in self._faults:
            self._faults.add(path)
            _log.error("%s is passed over: %s", path, error)


@atexit.register
def _at_exit() -> None:
    for connector in list(_living):
        if connector._pid == os.getpid():
            connector.shutdown()
