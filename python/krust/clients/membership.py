"""The membership of a consumer in its group, for both protocols: a thread and a state.

The thread joins the group and sends heartbeats. The polling side decides when partitions are
revoked and assigned, and calls the listeners.

    UNJOINED --join--> PREPARING_REBALANCE --assignment came--> COMPLETING_REBALANCE
    COMPLETING_REBALANCE --applied by poll--> STABLE --rebalance--> REJOIN_NEEDED
    REJOIN_NEEDED --join--> PREPARING_REBALANCE
    STABLE --new assignment (consumer groups only)--> COMPLETING_REBALANCE
    any --unknown, fenced, session over, no poll for max.poll.interval.ms--> LOST --> UNJOINED

The polling side calls `join`, `wait`, `on_assignment_applied`, `on_partitions_lost`. The thread
moves PREPARING_REBALANCE to COMPLETING_REBALANCE, and STABLE to REJOIN_NEEDED,
COMPLETING_REBALANCE or LOST. An error that the thread cannot handle is raised by the next `wait`.
`classic_member` and `consumer_member` implement the two protocols.
Source: KIP-62 (heartbeats apart from polls), KIP-345 (static members).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from krust.clients.coordinator_client import CoordinatorClient, MemberIdentity
from krust.errors import UnreachableError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.coordinator.assignors.assignor import Assignor
    from krust.coordinator.consumer_protocol import TopicPartition

UNJOINED, LOST = "unjoined", "lost"
PREPARING_REBALANCE, COMPLETING_REBALANCE = "preparing rebalance", "completing rebalance"
STABLE, REJOIN_NEEDED = "stable", "rejoin needed"
MISSING_AGE_MS = 1000
"""How often a subscribed topic that does not exist yet is looked for."""


class AssignmentStrategy(NamedTuple):
    """An assignor under the name that members vote for."""

    name: str
    assignor: Assignor
    cooperative: bool


class MembershipConfig(NamedTuple):
    """The settings of a member of a group."""

    group_id: str
    instance_id: str | None
    rack: str | None
    session_ms: int
    heartbeat_ms: int
    max_poll_ms: int
    metadata_ms: int
    api_ms: int = 60_000
    """How long a joining member waits for a coordinator that does not answer."""
    strategies: tuple[AssignmentStrategy, ...] = ()
    """(): the broker assigns partitions (KIP-848)."""
    remote_assignor: str | None = None
    """The assignor of the broker to use; None: its first one."""

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept through a rebalance: when every strategy can."""
        return all(strategy.cooperative for strategy in self.strategies)


class Membership(ABC):
    """A member and its thread, from the first `join` to `leave`."""

    def __init__(
        self,
        config: MembershipConfig,
        options: Mapping[str, object],
        topics: Callable[[Any], dict[str, int]],
    ) -> None:
        """`topics`: asks a client what is subscribed to, as topic -> partitions (0: not there)."""
        self.config = config
        self.state = UNJOINED
        self.assigned: tuple[TopicPartition, ...] = ()
        self.identity = MemberIdentity(-1, "", config.instance_id)
        self._coordinator = CoordinatorClient(
            config.group_id, options, config.session_ms, config.session_ms
        )
        self._topics = topics
        self._owned: tuple[TopicPartition, ...] = ()
        self._error: BaseException | None = None
        self._ended = self._heartbeat_due = False
        self._changed = threading.Condition()
        self._heartbeat_s = config.heartbeat_ms / 1000
        self._last_poll_s = self._last_response_s = self._metadata_checked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="krust-member", daemon=True)

    def on_poll(self) -> None:
        """Note that the application called `poll`."""
        self._last_poll_s = time.monotonic()

    def join(self, owned: Sequence[TopicPartition]) -> None:
        """Join the group or its next generation. The member still owns `owned`."""
        with self._changed:
            self._owned = tuple(owned)
            self.state = PREPARING_REBALANCE
            self._changed.notify_all()
        if not self._thread.ident:
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait while the thread joins the group. Raises the error that the thread met."""
        with self._changed:
            if self.state == PREPARING_REBALANCE and self._error is None:
                self._changed.wait(max(timeout_s, 0))
            error, self._error = self._error, None
            if error is not None:
                self.state = UNJOINED
                raise error

    def on_assignment_applied(self, assignment: tuple[TopicPartition, ...]) -> None:
        """Note that `poll` applied this assignment; a newer one may have come meanwhile."""
        with self._changed:
            if self.state == COMPLETING_REBALANCE and self.assigned is assignment:
                self.state = STABLE

    def request_rejoin(self) -> None:
        """Ask for another rebalance."""
        with self._changed:
            if self.state == STABLE:
                self.state = REJOIN_NEEDED

    def on_partitions_lost(self) -> None:
        """Note that `poll` gave up the lost partitions."""
        with self._changed:
            self.state = UNJOINED

    def leave(self) -> None:
        """Leave the group; end thread and connections. A static member stays in the group."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._coordinator.end()
        if self._thread.ident:
            self._thread.join()
        self._coordinator.close()

    @abstractmethod
    def send_leave(self, coordinator: CoordinatorClient) -> None:
        """Send the leave request, after `leave`. Without it the session expires later."""

    @abstractmethod
    def wait_for_new_epoch(self, identity: MemberIdentity) -> bool:
        """Whether a request that was refused for `identity` may be repeated."""

    @abstractmethod
    def _join(self) -> None:
        """Join and get an assignment (COMPLETING_REBALANCE)."""

    @abstractmethod
    def _heartbeat(self) -> None:
        """Send a heartbeat, and act on the response."""

    @abstractmethod
    def _check_metadata(self) -> None:
        """Look whether the subscribed topics have changed."""

    def _run(self) -> None:
        while not self._ended:
            try:
                if self._is_joining():
                    self._join()
                    continue
                with self._changed:
                    if not self._is_joining() and not self._ended and not self._heartbeat_due:
                        self._changed.wait(self._heartbeat_s if self._is_member() else None)
                    self._heartbeat_due = False
                if self._is_member() and not self._is_joining() and not self._ended:
                    self._heartbeat()
                    self._check_metadata()
            except KeyboardInterrupt:
                return  # `leave` ended a wait
            except UnreachableError as error:
                self._on_unreachable(error)
            except BaseException as error:
                self._fail(error)

    def _is_joining(self) -> bool:
        return self.state == PREPARING_REBALANCE and self._error is None

    def _is_member(self) -> bool:
        return self.identity.generation >= 0 and self.state not in (UNJOINED, LOST)

    def _left_after_poll_timeout(self) -> bool:
        """Leave the group if the application has not polled for too long.

        The partitions count as lost before the group gives them to another member.
        """
        if time.monotonic() - self._last_poll_s <= self.config.max_poll_ms / 1000:
            return False
        self._transition_to(LOST)
        self.send_leave(self._coordinator)
        self._reset_identity()
        return True

    def _reset_identity(self) -> None:
        """The group does not know this member: another one may own its partitions."""
        self._set_identity(-1, "")
        self._owned = ()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _on_unreachable(self, error: UnreachableError) -> None:
        """The coordinator does not answer. This is no error until the session timeout has passed,
        or while joining the timeout of a call.
        """
        patience_ms = self.config.session_ms
        if self.state == PREPARING_REBALANCE:
            patience_ms = min(patience_ms, self.config.api_ms)
        if time.monotonic() - self._last_response_s > patience_ms / 1000:
            self._last_response_s = time.monotonic()
            if self.state == PREPARING_REBALANCE:
                self._fail(error)
            else:
                self._transition_to(LOST)
        with self._changed:
            self._changed.wait(0.1)

    def _transition_to(self, state: str, *leaving: str) -> None:
        """Change the state; if `leaving` names states, only from these."""
        with self._changed:
            if not leaving or self.state in leaving:
                self.state = state
            self._changed.notify_all()

    def _set_identity(self, generation: int, member_id: str) -> None:
        self.identity = MemberIdentity(generation, member_id, self.config.instance_id)


def partition_counts(client: Any, names: Sequence[str]) -> dict[str, int]:
    """Topic -> number of partitions; 0: it does not exist."""
    if not names:
        return {}
    body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    topics = client.request("Metadata", body)["topics"]
    counts = {topic["name"]: len(topic["partitions"]) for topic in topics}
    return {name: counts.get(name, 0) for name in names}
