"""What goes in and out of the coordinator: Event, Outcome, and the settings that hold.

An Event is a request of a client (`ticket` > 0, one answer each) or news of the core's (`ticket` 0,
no answer). An Outcome is everything the runtime has to do, in the order of its fields; nothing else
ever happens. Shapes are Kafka's field names in snake_case.

News the core sends:

    SessionExpired   {"group_id", "members": [member_id]}: time is up, or the grace of a closed
                     connection; said once, and again after a new row if it is still so
    GroupsLoaded     {"partition", "groups": [{"group_id", "value": dict | None}], "records":
                     [(group_id, key_type, key, value)]}: classic groups, and the live records of
                     consumer groups in the order of the log
    GroupsUnloaded   {"groups": [group_id]}: they live elsewhere, or are about to be loaded again
    TopicsChanged    {"names": [str]}: topics that are new, gone, or have other partitions
    OffsetsExpired   {"group_id"}
    Assigned         {"group_id", "call", "assignments": {member_id: bytes} | None, "line",
                     "assignor"}: the result of that AssignCall, by identity, since a group that is
                     read again gives its numbers out again; None: the leader's assignment counts;
                     line: the traceback for the group's history, or None; assignor: which of
                     krust's assigned, or None. Of the kind "consumer":
                     {member_id: [TopicPartition]}; None: krust's own default failed too
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krust.coordinator.assignors.spec import GroupSpec

Message = dict[str, Any]
"""A request, a response, a record's value, a snapshot."""

Record = tuple[int, Message, Message | None]
"""A record of a consumer group: Kafka's key type, the key without the group, the value; None: its
tombstone"""


Reply = tuple[int, Message, tuple[str, ...]]
"""ticket, response, the groups whose logs it waits for, all of them. Where one of them could not be
written it does not leave. () waits until it is known what became of all that was to be written"""


class Event(NamedTuple):
    """A request for a decision, or news."""

    ticket: int
    api: str
    version: int
    message: Message
    client: Message
    """`id`, `host`, `listener`, `connection`"""


class AssignCall(NamedTuple):
    """Code of the user's has to run; its result comes back as the news `Assigned`."""

    group_id: str
    generation: int
    """or the group's epoch"""
    protocol: str
    members: Sequence[tuple[str, str | None, bytes, bytes]]
    """member id, instance id, subscription, assignment so far"""
    topics: Sequence[str] | None = None
    """what any member subscribes to; None: not known yet"""
    kind: str = "classic"
    """or `consumer`: then `group` says who is there, and `members` is empty"""
    assignor: str = ""
    """the one that a group of the kind `consumer` asks for"""
    group: GroupSpec | None = None


@dataclass(slots=True)
class Outcome:
    """What the runtime has to do, in this order."""

    records: list[tuple[str, Message | str | list[Record] | None]] = field(default_factory=list)
    """group and value of a classic group; None: its tombstone; "drop_offsets": tombstones of all
    its offsets; a list: records of a consumer group. All of one group are one batch"""
    snapshots: list[tuple[str, Message | None]] = field(default_factory=list)
    """group and row; None: gone. Two rows of a group: the members whose `timed` is False in the
    first one begin their session anew with the second"""
    replies: list[Reply] = field(default_factory=list)
    calls: list[AssignCall] = field(default_factory=list)
    reload: list[str] = field(default_factory=list)
    """groups that were dropped: the core is to read them again and send GroupsLoaded, which names
    each of them, with value None where its log has nothing"""
    wake_at_ms: int | None = None
    """when `tick` wants to be called, on the clock of `now_ms`"""
    lines: list[str] = field(default_factory=list)
    """for the log: tracebacks"""


class TopicShape(NamedTuple):
    """What there is to assign of a topic."""

    id: str
    """22 characters"""
    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """of each partition's replicas; nothing: not known"""


def _nobody(_: str) -> bool:
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
    """Kafka's settings of groups, krust's own, and what else the coordinator may ask."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_group_bytes: int = 2**63 - 1
    """of what the members of a classic group say of themselves, and of their assignments"""
    max_bytes: int = 2**63 - 1
    """of the same, in all groups"""
    server_assignor: Callable[[str], bool] = _nobody
    """whether krust, not the leader, assigns in this group"""
    has_offsets: Callable[[str], bool] = _nobody
    """whether the core holds a committed offset of this group"""
    groups_with_offsets: Callable[[], list[str]] = _none
    """all such groups"""
    session_timeout_ms: int = 45_000
    """of members that speak the consumer protocol, and so on below"""
    heartbeat_interval_ms: int = 5000
    timing_of: Callable[[str], tuple[int, int] | None] = _no_topic
    """heartbeat interval and session timeout that a group has of its own; None: those above"""
    consumer_max_size: int = 2**31 - 1
    assignors: Mapping[str, str] = field(default_factory=_built_in)
    """what members may name, the default first -> where it is found, for AssignCall"""
    serves_consumer_protocol: bool = True
    upgrades: bool = True
    """whether a classic group becomes a consumer group when a member of that protocol joins"""
    downgrades: bool = True
    """and back, when the last one of them has gone"""
    topics: Callable[[str], TopicShape | None] = _no_topic
    """a topic by its name"""
    topic_of: Callable[[str], str | None] = _no_topic
    """a topic's name by its id"""
    match_topics: Callable[[str], Iterable[str]] = _no_topics
    """the topics that a regular expression means; ValueError: it is none"""

    def timing(self, group_id: str) -> tuple[int, int]:
        """Heartbeat interval and session timeout of this group's members."""
        return self.timing_of(group_id) or (self.heartbeat_interval_ms, self.session_timeout_ms)
