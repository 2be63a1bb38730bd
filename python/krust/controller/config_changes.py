"""Notifications of changed settings: `/config/changes`, which every broker watches.

Whoever changes the settings of an entity names it there (`change_notifications`), and every broker
reads the entity's settings again.
Entities: topics; brokers; users, clients and addresses, whose settings are quotas; groups, which
only krust has (a broker of Kafka 3.9 logs an unknown entity and continues).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import group_configs, loading, quota_entities, quotas
from krust.controller.change_notifications import SeenNotifications
from krust.controller.controller_election import RetryLaterError
from krust.metadata import znodes
from krust.metadata.contents import ConfigChange
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Node, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection

    from krust.controller.state import ConfigEntity, ControllerState, Steps


class ConfigChangeNotifications(SeenNotifications):
    """The notifications that this broker has seen."""

    def __init__(self) -> None:
        super().__init__(znodes.CONFIG_CHANGES)

    def read_new(self, state: ControllerState, now_ms: int) -> Steps:
        """Read new notifications, and the settings that they name."""
        new = yield from self.new(now_ms)
        if not new:
            return
        topics: dict[str, None] = {}
        limited: dict[quotas.QuotaOwner, None] = {}
        groups: dict[str, None] = {}
        brokers = False
        for path, node in new:
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
        self.take(path for path, _ in new)


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
