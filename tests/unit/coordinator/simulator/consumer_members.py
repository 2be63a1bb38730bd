"""Members of groups with both protocols: `ConsumerMember`, and members that send real bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.coordinator.consumer.member import group_by_topic, partitions_of
from krust.coordinator.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from krust.errors import Code
from krust.messages import Message
from krust.messages.consumer_group_current_member_assignment_value import TopicPartitions
from tests.unit.coordinator.simulator.clients import RETRY, SimulatedMember

if TYPE_CHECKING:
    from tests.unit.coordinator.simulator.mixed import MixedGroupSimulation


class ConvertingMember(SimulatedMember):
    """A classic member that sends real subscription bytes; eager or cooperative."""

    simulation: MixedGroupSimulation

    def __init__(
        self, simulation: MixedGroupSimulation, name: str, group_id: str, instance: str | None
    ) -> None:
        super().__init__(simulation, name, group_id, instance)
        self.rebalance_ms = self.session_ms + simulation.rng.randrange(12_000)
        if self.version == 0:
            self.rebalance_ms = self.session_ms
        self.cooperates = simulation.cooperates
        self.protocols = ("cooperative-sticky",) if self.cooperates else ("range",)
        self.topics = simulation.rng.choice((("t",), ("t", "u0"), ("t",)))
        if instance:  # one that is back may not ask for more: its leader would not learn of it
            self.topics = ("t",)

    def release_assignment(self) -> None:
        if not self.cooperates:
            self.owned = frozenset()

    def metadata(self) -> bytes:
        owned = sorted(TopicPartition(self.simulation.name_of(each), n) for each, n in self.owned)
        return write_subscription(Subscription(self.topics, None, tuple(owned), self.generation))

    def share(self, members: list[Message]) -> dict[str, bytes]:
        """Give each partition to one subscriber, after its owner has given it up."""
        subscriptions = {each["member_id"]: read_subscription(each["metadata"]) for each in members}
        holders = {place: key for key, each in subscriptions.items() for place in each.owned}
        shares: dict[str, list[TopicPartition]] = {key: [] for key in subscriptions}
        for topic, count in self.simulation.cluster.counts.items():
            wanting = [key for key, each in subscriptions.items() if topic in each.topics]
            for number in range(count if wanting else 0):
                place = TopicPartition(topic, number)
                chosen = wanting[number % len(wanting)]
                if holders.get(place, chosen) == chosen:
                    shares[chosen].append(place)
        return {key: write_assignment(Assignment(tuple(each))) for key, each in shares.items()}

    def receive_assignment(self, data: bytes) -> None:
        given = frozenset(
            (self.simulation.id_of(each.topic), each.partition)
            for each in read_assignment(data).partitions
        )
        revoked = self.owned - given
        self.owned = given
        if revoked:
            self.simulation.later(self.simulation.rng.randrange(50, 1500), self.rejoin)

    def rejoin(self) -> None:
        """It has revoked its partitions."""
        if self.state == "member" and not self.ticket:
            self.join()

    def notice(self) -> None:
        """It notices that the partitions of its topics changed."""
        if self.state == "member" and not self.ticket:
            self.join()
        elif self.state != "gone":
            self.simulation.later(500, self.notice)


class ConsumerMember:
    """A member of the consumer protocol. It reads what it owns until it has revoked it."""

    is_arbitrary = False

    def __init__(
        self, simulation: MixedGroupSimulation, name: str, group_id: str, instance: str | None
    ) -> None:
        rng = simulation.rng
        self.simulation, self.name, self.group_id, self.instance = (
            simulation,
            name,
            group_id,
            instance,
        )
        self.session_ms = simulation.settings.session_timeout_ms
        self.rebalance_ms = rng.randrange(4000, 15_000)
        self.connection = simulation.new_connection()
        self.state = "joining"
        self.member_id = f"{name}-reader"
        self.epoch = 0
        self.owned: frozenset[tuple[str, int]] = frozenset()
        self.goal: frozenset[tuple[str, int]] | None = None
        self.subscriptions: frozenset[tuple[str, int]] | None = None
        self.ticket = 0
        self.all = True
        self.slow = not simulation.fault_free and rng.random() < 0.3
        self.changed = False
        self.regex = rng.choice((None, None, "u.*"))
        self.names: list[str] = rng.choice((["t"], ["t", "u0"], ["t"]))
        self.assignor = rng.choice((None, None, "uniform", "range", "mine"))
        self.revokes = False
        self.patience_ms = rng.choice((9000, 30_000))
        self.round = 0
        simulation.later(rng.randrange(3000), self.heartbeat)

    @property
    def generation(self) -> int:
        return self.epoch

    def wants(self) -> set[str]:
        """The topics it subscribes to."""
        names = set(self.names)
        if self.regex:
            names |= set(self.simulation.cluster.match(self.regex))
        return names

    # -- what it says

    def heartbeat(self) -> None:
        """Send the next heartbeat; abandon the one in flight."""
        self.round += 1
        if self.state == "gone":
            return
        self.ticket = 0
        message = self.message()
        answer = self.simulation.quick(self, message)
        if answer is not None:
            self._on_heartbeat_reply(answer)
        else:
            self.ticket = self.simulation.request(self, "ConsumerGroupHeartbeat", 1, message)
            self._after(self.patience_ms, self._on_request_timeout)

    def message(self) -> Message:
        """The changed fields; all fields when it joins or is not sure."""
        everything = self.all or self.epoch == 0
        new = self.changed
        owned: list[TopicPartitions] | None = None
        if self.epoch == 0:
            owned = []
        elif everything or self.owned != self.subscriptions:
            owned = group_by_topic(self.owned)
        self.subscriptions = self.owned
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rack_id": None,
            "rebalance_timeout_ms": self.rebalance_ms if everything else -1,
            "subscribed_topic_names": list(self.names) if everything or new else None,
            "subscribed_topic_regex": (self.regex or "") if everything or new else None,
            "server_assignor": self.assignor if everything else None,
            "topic_partitions": owned,
        }

    def leave(self) -> None:
        if self.state == "gone":
            return
        back = self.instance is not None and self.simulation.chance(0.5)
        self.owned = frozenset()
        if self.epoch > 0:
            message = {**self.message(), "member_epoch": -2 if back else -1}
            self.simulation.request(self, "ConsumerGroupHeartbeat", 1, message)
        self.die(closes=False)

    def die(self, *, closes: bool = True) -> None:
        """Die without leaving the group."""
        self.state, self.owned, self.ticket = "gone", frozenset(), 0
        self.round += 1
        if closes:
            self.simulation.close(self.connection)

    def subscribe(self) -> None:
        """Subscribe to other topics."""
        rng = self.simulation.rng
        self.regex = rng.choice((None, "u.*", "u1"))
        self.names = rng.choice((["t"], ["t", "u0"], ["u0", "u1"]))
        self.changed = True

    # -- what it hears

    def on_reply(self, ticket: int, reply: Message) -> None:
        """Take an answer; answers to abandoned requests are ignored."""
        if ticket == self.ticket and self.state != "gone":
            self.ticket = 0
            self._on_heartbeat_reply(reply)

    def lost_connection(self) -> None:
        if self.state != "gone":
            self.ticket, self.all = 0, True
            self.connection = self.simulation.new_connection()
            self._after(self.simulation.rng.randrange(50, 500), self.heartbeat)

    def _on_request_timeout(self) -> None:
        self.all = True
        self.heartbeat()

    def _on_heartbeat_reply(self, reply: Message) -> None:
        code = reply["error_code"]
        if code != Code.NONE:
            self._refused(code)
            return
        self.state, self.all, self.changed = "member", False, False
        self.epoch = reply["member_epoch"]
        if reply["assignment"] is not None:
            self.goal = partitions_of(reply["assignment"]["topic_partitions"])
            self._adopt_assignment(self.goal)
        self.simulation.checks.owners(self.group_id)
        if self.simulation.chance(0.2):
            self.simulation.commit(self)
        if not self.simulation.draining and self.simulation.chance(0.03):
            self.subscribe()
        pause = reply["heartbeat_interval_ms"]
        if self.slow and self.simulation.chance(0.05):
            pause = self.simulation.rng.randrange(25_000)
        self._after(pause, self.heartbeat)

    def _adopt_assignment(self, goal: frozenset[tuple[str, int]]) -> None:
        """Revoke first, which takes a while; then read the new partitions."""
        if self.owned - goal:
            if not self.revokes:
                self.revokes = True
                longest = 20_000 if self.slow and self.simulation.chance(0.2) else 1500
                self.simulation.later(
                    self.simulation.rng.randrange(longest), self._revoked(self.epoch)
                )
        else:
            self.owned = goal

    def _revoked(self, epoch: int) -> Any:
        def done() -> None:
            self.revokes = False
            if self.state == "member" and self.goal is not None:
                self.owned &= self.goal
                if self.owned != self.subscriptions and not self.ticket:
                    self.heartbeat()
                self.owned = self.goal if self.owned == self.subscriptions else self.owned

        return done

    def _refused(self, code: int) -> None:
        delay = self.simulation.rng.randrange(20, 300)
        self.all = True
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND):
            if code != Code.GROUP_ID_NOT_FOUND:
                self.simulation.checks.evicted(self)
            self.epoch, self.owned, self.goal = 0, frozenset(), None
            self.state = "joining"
        elif code == Code.FENCED_INSTANCE_ID or (
            code == Code.UNRELEASED_INSTANCE_ID and self._is_replaced()
        ):
            self.die()
            return
        elif code in RETRY:
            delay += 200
        else:  # the group is full, or the instance id not free yet
            delay += 2000
        self._after(delay, self.heartbeat)

    def _is_replaced(self) -> bool:
        others = [each for each in self.simulation.clients if each.state != "gone"]
        return sum(each.instance == self.instance for each in others) > 1

    def _after(self, ms: int, act: Any) -> None:
        mine = self.round

        def unless_overtaken() -> None:
            if self.round == mine and self.state != "gone":
                act()

        self.simulation.later(ms, unless_overtaken)


class ArbitraryConsumerMember(ConsumerMember):
    """Sends arbitrary requests, under ids that are not another client's."""

    is_arbitrary = True

    def message(self) -> Message:
        rng = self.simulation.rng
        message = dict(super().message())
        if self.simulation.draining or rng.random() < 0.4:
            return message
        others = [each.instance for each in self.simulation.clients if each.instance]
        lie = rng.randrange(6)
        if lie == 0:
            message["member_epoch"] = rng.randrange(-3, self.epoch + 3)
        elif lie == 1 and others:
            message["instance_id"] = rng.choice(others)
        elif lie == 2:
            message["topic_partitions"] = group_by_topic(
                [("nowhere", 3), (self.simulation.id_of("t"), 99)]
            )
        elif lie == 3:
            message["member_id"] = rng.choice(("", "nobody"))
        elif lie == 4:
            message["subscribed_topic_regex"] = "["
        else:
            message["server_assignor"] = "nobody's"
        return message
