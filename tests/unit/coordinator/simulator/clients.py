"""Members of a simulated group: correct, slow, dying, static, and one with arbitrary requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.errors import Code
from krust.messages import Message

if TYPE_CHECKING:
    from tests.unit.coordinator.simulator.simulation import GroupSimulation

PARTITIONS = 8
RETRY = (
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.UNKNOWN_SERVER_ERROR,
)


def shared(members: list[str]) -> dict[str, bytes]:
    """Give each partition to one of them."""
    parts = {each: range(n, PARTITIONS, len(members)) for n, each in enumerate(members)}
    return {
        each: b",".join(b"%d" % part for part in partitions) for each, partitions in parts.items()
    }


class SimulatedMember:
    """A consumer's coordinator half. `state`: joining, syncing, member, gone."""

    is_arbitrary = False

    def __init__(
        self, simulation: GroupSimulation, name: str, group_id: str, instance: str | None
    ) -> None:
        rng = simulation.rng
        self.simulation, self.name, self.group_id, self.instance = (
            simulation,
            name,
            group_id,
            instance,
        )
        self.version = rng.randrange(5, 10) if instance else rng.randrange(10)
        self.session_ms = rng.randrange(6000, 12_000)
        self.rebalance_ms = self.session_ms + rng.randrange(12_000)
        if self.version == 0:
            self.rebalance_ms = self.session_ms
        self.protocols = rng.choice((("range",), ("range", "sticky"), ("sticky", "range")))
        self.connection = simulation.new_connection()
        self.state = "joining"
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[Any] = frozenset()
        self.ticket = 0
        self.slow = not simulation.fault_free and rng.random() < 0.3
        self.meta = b"0"
        self.steps = 0
        simulation.later(rng.randrange(3000), self.join)

    # -- what it says

    def say(self, api: str, version: int, message: Message) -> int:
        return self.simulation.request(self, api, version, message)

    def join(self) -> None:
        if self.state == "gone":
            return
        self.state = "joining"
        self.release_assignment()
        self.ticket = self.say("JoinGroup", self.version, self.join_message())
        if self.slow and self.simulation.chance(0.2):  # it lost patience and asks again
            self.simulation.later(
                self.simulation.rng.randrange(4000), self._again(self.ticket, self.join)
            )

    def release_assignment(self) -> None:
        """Called before a join: an eager member has then given up everything."""
        self.owned = frozenset()

    def metadata(self) -> bytes:
        return self.meta

    def share(self, members: list[Message]) -> dict[str, bytes]:
        """The assignment that it makes as the leader."""
        names = [each["member_id"] for each in members]
        self.simulation.rng.shuffle(names)
        return shared(names)

    def receive_assignment(self, data: bytes) -> None:
        """Take the assigned partitions."""
        self.owned = frozenset(int(each) for each in data.split(b",") if each)

    def _again(self, ticket: int, act: Any) -> Any:
        def unless_answered() -> None:
            if self.ticket == ticket and not self.simulation.draining:
                act()

        return unless_answered

    def join_message(self) -> Message:
        return {
            "group_id": self.group_id,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms if self.version else -1,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.simulation.kind,
            "protocols": [{"name": each, "metadata": self.metadata()} for each in self.protocols],
            "reason": "r" if self.version >= 8 else None,
        }

    def sync(self, given: dict[str, bytes]) -> None:
        if self.state != "syncing":
            return
        version = min(5, max(0, self.version - 2)) if not self.instance else 5
        message = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.simulation.kind if version == 5 else None,
            "protocol_name": self.protocol if version == 5 else None,
            "assignments": [
                {"member_id": each, "assignment": data} for each, data in given.items()
            ],
        }
        self.ticket = self.say("SyncGroup", version, message)
        if self.slow and self.simulation.chance(0.2):
            again = self._again(self.ticket, lambda: self.sync(given))
            self.simulation.later(self.simulation.rng.randrange(4000), again)

    def leave(self) -> None:
        if self.state == "gone" or not self.member_id:
            return
        version = self.simulation.rng.randrange(3, 6) if self.version >= 5 else self.version % 3
        message: dict[str, Any] = {"group_id": self.group_id, "member_id": self.member_id}
        if version >= 3:
            who = {"member_id": self.member_id, "group_instance_id": self.instance}
            message["members"] = [who]
        self.say("LeaveGroup", version, message)
        self.die(closes=False)

    def die(self, *, closes: bool = True) -> None:
        """Die without a LeaveGroup."""
        self.state, self.owned, self.ticket = "gone", frozenset(), 0
        if closes:
            self.simulation.close(self.connection)

    # -- what it hears

    def on_reply(self, ticket: int, reply: Message) -> None:
        """Take an answer; answers to abandoned requests are ignored."""
        if ticket != self.ticket or self.state == "gone":
            return
        self.ticket = 0
        code = reply["error_code"]
        if "generation_id" in reply and code == Code.NONE:
            self._joined(reply)
        elif "assignment" in reply and code == Code.NONE:
            self._synced(reply)
        else:
            self._refused(code, reply)

    def lost_connection(self) -> None:
        if self.state != "gone":
            self.ticket = 0
            self.connection = self.simulation.new_connection()
            self.simulation.later(self.simulation.rng.randrange(50, 500), self.join)

    def _joined(self, reply: Message) -> None:
        self.state = "syncing"
        self.member_id, self.generation = reply["member_id"], reply["generation_id"]
        self.protocol = reply["protocol_name"]
        leads = reply["leader"] == self.member_id
        given: dict[str, bytes] = {}
        if leads and not reply["skip_assignment"]:
            given = self.share(reply["members"])
        self._schedule_heartbeats()
        longest = 0.8 * (min(self.rebalance_ms, 9000) if leads else 2000)
        quick = self.simulation.chance(0.6)
        think = self.simulation.rng.randrange(20 if quick else int(longest))
        if self.slow and self.simulation.chance(0.3):
            think = 40_000  # alive, but it does not sync
        joined = (self.member_id, self.generation)

        def act() -> None:
            if (self.member_id, self.generation) == joined and not self.ticket:
                self.sync(given)

        self.simulation.later(think, act)

    def _synced(self, reply: Message) -> None:
        self.state = "member"
        self.receive_assignment(reply["assignment"])
        self.simulation.checks.owners(self.group_id)
        pause = 0
        if self.slow and self.simulation.chance(0.1):
            pause = self.simulation.rng.randrange(30_000)
        self._schedule_heartbeats(pause)

    def _refused(self, code: int, reply: Message) -> None:
        delay = self.simulation.rng.randrange(20, 300)
        if code == Code.MEMBER_ID_REQUIRED:
            self.member_id = reply["member_id"]
            delay = 1
        elif code == Code.FENCED_INSTANCE_ID:
            return self.die()
        elif code == Code.UNKNOWN_MEMBER_ID:
            self.simulation.checks.evicted(self)
            self.member_id = ""
        elif code in RETRY:
            delay += 200
        elif code == Code.GROUP_MAX_SIZE_REACHED:
            self.member_id = ""
            delay += 3000
        elif code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self.protocols = ("range", "sticky")
            delay += 1000
        self.owned = frozenset()
        self.state = "joining"
        self.simulation.later(delay, self._if_idle(self.join))
        return None

    def _if_idle(self, act: Any) -> Any:
        def idle() -> None:
            if not self.ticket and self.state == "joining":
                act()

        return idle

    def _schedule_heartbeats(self, pause: int = 0) -> None:
        self.steps += 1
        partitions = self.steps

        def heartbeat() -> None:
            if self.steps != partitions or self.state not in ("member", "syncing") or self.ticket:
                return
            code = self.simulation.heartbeat(self)
            if code == Code.NONE or code in RETRY:
                if self.simulation.chance(0.3):
                    self.simulation.commit(self)
                calls = self.state == "member" and not self.simulation.draining
                if calls and self.simulation.chance(0.05):
                    self.meta = b"%d" % self.simulation.rng.randrange(3)
                    self.join()
                    return
                self.simulation.later(self.session_ms // 3, heartbeat)
            elif code == Code.REBALANCE_IN_PROGRESS:
                if self.slow and self.simulation.chance(0.7):  # alive, but busy with its records
                    self.simulation.later(self.session_ms // 3, heartbeat)
                else:
                    self.join()
            else:
                self._refused(code, {})

        self.simulation.later(pause + self.session_ms // 3, heartbeat)


class ArbitraryMember(SimulatedMember):
    """Sends arbitrary requests, under ids that are not another client's."""

    is_arbitrary = True

    def __init__(
        self, simulation: GroupSimulation, name: str, group_id: str, instance: str | None
    ) -> None:
        super().__init__(simulation, name, group_id, instance)
        simulation.later(simulation.rng.randrange(5000), self.send_arbitrary_request)

    def send_arbitrary_request(self) -> None:
        rng = self.simulation.rng
        if self.simulation.draining:
            return self.die()
        generation = max(0, self.generation + rng.randrange(-2, 3))
        member_id = rng.choice((self.member_id, "", "nobody", self.member_id + "x"))
        base: dict[str, Any] = {"group_id": self.group_id, "member_id": member_id}
        kind = rng.randrange(4)
        others = [each.instance for each in self.simulation.clients if each.instance]
        if member_id not in ("", self.member_id) and others and kind < 2:
            base["group_instance_id"] = rng.choice(others)
        if kind == 0:
            stranger = {"group_instance_id": rng.choice((None, "i?"))}
            message = {**stranger, **base, "generation_id": generation, "assignments": []}
            self.say("SyncGroup", rng.randrange(6), message)
        elif kind == 1:
            message = {**self.join_message(), **base}
            message["session_timeout_ms"] = rng.choice((-1, 0, 6000, 2**31 - 1))
            message["rebalance_timeout_ms"] = rng.choice((-1, 0, 1, 15_000))
            message["protocols"] *= rng.randrange(3)
            self.say("JoinGroup", rng.randrange(10), message)
        elif kind == 2:
            who = {"member_id": member_id, "group_instance_id": rng.choice((None, "i?"))}
            self.say("LeaveGroup", rng.randrange(3, 6), {**base, "members": [who] * 2})
        else:
            self.say("DeleteGroups", 2, {"groups_names": [self.group_id]})
        self.simulation.later(rng.randrange(200, 5000), self.send_arbitrary_request)
        return None
