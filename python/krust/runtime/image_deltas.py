"""Deltas of the core's cluster image: the controller's changes as `_krust.Server.apply` takes them.

Invariant: versions rise by one; a topic's delta names the partitions that changed since the last.
Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.controller import quotas
from krust.controller.state import INTERNAL, NO_TOPIC_ID
from krust.runtime.core_settings import typed

if TYPE_CHECKING:
    from krust.config import Config
    from krust.controller.state import Changes, ControllerState, Topic
    from krust.runtime.retention_rules import Retention


class ImageDeltas:
    """What the core was given so far, and what it is given next."""

    def __init__(
        self, config: Config, state: ControllerState, retention: Retention, *, alone: bool
    ) -> None:
        self._config, self._state, self._retention = config, state, retention
        self._alone = alone
        self._version = 0
        self._given: dict[str, Topic] = {}
        self._last_controller = -1
        self.advertised: list[tuple[str, str, int]] = []
        """name, host and port of each advertised listener of this broker"""

    def delta(self, changes: Changes, more: dict[str, Any]) -> dict[str, Any] | None:
        """The delta of these changes; None: the image stays. `more`: further fields of it."""
        topics: dict[str, Topic | None] = dict(changes.topics)
        if changes.brokers:
            topics = {**self._state.topics, **topics}
            more = {**more, "settings": typed(self._config, self._state, alone=self._alone)}
        if changes.live or changes.controller:
            more = {**more, **self._cluster()}
        if changes.quotas:
            more = {**more, "quotas": quotas.shown(self._state.quotas)}
        if changes.strays:
            more = {**more, "strays": sorted(changes.strays)}
        if not topics and not more:
            return None
        self._version += 1
        return {
            "version": self._version,
            "topics": {name: self._topic(name, topic) for name, topic in topics.items()},
            **more,
        }

    def _cluster(self) -> dict[str, Any]:
        """The brokers and the controller. If nothing is advertised, clients of this broker see the
        address that they connected to. While there is no controller they see the last one, which
        refuses them: if they saw none, librdkafka would wait and not ask again.
        """
        state = self._state
        if state.controller_id >= 0:
            self._last_controller = state.controller_id
        brokers = [
            {
                "id": number,
                "rack": live.rack,
                "endpoints": [(at.listener, at.host, at.port) for at in live.endpoints],
            }
            for number, live in state.brokers.items()
            if number != state.node_id
        ]
        rack = self._config.text("broker.rack")
        brokers.append({"id": state.node_id, "rack": rack, "endpoints": self.advertised})
        return {
            "controller_id": self._last_controller,
            "brokers": brokers,
            "waits": not state.knows_leaders,
        }

    def _topic(self, name: str, topic: Topic | None) -> dict[str, Any] | None:
        """A topic as the image takes it; None: it is gone."""
        if topic is None:
            self._retention.forget(name)
            self._given.pop(name, None)
            return None
        values = self._retention.shown(topic.name, self._state.topic_values(topic))
        known, self._given[name] = self._given.get(name), topic
        return topic_delta(topic, values, known)


def topic_delta(topic: Topic, values: dict[str, Any], known: Topic | None) -> dict[str, Any]:
    """A topic as `_krust.Server.apply` takes it: of its partitions those that changed.

    values  its settings, typed
    known   the topic as the core was last given it; None: not at all
    """
    before = known.partitions if known is not None and known.id == topic.id else ()
    return {
        "id": topic.id or NO_TOPIC_ID,
        "internal": topic.name in INTERNAL,
        "config": values,
        "partitions": [
            {
                "partition": number,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "isr": list(each.isr),
                "replicas": list(each.replicas),
                "partition_epoch": each.version,
            }
            for number, each in enumerate(topic.partitions)
            if number >= len(before) or each != before[number]
        ],
    }
