"""A model of a broker's replicas: what leaders append, followers copy, and the ISR they propose.

It does not model the replication protocol, which a simulator in Rust tests: here a fetch copies the
leader's whole log at once. It models what the controller decides about, with the rules of a leader:
the high watermark is the end of the shortest log in the maximal ISR; it does not rise while the ISR
is smaller than min.insync.replicas; after a lost answer the leader repeats its proposal. A replica
that was proposed counts until the partition epoch rises, or the controller refuses it and no copy
of the proposal is on its way; the leader writes the ISR again where one may be.
A broker that registered again is another member: what it fetches does not count (KIP-903).
Records are numbers. A record is acknowledged (acks=all) when it is below the high watermark. It
counts once the leader knows a raised min.insync.replicas (see the note in `leaders.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from krust.controller.state import BrokerRequest

if TYPE_CHECKING:
    from krust.controller.entities import Partition, Topic
    from tests.unit.controller.simulator.broker import BrokerProcess

Key = tuple[str, int]
FETCH_MS, RETRY_MS, LAG_MS, ANSWER_MS = 4.0, 50.0, 120.0, 300.0
GONE = (74, 108)
"""the codes of a leader that is none any more"""
INELIGIBLE = (55, 107)
"""the codes of a replica that cannot join now"""


class Leadership:
    """A partition that a process leads in one epoch."""

    def __init__(self, topic: Topic, index: int) -> None:
        partition = topic.partitions[index]
        self.topic_id = topic.id
        self.epoch, self.version = partition.leader_epoch, partition.version
        self.isr = set(partition.isr)
        self.asked: set[int] | None = None
        """the ISR that is proposed and not answered"""
        self.sent = 0
        """how many proposals left"""
        self.additions: set[int] = set()
        """not in the ISR, and proposed from this version: the proposal may still be written"""
        self.lost_copy = False
        """nobody knows what became of a proposal from this version"""
        self.ends: dict[int, tuple[int, int]] = {}
        """follower -> its broker epoch, and how much of the log it has"""
        self.members: dict[int, int] = {}
        """member of the ISR -> the broker epoch of its first fetch, or with which it joined"""
        self.high_watermark = 0

    def changed(self, isr: set[int], version: int) -> None:
        """The controller wrote another ISR."""
        for broker in isr - self.isr & self.ends.keys():
            self.members[broker] = self.ends[broker][0]
        self.members = {each: epoch for each, epoch in self.members.items() if each in isr}
        self.isr, self.version = isr, version
        self.asked, self.additions, self.lost_copy = None, set(), False

    def end(self, broker: int) -> int:
        """How much of the log counts as a follower's: nothing if it registered again."""
        epoch, end = self.ends.get(broker, (-1, 0))
        return end if self.members.get(broker, epoch) == epoch else 0


class Replicas:
    """The replicas of one process; their logs are the broker's, which outlives it."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process, self._simulation = process, process.simulation
        self._id = process.broker.id
        self.logs = process.broker.logs
        self.led: dict[Key, Leadership] = {}
        self._fetching: set[Key] = set()

    def changed(self, names: Iterable[str]) -> None:
        """These topics are others, or gone."""
        for name in names if self._process.ready else ():
            topic = self._process.state.topics.get(name)
            partitions = topic.partitions if topic is not None else ()
            for key in [each for each in self.led if each[0] == name]:
                if key[1] >= len(partitions):
                    del self.led[key]
            for index, each in enumerate(partitions):
                key = (name, index)
                if topic is not None and each.leader == self._id:
                    self._lead(topic, key)
                    continue
                self.led.pop(key, None)
                if each.leader >= 0 and self._id in each.replicas:
                    self._fetch_in(FETCH_MS, key)

    def append(self, key: Key, record: int) -> None:
        """A producer sends a record with acks=all."""
        led = self.led.get(key)
        if led is None or key not in self.logs or len(led.isr) < self._needed(key):
            return
        self.logs[key].append(record)
        for broker in self._partition(key).replicas:
            process = self._simulation.brokers[broker - 1].process
            if process is not None and broker != self._id:
                process.replicas._fetch_in(FETCH_MS, key)
        self._at(LAG_MS, lambda: self._look(key))
        self._advance(key, led)

    # As leader.

    def _lead(self, topic: Topic, key: Key) -> None:
        partition, led = topic.partitions[key[1]], self.led.get(key)
        if led is None or (led.topic_id, led.epoch) != (topic.id, partition.leader_epoch):
            led = self.led[key] = Leadership(topic, key[1])
            self._simulation.checks.leads(key, topic.id, self._id, led.epoch)
            self._at(LAG_MS, lambda: self._look(key))
        elif led.version < partition.version:
            led.changed(set(partition.isr), partition.version)
            self._at(RETRY_MS, lambda: self._look(key))
        self._advance(key, led)

    def _advance(self, key: Key, led: Leadership) -> None:
        """Raise the high watermark, and acknowledge what is below it."""
        log = self.logs.get(key, [])
        needed = self._needed(key)
        if len(led.isr) < needed:
            return
        others = (led.isr | led.additions) - {self._id}
        ends = [len(log), *(led.end(each) for each in others)]
        written = self._simulation.min_isr(key[0])
        for place in range(led.high_watermark, min(ends)):
            if needed >= min(written, len(self._partition(key).replicas)):
                fewest = min(needed, written)
                partition = led.topic_id, key[1]
                self._simulation.checks.acknowledged(partition, led.epoch, log[place], fewest)
        led.high_watermark = max(led.high_watermark, min(ends))

    def fetched(self, key: Key, broker: int, broker_epoch: int) -> None:
        """A follower has the whole log."""
        led = self.led[key]
        led.ends[broker] = (broker_epoch, len(self.logs.get(key, [])))
        if broker in led.isr:
            led.members.setdefault(broker, broker_epoch)
        self._advance(key, led)
        if broker not in led.isr or led.members[broker] != broker_epoch:
            self._look(key)

    def _look(self, key: Key, *, joins: bool = True) -> None:
        """Propose the ISR that the followers' logs show, unless it is that one.

        joins  replicas may be proposed that are not in it
        """
        led, log = self.led.get(key), self.logs.get(key, [])
        if led is None or led.asked is not None:
            return
        replicas = set(self._partition(key).replicas)
        whole = {each for each, (_, end) in led.ends.items() if end == len(log)}
        whole -= {each for each in led.members if led.end(each) < len(log)}
        wanted = (whole & (replicas if joins else led.isr)) | {self._id}
        if wanted != led.isr or led.additions:
            led.asked = wanted
            led.additions |= wanted - led.isr
            self._propose(key, led, wanted)

    def _propose(self, key: Key, led: Leadership, wanted: set[int]) -> None:
        if self.led.get(key) is not led or led.asked is not wanted:
            return
        led.sent += 1
        state = self._process.state
        members = [
            {
                "broker_id": each,
                "broker_epoch": state.broker_epoch if each == self._id else led.ends[each][0],
            }
            for each in sorted(wanted)
        ]
        row = {
            "partition_index": key[1],
            "leader_epoch": led.epoch,
            "partition_epoch": led.version,
            "leader_recovery_state": 0,
            "new_isr_with_epochs": members,
        }
        message = {
            "broker_id": self._id,
            "broker_epoch": state.broker_epoch,
            "topics": [{"topic_id": led.topic_id, "partitions": [row]}],
        }

        def answered(answer: Any) -> None:
            if self.led.get(key) is led and led.asked is wanted and self._process.alive:
                self._answered(key, led, answer)

        if state.is_controller:
            self._process.ask("AlterPartition", message, answered)
        elif state.controller_id > 0:
            asked = BrokerRequest(state.controller_id, "AlterPartition", message)
            self._simulation.deliver(asked, 0, answered)
        self._repeat_in(ANSWER_MS, key, led)

    def _repeat_in(self, ms: float, key: Key, led: Leadership) -> None:
        """Send the proposal again, unless it was answered or sent again by then."""
        asked, number = led.asked, led.sent

        def repeat() -> None:
            if asked is not None and led.sent == number:
                led.lost_copy = True
                self._propose(key, led, asked)

        self._at(ms, repeat)

    def _answered(self, key: Key, led: Leadership, answer: Any) -> None:
        rows = [each for topic in answer.get("topics", ()) for each in topic["partitions"]]
        code = answer["error_code"] or (rows[0]["error_code"] if rows else 41)
        if code in GONE:
            return
        if code and code not in INELIGIBLE:
            led.lost_copy = True
            self._repeat_in(RETRY_MS, key, led)
            return
        led.asked = None
        if code:
            joins = not led.lost_copy
            if joins:
                led.additions.clear()
                self._advance(key, led)
            self._at(RETRY_MS, lambda: self._look(key, joins=joins))
            return
        if rows[0]["partition_epoch"] > led.version:
            led.changed(set(rows[0]["isr"]), rows[0]["partition_epoch"])
            self._advance(key, led)
        self._look(key)

    # As follower.

    def _fetch_in(self, ms: float, key: Key) -> None:
        if key not in self._fetching:
            self._fetching.add(key)
            self._at(ms, lambda: self._fetch(key))

    def _fetch(self, key: Key) -> None:
        self._fetching.discard(key)
        topic = self._process.state.topics.get(key[0])
        if topic is None or key[1] >= len(topic.partitions) or key not in self.logs:
            return
        now = topic.partitions[key[1]]
        if now.leader in (-1, self._id) or self._id not in now.replicas:
            return
        leader = self._simulation.brokers[now.leader - 1].process
        led = leader.replicas.led.get(key) if leader is not None and leader.is_awake else None
        if (
            leader is None
            or led is None
            or (led.topic_id, led.epoch) != (topic.id, now.leader_epoch)
        ):
            self._fetch_in(RETRY_MS, key)
            return
        self.logs[key][:] = leader.replicas.logs.get(key, [])
        epoch = self._process.state.broker_epoch
        leader.replicas.fetched(key, self._id, epoch)
        if led.members.get(self._id) == epoch:
            self._simulation.checks.cut.get(key, set()).discard(self._id)

    # Both.

    def _at(self, ms: float, act: Callable[[], None]) -> None:
        self._simulation.at(self._simulation.now + ms, lambda: self._process.when_awake(act))

    def _partition(self, key: Key) -> Partition:
        return self._process.state.topics[key[0]].partitions[key[1]]

    def _needed(self, key: Key) -> int:
        """The ISR below which the high watermark stands still."""
        state = self._process.state
        text = state.topic_text(state.topics[key[0]], "min.insync.replicas")
        return min(int(text or 1), len(self._partition(key).replicas))
