"""Settings and topics as the core takes them: typed, and of settings those alone that act."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from krust.config import inter_broker_listener
from krust.settings import BROKER

if TYPE_CHECKING:
    from krust.config import Config
    from krust.controller.state import ControllerState


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
