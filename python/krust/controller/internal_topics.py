"""Kafka's internal topics: their partitions, replicas and settings, as the broker's settings say.

Without a ZooKeeper an internal topic has at most as many replicas as there are brokers, and
min.insync.replicas is at most that number; a log line says so. Kafka would refuse to create the
topic, and then no group would work on a single broker. In a ZooKeeper cluster krust does as Kafka
does, because the other brokers may be Kafka's.
Threads: the policy thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.controller.state import ControllerState

PARTITIONS = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
}
"""Settings that say how many partitions they have."""

_FACTORS = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
"""Settings that say how many replicas they have."""

_CONFIG = {
    "__consumer_offsets": {
        "compression.type": "producer",
        "cleanup.policy": "compact",
    },
    "__transaction_state": {
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
    },
}

_CONFIG_FROM = {
    "__consumer_offsets": {"segment.bytes": "offsets.topic.segment.bytes"},
    "__transaction_state": {
        "min.insync.replicas": "transaction.state.log.min.isr",
        "segment.bytes": "transaction.state.log.segment.bytes",
    },
}
"""Topic settings that settings of the broker say."""

_COUNT_REPLICAS = (*_FACTORS.values(), "transaction.state.log.min.isr")
"""Settings that count replicas."""


def partitions(state: ControllerState, name: str) -> int:
    """How many partitions a topic gets, internal or not, if the request does not say."""
    return state.whole(PARTITIONS.get(name, "num.partitions"))


def replicas(state: ControllerState, name: str) -> int:
    """How many replicas a partition gets, internal or not, if the request does not say."""
    return _number(state, name, _FACTORS.get(name, "default.replication.factor"))


def config(state: ControllerState, name: str) -> dict[str, str]:
    """The settings that Kafka gives an internal topic."""
    settings = _CONFIG_FROM[name].items()
    return _CONFIG[name] | {key: str(_number(state, name, own)) for key, own in settings}


def _number(state: ControllerState, name: str, setting: str) -> int:
    """The value of a setting; if it counts replicas, at most the number of brokers."""
    wanted, most = state.whole(setting), max(len(state.brokers), 1)
    if setting not in _COUNT_REPLICAS or wanted <= most or state.config.text("zookeeper.connect"):
        return wanted
    level = logging.WARNING if state.shared else logging.INFO
    brokers = "1 broker" if most == 1 else f"{most} brokers"
    state.changes.lines.append((level, f"{name}: {setting} is {most}, not {wanted}: {brokers}"))
    return most
