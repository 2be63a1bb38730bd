"""The settings of a `krust.Broker`, from the arguments of its caller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from krust.authorizer import CLASS
from krust.config import Config, GivenSetting, SettingSource, load
from krust.errors import ConfigError
from krust.listeners import addresses

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from krust.controller.authorizers import Authorizer
    from krust.coordinator.assignors.assignor import Assignor

_log = logging.getLogger("krust")


def with_defaults(
    data_dir: str | os.PathLike[str] | None,
    port: int,
    config: Mapping[str, object] | Config | None,
) -> tuple[Config, list[Path]]:
    """The settings, and the log directories; empty: a temporary one."""
    if isinstance(config, Config):
        found = config
        named = True
    else:
        options = dict(config or {})
        options.setdefault("listeners", f"PLAINTEXT://localhost:{port}")
        found = load(options=options)
        for notice in found.notices:
            _log.warning("%s", notice)
        named = "log.dirs" in options or "log.dir" in options
    if data_dir is not None:
        return found, [Path(data_dir)]
    if not named:
        return found, []
    return found, found.log_dirs()


def with_authorizer(config: Config, own: Authorizer | None) -> Config:
    """The settings with an authorizer of this process."""
    if own is None:
        return config
    named = GivenSetting(own.name, SettingSource("option", "authorizer"))
    return Config({**config.given(), CLASS: named}, config.notices)


def with_ports(config: Config, ports: Mapping[str, int]) -> Config:
    """The settings with the ports that listeners were bound to, by the names of the listeners."""
    named = addresses(str(config.text("listeners")))
    if not ports or all(port for _, _, port in named):
        return config
    text = ",".join(
        f"{name}://{f'[{host}]' if ':' in host else host}:{port or ports[name]}"
        for name, host, port in named
    )
    given = config.given()
    return Config(
        {**given, "listeners": GivenSetting(text, config.source("listeners"))}, config.notices
    )


def assignor_of(pattern: str, kind: Assignor | type[Assignor]) -> Assignor:
    """The assignor of a class, or the object itself. ConfigError: it is none."""
    assignor = kind() if isinstance(kind, type) else kind
    if not callable(getattr(assignor, "assign", None)) or not getattr(assignor, "name", None):
        raise ConfigError(
            f"assignors[{pattern!r}] is {assignor!r}, no assignor",
            hint="it needs `name` and `assign(group, topics)`",
        )
    return assignor


def authorizer_of(kind: Authorizer | type[Authorizer] | None) -> Authorizer | None:
    """The authorizer of a class, or the object itself. ConfigError: it is none."""
    own = kind() if isinstance(kind, type) else kind
    if own is None or (callable(getattr(own, "acls", None)) and getattr(own, "name", None)):
        return own
    hint = "it needs `name` and `acls(client)`"
    raise ConfigError(f"authorizer is {own!r}, no authorizer", hint=hint)
