"""A member of a group, of either protocol: its thread, its states, and what the loop that polls
says to it. The thread joins and says that the member lives; the loop decides when partitions are
given back and taken up, and calls the listeners.

    OUT --join--> JOINING --shared--> SHARED --take--> IN --rebalance--> REJOIN --join--> JOINING
     any --unknown, fenced, silent for a session, no poll for max.poll.interval.ms--> LOST --> OUT
    IN --another share (consumer groups only)--> SHARED

The poll side calls `join`, `wait`, `take`, `lose`; the thread moves JOINING to SHARED, and IN to
REJOIN, SHARED or LOST. What the thread meets and cannot mend is raised by the next `wait`.
`classic_member` and `consumer_member` are the two protocols.
Source: KIP-62 (heartbeats apart from polls), KIP-345 (static members).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from krust.clients.coordinator import Coordinator, Standing
from krust.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.coordinator.assignors.spec import Assignor
    from krust.coordinator.consumer_protocol import TopicPartition

OUT, JOINING, SHARED, IN, REJOIN, LOST = "out", "joining", "shared", "in", "rejoin", "lost"
MISSING_AGE_MS = 1000
"""How often a subscribed topic that does not exist yet is looked for."""


class Strategy(NamedTuple):
    """A way to share, as it is voted for."""

    name: str
    assignor: Assignor
    cooperative: bool


class Terms(NamedTuple):
    """What a member tells the group."""

    group_id: str
    instance_id: str | None
    rack: str | None
    session_ms: int
    heartbeat_ms: int
    max_poll_ms: int
    metadata_ms: int
    api_ms: int = 60_000
    """How long a member that joins waits for a coordinator that does not answer."""
    strategies: tuple[Strategy, ...] = ()
    """(): the broker shares (KIP-848)."""
    remote_assignor: str | None = None
    """Which of the broker's assignors shares; None: the first."""

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept through a rebalance: when every strategy can."""
        return all(strategy.cooperative for strategy in self.strategies)


class Membership(ABC):
    """A member and its thread, from the first `join` to `leave`."""

    def __init__(
        self, terms: Terms, options: Mapping[str, object], topics: Callable[[Any], dict[str, int]]
    ) -> None:
        """`topics`: asks a client what is subscribed to, as topic -> partitions (0: not there)."""
        self.terms = terms
        self.state = OUT
        self.assigned: tuple[TopicPartition, ...] = ()
        self.standing = Standing(-1, "", terms.instance_id)
        self._live = Coordinator(terms.group_id, options, terms.session_ms, terms.session_ms)
        self._topics = topics
        self._owned: tuple[TopicPartition, ...] = ()
        self._error: BaseException | None = None
        self._ended = self._due = False
        self._news = threading.Condition()
        self._heartbeat_s = terms.heartbeat_ms / 1000
        self._polled_s = self._heard_s = self._looked_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="krust-member", daemon=True)

    def polled(self) -> None:
        """The application has come for records."""
        self._polled_s = time.monotonic()

    def join(self, owned: Sequence[TopicPartition]) -> None:
        """Enter the group, or its next generation, holding `owned` still."""
        with self._news:
            self._owned = tuple(owned)
            self.state = JOINING
            self._news.notify_all()
        if not self._thread.ident:
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait while the group is joined. Raises what the thread could not mend."""
        with self._news:
            if self.state == JOINING and self._error is None:
                self._news.wait(max(timeout_s, 0))
            error, self._error = self._error, None
            if error is not None:
                self.state = OUT
                raise error

    def take(self, share: tuple[TopicPartition, ...]) -> None:
        """Say that this share is taken up, unless there is another one by now."""
        with self._news:
            if self.state == SHARED and self.assigned is share:
                self.state = IN

    def rejoin(self) -> None:
        """Ask for another rebalance."""
        with self._news:
            if self.state == IN:
                self.state = REJOIN

    def lose(self) -> None:
        """What was owned is known to be lost."""
        with self._news:
            self.state = OUT

    def leave(self) -> None:
        """Let the others have what was ours; end thread and connections. A static member stays."""
        with self._news:
            self._ended = True
            self._news.notify_all()
        self._live.end()
        if self._thread.ident:
            self._thread.join()
        self._live.close()

    @abstractmethod
    def left(self, asked: Coordinator) -> None:
        """Tell the group, after `leave`; not answered is gone as well, a session later."""

    @abstractmethod
    def renewed(self, standing: Standing) -> bool:
        """Whether what was refused in the name of `standing` may be asked again by now."""

    @abstractmethod
    def _join(self) -> None:
        """Become a member with a share (SHARED), while the state is JOINING."""

    @abstractmethod
    def _beat(self) -> None:
        """Say that the member lives, and hear what the group wants."""

    @abstractmethod
    def _look(self) -> None:
        """See whether what is subscribed to has changed."""

    def _run(self) -> None:
        while not self._ended:
            try:
                if self._is_joining():
                    self._join()
                    continue
                with self._news:
                    if not self._is_joining() and not self._ended and not self._due:
                        self._news.wait(self._heartbeat_s if self._is_member() else None)
                    self._due = False
                if self._is_member() and not self._is_joining() and not self._ended:
                    self._beat()
                    self._look()
            except KeyboardInterrupt:
                return  # `leave` ended a wait
            except UnreachableError as error:
                self._silent(error)
            except BaseException as error:
                self._fail(error)

    def _is_joining(self) -> bool:
        return self.state == JOINING and self._error is None

    def _is_member(self) -> bool:
        return self.standing.generation >= 0 and self.state not in (OUT, LOST)

    def _has_gone(self) -> bool:
        """Leave where the application has not come for records for too long.

        What was owned is lost before the group hears of it, and may give it to another.
        """
        if time.monotonic() - self._polled_s <= self.terms.max_poll_ms / 1000:
            return False
        self._move(LOST)
        self.left(self._live)
        self._forgotten()
        return True

    def _forgotten(self) -> None:
        """The group does not know this member any more: what it owned may be another's."""
        self._stand(-1, "")
        self._owned = ()

    def _fail(self, error: BaseException) -> None:
        with self._news:
            self._error = error
            self._news.notify_all()

    def _silent(self, error: UnreachableError) -> None:
        """The coordinator does not answer: no error until a session has passed, or while joining
        the time that a call may take.
        """
        patience_ms = self.terms.session_ms
        if self.state == JOINING:
            patience_ms = min(patience_ms, self.terms.api_ms)
        if time.monotonic() - self._heard_s > patience_ms / 1000:
            self._heard_s = time.monotonic()
            if self.state == JOINING:
                self._fail(error)
            else:
                self._move(LOST)
        with self._news:
            self._news.wait(0.1)

    def _move(self, state: str, *leaving: str) -> None:
        """Change the state, only from those of `leaving` where any is named."""
        with self._news:
            if not leaving or self.state in leaving:
                self.state = state
            self._news.notify_all()

    def _stand(self, generation: int, member_id: str) -> None:
        self.standing = Standing(generation, member_id, self.terms.instance_id)


def partition_counts(client: Any, names: Sequence[str]) -> dict[str, int]:
    """How many partitions topics have; 0: it does not exist."""
    if not names:
        return {}
    body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    topics = client.request("Metadata", body)["topics"]
    counts = {topic["name"]: len(topic["partitions"]) for topic in topics}
    return {name: counts.get(name, 0) for name in names}
