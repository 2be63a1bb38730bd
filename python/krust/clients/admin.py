"""`krust.Admin`: topics, settings, groups, transactions, records and ACLs of any Kafka.

    with krust.Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topic("orders", partitions=6, config={"retention.ms": "3600000"})

A refusal of the broker is raised as KafkaError with `code`, `name`, `retriable`. An Admin keeps one
connection to each broker. `admin.request("AlterConfigs", {...})` calls any other API by its name,
with Kafka's field names.
Threads: one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from krust import _krust
from krust.clients import acls as acl_requests
from krust.clients import options
from krust.clients.admin_transactions import (
    HANGING_AFTER_MS,
    OpenTransaction,
    ProducerState,
    TransactionFilter,
    TransactionsClient,
)
from krust.clients.coordinator_client import CoordinatorClient, refused
from krust.clients.leaders import leaders, wait_for_leaders
from krust.clients.member_descriptions import classic_member, consumer_member
from krust.closing import Closing
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.clients.acls import Acl, AclFields
    from krust.clients.admin_transactions import (
        HangingTransaction,
        TransactionDescription,
        TransactionListing,
    )
    from krust.clients.consumer import TopicPartitionLike
    from krust.clients.keywords import CommonSettings

SETTINGS = options.COMMON
TOPIC, BROKER = 2, 4
"""Kafka's numbers of config resources."""
GROUP_ID_NOT_FOUND = 69
_SET, _DELETE = 0, 1
_PATIENCE_S = 30.0
_MOMENTS = {"earliest": _krust.EARLIEST, "latest": _krust.LATEST}


@dataclass(frozen=True)
class Member:
    """A member of a group. `subscribed` and `assigned` None: they cannot be read."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed: list[str] | None
    """topics; a regular expression is in slashes"""
    assigned: list[TopicPartition] | None


@dataclass(frozen=True)
class Group:
    """A group, its state and its members."""

    group_id: str
    state: str
    """as Kafka names it: Empty, PreparingRebalance, CompletingRebalance, Stable ..."""
    type: str
    """classic, or consumer (KIP-848)"""
    assignor: str
    """the assignor; "": no assignment was made yet"""
    coordinator: int
    """the broker that coordinates the group"""
    members: list[Member]


class Admin(Closing):
    """Requests to the cluster. raises ConfigError: an unknown or invalid setting."""

    def __init__(
        self, config: Mapping[str, object] | None = None, /, **more: Unpack[CommonSettings]
    ) -> None:
        self._given = options.read(SETTINGS, config, more)
        bootstrap = str(self._given[options.BOOTSTRAP])
        self._client = _krust.Client(bootstrap, options.core(self._given, SETTINGS))
        self._timeout_ms = options.number(self._given, "request.timeout.ms", 30_000)
        self._transactions = TransactionsClient(self._client, self._timeout_ms / 1000)

    def request(self, api: str, body: dict[str, Any], version: int | None = None) -> dict[str, Any]:
        """Call any API by name. Returns its response, without a check for errors."""
        return self._client.request(api, body, version)

    def topics(self) -> dict[str, int]:
        """All topics except internal ones, with their numbers of partitions."""
        found = self._client.request("Metadata", {"topics": None})["topics"]
        return {
            topic["name"]: len(topic["partitions"])
            for topic in sorted(found, key=lambda topic: str(topic["name"]))
            if not topic["is_internal"]
        }

    def create_topic(
        self,
        topic: str,
        partitions: int = -1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic. Returns when it has its leaders.

        partitions          -1: the setting num.partitions
        replication_factor  None: the setting default.replication.factor
        raises              KafkaError: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG ...
        """
        configs = [{"name": name, "value": str(value)} for name, value in (config or {}).items()]
        factor = -1 if replication_factor is None else replication_factor
        one = {"name": topic, "num_partitions": partitions, "replication_factor": factor}
        body = {"topics": [{**one, "configs": configs}], "timeout_ms": self._timeout_ms}
        [answer] = self._client.request("CreateTopics", body)["topics"]
        _check(answer, f"topic {topic!r}")
        wait_for_leaders(self._client, topic, max(partitions, 1), _PATIENCE_S)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records. KafkaError: UNKNOWN_TOPIC_OR_PARTITION ..."""
        body = {
            "topics": [{"name": topic}],
            "topic_names": [topic],
            "timeout_ms": self._timeout_ms,
        }
        [answer] = self._client.request("DeleteTopics", body)["responses"]
        _check(answer, f"topic {topic!r}")

    def create_partitions(self, topic: str, total: int) -> None:
        """Add partitions to a topic until it has `total`. Returns when they have leaders.

        raises  KafkaError: INVALID_PARTITIONS ...
        """
        one = {"name": topic, "count": total, "assignments": None}
        body = {"topics": [one], "timeout_ms": self._timeout_ms}
        [answer] = self._client.request("CreatePartitions", body)["results"]
        _check(answer, f"topic {topic!r}")
        wait_for_leaders(self._client, topic, total, _PATIENCE_S)

    def config(self, topic: str) -> dict[str, str | None]:
        """Every setting of a topic, defaults included; None: a secret, or unset."""
        one = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
        [answer] = self._client.request("DescribeConfigs", {"resources": [one]})["results"]
        _check(answer, f"topic {topic!r}")
        return {setting["name"]: setting["value"] for setting in answer["configs"]}

    def alter_config(self, topic: str, changes: Mapping[str, object | None]) -> None:
        """Change settings of a topic; None: back to the default. KafkaError: INVALID_CONFIG ..."""
        configs = [
            {
                "name": name,
                "config_operation": _DELETE if value is None else _SET,
                "value": None if value is None else str(value),
            }
            for name, value in changes.items()
        ]
        one = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
        [answer] = self._client.request("IncrementalAlterConfigs", {"resources": [one]})[
            "responses"
        ]
        _check(answer, f"topic {topic!r}")

    def groups(self) -> dict[str, str]:
        """All groups of all brokers, with their states ("": the broker is too old to tell)."""
        return {one["group_id"]: one.get("group_state", "") for one in self._list_groups()}

    def _list_groups(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for broker in self._client.request("Metadata", {"topics": []})["brokers"]:
            answer = self._client.request("ListGroups", {}, broker=broker["node_id"])
            _check(answer, f"groups of broker {broker['node_id']}")
            found += answer["groups"]
        return found

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, Group]:
        """The states and members of groups of both protocols.

        raises  KafkaError: GROUP_ID_NOT_FOUND ...
        """
        return {group_id: self._described(group_id) for group_id in group_ids}

    def _described(self, group_id: str) -> Group:
        with self._coordinator(group_id) as asked:
            [described] = asked.ask("DescribeGroups", {"groups": [group_id]})["groups"]
            if described["error_code"] != GROUP_ID_NOT_FOUND:
                _check(described, f"group {group_id!r}")
            kind = described["protocol_type"]
            state, assignor = described["group_state"], described["protocol_data"]
            members = [classic_member(one, kind) for one in described["members"]]
            type_ = "classic"
            if state in ("", "Dead"):  # it does not exist, or has the other type
                type_, state = self._listed(group_id)
                if type_ == "consumer":
                    body = {"group_ids": [group_id]}
                    [described] = asked.ask("ConsumerGroupDescribe", body)["groups"]
                    _check(described, f"group {group_id!r}")
                    state, assignor = described["group_state"], described["assignor_name"]
                    members = [consumer_member(one) for one in described["members"]]
            node = asked.node()
        listed = sorted(map(_member, members), key=lambda one: one.member_id)
        return Group(group_id, state, type_, assignor or "", node, listed)

    def _listed(self, group_id: str) -> tuple[str, str]:
        """Type and state of a group that DescribeGroups does not know."""
        for group in self._list_groups():
            if group["group_id"] == group_id:
                kind = str(group.get("group_type") or "classic").lower()
                return kind, group.get("group_state") or ""
        raise refused(GROUP_ID_NOT_FOUND, f"group {group_id!r}")

    def committed(self, group_id: str, topic: str, partitions: int) -> dict[TopicPartition, int]:
        """The committed offsets of a group for a topic's first `partitions`. Partitions without a
        commit are left out.
        """
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        with self._coordinator(group_id) as asked:
            return asked.committed(places)

    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets. KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND ..."""
        with self._coordinator(group_id) as asked:
            answer = asked.ask("DeleteGroups", {"groups_names": [group_id]})
        [result] = answer["results"]
        _check(result, f"group {group_id!r}")

    def list_offsets(
        self,
        moments: Mapping[TopicPartitionLike, int | datetime | str],
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; None: there is none.

        moments          by (topic, partition): "earliest", "latest" (the offset of the next record
                         that will be written), a datetime (local time, if it names no zone), or
                         whole milliseconds since 1970
        isolation_level  with "read_committed" the latest offset is the last stable one: that of the
                         first record of the first open transaction
        raises           KafkaError: UNKNOWN_TOPIC_OR_PARTITION ...; ConfigError: an invalid time or
                         isolation level
        """
        given = {"isolation.level": isolation_level}
        level = options.choice(given, "isolation.level", "read_uncommitted", "read_committed")
        asked = [(*place, _moment(when)) for place, when in moments.items()]
        if not asked:
            return {}
        found = self._client.list_offsets(asked, read_committed=level == "read_committed")
        return {
            TopicPartition(topic, partition): None if offset < 0 else offset
            for topic, partition, _, offset, _ in found
        }

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Delete the records before an offset (-1: all). Returns the new first offset.

        raises  KafkaError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION ...
        """
        body = {
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": partition, "offset": offset}],
                }
            ],
            "timeout_ms": self._timeout_ms,
        }
        leader = leaders(self._client, topic).get(partition)
        answer = self._client.request("DeleteRecords", body, broker=leader)
        [[found]] = [one["partitions"] for one in answer["topics"]]
        _check(found, f"{topic}:{partition}")
        return int(found["low_watermark"])

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, with their states.

        states               only these: Ongoing, PrepareCommit, CompleteAbort ...
        producer_ids         only these
        open_longer_than_ms  only those whose transaction began longer ago
        """
        chosen = TransactionFilter(list(states), list(producer_ids), open_longer_than_ms)
        return self._transactions.listings(chosen)

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Transactional ids with the partitions of their transactions.

        raises  KafkaError: TRANSACTIONAL_ID_NOT_FOUND ...
        """
        return {each: self._transactions.describe(each) for each in transactional_ids}

    def describe_producers(
        self, partitions: Iterable[TopicPartitionLike], broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The producers of partitions, and where their open transactions begin.

        broker  the replica that is asked; None: the leaders
        raises  KafkaError: UNKNOWN_TOPIC_OR_PARTITION ...
        """
        places = {TopicPartition(*place) for place in partitions}
        return self._transactions.producers(places, broker)

    def find_hanging_transactions(
        self,
        topics: Iterable[str] | None = None,
        *,
        broker: int | None = None,
        older_than_ms: int = HANGING_AFTER_MS,
    ) -> list[HangingTransaction]:
        """Transactions that a partition holds open and that no coordinator will end.

        topics         None: all, with internal ones
        broker         only partitions that it has, as it has them; None: as their leaders have them
        older_than_ms  only transactions whose last record is older; at least
                       transaction.max.timeout.ms
        """
        names = None if topics is None else list(topics)
        places = self._transactions.partitions(names, broker)
        return self._transactions.hanging(places, broker, older_than_ms)

    def abort_transaction(
        self,
        topic: str,
        partition: int,
        start_offset: int | None = None,
        *,
        producer: ProducerState | None = None,
    ) -> None:
        """Write an abort marker in a partition, for a transaction that hangs there.

        If its coordinator still has the transaction, its other partitions may commit.

        start_offset  where the transaction begins: its producer is looked up
        producer      whose transaction, for brokers before Kafka 3.0
        raises        KrustError: no open transaction begins there; KafkaError:
                      INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED ...
        """
        place = TopicPartition(topic, partition)
        if start_offset is not None and producer is None:
            opened = self._transactions.beginning_at(place, start_offset)
        elif start_offset is None and producer is not None:
            opened = OpenTransaction(place, producer)
        else:
            raise ConfigError("give either start_offset or producer")
        self._transactions.abort(opened)

    def describe_acls(self, **fields: Unpack[AclFields]) -> list[Acl]:
        """The ACLs that have these fields; without any, all.

        raises  KafkaError: SECURITY_DISABLED (the brokers have no authorizer) ...; ConfigError: an
                unknown name
        """
        return acl_requests.found(self._client, fields)

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create ACLs. Those that exist stay as they are.

        raises  KafkaError: the first that is refused; the others are created
        """
        bindings = [each.binding() for each in acls]
        for error in filter(None, acl_requests.create(self._client, bindings)):
            raise error

    def delete_acls(self, **fields: Unpack[AclFields]) -> list[Acl]:
        """Delete the ACLs that have these fields. Returns them.

        raises  ConfigError: no field, or an unknown name; KafkaError: SECURITY_DISABLED ...
        """
        return acl_requests.deleted(self._client, fields)

    def close(self) -> None:
        """End the connections. Idempotent."""
        self._client.close()

    def _coordinator(self, group_id: str) -> CoordinatorClient:
        return CoordinatorClient(group_id, self._given, self._timeout_ms, self._timeout_ms)


def _member(description: Mapping[str, Any]) -> Member:
    assigned = description["assigned"]
    return Member(
        description["member_id"],
        description["instance_id"],
        description["client_id"],
        description["host"],
        description["subscribed"],
        None if assigned is None else [TopicPartition(*place) for place in assigned],
    )


def _moment(when: int | datetime | str) -> int:
    """The timestamp of ListOffsets: milliseconds, or one of its negative numbers."""
    if isinstance(when, datetime):
        return round(when.timestamp() * 1000)
    if isinstance(when, str):
        if when not in _MOMENTS:
            raise ConfigError.choice("a moment", _MOMENTS, when)
        return _MOMENTS[when]
    if not isinstance(when, int) or isinstance(when, bool) or when < 0:
        hint = 'a datetime, whole milliseconds since 1970, "earliest" or "latest"'
        raise ConfigError(f"{when!r} is no time", hint=hint)
    return when


def _check(answer: Mapping[str, Any], subject: str) -> None:
    if answer["error_code"]:
        error = refused(answer["error_code"], subject)
        words = answer.get("error_message")
        if words:
            error.args = (f"{subject}: {words}",)
        raise error
