"""One member of a classic group. A thread of its own joins, leads and says that it lives; the loop
that polls decides when partitions are given back and taken up, and calls the listeners.

    OUT --join--> JOINING --shared--> SHARED --take--> IN --rebalance--> REJOIN --join--> JOINING
     any --unknown, fenced, silent for a session, no poll for max.poll.interval.ms--> LOST --> OUT

The poll side calls `join`, `wait`, `take`, `lose`; the thread moves JOINING to SHARED, and IN to
REJOIN or LOST. What the thread meets and cannot mend is raised by the next `wait`.
Eager: everything is given back before `join`. Cooperative: the leader takes a partition away in one
rebalance and gives it to another in the next, which the member that lost it asks for.
Source: KIP-62 (heartbeats apart from polls), KIP-345 (static members), KIP-429 (cooperative).
Not done: the assignors' own user data; KIP-848.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from krust.clients.coordinator import Coordinator, Standing, check
from krust.coordinator import consumer_protocol
from krust.coordinator.assignors.spec import GroupSpec, MemberSpec, Topics, owners
from krust.coordinator.consumer_protocol import Assignment, Subscription, TopicPartition
from krust.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.coordinator.assignors.spec import Assignor

OUT, JOINING, SHARED, IN, REJOIN, LOST = "out", "joining", "shared", "in", "rejoin", "lost"
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED = 22, 25, 27, 79
AGAIN = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED})
MISSING_AGE_MS = 1000
"""How often a subscribed topic that does not exist yet is looked for."""


class Strategy(NamedTuple):
    """A way to share, as it is voted for."""

    name: str
    assignor: Assignor
    cooperative: bool


class Terms(NamedTuple):
    """What a member tells the group."""

    group_id: str
    instance_id: str | None
    rack: str | None
    session_ms: int
    heartbeat_ms: int
    max_poll_ms: int
    metadata_ms: int
    strategies: tuple[Strategy, ...]

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept through a rebalance: when every strategy can."""
        return all(strategy.cooperative for strategy in self.strategies)


class Membership:
    """A member and its thread, from the first `join` to `leave`."""

    def __init__(
        self, terms: Terms, options: Mapping[str, object], topics: Callable[[Any], dict[str, int]]
    ) -> None:
        """`topics`: asks a client what is subscribed to, as topic -> partitions (0: not there)."""
        self.terms = terms
        self.state = OUT
        self.assigned: tuple[TopicPartition, ...] = ()
        self.standing = Standing(-1, "", terms.instance_id)
        patience_ms = terms.session_ms
        # A join is answered when all have joined, anything else at once.
        self._asked = Coordinator(terms.group_id, options, terms.max_poll_ms + 5000, patience_ms)
        self._live = Coordinator(terms.group_id, options, patience_ms, patience_ms)
        self._topics = topics
        self._seen: dict[str, int] = {}
        self._owned: tuple[TopicPartition, ...] = ()
        self._error: BaseException | None = None
        self._ended = False
        self._news = threading.Condition()
        self._polled_s = self._heard_s = self._looked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="krust-member", daemon=True)

    def polled(self) -> None:
        """The application has come for records."""
        self._polled_s = time.monotonic()

    def join(self, owned: Sequence[TopicPartition]) -> None:
        """Enter the group, or its next generation, holding `owned` still."""
        with self._news:
            self._owned = tuple(owned)
            self.state = JOINING
            self._news.notify_all()
        if not self._thread.ident:
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait while the group is joined. Raises what the thread could not mend."""
        with self._news:
            if self.state == JOINING and self._error is None:
                self._news.wait(max(timeout_s, 0))
            error, self._error = self._error, None
            if error is not None:
                self.state = OUT
                raise error

    def take(self) -> None:
        """Say that the share is taken up, unless the group rebalances again by now."""
        with self._news:
            if self.state == SHARED:
                self.state = IN

    def rejoin(self) -> None:
        """Ask for another rebalance."""
        with self._news:
            if self.state == IN:
                self.state = REJOIN

    def lose(self) -> None:
        """What was owned is known to be lost."""
        with self._news:
            self.state = OUT

    def leave(self) -> None:
        """Let the others have what was ours, and end the thread. A static member stays."""
        with self._news:
            self._ended = True
            self._news.notify_all()
        self._asked.end()
        self._live.end()
        if self._thread.ident:
            self._thread.join()

    def left(self, asked: Coordinator) -> None:
        """Tell the group, after `leave`; not answered is gone as well, a session later."""
        member_id, instance_id = self.standing.member_id, self.terms.instance_id
        if member_id and instance_id is None:
            one = {"member_id": member_id}
            body = {"group_id": self.terms.group_id, **one, "members": [one]}
            asked.ask("LeaveGroup", body)

    def _run(self) -> None:
        while not self._ended:
            try:
                if self._is_joining():
                    self._join()
                    continue
                with self._news:
                    if not self._is_joining() and not self._ended:
                        self._news.wait(
                            self.terms.heartbeat_ms / 1000 if self._is_member() else None
                        )
                if self._is_member() and not self._is_joining() and not self._ended:
                    self._beat()
                    self._look()
            except KeyboardInterrupt:
                return  # `leave` ended a wait
            except UnreachableError as error:
                self._silent(error)
            except BaseException as error:
                self._fail(error)

    def _is_joining(self) -> bool:
        return self.state == JOINING and self._error is None

    def _is_member(self) -> bool:
        return self.standing.generation >= 0 and self.state not in (OUT, LOST)

    def _fail(self, error: BaseException) -> None:
        with self._news:
            self._error = error
            self._news.notify_all()

    def _silent(self, error: UnreachableError) -> None:
        """The coordinator does not answer: no error until a session has passed."""
        if time.monotonic() - self._heard_s > self.terms.session_ms / 1000:
            self._heard_s = time.monotonic()
            if self.state == JOINING:
                self._fail(error)
            else:
                self._move(LOST)
        with self._news:
            self._news.wait(0.1)

    def _move(self, state: str, *leaving: str) -> None:
        """Change the state, only from those of `leaving` where any is named."""
        with self._news:
            if not leaving or self.state in leaving:
                self.state = state
            self._news.notify_all()

    def _join(self) -> None:
        topics = self._topics(self._live.client)
        while self.state == JOINING and not self._ended:
            joined = self._asked_to_join(topics)
            self._heard_s = time.monotonic()
            code = joined["error_code"]
            if code == MEMBER_ID_REQUIRED:
                self._stand(-1, joined["member_id"])
            elif code == UNKNOWN_MEMBER:
                self._forgotten()
            elif code not in AGAIN:
                check(code, f"group {self.terms.group_id!r}")
                self._stand(joined["generation_id"], joined["member_id"])
                if self._synced(joined):
                    return

    def _stand(self, generation: int, member_id: str) -> None:
        self.standing = Standing(generation, member_id, self.terms.instance_id)

    def _forgotten(self) -> None:
        """The group does not know this member any more: what it owned may be another's."""
        self._stand(-1, "")
        self._owned = ()

    def _asked_to_join(self, topics: Mapping[str, int]) -> dict[str, Any]:
        terms = self.terms
        owned = self._owned if terms.cooperative else ()
        said = Subscription(
            tuple(sorted(topics)), None, owned, self.standing.generation, terms.rack
        )
        metadata = consumer_protocol.write_subscription(said)
        body = {
            "group_id": terms.group_id,
            "session_timeout_ms": terms.session_ms,
            "rebalance_timeout_ms": terms.max_poll_ms,
            "member_id": self.standing.member_id,
            "group_instance_id": terms.instance_id,
            "protocol_type": consumer_protocol.PROTOCOL_TYPE,
            "protocols": [{"name": one.name, "metadata": metadata} for one in terms.strategies],
        }
        self._seen = dict(topics)
        answer: dict[str, Any] = self._asked.ask("JoinGroup", body)
        return answer

    def _synced(self, joined: Mapping[str, Any]) -> bool:
        """Give out shares where this member leads, and take its own; False: join again."""
        leads = joined["leader"] == self.standing.member_id and not joined.get("skip_assignment")
        body = {
            "group_id": self.terms.group_id,
            "generation_id": self.standing.generation,
            "member_id": self.standing.member_id,
            "group_instance_id": self.terms.instance_id,
            "protocol_type": consumer_protocol.PROTOCOL_TYPE,
            "protocol_name": joined["protocol_name"],
            "assignments": self._shared(joined) if leads else [],
        }
        answer = self._asked.ask("SyncGroup", body)
        self._heard_s = time.monotonic()
        if answer["error_code"] == UNKNOWN_MEMBER:
            self._forgotten()
        if answer["error_code"] in AGAIN:
            return False
        check(answer["error_code"], f"group {self.terms.group_id!r}")
        share = consumer_protocol.read_assignment(answer["assignment"]).partitions
        with self._news:
            self.assigned = tuple(TopicPartition(*one) for one in share)
            self.state = SHARED
            self._news.notify_all()
        return True

    def _shared(self, joined: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The shares of all members, by the strategy the group elected."""
        [chosen] = [one for one in self.terms.strategies if one.name == joined["protocol_name"]]
        members = {}
        for member in joined["members"]:
            said = consumer_protocol.read_subscription(member["metadata"])
            members[member["member_id"]] = MemberSpec(
                frozenset(said.topics),
                member.get("group_instance_id"),
                said.rack,
                said.user_data,
                said.owned,
                said.generation,
            )
        names = sorted(frozenset[str]().union(*(member.topics for member in members.values())))
        counts = partition_counts(self._live.client, names)
        self._seen = {name: counts[name] for name in self._seen if name in counts} | counts
        group, topics = GroupSpec(members, self.terms.group_id), Topics(counts)
        shares = chosen.assignor.assign(group, topics)
        holders = owners(group, topics) if chosen.cooperative else {}
        given = []
        for member_id in members:
            ours = tuple(
                TopicPartition(*one)
                for one in shares.get(member_id, ())
                if holders.get(TopicPartition(*one), member_id) == member_id
            )
            data = consumer_protocol.write_assignment(Assignment(ours, None, 1))
            given.append({"member_id": member_id, "assignment": data})
        return given

    def _beat(self) -> None:
        terms, now = self.terms, time.monotonic()
        if now - self._polled_s > terms.max_poll_ms / 1000:
            self.left(self._live)
            self._forgotten()
            self._move(LOST)
            return
        body = {
            "group_id": self.terms.group_id,
            "generation_id": self.standing.generation,
            "member_id": self.standing.member_id,
            "group_instance_id": terms.instance_id,
        }
        code = self._live.ask("Heartbeat", body)["error_code"]
        self._heard_s = time.monotonic()
        if code == REBALANCING:
            self._move(REJOIN, IN, SHARED)
        elif code in (UNKNOWN_MEMBER, ILLEGAL_GENERATION):
            self._forgotten()
            self._move(LOST, IN, SHARED, REJOIN)
        else:
            check(code, f"group {terms.group_id!r}")

    def _look(self) -> None:
        """Compare what is subscribed to with what it was when this member joined."""
        age_ms = self.terms.metadata_ms
        if not all(self._seen.values()) or not self._seen:
            age_ms = min(age_ms, MISSING_AGE_MS)
        now = time.monotonic()
        if self.state != IN or now - self._looked_s < age_ms / 1000:
            return
        self._looked_s = now
        names = set(self._topics(self._live.client)) | set(self._seen)
        there = partition_counts(self._live.client, sorted(names))
        if {name: self._seen.get(name, 0) for name in names} != there:
            self._move(REJOIN, IN)


def partition_counts(client: Any, names: Sequence[str]) -> dict[str, int]:
    """How many partitions topics have; 0: it does not exist."""
    if not names:
        return {}
    body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    topics = client.request("Metadata", body)["topics"]
    counts = {topic["name"]: len(topic["partitions"]) for topic in topics}
    return {name: counts.get(name, 0) for name in names}
