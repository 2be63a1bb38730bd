"""Requests of a client to the coordinator of its group.

The coordinator is looked up at the first request, and again when it moves, loads or does not
answer. Offset requests name topics (OffsetFetch 9, OffsetCommit 9).
Threads: one at a time; any thread may call `end`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from krust import _krust
from krust.clients import options as settings
from krust.closing import Closing
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import KafkaError, UnreachableError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOVING = frozenset({14, 15, 16})
"""Loading, not available, not the coordinator: another broker answers, or this one later."""
UNSTABLE = 88
"""An open transaction has an offset of this partition; its end decides which one holds."""
OFFSET_COMMIT, OFFSET_FETCH, BY_NAME = 8, 9, 9
PAUSE_S = 0.1


class MemberIdentity(NamedTuple):
    """The member that makes a request; without membership: generation -1, no member id."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class GroupMetadata(NamedTuple):
    """The member of a group that read the records of a transaction.

    The group coordinator refuses offsets of a member that has lost its partitions (KIP-447). With
    the group id alone there is no such check.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """A committed offset (of the next record to read) and its metadata."""

    offset: int
    metadata: str


class CoordinatorClient(Closing):
    """A connection to one group's coordinator."""

    def __init__(
        self, group_id: str, options: Mapping[str, object], answer_ms: int, patience_ms: int
    ) -> None:
        """A response may take `answer_ms`; the search for the coordinator `patience_ms` in all."""
        core = settings.core(options, settings.COMMON) | {"request.timeout.ms": answer_ms}
        self.client = _krust.Client(str(options[settings.BOOTSTRAP]), core)
        self._group_id = group_id
        self.patience_s = patience_ms / 1000
        self._node: int | None = None

    def ask(self, api: str, body: dict[str, Any], newest: tuple[int, int] = (-1, 0)) -> Any:
        """Send a request until the coordinator has answered it.

        newest  an API's key, and the newest version to use
        raises  KafkaError, UnreachableError: no coordinator answered in time
        """
        until = time.monotonic() + self.patience_s
        while True:
            try:
                node = self.node()
                version = newest_at(self.client, node, *newest) if newest[0] >= 0 else None
                answer = self.client.request(api, body, version, broker=node)
                codes = moving_codes(answer)
                if not codes:
                    return answer
                error: Exception = refused(min(codes), f"group {self._group_id!r}: {api}")
            except UnreachableError as unreachable:
                error = unreachable
            self._node = None
            if time.monotonic() > until:
                raise error
            self.pause()

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of these partitions. Those without a commit are left out."""
        return {place: commit.offset for place, commit in self.commits(places).items()}

    def stable(
        self, places: Iterable[TopicPartition], patience_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """As `committed`, once no open transaction has an offset of these partitions.

        patience_s  how long to wait for that; default: that of this client
        raises      KafkaError UNSTABLE_OFFSET_COMMIT: the transaction is still open
        """
        until = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        wanted = list(places)
        while True:
            try:
                found = self.commits(wanted, stable=True)
            except KafkaError as error:
                if error.code != UNSTABLE or time.monotonic() >= until:
                    raise
                self.pause()
            else:
                return {place: commit.offset for place, commit in found.items()}

    def commits(
        self, places: Iterable[TopicPartition], *, stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits of these partitions. Those without a commit are left out.

        stable  refuse offsets that an open transaction may replace
        """
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        if not topics:
            return {}
        wanted = [{"name": name, "partition_indexes": ps} for name, ps in topics.items()]
        one = {"group_id": self._group_id, "topics": wanted}
        body = {**one, "groups": [one], "require_stable": stable}
        answer = self.ask("OffsetFetch", body, (OFFSET_FETCH, BY_NAME))
        group = answer["groups"][0] if answer.get("groups") else answer
        check(group.get("error_code", 0), f"offsets of group {self._group_id!r}")
        found = {}
        for topic in group["topics"]:
            for partition in topic["partitions"]:
                place = TopicPartition(topic["name"], partition["partition_index"])
                check(partition["error_code"], f"offset of {place.topic}:{place.partition}")
                if partition["committed_offset"] >= 0:
                    word = partition["metadata"] or ""
                    found[place] = CommittedOffset(partition["committed_offset"], word)
        return found

    def commit(
        self, offsets: Mapping[TopicPartition, int], identity: MemberIdentity, metadata: str = ""
    ) -> None:
        """Commit. KafkaError: the first refusal."""
        body = commit_body(self._group_id, offsets.items(), identity, metadata)
        answer = self.ask("OffsetCommit", body, (OFFSET_COMMIT, BY_NAME))
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                subject = f"commit of {topic['name']}:{partition['partition_index']}"
                check(partition["error_code"], subject)

    def pause(self) -> None:
        """Pause before a request is repeated."""
        time.sleep(PAUSE_S)

    def end(self) -> None:
        """End waiting calls, and all later ones, with KeyboardInterrupt."""
        self.client.end()

    def close(self) -> None:
        """End the connections, after the current call."""
        self.client.close()

    def node(self) -> int:
        """The coordinator of the group."""
        if self._node is None:
            found = find(self.client, self._group_id)
            if found["error_code"] in MOVING:
                raise UnreachableError(f"group {self._group_id!r} has no coordinator yet")
            check(found["error_code"], f"coordinator of group {self._group_id!r}")
            self._node = int(found["node_id"])
        return self._node


def find(client: _krust.Client, key: str, key_type: int = 0) -> dict[str, Any]:
    """The response about the coordinator of a group (key type 0) or a transactional id (1):
    `error_code`, `node_id`.
    """
    body = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
    answer = client.request("FindCoordinator", body)
    found: dict[str, Any]
    [found] = answer.get("coordinators") or [answer]
    return found


def newest_at(client: _krust.Client, node: int, api: int, newest: int) -> int:
    """The version of an API to use with a broker: `newest`, or the broker's last one."""
    served = {key: last for key, _, _, last in client.versions(node)}
    return min(newest, served.get(api, newest))


def commit_body(
    group_id: str,
    offsets: Iterable[tuple[tuple[str, int], int]],
    identity: MemberIdentity,
    metadata: str = "",
) -> dict[str, Any]:
    """An OffsetCommit by topic name."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets:
        one = {"partition_index": partition, "committed_offset": offset}
        topics.setdefault(topic, []).append({**one, "committed_metadata": metadata})
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": identity.generation,
        "member_id": identity.member_id,
        "group_instance_id": identity.instance_id,
        "topics": [{"name": name, "partitions": ps} for name, ps in topics.items()],
    }


def moving_codes(answer: object) -> frozenset[int]:
    """The error codes in a response which mean that another broker answers, or this one later."""
    return MOVING.intersection(_codes(answer))


def refused(code: int, subject: str) -> KafkaError:
    """The exception for one of Kafka's error codes."""
    name, retriable = _krust.error_info(code)
    words = f"{subject}: {name.replace('_', ' ').lower()}"
    return KafkaError(words, code=code, name=name, retriable=retriable)


def check(code: int, subject: str) -> None:
    """Raise the exception of a code unless it is NONE."""
    if code:
        raise refused(code, subject)


def _codes(answer: object) -> Iterable[int]:
    if isinstance(answer, list):
        for one in answer:
            yield from _codes(one)
    elif isinstance(answer, dict):
        if "error_code" in answer:
            yield answer["error_code"]
        for one in answer.values():
            yield from _codes(one)
