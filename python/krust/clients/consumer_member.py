"""A member of a consumer group (KIP-848): the broker assigns, the member reconciles.

One request does everything: it joins (epoch 0), keeps the session alive, reports the subscription
and the owned partitions, and leaves (epoch -1; a static member -2, so that its successor gets its
partitions). Fields that have not changed since the last response are left out. After a lost
response all fields are sent. An assignment that arrives while another is being applied replaces it.
After partitions are revoked a heartbeat follows at once, because another member waits for them.
Source: KIP-848. The assignment has topic ids; the member looks up the names of unknown ids. Not
done: the broker's regular expressions. Patterns are evaluated by the client, as in a classic
    group.
"""

from __future__ import annotations

import base64
import time
import uuid
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
)
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.clients.membership import MembershipConfig

UNKNOWN_MEMBER, UNSUPPORTED, FENCED_EPOCH, STALE_EPOCH = 25, 35, 110, 113
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
_RENEWAL_S = 5.0


class ConsumerMembership(Membership):
    """A membership in a consumer group; see the module."""

    def __init__(
        self,
        config: MembershipConfig,
        options: Mapping[str, object],
        topics: Callable[[Any], dict[str, int]],
    ) -> None:
        super().__init__(config, options, topics)
        self._member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._ids: dict[str, str] = {}
        self._names: tuple[str, ...] = ()
        self._target_assignment: list[dict[str, Any]] = []
        self._last_sent: dict[str, object] = {}

    def on_assignment_applied(self, assignment: tuple[TopicPartition, ...]) -> None:
        """Report that this assignment was applied, unless there is a newer one."""
        with self._changed:
            super().on_assignment_applied(assignment)
            self._owned = assignment
            self._heartbeat_now()

    def request_rejoin(self) -> None:
        """Report the current subscription at once."""
        with self._changed:
            self._metadata_checked_s = 0
            self._heartbeat_now()

    def wait_for_new_epoch(self, identity: MemberIdentity) -> bool:
        """Whether the epoch has changed; sends a heartbeat and waits a few seconds."""
        until = time.monotonic() + _RENEWAL_S
        with self._changed:
            while self.identity == identity and self._is_member():
                self._heartbeat_now()
                self._changed.wait(0.05)
                if time.monotonic() > until:
                    return False
            return self._is_member()

    def send_leave(self, coordinator: CoordinatorClient) -> None:
        """Tell the group, after `leave`. Without an answer the session expires later."""
        if self.identity.generation >= 0:
            epoch = LEAVE_EPOCH if self.config.instance_id is None else LEAVE_STATIC_EPOCH
            coordinator.ask("ConsumerGroupHeartbeat", self._body() | {"member_epoch": epoch})

    def _join(self) -> None:
        self._names = tuple(sorted(self._topics(self._coordinator.client)))
        while self.state == PREPARING_REBALANCE and not self._ended:
            self._reset_identity()
            self._last_sent = {}
            if not self._send_heartbeat({"topic_partitions": []}):
                self._coordinator.pause()
            elif self.state == PREPARING_REBALANCE:
                self._offer_assignment(())

    def _heartbeat(self) -> None:
        if self._left_after_poll_timeout():
            return
        owned = _by_topic(self._owned, self._ids)
        if not self._send_heartbeat({"topic_partitions": owned}):
            self._reset_identity()
            self._transition_to(LOST, STABLE, COMPLETING_REBALANCE, REJOIN_NEEDED)

    def _check_metadata(self) -> None:
        age_ms = self.config.metadata_ms if self._names else MISSING_AGE_MS
        now = time.monotonic()
        if now - self._metadata_checked_s < age_ms / 1000:
            return
        self._metadata_checked_s = now
        names = tuple(sorted(self._topics(self._coordinator.client)))
        if names != self._names:
            self._names = names
            with self._changed:
                self._heartbeat_now()

    def _heartbeat_now(self) -> None:
        self._heartbeat_due = True
        self._changed.notify_all()

    def _send_heartbeat(self, owned: Mapping[str, object]) -> bool:
        """Send a heartbeat with the changed fields. False: the group does not know this member."""
        config = self.config
        fields = {
            "instance_id": config.instance_id,
            "rack_id": config.rack,
            "rebalance_timeout_ms": config.max_poll_ms,
            "subscribed_topic_names": list(self._names),
            "server_assignor": config.remote_assignor,
            **owned,
        }
        last_sent, self._last_sent = self._last_sent, {}
        changed = {
            name: value for name, value in fields.items() if last_sent.get(name, ...) != value
        }
        answer = self._coordinator.ask("ConsumerGroupHeartbeat", self._body() | changed)
        self._last_response_s = time.monotonic()
        if answer["error_code"] in (UNKNOWN_MEMBER, FENCED_EPOCH):
            return False
        if answer["error_code"] == UNSUPPORTED:
            raise ConfigError(
                f"group {config.group_id!r}: this broker serves no consumer groups (KIP-848)",
                hint="set group.protocol=classic",
            )
        check(answer["error_code"], f"group {config.group_id!r}")
        self._last_sent = fields
        self._heartbeat_s = answer["heartbeat_interval_ms"] / 1000
        with self._changed:
            if not self._ended:
                self._set_identity(answer["member_epoch"], self._member_id)
            self._changed.notify_all()
        if answer["assignment"] is not None:
            self._target_assignment = answer["assignment"]["topic_partitions"]
        self._resolve_assignment(answer["assignment"] is not None)
        return True

    def _body(self) -> dict[str, Any]:
        return {
            "group_id": self.config.group_id,
            "member_id": self._member_id,
            "member_epoch": max(self.identity.generation, JOIN_EPOCH),
            "instance_id": self.config.instance_id,
        }

    def _resolve_assignment(self, is_new: bool) -> None:
        """Hand the assignment to the polling side once the names of all its topics are known."""
        unknown = [
            one["topic_id"] for one in self._target_assignment if one["topic_id"] not in self._ids
        ]
        if unknown:
            self._ids |= _topic_names(self._coordinator.client, unknown)
        elif not is_new:
            return
        self._offer_assignment(
            tuple(
                TopicPartition(self._ids[one["topic_id"]], partition)
                for one in self._target_assignment
                if one["topic_id"] in self._ids
                for partition in one["partitions"]
            )
        )

    def _offer_assignment(self, assignment: tuple[TopicPartition, ...]) -> None:
        with self._changed:
            if self.state == PREPARING_REBALANCE or assignment != self.assigned:
                self.assigned = assignment
                self.state = COMPLETING_REBALANCE
            self._changed.notify_all()


def _topic_names(client: Any, ids: Sequence[str]) -> dict[str, str]:
    """Topic id -> name. Deleted topics are left out."""
    body = {"topics": [{"topic_id": one, "name": None} for one in ids]}
    topics = client.request("Metadata", body)["topics"]
    return {topic["topic_id"]: topic["name"] for topic in topics if not topic["error_code"]}


def _by_topic(
    places: Sequence[TopicPartition], names: Mapping[str, str]
) -> list[dict[str, object]]:
    """Partitions as the request has them: by topic id, sorted."""
    ids = {name: topic_id for topic_id, name in names.items()}
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(ids[topic], []).append(partition)
    return [{"topic_id": topic_id, "partitions": ps} for topic_id, ps in topics.items()]
