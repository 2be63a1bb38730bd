"""A member of a consumer group (KIP-848): the broker shares, the member comes to its share.

One request does all: it joins (epoch 0), says that the member lives, what it reads, what it owns,
and leaves (epoch -1; a static member -2, so that its successor finds its share). What has not
changed since the last answer is not said again; after an answer that was lost, all is.
A share that comes while another is taken up replaces it. What was given back is told by the
heartbeat that follows at once, since another member waits for it.
Source: KIP-848. Topics come by id; one that this client has not heard of is looked up.
Not done: regular expressions of the broker's (patterns are the client's, as in a classic group).
"""

from __future__ import annotations

import base64
import time
import uuid
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
)
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.clients.membership import Terms

UNKNOWN_MEMBER, UNSUPPORTED, FENCED_EPOCH, STALE_EPOCH = 25, 35, 110, 113
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
_RENEWAL_S = 5.0


class ConsumerMembership(Membership):
    """See the module."""

    def __init__(
        self, terms: Terms, options: Mapping[str, object], topics: Callable[[Any], dict[str, int]]
    ) -> None:
        super().__init__(terms, options, topics)
        self._member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._ids: dict[str, str] = {}
        self._names: tuple[str, ...] = ()
        self._given: list[dict[str, Any]] = []
        self._told: dict[str, object] = {}

    def take(self, share: tuple[TopicPartition, ...]) -> None:
        """Say that this share is taken up, unless there is another one by now."""
        with self._news:
            super().take(share)
            self._owned = share
            self._hurry()

    def rejoin(self) -> None:
        """Say at once what is subscribed to by now."""
        with self._news:
            self._looked_s = 0
            self._hurry()

    def renewed(self, standing: Standing) -> bool:
        """Whether the epoch has moved on; asks for it, and waits a few seconds."""
        until = time.monotonic() + _RENEWAL_S
        with self._news:
            while self.standing == standing and self._is_member():
                self._hurry()
                self._news.wait(0.05)
                if time.monotonic() > until:
                    return False
            return self._is_member()

    def left(self, asked: Coordinator) -> None:
        """Tell the group, after `leave`; not answered is gone as well, a session later."""
        if self.standing.generation >= 0:
            epoch = LEAVES if self.terms.instance_id is None else LEAVES_FOR_A_WHILE
            asked.ask("ConsumerGroupHeartbeat", self._body() | {"member_epoch": epoch})

    def _join(self) -> None:
        self._names = tuple(sorted(self._topics(self._live.client)))
        while self.state == JOINING and not self._ended:
            self._forgotten()
            self._told = {}
            if not self._said({"topic_partitions": []}):
                self._live.pause()
            elif self.state == JOINING:
                self._shared(())

    def _beat(self) -> None:
        if self._has_gone():
            return
        owned = _by_topic(self._owned, self._ids)
        if not self._said({"topic_partitions": owned}):
            self._forgotten()
            self._move(LOST, IN, SHARED, REJOIN)

    def _look(self) -> None:
        age_ms = self.terms.metadata_ms if self._names else MISSING_AGE_MS
        now = time.monotonic()
        if now - self._looked_s < age_ms / 1000:
            return
        self._looked_s = now
        names = tuple(sorted(self._topics(self._live.client)))
        if names != self._names:
            self._names = names
            with self._news:
                self._hurry()

    def _hurry(self) -> None:
        self._due = True
        self._news.notify_all()

    def _said(self, more: Mapping[str, object]) -> bool:
        """Send a heartbeat with what is new; False: the group does not know this member."""
        terms = self.terms
        facts = {
            "instance_id": terms.instance_id,
            "rack_id": terms.rack,
            "rebalance_timeout_ms": terms.max_poll_ms,
            "subscribed_topic_names": list(self._names),
            "server_assignor": terms.remote_assignor,
            **more,
        }
        told, self._told = self._told, {}
        news = {name: value for name, value in facts.items() if told.get(name, ...) != value}
        answer = self._live.ask("ConsumerGroupHeartbeat", self._body() | news)
        self._heard_s = time.monotonic()
        if answer["error_code"] in (UNKNOWN_MEMBER, FENCED_EPOCH):
            return False
        if answer["error_code"] == UNSUPPORTED:
            raise ConfigError(
                f"group {terms.group_id!r}: this broker serves no consumer groups (KIP-848)",
                hint="set group.protocol=classic",
            )
        check(answer["error_code"], f"group {terms.group_id!r}")
        self._told = facts
        self._heartbeat_s = answer["heartbeat_interval_ms"] / 1000
        with self._news:
            if not self._ended:
                self._stand(answer["member_epoch"], self._member_id)
            self._news.notify_all()
        if answer["assignment"] is not None:
            self._given = answer["assignment"]["topic_partitions"]
        self._settle(answer["assignment"] is not None)
        return True

    def _body(self) -> dict[str, Any]:
        return {
            "group_id": self.terms.group_id,
            "member_id": self._member_id,
            "member_epoch": max(self.standing.generation, JOINS),
            "instance_id": self.terms.instance_id,
        }

    def _settle(self, is_new: bool) -> None:
        """Hand the share to the loop that polls, once all of its topics have names."""
        unknown = [one["topic_id"] for one in self._given if one["topic_id"] not in self._ids]
        if unknown:
            self._ids |= _names_of(self._live.client, unknown)
        elif not is_new:
            return
        self._shared(
            tuple(
                TopicPartition(self._ids[one["topic_id"]], partition)
                for one in self._given
                if one["topic_id"] in self._ids
                for partition in one["partitions"]
            )
        )

    def _shared(self, share: tuple[TopicPartition, ...]) -> None:
        with self._news:
            if self.state == JOINING or share != self.assigned:
                self.assigned = share
                self.state = SHARED
            self._news.notify_all()


def _names_of(client: Any, ids: Sequence[str]) -> dict[str, str]:
    """Topics' names by their ids; one that is gone is left out."""
    body = {"topics": [{"topic_id": one, "name": None} for one in ids]}
    topics = client.request("Metadata", body)["topics"]
    return {topic["topic_id"]: topic["name"] for topic in topics if not topic["error_code"]}


def _by_topic(
    places: Sequence[TopicPartition], names: Mapping[str, str]
) -> list[dict[str, object]]:
    """Partitions as they are told: each topic by its id, in order."""
    ids = {name: topic_id for topic_id, name in names.items()}
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(ids[topic], []).append(partition)
    return [{"topic_id": topic_id, "partitions": ps} for topic_id, ps in topics.items()]
