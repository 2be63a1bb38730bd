"""A member of a classic group: it joins, and the leader assigns.

Eager: the member gives up all partitions before `join`. Cooperative: the leader takes a partition
from a member in one rebalance. That member asks for the next rebalance, in which the partition goes
to another member.
Source: KIP-429 (cooperative). Not done: user data of assignors.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from krust.clients.coordinator_client import CoordinatorClient, MemberIdentity, check
from krust.clients.membership import (
    COMPLETING_REBALANCE,
    LOST,
    MISSING_AGE_MS,
    PREPARING_REBALANCE,
    REJOIN_NEEDED,
    STABLE,
    Membership,
    partition_counts,
)
from krust.coordinator import consumer_protocol
from krust.coordinator.assignors.assignor import GroupSpec, MemberSpec, Topics, owners
from krust.coordinator.consumer_protocol import Assignment, Subscription, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krust.clients.membership import MembershipConfig

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED = 22, 25, 27, 79
REJOIN_CODES = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED})


class ClassicMembership(Membership):
    """A classic membership; see the module."""

    def __init__(
        self,
        config: MembershipConfig,
        options: Mapping[str, object],
        topics: Callable[[Any], dict[str, int]],
    ) -> None:
        super().__init__(config, options, topics)
        # A join is answered when all members have joined, other requests at once.
        answer_ms = config.max_poll_ms + 5000
        self._join_coordinator = CoordinatorClient(
            config.group_id, options, answer_ms, config.session_ms
        )
        self._joined_topics: dict[str, int] = {}

    def leave(self) -> None:
        """Leave, and end the connection for joins."""
        self._join_coordinator.end()
        super().leave()
        self._join_coordinator.close()

    def wait_for_new_epoch(self, identity: MemberIdentity) -> bool:
        """Never: an old generation stays refused."""
        return False

    def send_leave(self, coordinator: CoordinatorClient) -> None:
        """Send LeaveGroup, after `leave`. Without an answer the session expires later."""
        member_id, instance_id = self.identity.member_id, self.config.instance_id
        if member_id and instance_id is None:
            one = {"member_id": member_id}
            body = {"group_id": self.config.group_id, **one, "members": [one]}
            coordinator.ask("LeaveGroup", body)

    def _join(self) -> None:
        topics = self._topics(self._coordinator.client)
        while self.state == PREPARING_REBALANCE and not self._ended:
            joined = self._send_join(topics)
            self._last_response_s = time.monotonic()
            code = joined["error_code"]
            if code == MEMBER_ID_REQUIRED:
                self._set_identity(-1, joined["member_id"])
            elif code == UNKNOWN_MEMBER:
                self._reset_identity()
            elif code not in REJOIN_CODES:
                check(code, f"group {self.config.group_id!r}")
                self._set_identity(joined["generation_id"], joined["member_id"])
                if self._send_sync(joined):
                    return

    def _send_join(self, topics: Mapping[str, int]) -> dict[str, Any]:
        config = self.config
        owned = self._owned if config.cooperative else ()
        subscription = Subscription(
            tuple(sorted(topics)), None, owned, self.identity.generation, config.rack
        )
        metadata = consumer_protocol.write_subscription(subscription)
        body = {
            "group_id": config.group_id,
            "session_timeout_ms": config.session_ms,
            "rebalance_timeout_ms": config.max_poll_ms,
            "member_id": self.identity.member_id,
            "group_instance_id": config.instance_id,
            "protocol_type": consumer_protocol.PROTOCOL_TYPE,
            "protocols": [{"name": one.name, "metadata": metadata} for one in config.strategies],
        }
        self._joined_topics = dict(topics)
        answer: dict[str, Any] = self._join_coordinator.ask("JoinGroup", body)
        return answer

    def _send_sync(self, joined: Mapping[str, Any]) -> bool:
        """Send SyncGroup, with the assignments if this member leads. False: join again."""
        is_leader = joined["leader"] == self.identity.member_id and not joined.get(
            "skip_assignment"
        )
        body = {
            "group_id": self.config.group_id,
            "generation_id": self.identity.generation,
            "member_id": self.identity.member_id,
            "group_instance_id": self.config.instance_id,
            "protocol_type": consumer_protocol.PROTOCOL_TYPE,
            "protocol_name": joined["protocol_name"],
            "assignments": self._assign(joined) if is_leader else [],
        }
        answer = self._join_coordinator.ask("SyncGroup", body)
        self._last_response_s = time.monotonic()
        if answer["error_code"] == UNKNOWN_MEMBER:
            self._reset_identity()
        if answer["error_code"] in REJOIN_CODES:
            return False
        check(answer["error_code"], f"group {self.config.group_id!r}")
        assignment = consumer_protocol.read_assignment(answer["assignment"]).partitions
        with self._changed:
            self.assigned = tuple(TopicPartition(*one) for one in assignment)
            self.state = COMPLETING_REBALANCE
            self._changed.notify_all()
        return True

    def _assign(self, joined: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The assignments of all members, by the strategy that the group chose."""
        [chosen] = [one for one in self.config.strategies if one.name == joined["protocol_name"]]
        members = {}
        for member in joined["members"]:
            subscription = consumer_protocol.read_subscription(member["metadata"])
            members[member["member_id"]] = MemberSpec(
                frozenset(subscription.topics),
                member.get("group_instance_id"),
                subscription.rack,
                subscription.user_data,
                subscription.owned,
                subscription.generation,
            )
        names = sorted(frozenset[str]().union(*(member.topics for member in members.values())))
        counts = partition_counts(self._coordinator.client, names)
        self._joined_topics = {
            name: counts[name] for name in self._joined_topics if name in counts
        } | counts
        group, topics = GroupSpec(members, self.config.group_id), Topics(counts)
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

    def _heartbeat(self) -> None:
        if self._left_after_poll_timeout():
            return
        config = self.config
        body = {
            "group_id": self.config.group_id,
            "generation_id": self.identity.generation,
            "member_id": self.identity.member_id,
            "group_instance_id": config.instance_id,
        }
        code = self._coordinator.ask("Heartbeat", body)["error_code"]
        self._last_response_s = time.monotonic()
        if code == REBALANCING:
            self._transition_to(REJOIN_NEEDED, STABLE, COMPLETING_REBALANCE)
        elif code in (UNKNOWN_MEMBER, ILLEGAL_GENERATION):
            self._reset_identity()
            self._transition_to(LOST, STABLE, COMPLETING_REBALANCE, REJOIN_NEEDED)
        else:
            check(code, f"group {config.group_id!r}")

    def _check_metadata(self) -> None:
        """Rejoin if the subscribed topics have changed since this member joined."""
        age_ms = self.config.metadata_ms
        if not all(self._joined_topics.values()) or not self._joined_topics:
            age_ms = min(age_ms, MISSING_AGE_MS)
        now = time.monotonic()
        if self.state != STABLE or now - self._metadata_checked_s < age_ms / 1000:
            return
        self._metadata_checked_s = now
        names = set(self._topics(self._coordinator.client)) | set(self._joined_topics)
        there = partition_counts(self._coordinator.client, sorted(names))
        if {name: self._joined_topics.get(name, 0) for name in names} != there:
            self._transition_to(REJOIN_NEEDED, STABLE)
