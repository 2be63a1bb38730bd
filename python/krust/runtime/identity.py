"""Which number a broker has: as set, as its directories say, as its ZooKeeper gives it, or 0.

A number that is given is `reserved.broker.max.id` and how often `/brokers/seqid` was written, this
time included, as Kafka's is: no two brokers ever get the same. It is asked for by a session of its
own, since the broker's own one ends what another process on the same directories has, and those are
not locked yet. The directories keep the number (`meta.properties`); a start that fails before then
loses it, which costs nothing.
Threads: the policy thread.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from krust.errors import ConfigError, ServerError
from krust.metadata import znodes
from krust.metadata.store import Create, Done, SetData, Stat
from krust.properties import properties
from krust.runtime import metadata

if TYPE_CHECKING:
    from pathlib import Path

    from krust.config import Config
    from krust.metadata.store import Operation, Store

_SEQUENCE: tuple[list[Operation], ...] = (
    [Create("/brokers")],
    [Create(znodes.BROKER_SEQUENCE)],
    [SetData(znodes.BROKER_SEQUENCE, b"")],
)
_WAIT_S = 30.0
_NONE = -1


def node_id(config: Config, dirs: list[Path]) -> int:
    """The broker's number.

    raises  ConfigError: the number that is set may be given to another, or none is to be given;
            ServerError: the directories belong to another broker, or no ZooKeeper answers
    """
    wanted = check(config, dirs)
    clustered = bool(config.text("zookeeper.connect"))
    if wanted >= 0 or not clustered:
        return max(wanted, 0)
    woken = threading.Event()
    store = metadata.beside(config, woken.set)
    try:
        return config.whole("reserved.broker.max.id") + _written(store, woken)
    finally:
        store.close()


def check(config: Config, dirs: list[Path]) -> int:
    """The number that settings and directories say, -1: none; without asking anybody.

    raises  as `node_id`
    """
    wanted = config.whole("broker.id")
    clustered = bool(config.text("zookeeper.connect"))
    gives = clustered and config.true("broker.id.generation.enable")
    most = config.whole("reserved.broker.max.id")
    if gives and wanted > most:
        raise ConfigError(
            f"broker.id is {wanted}, and numbers above {most} are given to brokers without one",
            hint="choose a smaller one, or set broker.id.generation.enable=false",
        )
    for each in dirs:
        found = stored(each)
        if found is None:
            continue
        if wanted not in (_NONE, found):
            raise ServerError(
                f"broker.id is {wanted}, but {each} belongs to broker {found}",
                hint=f"set broker.id={found}, or start in another --data-dir",
            )
        wanted = found
    if wanted < 0 and clustered and not gives:
        raise ConfigError("broker.id is not set", hint="set it, or broker.id.generation.enable")
    return wanted


def stored(folder: Path) -> int | None:
    """The number in a directory; None: it has none, or its disk refuses it: the core says so."""
    place = folder / "meta.properties"
    try:
        meta = properties(place.read_text())
        return int(meta.get("broker.id", meta.get("node.id", str(_NONE))))
    except OSError:
        return None
    except ValueError as error:
        raise ServerError(f"{place} cannot be read: {error}", hint="mend or remove it") from None


def _written(store: Store, woken: threading.Event) -> int:
    """How often the sequence was written, with our own time."""
    for token, operations in enumerate(_SEQUENCE):
        store.submit(operations, token)
    last: Done | None = None
    deadline = time.monotonic() + _WAIT_S
    while (last is None or last.token != len(_SEQUENCE) - 1) and time.monotonic() < deadline:
        woken.wait(min(store.due_s(), 1.0))
        woken.clear()
        for each in store.events():
            last = each if isinstance(each, Done) else last
    stat = last.results[0] if last is not None else None
    if isinstance(stat, Stat):
        return stat.version
    raise ServerError(
        f"{znodes.BROKER_SEQUENCE} gives this broker no number: {last and last.refused}",
        hint="look at the ZooKeeper, or set broker.id",
    )
