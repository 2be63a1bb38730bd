"""Settings and topics as the core takes them: typed, and of settings those alone that act."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from krust.config import inter_broker_listener
from krust.controller.state import INTERNAL, NO_TOPIC_ID
from krust.settings import BROKER

if TYPE_CHECKING:
    from krust.config import Config
    from krust.controller.state import ControllerState, Topic


def threads(config: Config) -> int:
    """Network threads; 0: as the core sees fit."""
    wanted = config.whole("krust.threads")
    if wanted == 0 and config.source("num.network.threads").kind != "default":
        wanted = min(config.whole("num.network.threads"), os.cpu_count() or 1)
    return wanted


def typed(config: Config, state: ControllerState | None, *, alone: bool) -> dict[str, Any]:
    """The broker's settings that act, typed, with what changed since the start.

    alone  there are no other brokers, and so no listener for them
    """
    text = state.broker_text if state is not None else config.text
    typed = {
        name: setting.parse(text(name))
        for name, setting in BROKER.items()
        if setting.support == "yes"
    }
    typed["inter.broker.listener.name"] = None if alone else inter_broker_listener(config)
    return typed


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
