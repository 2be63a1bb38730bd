"""`krust.Consumer`: records of any Kafka, from assigned partitions or as a member of a group.

    with krust.Consumer("orders", bootstrap_servers="localhost", group_id="billing") as consumer:
        for record in consumer:
            print(record.key, record.value)

Threads: one at a time; any thread may call `wakeup`. A member of a group has one more thread, for
heartbeats (`krust.clients.membership`). Fetching needs no thread: while the caller handles records,
the next response arrives in the socket. Listeners are called inside `poll`.
Positions: the position of a partition is the offset after the last record that was returned.
Automatic commits happen in `poll`, for records of earlier calls, and in `close`. So a record counts
as handled when the caller asks for the next one.
Groups: the classic protocol, or with `group.protocol=consumer` KIP-848, where the broker assigns.
Transactions: `isolation.level=read_committed` returns no aborted or open ones.
"""

from __future__ import annotations

import atexit
import os
import re
import time
import weakref
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TypeVar, Unpack

from krust import _krust
from krust.clients import membership, options
from krust.clients.classic_member import ClassicMembership
from krust.clients.consumer_member import STALE_EPOCH, UNKNOWN_MEMBER, ConsumerMembership
from krust.clients.coordinator_client import (
    UNSTABLE,
    CoordinatorClient,
    GroupMetadata,
    MemberIdentity,
    refused,
)
from krust.clients.keywords import ConsumerSettings, keys
from krust.clients.membership import Membership, partition_counts
from krust.clients.membership_config import API_MS, coordinator_client, membership_config
from krust.closing import Closing
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError, KafkaError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from krust._krust import ArrowBatch, Record

    TopicPartitionLike = tuple[str, int]
    _Places = list[tuple[str, int, int]]
    Batch = TypeVar("Batch", list[Record], ArrowBatch)
    Listener = Callable[["Consumer", list[TopicPartition]], object]

SETTINGS = keys(ConsumerSettings)
COLUMNS = _krust.COLUMNS
"""The columns of Spark's Kafka source."""
UNKNOWN_TOPIC, OUT_OF_RANGE, ILLEGAL_GENERATION = 3, 1, 22
_SLICE_S = 0.1
REJOIN_CODES = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, 27, 82, STALE_EPOCH})
"""Errors of a commit which mean that the group has rebalanced without this member."""
_open_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


class Consumer(Closing):
    """Reads records.

    what  a dict of settings, and topics to subscribe to
    more  settings as keywords (`ConsumerSettings` lists them): group.id, auto.offset.reset
          (latest, earliest or none), enable.auto.commit, max.poll.records,
          partition.assignment.strategy (names, or your own assignors, as for a krust broker) ...
    raises  ConfigError: an unknown or invalid setting
    """

    def __init__(self, *what: Mapping[str, object] | str, **more: Unpack[ConsumerSettings]) -> None:
        topics = [one for one in what if isinstance(one, str)]
        [config] = [one for one in what if not isinstance(one, str)] or [{}]
        given = options.read(SETTINGS, config, more)
        self._given = given
        self._pid = os.getpid()
        self._limit = options.number(given, "max.poll.records", 500)
        reset = options.choice(given, "auto.offset.reset", "latest", "earliest", "none")
        self._reset = {"latest": _krust.LATEST, "earliest": _krust.EARLIEST}.get(reset)
        self._patience_s = options.number(given, "default.api.timeout.ms", API_MS) / 1000
        self._silent_s: float | None = None
        self._commit_s = options.number(given, "auto.commit.interval.ms", 5000) / 1000
        self._config = membership_config(given)
        grouped = self._config is not None
        self._auto = options.switch(given, "enable.auto.commit", grouped) and grouped
        bootstrap = str(given[options.BOOTSTRAP])
        core = options.core(given, options.FETCH) | {"krust.report.out.of.range": "true"}
        self._core = _krust.Consumer(bootstrap, core)
        self._client = _krust.Client(bootstrap, options.core(given, options.COMMON))
        self._committer = None if self._config is None else coordinator_client(self._config, given)
        self._member: Membership | None = None
        self._listeners: dict[str, Listener] = {}
        self._topics: list[str] = []
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self.buffered: deque[Record] = deque()
        """records that the iterator has not returned yet; positions are before them"""
        self._commit_at = time.monotonic() + self._commit_s
        self.closed = self._woken = self._rejoin_after_revoke = False
        _open_consumers.add(self)
        if topics:
            self.subscribe(topics)

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Subscribe to topics as a member of the group, from the next `poll` on.

        topics     names; a text that begins with ^ is a pattern of names (Python's `re`)
        on_assign  called with (consumer, partitions) after an assignment; it may `seek`
        on_revoke  called before partitions are revoked; it may `commit`
        on_lost    called after other members may have got the partitions; default: on_revoke
        """
        if self._config is None:
            raise ConfigError("subscribe needs a group", hint='give group_id="..."; or use assign')
        self._usable()
        hooks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        self._listeners = {name: hook for name, hook in hooks.items() if hook is not None}
        self._topics = list(topics)
        if self._member is None:
            kind = ClassicMembership if self._config.strategies else ConsumerMembership
            self._member = kind(self._config, self._given, self._subscribed)
        else:
            self._member.request_rejoin()

    def unsubscribe(self) -> None:
        """Leave the group, or drop the assigned partitions, also if a listener raises."""
        self._usable()
        member = self._member
        with ExitStack() as whatever_is_raised:
            whatever_is_raised.callback(lambda: self._unassign(list(self._positions)))
            if member is not None:
                whatever_is_raised.callback(self._leave, member)
                if member.state == membership.LOST:
                    self._call_listener("lost", list(self._positions))
                else:
                    self._on_partitions_revoked(list(self._positions))

    def _leave(self, member: Membership) -> None:
        self._member, self._topics = None, []
        member.leave()
        if self._committer is not None:
            with suppress(UnreachableError):  # without a request the session expires later
                member.send_leave(self._committer)

    def assign(self, partitions: Iterable[TopicPartitionLike | tuple[str, int, int]]) -> None:
        """Read partitions without membership: (topic, partition) or (topic, partition, offset).

        Without an offset it begins at the commit of `group.id`, or as `auto.offset.reset` says.
        """
        self._usable()
        if self._member is not None:
            raise ConfigError("this consumer is subscribed", hint="unsubscribe first")
        wanted = [
            (TopicPartition(*one[:2]), one[2] if len(one) > 2 else None) for one in partitions
        ]
        self._unassign(list(self._positions))
        self._start(dict(wanted))

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """The records that have arrived; waits up to `timeout_ms` for the first.

        raises  KafkaError: the group, a partition or an offset is refused; UnreachableError: no
                broker was reachable for default.api.timeout.ms (the log says so at once)
        """
        self._usable()
        if self.buffered:
            return [self.buffered.popleft() for _ in range(min(len(self.buffered), self._limit))]
        limit = max_records or self._limit
        return self._poll(timeout_ms, lambda wait_ms: self._core.poll(wait_ms, limit)) or []

    def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_records: int = 65_536,
        columns: Iterable[str] = COLUMNS,
    ) -> ArrowBatch | None:
        """The records that have arrived, as one batch of Arrow columns; None: no records.

        columns  columns of Spark's Kafka source; others are not decoded
        returns  a batch for pyarrow, polars, duckdb ...: `pyarrow.record_batch(batch)`
        raises   as `poll`
        """
        self._usable()
        if self.buffered:  # the iterator has not returned these: fetch them again
            self._discard_buffered(list(self._positions))
            for place, offset in self._positions.items():
                self._core.seek(*place, offset)
        names = list(columns)
        return self._poll(timeout_ms, lambda wait: self._core.poll_arrow(wait, names, max_records))

    def __iter__(self) -> Iterator[Record]:
        """Each record, for ever; ends when the consumer is closed."""
        while not self.closed:
            if not self.buffered:
                self.buffered.extend(self.poll(1000))
            while self.buffered:
                yield self.buffered.popleft()

    def wakeup(self) -> None:
        """End the current or the next `poll`. Any thread may call it."""
        self._woken = True

    def commit(self, offsets: Mapping[TopicPartitionLike, int] | None = None) -> None:
        """Commit positions, or these offsets (of the next record to read), and wait for the answer.

        raises  KafkaError: the partitions are another member's, or the group rebalances
        """
        self._usable()
        if self._committer is None:
            raise ConfigError("commit needs a group", hint='give group_id="..."')
        if offsets is None:
            places = self._consumed_positions()
        else:
            places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        if places:
            self._commit_as_member(self._committer, places)
        self._commit_at = time.monotonic() + self._commit_s

    def _commit_as_member(
        self, committer: CoordinatorClient, places: Mapping[TopicPartition, int]
    ) -> None:
        """Commit as a member; again if its epoch has changed meanwhile."""
        member = self._member
        while True:
            identity = MemberIdentity() if member is None else member.identity
            if member is not None and identity.generation < 0:
                # Without a member this is a simple commit, which an empty group allows.
                raise refused(UNKNOWN_MEMBER, f"commit to group {member.config.group_id!r}")
            try:
                return committer.commit(places, identity)
            except KafkaError as error:
                stale = error.code == STALE_EPOCH
                if member is None or not stale or not member.wait_for_new_epoch(identity):
                    raise

    def group_metadata(self) -> GroupMetadata:
        """The member of the group, for `Producer.send_offsets`. ConfigError: there is no group."""
        self._usable()
        group_id = self._given.get("group.id")
        if not group_id:
            raise ConfigError("this consumer has no group", hint='give group_id="..."')
        identity = MemberIdentity() if self._member is None else self._member.identity
        return GroupMetadata(str(group_id), *identity)

    def committed(self, partitions: Iterable[TopicPartitionLike]) -> dict[TopicPartition, int]:
        """The group's committed offsets. Partitions without a commit are left out.

        Waits for the end of a transaction that has offsets of them, default.api.timeout.ms at most.
        """
        self._usable()
        if self._committer is None:
            raise ConfigError("committed needs a group", hint='give group_id="..."')
        return self._committer.stable(TopicPartition(*one) for one in partitions)

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that `poll` returns. KafkaError: not assigned."""
        return self._consumed_positions()[self._assigned_partition(topic, partition)]

    def positions(self) -> dict[TopicPartition, int]:
        """The `position` of each assigned partition."""
        return self._consumed_positions()

    def restore(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go back to positions of partitions that are still assigned."""
        for place in positions.keys() & self._positions.keys():
            self.seek(*place, positions[place])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at another offset. KafkaError: not assigned."""
        self._usable()
        place = self._assigned_partition(topic, partition)
        self._discard_buffered([place])
        self._positions[place] = offset
        self._core.seek(topic, partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartitionLike] = ()) -> None:
        """Continue at the first record of these partitions, or of all."""
        self._seek_all(partitions, _krust.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartitionLike] = ()) -> None:
        """Continue at the end of these partitions, or of all."""
        self._seek_all(partitions, _krust.LATEST)

    def pause(self, partitions: Iterable[TopicPartitionLike]) -> None:
        """Return no records of these partitions until `resume`. They stay assigned."""
        self._usable()
        places = [self._assigned_partition(*one) for one in partitions]
        self._discard_buffered(places)
        self._core.pause([(*place, self._positions[place]) for place in places])
        self._paused.update(places)

    def resume(self, partitions: Iterable[TopicPartitionLike]) -> None:
        """Return records of these partitions again."""
        self._usable()
        places = [self._assigned_partition(*one) for one in partitions]
        self._core.resume(places)
        self._paused.difference_update(places)

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return set(self._paused)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return sorted(self._positions)

    def subscription(self) -> list[str]:
        """The subscribed topics and patterns."""
        return list(self._topics)

    def topics(self) -> dict[str, int]:
        """All topics with their numbers of partitions."""
        self._usable()
        found = self._client.request("Metadata", {"topics": None})["topics"]
        return {topic["name"]: len(topic["partitions"]) for topic in found}

    def offsets_for_times(
        self, times: Mapping[TopicPartitionLike, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time in ms since 1970; None: there is none."""
        found = self._offsets({TopicPartition(*place): at for place, at in times.items()})
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def beginning_offsets(
        self, partitions: Iterable[TopicPartitionLike]
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return self._offsets({TopicPartition(*one): _krust.EARLIEST for one in partitions})

    def end_offsets(self, partitions: Iterable[TopicPartitionLike]) -> dict[TopicPartition, int]:
        """The end of each partition (read_committed: the end of the readable records)."""
        return self._offsets({TopicPartition(*one): _krust.LATEST for one in partitions})

    def close(self, timeout_ms: float = 5000) -> None:
        """Commit (if automatic), leave the group, end thread and connections. Idempotent.

        timeout_ms  how long to wait for a coordinator that does not answer
        """
        if self.closed:
            return
        self._usable()
        if self._committer is not None:
            self._committer.patience_s = timeout_ms / 1000
        try:
            self.unsubscribe() if self._member else self._commit_quietly()
        finally:
            self.closed = True
            for one in (self._core, self._client, self._committer):
                if one is not None:
                    one.close()
            _open_consumers.discard(self)

    def _usable(self) -> None:
        if os.getpid() != self._pid:
            self._core.done()  # raises ForkedError
        if self.closed:
            raise ConfigError("this consumer is closed")

    def _poll(self, timeout_ms: float, ask: Callable[[int], tuple[Batch, _Places]]) -> Batch | None:
        end = time.monotonic() + timeout_ms / 1000
        while True:
            left_s = end - time.monotonic()
            self._poll_coordinator(left_s)
            found = self._fetch(min(max(left_s, 0), _SLICE_S), ask)
            if found or self._woken or time.monotonic() >= end:
                self._woken = False
                return found

    def _fetch(self, timeout_s: float, ask: Callable[[int], tuple[Batch, _Places]]) -> Batch | None:
        if not self._positions:
            time.sleep(timeout_s)
            return None
        try:
            found, places = ask(int(timeout_s * 1000))
        except UnreachableError as error:
            self._on_unreachable(error)
            time.sleep(timeout_s)
            return None
        self._silent_s = None
        for topic, partition, offset in places:
            self._positions[TopicPartition(topic, partition)] = offset
        if not found:
            self._reset_out_of_range()
            return None
        return found

    def _on_unreachable(self, error: UnreachableError) -> None:
        """No broker can be reached: raise the error after default.api.timeout.ms."""
        now = time.monotonic()
        self._silent_s = now if self._silent_s is None else self._silent_s
        if now - self._silent_s >= self._patience_s:
            self._silent_s = None
            raise error

    def _reset_out_of_range(self) -> None:
        """Reset partitions whose offset is out of range, as `auto.offset.reset` says."""
        out_of_range = [
            TopicPartition(topic, partition) for topic, partition, _ in self._core.out_of_range()
        ]
        if not out_of_range:
            return
        if self._reset is None:
            place = out_of_range[0]
            raise refused(
                OUT_OF_RANGE, f"offset {self._positions[place]} of {place.topic}:{place.partition}"
            )
        self._seek_all(out_of_range, self._reset)

    def _poll_coordinator(self, left_s: float) -> None:
        """Commit automatically, join, revoke and assign partitions, as the state requires."""
        member = self._member
        if self._auto and time.monotonic() >= self._commit_at:
            self._commit_quietly()
        if member is None:
            return
        member.on_poll()
        member.wait(0)
        if member.state == membership.LOST:
            self._call_listener("lost", list(self._positions))
            self._unassign(list(self._positions))
            member.on_partitions_lost()
        if member.state in (membership.UNJOINED, membership.REJOIN_NEEDED):
            kept = list(self._positions) if member.config.cooperative else []
            self._commit_quietly()
            if not kept:
                self._on_partitions_revoked(list(self._positions))
                self._unassign(list(self._positions))
            member.join(kept)
        if member.state == membership.PREPARING_REBALANCE:
            member.wait(min(max(left_s, 0), _SLICE_S))
        if member.state == membership.COMPLETING_REBALANCE:
            self._on_join_complete(member)

    def _on_join_complete(self, member: Membership) -> None:
        """Apply the new assignment; if that fails, the next poll tries again."""
        assignment = member.assigned
        revoked = [place for place in self._positions if place not in assignment]
        if revoked:
            self._rejoin_after_revoke = True
            self._on_partitions_revoked(revoked)
            self._unassign(revoked)
        added = [place for place in assignment if place not in self._positions]
        try:
            self._start(dict.fromkeys(added), patience_s=0)
        except KafkaError as error:
            if error.code == UNSTABLE:  # a transaction has offsets of the group: it ends soon
                return
            raise
        member.on_assignment_applied(assignment)
        self._call_listener("assign", added)
        if self._rejoin_after_revoke:
            self._rejoin_after_revoke = False
            member.request_rejoin()  # another member waits for the revoked partitions

    def _on_partitions_revoked(self, places: list[TopicPartition]) -> None:
        if places:
            self._commit_quietly()
            self._call_listener("revoke", places)

    def _call_listener(self, which: str, places: list[TopicPartition]) -> None:
        hook = self._listeners.get(which)
        if hook is not None and (places or which == "assign"):
            hook(self, places)

    def _commit_quietly(self) -> None:
        """Commit automatically. If that fails, a later commit repeats it."""
        if not self._auto or not self._positions:
            return
        try:
            self.commit()
        except UnreachableError:
            self._commit_at = time.monotonic() + self._commit_s
        except KafkaError as error:
            if error.code not in REJOIN_CODES:
                raise
            self._commit_at = time.monotonic() + self._commit_s

    def _start(
        self, places: Mapping[TopicPartition, int | None], patience_s: float | None = None
    ) -> None:
        open_ones = [place for place, offset in places.items() if offset is None]
        found: dict[TopicPartition, int] = {}
        if open_ones and self._committer is not None:
            found = self._committer.stable(open_ones, patience_s)
        fresh = [place for place in open_ones if place not in found]
        if fresh and self._reset is None:
            raise refused(OUT_OF_RANGE, f"no offset is committed of {fresh[0]}")
        if fresh and self._reset is not None:
            found |= self._offsets(dict.fromkeys(fresh, self._reset))
        begin = found | {place: at for place, at in places.items() if at is not None}
        self._positions |= begin
        self._core.assign([(*place, begin[place], None) for place in places], keep=True)

    def _unassign(self, places: list[TopicPartition]) -> None:
        self._discard_buffered(places)
        self._core.unassign(places)
        for place in places:
            self._positions.pop(place, None)
            self._paused.discard(place)

    def _seek_all(self, partitions: Iterable[TopicPartitionLike], when: int) -> None:
        self._usable()
        places = [self._assigned_partition(*one) for one in partitions] or list(self._positions)
        for place, offset in self._offsets(dict.fromkeys(places, when)).items():
            self.seek(*place, offset)

    def _offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._usable()
        committed = str(self._given.get("isolation.level", "")).lower() == "read_committed"
        moments = [(*place, at) for place, at in times.items()]
        found = self._client.list_offsets(moments, read_committed=committed) if moments else []
        return {TopicPartition(topic, p): offset for topic, p, _, offset, _ in found}

    def _assigned_partition(self, topic: str, partition: int) -> TopicPartition:
        place = TopicPartition(topic, partition)
        if place not in self._positions:
            raise refused(UNKNOWN_TOPIC, f"{topic}:{partition} is not assigned to this consumer")
        return place

    def _consumed_positions(self) -> dict[TopicPartition, int]:
        """The positions before the records that the iterator has not returned."""
        positions = dict(self._positions)
        for record in reversed(self.buffered):
            positions[TopicPartition(record.topic, record.partition)] = record.offset
        return positions

    def _discard_buffered(self, places: Iterable[TopicPartition]) -> None:
        if not self.buffered:
            return
        handled, revoked = self._consumed_positions(), set(places)
        self.buffered = deque(r for r in self.buffered if (r.topic, r.partition) not in revoked)
        self._positions |= {place: handled[place] for place in revoked if place in handled}

    def _subscribed(self, client: _krust.Client) -> dict[str, int]:
        """The subscribed topics with their numbers of partitions; 0: it does not exist (yet)."""
        names = [name for name in self._topics if not name.startswith("^")]
        patterns = [re.compile(name) for name in self._topics if name.startswith("^")]
        found = partition_counts(client, names)
        if patterns:
            for topic in client.request("Metadata", {"topics": None})["topics"]:
                if not topic["is_internal"] and any(one.match(topic["name"]) for one in patterns):
                    found[topic["name"]] = len(topic["partitions"])
        return found


@atexit.register
def _at_exit() -> None:
    with ExitStack() as stack:
        for consumer in list(_open_consumers):
            if consumer._pid == os.getpid():
                stack.callback(consumer.close)
