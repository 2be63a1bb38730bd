"""The listeners of this broker, what secures them, and its connections to other brokers.

Settings of TLS and JAAS strings may be among those that the metadata store has of this broker. So
what they lack at first is an error only when that store was read.
`sasl.py` is imported only where a listener has logins.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krust._krust import ServerTls
from krust.authorizer import authorizer, plug_in
from krust.errors import ConfigError
from krust.listeners import addresses, inter_broker_listener, listeners, tls_settings
from krust.password_encoder import SECRET
from krust.principals import rules
from krust.runtime.file_state import file_state

if TYPE_CHECKING:
    from krust._krust import Server
    from krust.config import Config
    from krust.controller.authorizers import Authorizer
    from krust.listeners import SettingLookup
    from krust.runtime.authorizer_calls import AuthorizerCalls
    from krust.runtime.broker_tokens import BrokerTokens
    from krust.runtime.token_keys import TokenKeys
    from krust.sasl import Login

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
        self._encrypted = [each.name for each in named if each.is_encrypted]
        self._used: dict[str, tuple[object, ...]] = {}
        """the settings and the files that each listener's TLS was made of"""
        self.tls: dict[str, ServerTls] = {}
        """the TLS of those that are encrypted"""
        try:
            self._make_tls(text)
        except ConfigError:
            if not text(SECRET):
                raise
        self.inter_broker = inter_broker_listener(text)
        """the name of the listener between brokers"""
        self.inter_broker_tls = (
            tls_settings(text, self.inter_broker) if self.inter_broker in self._encrypted else None
        )
        """the settings of TLS to other brokers, those of their listener; None: plain text"""
        self.inter_broker_login: Login | None = None
        """how this broker logs in at the others; None: their listener has no logins"""
        self._alone = alone
        self._tokens: BrokerTokens | None = None
        """those that it shows there, by OAUTHBEARER"""
        self.authorizer = authorizer(text)
        """what it is told besides the ACLs; None: everybody may do everything"""
        self._authorizer_calls = _authorizer_calls(config, own)
        self._with_logins = [each.name for each in named if each.has_logins]
        self._jaas_names, self._token_keys = _settings_of_logins(text, self._with_logins)
        self._rules = {
            each.name: rules(text, each.name) for each in named if each.names_by_certificates
        }
        self._jaas: list[str | None] = []
        """the JAAS strings in use"""
        self._due_s = 0.0

    def secure(self, text: SettingLookup, server: Server) -> None:
        """Tell the core what its listeners ask of clients, and how it connects to other brokers.

        text    the broker's settings, with those of the metadata store
        raises  ConfigError: a listener with TLS has no usable key, one with logins no users
        """
        self._make_tls(text)
        self._follow_tls(text)
        if self.inter_broker_tls is not None:
            self.inter_broker_tls = tls_settings(text, self.inter_broker)
        self._jaas = [text(name) for name in self._jaas_names]
        self._set_logins(text, server)
        if self._token_keys is not None:
            self._token_keys.load(server)
        server.set_principal_rules(self._rules)
        if self.authorizer is not None:
            calls, (users, everyone) = self._authorizer_calls, self.authorizer
            if calls is None:
                server.set_authorizer(users, everyone)
            else:
                calls.load()
                calls.start(server.set_authorizer_class(users, everyone, calls.times))
        if self._tokens is not None:
            self._tokens.load()
        self._secure_inter_broker(server)

    def follow(self, text: SettingLookup, now_s: float, server: Server) -> None:
        """Use settings and files of TLS and JAAS strings that have changed, for connections that
        begin from now on, keys of tokens, and tokens. What cannot be used is logged, and changes
        nothing.

        text    the broker's settings of now
        server  has the connections to other brokers
        """
        if self._token_keys is not None:
            self._token_keys.follow(server, now_s)
        if self._tokens is not None:
            self._tokens.follow(now_s)
        if not (self.tls or self._jaas) or now_s < self._due_s:
            return
        self._due_s = now_s + _FOLLOW_S
        is_new = self.inter_broker in self._follow_tls(text)
        if is_new:
            self.inter_broker_tls = tls_settings(text, self.inter_broker)
        if self._follow_jaas(text, server) or is_new:
            self._secure_inter_broker(server)

    def _secure_inter_broker(self, server: Server) -> None:
        login = None if self.inter_broker_login is None else self.inter_broker_login[:3]
        server.set_inter_broker_security(self.inter_broker_tls, login, self._tokens)

    def check(self, text: SettingLookup) -> None:
        """Try settings that are not used yet. ConfigError: the listeners cannot use them.

        Only what differs from the settings in use is tried: nothing else is refused because a file
        was damaged since.
        """
        for name in self.tls:
            settings = tls_settings(text, name)
            if _items(settings) != self._used[name][0]:
                _server_tls(settings, name)
        if [text(name) for name in self._jaas_names] != self._jaas:
            from krust.sasl import inter_broker_login, logins

            for name in self._with_logins:
                logins(text, name)
            if not self._alone:
                inter_broker_login(text)

    def close(self) -> None:
        """End the calls of the user's authorizer."""
        if self._authorizer_calls is not None:
            self._authorizer_calls.close()

    def _make_tls(self, text: SettingLookup) -> None:
        """Make the TLS of the listeners that have none yet."""
        for name in self._encrypted:
            if name not in self.tls:
                settings = tls_settings(text, name)
                self.tls[name] = _server_tls(settings, name)
                self._used[name] = _state(settings)

    def _follow_tls(self, text: SettingLookup) -> set[str]:
        """The listeners whose TLS was replaced."""
        return {name for name in self.tls if self._replaced(name, tls_settings(text, name))}

    def _follow_jaas(self, text: SettingLookup, server: Server) -> bool:
        """Whether JAAS strings changed and are used."""
        jaas = [text(name) for name in self._jaas_names]
        if jaas == self._jaas:
            return False
        self._jaas = jaas
        try:
            self._set_logins(text, server)
        except ConfigError as error:
            _log.error("the listeners keep their users: %s", error)
            return False
        _log.info("the listeners use their new JAAS strings")
        return True

    def _set_logins(self, text: SettingLookup, server: Server) -> None:
        if not self._with_logins:
            return
        from krust.runtime.broker_tokens import BrokerTokens
        from krust.sasl import inter_broker_login, logins

        login = None if self._alone else inter_broker_login(text)
        server.set_logins({name: logins(text, name) for name in self._with_logins})
        self.inter_broker_login = login
        issuer = None if login is None else login.issuer
        if issuer is not None and self._tokens is None:
            self._tokens = BrokerTokens(issuer)
        elif issuer is not None and self._tokens is not None:
            self._tokens.replace(issuer)

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
            mechanism, user, password, _ = self.inter_broker_login
            options |= {"sasl.mechanism": mechanism, "sasl.oauthbearer.token": self._tokens}
            options |= {"sasl.username": user, "sasl.password": password}
        return options


def _settings_of_logins(
    text: SettingLookup, listeners_with_logins: list[str]
) -> tuple[list[str], TokenKeys | None]:
    """The names of their JAAS strings, and the keys of their tokens; None: they take no tokens."""
    if not listeners_with_logins:
        return [], None
    from krust.runtime.token_keys import TokenKeys
    from krust.sasl import jaas_settings, key_source, mechanisms

    jaas_names = [each for name in listeners_with_logins for each in jaas_settings(text, name)]
    by_token = [name for name in listeners_with_logins if "OAUTHBEARER" in mechanisms(text, name)]
    return jaas_names, TokenKeys({name: key_source(text, name) for name in by_token})


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
    return (_items(settings), *map(file_state, files))


def _items(settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))


def _server_tls(settings: dict[str, str], listener: str) -> ServerTls:
    try:
        return ServerTls(settings)
    except ConfigError as error:
        raise ConfigError(
            f"listener {listener}: {error}",
            hint="ssl.keystore.location names a file with its key and certificate (or "
            f"listener.name.{listener.lower()}.ssl.keystore.location)",
        ) from None
