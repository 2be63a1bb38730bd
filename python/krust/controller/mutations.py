"""`controller_mutation_rate`: limits how many partitions a client creates and deletes a second.

Clients that share a quota share a token bucket. It holds the tokens of
`controller.quota.window.num` times `controller.quota.window.size.seconds`. While the bucket is not
below zero, the controller makes a change whole. Below zero it refuses the change with
THROTTLING_QUOTA_EXCEEDED, in versions that know that code, and makes it in older ones. The answer
says in both cases how long the client has to wait.
A user without a login or certificate is ANONYMOUS. Each broker counts while it is the controller.
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
"""The APIs that clients send, and the first version of each that is refused above the quota."""
_EXCEEDED = "The throttling quota has been exceeded."


class Charge:
    """The partitions that one request changes, charged to its client's quota."""

    def __init__(self, state: ControllerState, request: Request[Any]) -> None:
        self.throttle_time_ms = 0
        """how long the client must wait"""
        self._held = None
        if not state.quotas:
            return
        client_id = request.client.get("id") or ""
        user = request.client.get("user") or ANONYMOUS
        self._held = quotas.quota_for(
            state.quotas, quotas.CONTROLLER_MUTATION_RATE, user, client_id
        )
        if self._held is not None:
            self._bucket = state.buckets.of(self._held.shared_by)
            strict_from = STRICT_FROM.get(request.api)
            self._strict = strict_from is not None and request.version >= strict_from
            windows = state.whole("controller.quota.window.num")
            self._burst_s = windows * state.whole("controller.quota.window.size.seconds")
            self._now_ms = request.now_ms

    def take(self, partitions: int) -> None:
        """Charge this many partitions. RefusedError: the quota does not allow them now."""
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
