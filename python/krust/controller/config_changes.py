"""Notifications of changed settings: `/config/changes`, which every broker watches.

Whoever changes the settings of an entity creates a child there that names the entity. Every broker
that sees the child reads the entity's settings. The children's numbers only grow, so a broker
remembers the last number it has seen. The controller deletes a child 15 minutes after it has seen
it, as Kafka's brokers do.
Entities: topics; brokers; users, clients and addresses, whose settings are quotas; groups, which
only krust has (a broker of Kafka 3.9 logs an unknown entity and continues).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import group_configs, loading, quota_entities, quotas, store_reads
from krust.controller.controller_election import RetryLaterError
from krust.metadata import znodes
from krust.metadata.contents import BadZnodeError, ConfigChange
from krust.metadata.store import Children, Delete, Node, Read, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection

    from krust.controller.state import ConfigEntity, ControllerState, Steps

KEEP_MS = 15 * 60 * 1000


class ConfigChangeNotifications:
    """The notifications that this broker has seen."""

    def __init__(self) -> None:
        self._last = -1
        self._since: dict[str, int] = {}
        """notice -> when it was seen first"""

    def begin(self) -> Steps:
        """Remember the newest notification. The caller reads all settings next."""
        (read,) = yield [[Children(znodes.CONFIG_CHANGES, watch=True)]]
        names = store_reads.children(znodes.CONFIG_CHANGES, read.results[0])
        self._last = max([_number_of(name) for name in names], default=-1)

    def read_new(self, state: ControllerState, now_ms: int) -> Steps:
        """Read new notifications, and the settings that they name."""
        (read,) = yield [[Children(znodes.CONFIG_CHANGES, watch=True)]]
        names = store_reads.children(znodes.CONFIG_CHANGES, read.results[0])
        self._since = {name: self._since.get(name, now_ms) for name in names}
        new = [name for name in names if _number_of(name) > self._last]
        if not new:
            return
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in new]
        results = yield from store_reads.read_many(map(Read, paths))
        topics: dict[str, None] = {}
        limited: dict[quotas.QuotaOwner, None] = {}
        groups: dict[str, None] = {}
        brokers = False
        for path, node in zip(paths, results, strict=True):
            if node is Refusal.NO_NODE:
                continue
            if not isinstance(node, Node):
                raise RetryLaterError(f"{path}: {node}")
            try:
                entity_path = ConfigChange.decode(node.data).path
            except BadZnodeError as error:
                state.fault(path, error)
                continue
            kind, _, name = entity_path.partition("/")
            owner = quotas.owner_at(entity_path)
            if owner is not None:
                limited[owner] = None
            if kind == "topics":
                topics[znodes.unsanitised(name)] = None
            if kind == "groups":
                groups[name] = None
            brokers |= kind == "brokers"
        if brokers:
            yield from loading.of_brokers(state)
        for each in limited:
            yield from quota_entities.reread(state, each)
        yield from group_configs.reread(state, group_configs.groups_of(groups))
        yield from reread_topic_configs(state, [name for name in topics if _is_topic_name(name)])
        self._last = max(_number_of(name) for name in new)

    def purge(self, state: ControllerState, now_ms: int) -> Steps:
        """Delete notifications that all brokers had the time to see."""
        old = [name for name, since in self._since.items() if now_ms - since >= KEEP_MS]
        for name in old:
            yield [[state.fence(), Delete(f"{znodes.CONFIG_CHANGES}/{name}")]]
            self._since.pop(name, None)

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until a notification has to be deleted."""
        return min(self._since.values(), default=float("inf")) + KEEP_MS - now_ms


def reread_topic_configs(state: ControllerState, names: Collection[str]) -> Steps:
    """Read the settings of these topics."""
    found = yield from loading.settings_of(state, names)
    for name, entity in found.items():
        _take_config(state, name, entity)


def _take_config(state: ControllerState, name: str, entity: ConfigEntity) -> None:
    topic = state.topics.get(name)
    if topic is None:
        return
    version = max(entity.version, 0)
    if topic.config_version > version:
        return
    if (topic.config, topic.config_version) != (entity.config, version):
        state.put(topic._replace(config=entity.config, config_version=version))


def _is_topic_name(name: str) -> bool:
    """Whether the name is possible for a topic."""
    return "/" not in name and bool(name)


def _number_of(name: str) -> int:
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
