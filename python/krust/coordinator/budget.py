"""How much classic groups may keep of what their members say of themselves and are assigned.

Invariant: `used` is the sum of what was counted last of each group.
Limits: `max_group_bytes` a group, `max_bytes` all groups. Who says no more than before stays, be
    there room or not. Groups that are read from the log count, and are not refused.
Not done: consumer groups (KIP-848): their subscriptions are bounded by the size of a request alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.member import size
from krust.coordinator.roster import Roster

if TYPE_CHECKING:
    from krust.coordinator.consumer.group import ConsumerGroup
    from krust.coordinator.outcome import GroupSettings, Message


class Budget:
    """The bytes that all groups keep."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._by_group: dict[str, int] = {}
        self.used = 0

    def count(self, group: Roster | ConsumerGroup) -> None:
        """Count what a group keeps now."""
        self.forget(group.id)
        if isinstance(group, Roster):
            self.used += group.metadata_bytes
            self._by_group[group.id] = group.metadata_bytes

    def forget(self, group_id: str) -> None:
        """A group is gone."""
        self.used -= self._by_group.pop(group_id, 0)

    def clear(self) -> None:
        """No group keeps anything."""
        self._by_group.clear()
        self.used = 0

    def has_room(self, group: Roster | ConsumerGroup | None, message: Message) -> bool:
        """Whether what a JoinGroup says of its member may be kept."""
        more = size(tuple((each["name"], each["metadata"]) for each in message["protocols"]))
        held = 0
        if isinstance(group, Roster):
            known = group.members.get(message["member_id"])
            more -= known.size() if known is not None else 0
            held = group.metadata_bytes
        fits = held + more <= self._settings.max_group_bytes
        return more <= 0 or (fits and self.used + more <= self._settings.max_bytes)

    def may_assign(self, group: Roster | ConsumerGroup, message: Message) -> bool:
        """Whether the assignments that a SyncGroup brings may be kept, in place of those before."""
        if not isinstance(group, Roster):
            return True
        given = sum(len(each["assignment"]) for each in message["assignments"])
        of_others = self.used - self._by_group.get(group.id, 0)
        most = min(self._settings.max_group_bytes, self._settings.max_bytes - of_others)
        return given == 0 or group.protocol_bytes + given <= most
