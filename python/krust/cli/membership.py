"""`krust consume -g`: one member of a classic group, driven by the loop that prints records.

No thread: `beat` is called between polls and says whether the member is still in. Rebalances are
eager: what was read is committed, everything is given back, the new share starts where the group
has committed. A record is committed after it was written to stdout, never before.

    out --join--> joined --sync--> in --beat refused, or lost--> out

The leader shares partitions with `range` or `roundrobin`, as the group voted: both are computed
as Kafka's own clients do, so that it may lead, or follow, any of them. Not done: a leader does not
notice that a topic got more partitions; the next rebalance does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from krust.cli import session
from krust.cli.coordinator import BY_NAME, OFFSET_COMMIT, Coordinators, by_topic
from krust.coordinator import consumer_protocol
from krust.coordinator.assignors import find
from krust.coordinator.assignors.spec import GroupSpec, MemberSpec, Topics
from krust.coordinator.consumer_protocol import Assignment, Subscription, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.cli.coordinator import Place
    from krust.cli.options import Options

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED = 22, 25, 27, 79
OUT = (ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING)
SESSION_MS, REBALANCE_MS = 30_000, 60_000
BEAT_S, COMMIT_S = 3.0, 5.0
WAYS = ("range", "roundrobin")


class Member:
    """A member of a group, and what it has read."""

    def __init__(self, options: Options, group_id: str, topics: Sequence[str]) -> None:
        patience_ms = max(options.timeout_ms, REBALANCE_MS + 5000)
        self.asked = Coordinators(options, patience_ms)
        self._group_id = group_id
        self._topics = tuple(topics)
        self._member_id = ""
        self._generation = -1
        self._read: dict[Place, int] = {}
        self._beat_at = self._commit_at = 0.0

    def join(self) -> list[Place]:
        """Enter the group, or stay in it through a rebalance; the partitions to read."""
        self.commit()
        while True:
            answer = self._asked_to_join()
            if answer["error_code"] == 0:
                share = self._synced(answer)
                if share is not None:
                    self._beat_at = time.monotonic() + BEAT_S
                    self._commit_at = time.monotonic() + COMMIT_S
                    return share
            elif answer["error_code"] == MEMBER_ID_REQUIRED:
                self._member_id = answer["member_id"]
            elif answer["error_code"] == UNKNOWN_MEMBER:
                self._member_id = ""
            elif answer["error_code"] not in OUT:
                session.check(answer, f"group {self._group_id!r}")

    def _asked_to_join(self) -> dict[str, Any]:
        metadata = consumer_protocol.write_subscription(Subscription(self._topics, b"", version=0))
        body = {
            "group_id": self._group_id,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self._member_id,
            "protocol_type": consumer_protocol.PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": metadata} for name in WAYS],
        }
        return self.asked.ask(self._group_id, "JoinGroup", body)

    def _synced(self, joined: Mapping[str, Any]) -> list[Place] | None:
        """The share that the leader gave, or that this leader made; None: join again."""
        self._member_id, self._generation = joined["member_id"], joined["generation_id"]
        leads = joined["leader"] == self._member_id and not joined.get("skip_assignment")
        answer = self._as_member(
            "SyncGroup",
            protocol_type=consumer_protocol.PROTOCOL_TYPE,
            protocol_name=joined["protocol_name"],
            assignments=self._shared(joined) if leads else [],
        )
        if answer["error_code"] in OUT:
            return None
        session.check(answer, f"group {self._group_id!r}")
        return list(consumer_protocol.read_assignment(answer["assignment"]).partitions)

    def _shared(self, joined: Mapping[str, Any]) -> list[dict[str, Any]]:
        members = {}
        for member in joined["members"]:
            said = consumer_protocol.read_subscription(member["metadata"])
            name = member.get("group_instance_id")
            members[member["member_id"]] = MemberSpec(frozenset(said.topics), name)
        names = sorted(frozenset[str]().union(*(member.topics for member in members.values())))
        known = session.metadata(self.asked.client, names)["topics"] if names else []
        topics = Topics({topic["name"]: len(topic["partitions"]) for topic in known})
        shares = find.find(joined["protocol_name"]).assign(GroupSpec(members), topics)
        given = {
            member_id: tuple(TopicPartition(*one) for one in shares.get(member_id, ()))
            for member_id in members
        }
        return [
            {
                "member_id": member_id,
                "assignment": consumer_protocol.write_assignment(Assignment(ours, b"", 0)),
            }
            for member_id, ours in given.items()
        ]

    def _as_member(self, api: str, **more: Any) -> dict[str, Any]:
        """Ask in the name of this member, in this generation."""
        body = {"group_id": self._group_id, "generation_id": self._generation}
        return self.asked.ask(self._group_id, api, {**body, "member_id": self._member_id, **more})

    def committed(self) -> dict[Place, int]:
        """Where the group stands."""
        return self.asked.committed(self._group_id)

    def took(self, place: Place, next_offset: int) -> None:
        """Everything of a partition below this offset is on stdout."""
        self._read[place] = next_offset

    def beat(self) -> bool:
        """Say that this member lives, and commit, when it is time; False: join again."""
        now = time.monotonic()
        if now >= self._commit_at:
            self.commit()
            self._commit_at = now + COMMIT_S
        if now < self._beat_at:
            return True
        answer = self._as_member("Heartbeat")
        self._beat_at = now + BEAT_S
        if answer["error_code"] == UNKNOWN_MEMBER:
            self._member_id = ""
        if answer["error_code"] not in OUT:
            session.check(answer, f"group {self._group_id!r}")
        return not answer["error_code"]

    def commit(self) -> None:
        """Commit what was read; what another member has by now is its own affair."""
        if not self._read:
            return
        things = [(place, {"committed_offset": offset}) for place, offset in self._read.items()]
        topics = [
            {"name": topic, "partitions": [{"partition_index": p, **at} for p, at in ours]}
            for topic, ours in by_topic(things).items()
        ]
        version = self.asked.version(self._group_id, OFFSET_COMMIT, BY_NAME)
        body = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": self._generation,
            "member_id": self._member_id,
            "topics": topics,
        }
        answer = self.asked.ask(self._group_id, "OffsetCommit", body, version)
        self._read.clear()
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                if partition["error_code"] not in OUT:
                    session.check(partition, f"{topic['name']}:{partition['partition_index']}")

    def leave(self) -> None:
        """Commit, and let the others have what was ours."""
        self.commit()
        if self._member_id:
            one = {"member_id": self._member_id}
            body = {"group_id": self._group_id, **one, "members": [one]}
            self.asked.ask(self._group_id, "LeaveGroup", body)
