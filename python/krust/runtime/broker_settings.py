"""The settings of a `krust.Broker`, from the arguments of its caller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from krust.config import Config, GivenSetting, load
from krust.listeners import addresses

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

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
