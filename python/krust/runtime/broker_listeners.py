"""The listeners of this broker, what secures them, and its connections to other brokers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krust._krust import ServerTls
from krust.authorizer import authorizer, plug_in
from krust.errors import ConfigError
from krust.listeners import addresses, inter_broker_listener, listeners, tls_settings
from krust.principals import rules
from krust.runtime.file_state import file_state
from krust.runtime.token_keys import TokenKeys
from krust.sasl import inter_broker_login, key_source, logins

if TYPE_CHECKING:
    from krust._krust import Server
    from krust.config import Config
    from krust.controller.authorizers import Authorizer
    from krust.listeners import SettingLookup
    from krust.runtime.authorizer_calls import AuthorizerCalls

_FOLLOW_S = 1.0
"""how often files and settings of TLS are compared with those in use"""

_log = logging.getLogger("krust")


class BrokerListeners:
    """The listeners that a broker with these settings has.

    alone   there are no other brokers
    own     the user's authorizer, if it is an object of this process
    raises  ConfigError: a listener with TLS has no usable key
    """

    def __init__(self, config: Config, *, alone: bool, own: Authorizer | None = None) -> None:
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
        self.inter_broker_login = None if alone else inter_broker_login(text)
        """how this broker logs in at the others; None: their listener has no logins"""
        self.authorizer = authorizer(text)
        """what it is told besides the ACLs; None: everybody may do everything"""
        self._authorizer_calls = _authorizer_calls(config, own)
        self._logins = {each.name: logins(text, each.name) for each in named if each.has_logins}
        by_token = [name for name, asked in self._logins.items() if asked.tokens is not None]
        self._token_keys = TokenKeys({name: key_source(text, name) for name in by_token})
        self._rules = {
            each.name: rules(text, each.name) for each in named if each.names_by_certificates
        }
        self._used = {name: _state(tls_settings(text, name)) for name in self.tls}
        """the settings and the files that each listener's TLS was made of"""
        self._due_s = 0.0

    def secure(self, server: Server) -> None:
        """Tell the core what its listeners ask of clients, and how it connects to other brokers."""
        server.set_logins(self._logins)
        self._token_keys.load(server)
        server.set_principal_rules(self._rules)
        if self.authorizer is not None:
            calls, (users, everyone) = self._authorizer_calls, self.authorizer
            if calls is None:
                server.set_authorizer(users, everyone)
            else:
                calls.load()
                calls.start(server.set_authorizer_class(users, everyone, calls.times))
        server.set_inter_broker_security(self.inter_broker_tls, self.inter_broker_login)

    def follow(self, text: SettingLookup, now_s: float, server: Server) -> None:
        """Use settings and files of TLS that have changed, for connections that begin from now on,
        and keys of tokens. What cannot be used is logged, and changes nothing.

        text    the broker's settings of now
        server  has the connections to other brokers
        """
        self._token_keys.follow(server, now_s)
        if not self.tls or now_s < self._due_s:
            return
        self._due_s = now_s + _FOLLOW_S
        changed = {name for name in self.tls if self._replaced(name, tls_settings(text, name))}
        if self.inter_broker in changed:
            self.inter_broker_tls = tls_settings(text, self.inter_broker)
            server.set_inter_broker_security(self.inter_broker_tls, self.inter_broker_login)

    def close(self) -> None:
        """End the calls of the user's authorizer."""
        if self._authorizer_calls is not None:
            self._authorizer_calls.close()

    def _replaced(self, listener: str, settings: dict[str, str]) -> bool:
        """Whether a listener's TLS was replaced because settings or files changed."""
        state = _state(settings)
        if self._used[listener] == state:
            return False
        self._used[listener] = state
        try:
            self.tls[listener].replace(settings)
        except ConfigError as error:
            _log.error("listener %s keeps its certificate: %s", listener, error)
            return False
        _log.info("listener %s uses its new TLS settings", listener)
        return True

    def peer_options(self) -> dict[str, object]:
        """The client options of connections to other brokers."""
        options: dict[str, object] = {"security.protocol": self.protocols[self.inter_broker]}
        tls = self.inter_broker_tls or {}
        options |= {name: text for name, text in tls.items() if name != "ssl.client.auth"}
        if self.inter_broker_login is not None:
            mechanism, user, password = self.inter_broker_login
            options["sasl.mechanism"] = mechanism
            options |= {"sasl.username": user, "sasl.password": password}
        return options


def _authorizer_calls(config: Config, own: Authorizer | None) -> AuthorizerCalls | None:
    """The calls of the user's authorizer; None: it is krust's, or there is none."""
    name = plug_in(config.text)
    if not name:
        return None
    from krust.runtime.authorizer_calls import AuthorizerCalls

    return AuthorizerCalls(config, name, own)


def _state(settings: dict[str, str]) -> tuple[object, ...]:
    """The settings, and what tells a file from the one that replaces it."""
    files = (path for name, path in sorted(settings.items()) if name.endswith(".location"))
    return (tuple(sorted(settings.items())), *map(file_state, files))


def _server_tls(config: Config, listener: str) -> ServerTls:
    try:
        return ServerTls(tls_settings(config.text, listener))
    except ConfigError as error:
        raise ConfigError(
            f"listener {listener}: {error}",
            hint="ssl.keystore.location names a file with its key and certificate (or "
            f"listener.name.{listener.lower()}.ssl.keystore.location)",
        ) from None
