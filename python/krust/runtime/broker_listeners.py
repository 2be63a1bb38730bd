"""The listeners of this broker, what secures them, and its connections to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust._krust import ServerTls
from krust.errors import ConfigError
from krust.listeners import addresses, inter_broker_listener, listeners, tls_settings

if TYPE_CHECKING:
    from krust.config import Config


class BrokerListeners:
    """The listeners that a broker with these settings has.

    raises  ConfigError: a listener with TLS has no usable key
    """

    def __init__(self, config: Config) -> None:
        text = config.text
        named = listeners(text)
        self.addresses = addresses(str(text("listeners")))
        """(name, host, port) of each"""
        advertised = text("advertised.listeners")
        self.advertised = addresses(advertised) if advertised else []
        """the same for clients, if the settings name other addresses for them"""
        self.protocols = {each.name: each.protocol for each in named}
        """the security protocol of each"""
        self.tls = {
            each.name: _server_tls(config, each.name) for each in named if each.is_encrypted
        }
        """the TLS of those that are encrypted"""
        self.inter_broker = inter_broker_listener(text)
        """the name of the listener between brokers"""
        self.inter_broker_tls = (
            tls_settings(text, self.inter_broker) if self.inter_broker in self.tls else None
        )
        """the settings of TLS to other brokers, those of their listener; None: plain text"""

    def peer_options(self) -> dict[str, object]:
        """The client options of connections to other brokers."""
        if self.inter_broker_tls is None:
            return {}
        return {
            "security.protocol": "SSL",
            **{
                name: text
                for name, text in self.inter_broker_tls.items()
                if name != "ssl.client.auth"
            },
        }


def _server_tls(config: Config, listener: str) -> ServerTls:
    try:
        return ServerTls(tls_settings(config.text, listener))
    except ConfigError as error:
        raise ConfigError(
            f"listener {listener}: {error}",
            hint="ssl.keystore.location names a file with its key and certificate (or "
            f"listener.name.{listener.lower()}.ssl.keystore.location)",
        ) from None
