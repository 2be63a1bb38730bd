"""`controller_mutation_rate`: what a client's changes of topics cost it, counted in partitions.

The bucket of who shares the quota holds what the rate brings in `controller.quota.window.num` times
`controller.quota.window.size.seconds`. A change is let through whole while it is not below zero.
Versions that know THROTTLING_QUOTA_EXCEEDED are refused it then; older ones are let through. Both
are told how long to wait.
Everybody is ANONYMOUS: krust authenticates nobody. Each broker counts while it is the controller.
Source: KIP-599.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.controller import quotas
from krust.controller.state import RefusedError
from krust.errors import Code

if TYPE_CHECKING:
    from krust.controller.state import ControllerState, Request

ANONYMOUS = "ANONYMOUS"
STRICT_FROM = {"CreateTopics": 6, "DeleteTopics": 5, "CreatePartitions": 3}
"""the first version that is refused what does not fit; the others are none of a client's"""
_EXCEEDED = "The throttling quota has been exceeded."


class Charge:
    """What one request's changes cost."""

    def __init__(self, state: ControllerState, request: Request[Any]) -> None:
        self.throttle_time_ms = 0
        """how long the client is told to wait"""
        self._held = None
        if not state.quotas:
            return
        client_id = request.client.get("id") or ""
        self._held = quotas.holding(state.quotas, quotas.MUTATIONS, ANONYMOUS, client_id)
        if self._held is not None:
            self._bucket = state.buckets.of(self._held.shared_by)
            strict_from = STRICT_FROM.get(request.api)
            self._strict = strict_from is not None and request.version >= strict_from
            windows = state.whole("controller.quota.window.num")
            self._burst_s = windows * state.whole("controller.quota.window.size.seconds")
            self._now_ms = request.now_ms

    def take(self, partitions: int) -> None:
        """Make, or delete, so many partitions; RefusedError: not now."""
        if self._held is None:
            return
        rate = self._held.value
        level = self._bucket.level(rate, self._burst_s, self._now_ms)
        if self._strict and level < 0:
            self.throttle_time_ms = quotas.wait_ms(level, rate)
            raise RefusedError(Code.THROTTLING_QUOTA_EXCEEDED, _EXCEEDED)
        self._bucket.take(partitions)
        if not self._strict:
            self.throttle_time_ms = quotas.wait_ms(level - partitions, rate)
