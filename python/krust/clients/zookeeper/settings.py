"""The settings of a ConsumerConnector, with their names of 2013."""

from __future__ import annotations

import socket
import time
import uuid
from typing import TYPE_CHECKING

from krust import _krust
from krust.clients import options
from krust.errors import ConfigError
from krust.metadata.ensemble import Ensemble
from krust.metadata.store import is_path
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = options.FETCH | {
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "consumer.id",
    "consumer.timeout.ms",
    "dual.commit.enabled",
    "exclude.internal.topics",
    "group.id",
    "offsets.storage",
    "rebalance.backoff.ms",
    "rebalance.max.retries",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "zookeeper.sync.time.ms",
}


class ConnectorSettings(NamedTuple):
    """The settings of one connector."""

    group: str
    member: str
    """its name in the group: `<group>_<host>-<ms>-<8 hex>`"""
    ensemble: Ensemble
    bootstrap: str | None
    """None: the brokers in ZooKeeper"""
    protocol: str
    given: Mapping[str, object]
    commit_s: float | None
    """the interval of automatic commits; None: there are none"""
    reset: int
    patience_s: float | None
    internal: bool
    in_kafka: bool
    """whether offsets are stored in Kafka"""
    in_zookeeper: bool
    """whether offsets are stored in ZooKeeper"""
    backoff_s: float
    retries: int


def read(config: Mapping[str, object] | None, more: Mapping[str, object]) -> ConnectorSettings:
    """Read the given settings. ConfigError: an unknown or invalid one."""
    given = options.read(SETTINGS, config, more, named=False)
    group, connect = (_text(given, name) for name in ("group.id", "zookeeper.connect"))
    kind = options.choice(given, "offsets.storage", "zookeeper", "kafka")
    session_ms = options.number(given, "zookeeper.session.timeout.ms", 6000)
    connection_ms = options.number(given, "zookeeper.connection.timeout.ms", session_ms)
    pause_ms = options.number(given, "zookeeper.sync.time.ms", 2000)
    word = options.choice(given, "auto.offset.reset", "largest", "smallest", "latest", "earliest")
    wait = str(given.get("consumer.timeout.ms", -1))
    auto = options.switch(given, "auto.commit.enable", True)
    dual = options.switch(given, "dual.commit.enabled", kind == "kafka")
    name = given.get("consumer.id")
    if name is None:
        name = f"{socket.gethostname()}-{int(time.time() * 1000)}-{uuid.uuid4().hex[:8]}"
    ensemble = Ensemble(connect, session_ms, connection_ms)
    member = f"{group}_{name}"
    if not is_path(f"{ensemble.root}/consumers/{group}/ids/{member}") or "/" in member:
        raise ConfigError(f"{member!r} cannot be a name in ZooKeeper", hint="group.id, consumer.id")
    return ConnectorSettings(
        group,
        member,
        ensemble,
        None if options.BOOTSTRAP not in given else str(given[options.BOOTSTRAP]),
        str(given.get("security.protocol", "PLAINTEXT")).upper(),
        given,
        options.number(given, "auto.commit.interval.ms", 60_000) / 1000 if auto else None,
        _krust.EARLIEST if word in ("smallest", "earliest") else _krust.LATEST,
        None if wait == "-1" else options.number(given, "consumer.timeout.ms", 0) / 1000,
        not options.switch(given, "exclude.internal.topics", True),
        kind == "kafka",
        kind == "zookeeper" or dual,
        options.number(given, "rebalance.backoff.ms", pause_ms) / 1000,
        options.number(given, "rebalance.max.retries", 4),
    )


def _text(given: Mapping[str, object], name: str) -> str:
    value = str(given.get(name, ""))
    if not value:
        raise ConfigError(f"a consumer in ZooKeeper needs {name}")
    return value
