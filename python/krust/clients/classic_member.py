"""A member of a classic group: it joins, and the leader shares.

Eager: everything is given back before `join`. Cooperative: the leader takes a partition away in one
rebalance and gives it to another in the next, which the member that lost it asks for.
Source: KIP-429 (cooperative). Not done: the assignors' own user data.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from krust.clients.coordinator import Coordinator, Standing, check
from krust.clients.membership import (
    IN,
    JOINING,
    LOST,
    MISSING_AGE_MS,
    REJOIN,
    SHARED,
    Membership,
    partition_counts,
)
from krust.coordinator import consumer_protocol
from krust.coordinator.assignors.spec import GroupSpec, MemberSpec, Topics, owners
from krust.coordinator.consumer_protocol import Assignment, Subscription, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krust.clients.membership import Terms

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED = 22, 25, 27, 79
AGAIN = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED})


class ClassicMembership(Membership):
    """See the module."""

    def __init__(
        self, terms: Terms, options: Mapping[str, object], topics: Callable[[Any], dict[str, int]]
    ) -> None:
        super().__init__(terms, options, topics)
        # A join is answered when all have joined, anything else at once.
        answer_ms = terms.max_poll_ms + 5000
        self._asked = Coordinator(terms.group_id, options, answer_ms, terms.session_ms)
        self._seen: dict[str, int] = {}

    def leave(self) -> None:
        """As every member, and end the connection of its own that joins."""
        self._asked.end()
        super().leave()
        self._asked.close()

    def renewed(self, standing: Standing) -> bool:
        """Never: a generation that is over is over."""
        return False

    def left(self, asked: Coordinator) -> None:
        """Tell the group, after `leave`; not answered is gone as well, a session later."""
        member_id, instance_id = self.standing.member_id, self.terms.instance_id
        if member_id and instance_id is None:
            one = {"member_id": member_id}
            body = {"group_id": self.terms.group_id, **one, "members": [one]}
            asked.ask("LeaveGroup", body)

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
        if self._has_gone():
            return
        terms = self.terms
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
