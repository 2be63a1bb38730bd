"""Hands group events to the coordinator, and its GroupOutcomes to the core.

One call to the core has a whole batch: records, snapshots, replies, in this order. If the records
of a group cannot be written, or if the core refuses its records, snapshot or reply as malformed (a
bug of the coordinator), the coordinator forgets the group and the core reads it again. A turn is
short: events are decided in batches, and the rest waits for the next turn, in order. The topics of
a regular expression are computed once, until topics change.
Time: the wall clock at the start plus the time on a monotonic clock, so that no jump of the wall
clock ends a rebalance. The time when a group became empty comes from the wall clock, because
offsets expire by that clock.
Threads: the policy thread.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from krust.config import ASSIGNORS, rules
from krust.controller import group_configs
from krust.coordinator.events import Event, GroupSettings, TopicShape
from krust.coordinator.group_coordinator import GroupCoordinator
from krust.plugins import parameters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from krust._krust import Server
    from krust.config import Config
    from krust.controller.entities import Topic
    from krust.controller.state import ControllerState
    from krust.coordinator.assignors.assignor import Assignor, Topics
    from krust.coordinator.events import AssignCall, GroupOutcome, Reply, TopicsChanged
    from krust.messages import Message, RequestContext
    from krust.plugins import Parameters
    from krust.runtime.assignor_calls import AssignorCalls

_TURN_S = 0.05
"""how long a turn begins batches"""

_BATCH = 64
"""the most events decided at once"""

_LEAST_REBALANCE_DELAY_MS = 3
"""The least time that a new group waits for its second member. Consumers that start together then
form one generation as often as with Kafka, whose threads take as long."""

_PATTERNS = 256
"""how many regular expressions the cache has"""

_log = logging.getLogger("krust.groups")


class Groups:
    """The coordinator of one broker, and the assignors that it calls.

    objects   pattern of group names -> assignor object of this process; these rules come before
              those of the setting
    """

    def __init__(
        self, server: Server, state: ControllerState, objects: Mapping[str, Assignor] | None = None
    ) -> None:
        self._server = server
        self._state = state
        named = rules(ASSIGNORS, state.broker_text(ASSIGNORS) or "")
        self._rules: list[tuple[str, str | Assignor]] = [*(objects or {}).items(), *named]
        self._assigning: AssignorCalls | None = None
        self._ahead_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
        more = {"server_assignor": self._loaded_assigning().wants} if self._rules else {}
        self._patterns = _PatternCache(server)
        self._shapes = _TopicCache(state)
        policy = (state.broker_text("group.consumer.migration.policy") or "").lower()
        protocols = (state.broker_text("group.coordinator.rebalance.protocols") or "").lower()
        settings = GroupSettings(
            initial_rebalance_delay_ms=max(
                state.whole("group.initial.rebalance.delay.ms"), _LEAST_REBALANCE_DELAY_MS
            ),
            min_session_timeout_ms=state.whole("group.min.session.timeout.ms"),
            max_session_timeout_ms=state.whole("group.max.session.timeout.ms"),
            max_size=state.whole("group.max.size"),
            has_offsets=server.has_offsets,
            groups_with_offsets=server.groups_with_offsets,
            session_timeout_ms=state.whole("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=state.whole("group.consumer.heartbeat.interval.ms"),
            timing_of=lambda group: group_configs.timing(state, group),
            consumer_max_size=state.whole("group.consumer.max.size"),
            assignors=_offered_assignors(state, objects or {}),
            serves_consumer_protocol="consumer" in re.split(r"[\s,]+", protocols),
            upgrades=policy in ("upgrade", "bidirectional"),
            downgrades=policy in ("downgrade", "bidirectional"),
            topics=self._shapes.of,
            topic_of=state.names.get,
            match_topics=self._patterns.match_topics,
            max_group_bytes=state.whole("krust.group.metadata.max.bytes"),
            max_bytes=state.whole("krust.group.metadata.memory.bytes"),
            **more,
        )
        self.coordinator = GroupCoordinator(settings, lambda: str(uuid.uuid4()))
        self._wake_at_ms: int | None = None
        self._waiting: deque[Event[Message]] = deque()
        self._topics_changed: list[str] = []

    def decides(self, api: str) -> bool:
        """Whether the coordinator decides an event of this name."""
        return self.coordinator.decides(api)

    def wait_ms(self, most: int) -> int:
        """How long the policy thread may wait for events before a timer of a group is due."""
        if self._topics_changed or self._waiting:
            return 0
        if self._wake_at_ms is None:
            return most
        return max(0, min(most, self._wake_at_ms - self._now_ms()))

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics changed. The next batch tells the groups."""
        before = len(self._topics_changed)
        self._topics_changed += names
        if len(self._topics_changed) > before:
            self._patterns.clear()
            self._shapes.clear()

    def configured(self, groups: Collection[str]) -> None:
        """The settings of groups changed: publish their session timeouts."""
        if groups:
            self.coordinator.on_configs_changed(groups)
            self._decide([])

    def handle(self, events: Sequence[tuple[int, str, int, Message, RequestContext]]) -> None:
        """Queue events, decide the first ones and what is due, and have the core carry it out."""
        self._waiting += [Event(*each) for each in events]
        if self._assigning is not None:
            self._waiting += self._assigning.take()
        if self._topics_changed:
            names, self._topics_changed = self._topics_changed, []
            changed: TopicsChanged = {"group_id": "", "names": names}
            self._waiting.appendleft(Event(0, "TopicsChanged", 0, changed, {}))
        end_s = time.monotonic() + _TURN_S
        while self._waiting or self._is_due():
            self._decide(batch(self._waiting))
            if time.monotonic() >= end_s:
                break

    def _is_due(self) -> bool:
        return self._wake_at_ms is not None and self._wake_at_ms <= self._now_ms()

    def _decide(self, events: list[Event[Message]]) -> None:
        now_ms = self._now_ms()
        wall_ms = time.time_ns() // 1_000_000
        try:
            outcome = self.coordinator.handle_batch(events, now_ms, wall_ms)
        except Exception:
            _log.exception("the coordinator failed; every group is read again")
            outcome = self.coordinator.on_batch_failed(events, now_ms)
        self._carry_out(outcome)

    def close(self) -> None:
        """End the threads and processes of assignors."""
        if self._assigning is not None:
            self._assigning.close()

    def _loaded_assigning(self) -> AssignorCalls:
        """The assignors. A broker without assignors of the user never loads this code."""
        if self._assigning is None:
            from krust.runtime.assignor_calls import AssignorCalls, AssignorRule

            least_ms = self._state.whole("krust.group.assignor.timeout.ms")
            rules = [AssignorRule(*each) for each in self._rules]
            self._assigning = AssignorCalls(
                rules, self._server.wakeup, least_ms, _parameters(self._state.config)
            )
            self._assigning.warm()
        return self._assigning

    def _carry_out(self, outcome: GroupOutcome) -> None:
        while True:
            for line in outcome.lines:
                _log.error("%s", line)
            failed = self._apply(outcome)
            if outcome.reload:
                self._server.reload_groups(outcome.reload)
            for call in outcome.calls:
                if call.group_id not in failed:
                    self._loaded_assigning().start(call, self._topics(call))
            self._wake_at_ms = outcome.wake_at_ms
            if not failed:
                return
            _log.error("the offsets topic could not be written for %s", ", ".join(failed))
            outcome = self.coordinator.on_append_failed(failed, self._now_ms(), outcome.replies)

    def _apply(self, outcome: GroupOutcome) -> list[str]:
        """Have the core carry out a GroupOutcome. Returns the groups for which that failed.

        Malformed records, snapshots or replies are a bug of the coordinator and cost their group.
        """
        try:
            return self._server.apply_group_outcome(
                outcome.records, outcome.snapshots, outcome.replies
            )
        except (TypeError, ValueError):
            _log.exception("the core refuses what the coordinator decided: it is malformed")
        failed = []
        named = [each[0] for each in outcome.records] + [each[0] for each in outcome.snapshots]
        named += [group_id for each in outcome.replies for group_id in each[2]]
        for group_id in dict.fromkeys(named):
            records = [each for each in outcome.records if each[0] == group_id]
            snapshots = [each for each in outcome.snapshots if each[0] == group_id]
            answers = [each for each in outcome.replies if each[2] == (group_id,)]
            try:
                failed += self._server.apply_group_outcome(records, snapshots, answers)
            except (TypeError, ValueError) as error:
                _log.error("group %r is read again: %s", group_id, error)
                failed.append(group_id)
                outcome.reload.append(group_id)
        for reply in outcome.replies:
            if len(reply[2]) != 1 and set(failed).isdisjoint(reply[2]):
                failed += self._answer(reply)
        return failed

    def _answer(self, reply: Reply) -> list[str]:
        """Send a reply that waits for no group or for several. Returns the groups whose append
        failed.

        A malformed reply closes the connection, so that its client does not wait.
        """
        with suppress(TypeError, ValueError):
            return self._server.apply_group_outcome([], [], [reply])
        with suppress(ValueError):
            self._server.answer(reply[0], {"no answer": None})
        return []

    def _topics(self, call: AssignCall) -> Topics:
        """The topics of a group for an assignor."""
        from krust.coordinator import assignor_data
        from krust.coordinator.assignors.assignor import Topics

        known = self._state.topics
        found = [known[name] for name in assignor_data.topics(call) if name in known]
        racks = {
            (topic.name, number): racks
            for topic in found
            for number, racks in enumerate(_racks(self._state, topic))
            if racks
        }
        counts = {topic.name: len(topic.partitions) for topic in found}
        read = self._server.lags(call.group_id, list(counts))
        return Topics(counts, racks, {(name, number): lag for name, number, lag in read})

    def _now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms


def batch(waiting: deque[Event[Message]]) -> list[Event[Message]]:
    """Take the events to decide next. They have heartbeats of at most one consumer group, because a
    consumer group reconciles its members at the end of the batch.
    """
    taken: list[Event[Message]] = []
    group_id: str | None = None
    while waiting and len(taken) < _BATCH:
        event = waiting[0]
        if event.api == "ConsumerGroupHeartbeat":
            if group_id not in (None, event.message["group_id"]):
                break
            group_id = event.message["group_id"]
        taken.append(waiting.popleft())
    return taken


class _PatternCache:
    """A cache: regular expression -> topics that match."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._topics: dict[str, frozenset[str]] = {}

    def match_topics(self, pattern: str) -> frozenset[str]:
        """The topics that match. ValueError: the expression is invalid."""
        found = self._topics.get(pattern)
        if found is None:
            found = frozenset(self._server.match_topics(pattern))
            if len(self._topics) >= _PATTERNS:
                del self._topics[next(iter(self._topics))]
            self._topics[pattern] = found
        return found

    def clear(self) -> None:
        """Topics changed."""
        self._topics.clear()


class _TopicCache:
    """The topics that the coordinator asks for. A lone broker caches them until topics change,
    because no rack of another broker can change.
    """

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._known: dict[str, tuple[Topic, TopicShape]] = {}

    def of(self, name: str) -> TopicShape | None:
        """The topic; None: it does not exist."""
        topic = self._state.topics.get(name)
        if topic is None:
            return None
        known = self._known.get(name)
        if known is not None and known[0] is topic:
            return known[1]
        shape = TopicShape(topic.id, len(topic.partitions), _racks(self._state, topic))
        if not self._state.shared:
            self._known[name] = (topic, shape)
        return shape

    def clear(self) -> None:
        """Topics changed."""
        self._known.clear()


def _racks(state: ControllerState, topic: Topic) -> tuple[frozenset[str], ...]:
    """The racks of each partition's replicas, as far as they are known."""
    racks = {number: live.rack for number, live in state.brokers.items()}
    racks[state.node_id] = state.config.text("broker.rack")
    if not any(racks.values()):
        return ()
    return tuple(
        frozenset(rack for rack in map(racks.get, each.replicas) if rack)
        for each in topic.partitions
    )


def _parameters(config: Config) -> Parameters:
    """The parameters of assignors."""
    given = {name: setup.text for name, setup in config.given().items()}
    return parameters(given, ASSIGNORS)


def _offered_assignors(state: ControllerState, objects: Mapping[str, Assignor]) -> dict[str, str]:
    """The assignors that members may ask for. One that cannot be loaded is logged and left out."""
    names = state.broker_text("group.consumer.assignors") or ""
    found: dict[str, str] = {}
    for named in filter(None, re.split(r"[\s,]+", names)):
        name = named
        if ":" in named:
            from krust.plugin_process import PluginFailedError
            from krust.runtime.runners import name_of

            try:
                name = name_of(named, _parameters(state.config))
            except PluginFailedError as error:
                _log.error("group.consumer.assignors: %s", error)
                continue
        found[name] = named
    more = {one.name: one.name for one in objects.values() if one.name not in found}
    return (found or {"uniform": "uniform"}) | more
