"""What the coordinator takes and returns: Event, GroupOutcome, and the settings that hold.

An Event is a request of a client (`ticket` > 0, one answer each) or a notification of the core
(`ticket` 0, no answer). A GroupOutcome is everything that the runtime has to do, in the order of
its fields. The keys of messages are Kafka's field names in snake_case. The notifications:

    SessionExpired, GroupsLoaded, GroupsUnloaded, TopicsChanged, OffsetsExpired, Assigned
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypedDict, TypeVar

from krust.messages import Message, RequestContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krust.coordinator.assignors.assignor import GroupSpec
    from krust.coordinator.snapshots import GroupSnapshot
    from krust.messages.group_metadata_value import GroupMetadataValue

MessageT_co = TypeVar("MessageT_co", covariant=True)
AssignmentsT = TypeVar("AssignmentsT")


class RecordKey(TypedDict, total=False):
    """The key of a consumer group's record, without the group. Which keys it has depends on the
    type.
    """

    member_id: str
    regular_expression: str


Record = tuple[int, RecordKey, Message | None]
"""A record of a consumer group: Kafka's key type, the key, the value; None: its tombstone. The
value is the TypedDict of the key type (`krust.messages.consumer_group_*_value`)."""

LiveRecord = tuple[int, RecordKey, Message]
"""a record of a consumer group that is not a tombstone"""

Reply = tuple[int, Message, tuple[str, ...]]
"""ticket, response, groups. The response waits until the records of all these groups are committed
(below the high watermark). If an append fails, the coordinator sends a refusal instead
(`on_append_failed`); if the log is lost afterwards, the connection is closed. With no groups the
response waits until all records of the GroupOutcome are committed or have failed."""


class Event(NamedTuple, Generic[MessageT_co]):
    """A request for a decision, or a notification."""

    ticket: int
    api: str
    version: int
    message: MessageT_co
    client: RequestContext


class SessionExpired(TypedDict):
    """The sessions of members have expired, or the grace of their closed connections is over. The
    core says so once, and again after a new snapshot if it is still so.
    """

    group_id: str
    members: Sequence[str]


class LoadedGroup(TypedDict):
    """A classic group of the log, or a group that was asked for again."""

    group_id: str
    value: GroupMetadataValue | None
    """None: the log has no classic group of this name"""


class GroupsLoaded(TypedDict):
    """The core has read these groups from the log."""

    partition: int
    groups: Sequence[LoadedGroup]
    records: Sequence[tuple[str, int, RecordKey, Message]]
    """live records of consumer groups in the order of the log: group, key type, key, value"""


class GroupsUnloaded(TypedDict):
    """Another broker coordinates these groups now, or the core is about to load them again."""

    groups: Sequence[str]


class TopicsChanged(TypedDict):
    """Topics are new, deleted, or have another number of partitions."""

    group_id: str
    """empty"""
    names: Sequence[str]


class OffsetsExpired(TypedDict):
    """The last committed offset of a group has expired."""

    group_id: str


class Assigned(TypedDict, Generic[AssignmentsT]):
    """An assignor has answered, or has failed."""

    group_id: str
    call: AssignCall
    """compared by identity, because a group that is read again repeats its numbers"""
    assignments: AssignmentsT | None
    """of a classic group {member id: bytes}; None: the leader's assignment holds. Of a consumer
    group {member id: partitions}; None: the group uses `uniform`"""
    line: str | None
    """a traceback for the group's history"""
    assignor: str | None
    """which of krust's assignors made the assignment"""


class AssignCall(NamedTuple):
    """The runtime is to call an assignor. The result comes back as the notification `Assigned`."""

    group_id: str
    generation: int
    """or the group's epoch"""
    protocol: str
    members: Sequence[tuple[str, str | None, bytes, bytes]]
    """member id, instance id, subscription, last assignment"""
    topics: Sequence[str] | None = None
    """what any member subscribes to; None: not known yet"""
    kind: str = "classic"
    """or `consumer`: then `group` has the members, and `members` is empty"""
    assignor: str = ""
    """the assignor that a group of the kind `consumer` asks for"""
    group: GroupSpec | None = None


@dataclass(slots=True)
class GroupOutcome:
    """What the runtime has to do, in this order."""

    records: list[tuple[str, GroupMetadataValue | str | list[Record] | None]] = field(
        default_factory=list
    )
    """group and value of a classic group; None: its tombstone; "drop_offsets": tombstones of all
    its offsets; a list: records of a consumer group. All records of one group are one batch"""
    snapshots: list[tuple[str, GroupSnapshot | None]] = field(default_factory=list)
    """group and snapshot; None: the group is gone. A group may have two snapshots: the members
    whose `timed` is False in the first one begin a new session with the second one"""
    replies: list[Reply] = field(default_factory=list)
    calls: list[AssignCall] = field(default_factory=list)
    reload: list[str] = field(default_factory=list)
    """groups that the coordinator dropped. The core reads them again and sends GroupsLoaded, which
    names each of them, with the value None where the log has none"""
    wake_at_ms: int | None = None
    """when the runtime has to call `tick`, on the clock of `now_ms`"""
    lines: list[str] = field(default_factory=list)
    """tracebacks for the log"""


class TopicShape(NamedTuple):
    """A topic as an assignor sees it: its partitions and their racks."""

    id: str
    """22 characters"""
    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """the racks of each partition's replicas; empty: not known"""


def _false(_: str) -> bool:
    return False


def _none() -> list[str]:
    return []


def _built_in() -> dict[str, str]:
    return {"uniform": "uniform", "range": "range"}


def _no_topics(_: str) -> frozenset[str]:
    return frozenset()


def _no_topic(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of groups, Kafka's and krust's, and the functions that answer the coordinator's
    questions about offsets and topics.
    """

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_group_bytes: int = 2**63 - 1
    """of the subscriptions and assignments of a group"""
    max_bytes: int = 2**63 - 1
    """of the subscriptions and assignments of all groups"""
    server_assignor: Callable[[str], bool] = _false
    """whether krust assigns in this group, and not its leader"""
    has_offsets: Callable[[str], bool] = _false
    """whether the core holds a committed offset of this group"""
    groups_with_offsets: Callable[[], list[str]] = _none
    """all groups with a committed offset"""
    session_timeout_ms: int = 45_000
    """of members of the consumer protocol, as all settings below"""
    heartbeat_interval_ms: int = 5000
    timing_of: Callable[[str], tuple[int, int] | None] = _no_topic
    """heartbeat interval and session timeout of one group; None: the settings above hold"""
    consumer_max_size: int = 2**31 - 1
    assignors: Mapping[str, str] = field(default_factory=_built_in)
    """name that a member may ask for -> where AssignCall finds the assignor; the default first"""
    serves_consumer_protocol: bool = True
    upgrades: bool = True
    """whether a classic group becomes a consumer group when a member of that protocol joins"""
    downgrades: bool = True
    """whether a consumer group becomes a classic group when its last consumer member leaves"""
    topics: Callable[[str], TopicShape | None] = _no_topic
    """a topic by its name"""
    topic_of: Callable[[str], str | None] = _no_topic
    """a topic's name by its id"""
    match_topics: Callable[[str], Iterable[str]] = _no_topics
    """the topics that match a regular expression; ValueError: the expression is invalid"""

    def timing(self, group_id: str) -> tuple[int, int]:
        """Heartbeat interval and session timeout of this group's members."""
        return self.timing_of(group_id) or (self.heartbeat_interval_ms, self.session_timeout_ms)
