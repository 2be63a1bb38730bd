"""The TLS of this broker's listeners, and of its connections to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust._krust import ServerTls
from krust.errors import ConfigError
from krust.listeners import inter_broker_listener, listeners, tls_settings

if TYPE_CHECKING:
    from krust.config import Config


def server_tls(config: Config) -> dict[str, ServerTls]:
    """The TLS of each listener that is encrypted. ConfigError: it names no usable key."""
    found: dict[str, ServerTls] = {}
    for each in listeners(config.text):
        if each.encrypted:
            try:
                found[each.name] = ServerTls(tls_settings(config.text, each.name))
            except ConfigError as error:
                raise ConfigError(
                    f"listener {each.name}: {error}",
                    hint="ssl.keystore.location names a file with its key and certificate "
                    f"(or listener.name.{each.name.lower()}.ssl.keystore.location)",
                ) from None
    return found


def inter_broker_tls(config: Config) -> dict[str, str] | None:
    """The TLS of connections to other brokers, that of their listener; None: plain text."""
    name = inter_broker_listener(config.text)
    if not any(each.encrypted for each in listeners(config.text) if each.name == name):
        return None
    settings = tls_settings(config.text, name)
    settings.pop("ssl.client.auth", None)
    return settings
