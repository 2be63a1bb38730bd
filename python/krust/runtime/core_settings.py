"""The broker's settings as the core takes them: the typed values of those that have an effect."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from krust.listeners import CONNECTION_SETTINGS, PREFIX, addresses, inter_broker_listener
from krust.settings import BROKER

if TYPE_CHECKING:
    from krust.config import Config
    from krust.controller.state import ControllerState
    from krust.settings import Values


def threads(config: Config) -> int:
    """The number of network threads; 0: the core chooses it."""
    wanted = config.whole("krust.threads")
    if wanted == 0 and config.source("num.network.threads").kind != "default":
        wanted = min(config.whole("num.network.threads"), os.cpu_count() or 1)
    return wanted


def broker_values(config: Config, state: ControllerState | None, *, alone: bool) -> Values:
    """The values of the broker's settings, with what changed since the start.

    state  None: the broker starts, nothing has changed yet
    alone  there are no other brokers. Only WriteTxnMarkers is served on the listener that would be
           between them
    """
    text = state.broker_text if state is not None else config.text
    values: Values = {
        name: setting.parse(text(name))
        for name, setting in BROKER.items()
        if setting.support == "yes"
    }
    for name, _, _ in addresses(str(config.text("listeners"))):
        for limit in CONNECTION_SETTINGS:
            own = f"{PREFIX}{name.lower()}.{limit}"
            if text(own) is not None:
                values[own] = BROKER[limit].parse(text(own))
    listener = inter_broker_listener(config.text)
    values["inter.broker.listener.name"] = None if alone else listener
    values["krust.lone.listener"] = listener if alone else None
    if state is not None:
        values["transaction.version"] = state.features.transaction_version
        values["features.epoch"] = state.features.epoch
    return values
