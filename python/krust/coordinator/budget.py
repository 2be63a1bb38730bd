"""The memory budget of groups: the bytes of subscriptions and assignments that they may keep.

A member of a consumer group (KIP-848) counts with the names it subscribes to. The topics that match
a regular expression count once for all groups that have it, because they are one object.
Invariant: `used` is the sum of the last counts of all groups and all expressions.
Limits: `max_group_bytes` a group, `max_bytes` all groups. A request that needs no more bytes than
    its member's last one is never refused. Groups that are read from the log count, and are never
    refused.
Not promised: that topics which match an expression later are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.classic_member import size
from krust.coordinator.classic_members import ClassicGroupMembers

if TYPE_CHECKING:
    from collections.abc import Collection

    from krust.coordinator.consumer.group import ConsumerGroup
    from krust.coordinator.consumer.member import Heartbeat
    from krust.coordinator.events import GroupSettings
    from krust.messages.join_group import JoinGroupRequest
    from krust.messages.sync_group import SyncGroupRequest

_NAME_BYTES = 100
"""the cost of a name beside its letters: an object and an entry in a set"""


class Budget:
    """The bytes that all groups keep."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._by_group: dict[str, int] = {}
        self._patterns: dict[str, tuple[int, int]] = {}
        """regular expression -> its bytes, and the number of groups that have it"""
        self._patterns_of: dict[str, frozenset[str]] = {}
        self.used = 0

    def count(self, group: ClassicGroupMembers | ConsumerGroup) -> None:
        """Count a group again."""
        if isinstance(group, ClassicGroupMembers):
            self.forget(group.id)
            kept = group.metadata_bytes
        else:
            self.used -= self._by_group.pop(group.id, 0)
            self._count_patterns(group)
            kept = sum(_subscribed(each.names) for each in group.members.values())
        self.used += kept
        self._by_group[group.id] = kept

    def forget(self, group_id: str) -> None:
        """Forget a group."""
        self.used -= self._by_group.pop(group_id, 0)
        for pattern in self._patterns_of.pop(group_id, ()):
            self._release_pattern(pattern)

    def clear(self) -> None:
        """Forget all groups."""
        self._by_group.clear()
        self._patterns.clear()
        self._patterns_of.clear()
        self.used = 0

    def has_room(
        self, group: ClassicGroupMembers | ConsumerGroup | None, message: JoinGroupRequest
    ) -> bool:
        """Whether the group may keep the protocols of a JoinGroup."""
        added = size(tuple((each["name"], each["metadata"]) for each in message["protocols"]))
        held = 0
        if isinstance(group, ClassicGroupMembers):
            known = group.members.get(message["member_id"])
            added -= known.size() if known is not None else 0
            held = group.metadata_bytes
        return added <= 0 or self._fits(held + added, added)

    def has_room_for(
        self, group: ClassicGroupMembers | ConsumerGroup | None, heartbeat: Heartbeat
    ) -> bool:
        """Whether the group may keep the subscription of a ConsumerGroupHeartbeat."""
        known = None
        if group is not None and not isinstance(group, ClassicGroupMembers):
            known = group.members.get(heartbeat.member_id)
        if known is not None and heartbeat.names in (None, known.names) and not heartbeat.regex:
            return True
        added = (
            _subscribed(heartbeat.names or ())
            if known is None or heartbeat.names is not None
            else 0
        )
        added -= (
            _subscribed(known.names) if known is not None and heartbeat.names is not None else 0
        )
        held = self._by_group.get(group.id, 0) if group is not None else 0
        patterns = 0
        if heartbeat.regex and heartbeat.regex not in self._patterns:
            try:
                found = frozenset(self._settings.match_topics(heartbeat.regex))
                patterns = _pattern(heartbeat.regex, found)
            except ValueError:
                return True  # the expression is invalid, and the heartbeat is refused for that
        return added + patterns <= 0 or self._fits(held + added, added + patterns)

    def may_assign(
        self, group: ClassicGroupMembers | ConsumerGroup, message: SyncGroupRequest
    ) -> bool:
        """Whether the group may keep the assignments of a SyncGroup instead of the old ones."""
        if not isinstance(group, ClassicGroupMembers):
            return True
        given = sum(len(each["assignment"]) for each in message["assignments"])
        of_others = self.used - self._by_group.get(group.id, 0)
        most = min(self._settings.max_group_bytes, self._settings.max_bytes - of_others)
        return given == 0 or group.protocol_bytes + given <= most

    def _fits(self, group_bytes: int, added: int) -> bool:
        """Whether a group may keep `group_bytes` bytes, which are `added` more than now."""
        fits = group_bytes <= self._settings.max_group_bytes
        return fits and self.used + added <= self._settings.max_bytes

    def _count_patterns(self, group: ConsumerGroup) -> None:
        """Count a group's regular expressions; each counts once for all groups."""
        before, now = self._patterns_of.get(group.id, frozenset()), frozenset(group.resolved)
        if before == now:
            return
        for pattern in now - before:
            cost, groups = self._patterns.get(pattern, (0, 0))
            if not groups:
                cost = _pattern(pattern, group.resolved[pattern])
                self.used += cost
            self._patterns[pattern] = (cost, groups + 1)
        for pattern in before - now:
            self._release_pattern(pattern)
        self._patterns_of[group.id] = now

    def _release_pattern(self, pattern: str) -> None:
        """A group no longer has a regular expression."""
        cost, groups = self._patterns.pop(pattern)
        if groups > 1:
            self._patterns[pattern] = (cost, groups - 1)
        else:
            self.used -= cost


def _subscribed(names: Collection[str]) -> int:
    """The bytes that count for a member of a consumer group."""
    return size(()) + sum(map(len, names)) + _NAME_BYTES * len(names)


def _pattern(pattern: str, topics: Collection[str]) -> int:
    """The bytes that count for a regular expression and the topics that match it."""
    return len(pattern) + sum(map(len, topics)) + _NAME_BYTES * (1 + len(topics))
