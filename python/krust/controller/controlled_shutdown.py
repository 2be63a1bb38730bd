"""The attempts of a controlled shutdown: whether the broker stops, and when it asks again.

The broker asks the controller to give its partitions to others (ControlledShutdown). It stops when
no other broker could lead the partitions that it still leads. Otherwise it asks again, as often as
`controlled.shutdown.max.retries` says: after `controlled.shutdown.retry.backoff.ms`, or as soon as
another replica of such a partition is in sync. Until then it serves.
Threads: the policy thread.
Not promised: that all partitions have another leader when it stops. If no replica catches up, the
broker stops after the last attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import Code

if TYPE_CHECKING:
    from krust.controller.state import ControllerState
    from krust.messages.controlled_shutdown import ControlledShutdownResponse


class ControlledShutdown:
    """The attempts of one controlled shutdown."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._left = 1 + state.whole("controlled.shutdown.max.retries")
        self._waits_for: list[tuple[str, int]] = []
        self.pause_s = state.whole("controlled.shutdown.retry.backoff.ms") / 1000
        """between two attempts, unless `can_go_on` becomes true"""

    def is_over(self, answer: ControlledShutdownResponse | None) -> bool:
        """Whether the broker stops after the answer to an attempt. None: no answer came."""
        self._left -= 1
        if answer is None or answer["error_code"] != Code.NONE:
            return self._left <= 0
        self._waits_for = [
            (each["topic_name"], each["partition_index"])
            for each in answer["remaining_partitions"]
            if self._others(each["topic_name"], each["partition_index"])
        ]
        return self._left <= 0 or not self._waits_for

    @property
    def can_go_on(self) -> bool:
        """Whether another replica of a partition that the broker still leads is in sync by now."""
        return any(self._others(*each, in_sync=True) for each in self._waits_for)

    def _others(self, name: str, index: int, *, in_sync: bool = False) -> set[int]:
        """The other brokers that are alive and have a replica of a partition."""
        state = self._state
        topic = state.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return set()
        partition = topic.partitions[index]
        replicas = partition.isr if in_sync else partition.replicas
        return (state.brokers.keys() & set(replicas)) - {state.node_id}
