"""Which settings of topics and brokers AlterConfigs and IncrementalAlterConfigs refuse.

Refused are unknown settings, wrong values, what cannot change while a broker runs, and keys,
certificates and users that its listeners could not use.
`group_configs` has the same for groups, `stored_passwords` for passwords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.config import RETENTION, VALUE_CHECKS, parse_topic, rules
from krust.controller import stored_passwords
from krust.controller.state import RefusedError
from krust.errors import Code, ConfigError
from krust.listeners import PREFIX, base_name
from krust.plugins import RETENTION_GROUP, RETENTION_POLICIES, entry_points
from krust.settings import BROKER, TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.controller.state import ControllerState


_STORES = ("ssl.key.password", "ssl.keystore.", "ssl.truststore.")
"""Keys and certificates: a running broker takes those of one listener only."""


def check_topic(
    state: ControllerState, before: Mapping[str, str], config: Mapping[str, str]
) -> None:
    """Refuse settings of a topic. RefusedError: these."""
    for name, text in config.items():
        if before.get(name) != text:
            _check_topic_value(state, name, text)


def check_broker(
    state: ControllerState, broker: str, before: Mapping[str, str], config: Mapping[str, str]
) -> None:
    """Refuse changed settings of a broker. RefusedError: these.

    What is stored and does not change is no reason: Kafka stores settings that krust does not know.

    broker  "": all
    """
    for name, text in config.items():
        if before.get(name) != text:
            _check_broker_value(state, broker, name, text)
    _check_listeners(state, broker, config)


def refused_topic_value(state: ControllerState, name: str, text: str) -> str | None:
    """Why a topic cannot have this value, although it parses; None: it can."""
    setting = TOPIC[name]
    if name == RETENTION and text:
        return _refused_policy(text, state.config.text(RETENTION) or "")
    if setting.support == "refused" and text != setting.default:
        return f"{name} = {text} cannot be set here: {setting.doc}"
    return None


def _refused_policy(name: str, of_broker: str) -> str | None:
    """Why a topic cannot name this retention policy; None: it can. A client must not make a broker
    load any module: the policy is built in, of an installed package, or named by a broker setting.
    """
    named = [name for _, name in rules(RETENTION, of_broker)]
    known = {*RETENTION_POLICIES, *entry_points(RETENTION_GROUP), *named}
    if name in known:
        return None
    return f"{RETENTION} = {name}: this broker has {', '.join(sorted(known))}"


def _check_listeners(state: ControllerState, broker: str, config: Mapping[str, str]) -> None:
    """Refuse keys, certificates and users that this broker's listeners could not use.

    broker  "": all
    """
    own, everywhere = state.own.config, state.everywhere.config
    if broker:
        own = stored_passwords.usable(state.own, config)
    else:
        everywhere = stored_passwords.usable(state.everywhere, config)
    try:
        state.check_listeners(lambda name: state.layered_text(name, own, everywhere))
    except ConfigError as error:
        raise RefusedError(Code.INVALID_REQUEST, str(error)) from None


def _check_broker_value(state: ControllerState, broker: str, name: str, text: str) -> None:
    setting = BROKER.get(base_name(name) or name)
    if setting is None or not setting.dynamic:
        raise RefusedError(Code.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}")
    if not broker and setting.change == "per-broker":
        why = "Cannot update these configs at default cluster level, broker id must be specified"
        raise RefusedError(Code.INVALID_REQUEST, f"{why}: {name}")
    if name.startswith(_STORES) or (setting.sensitive and not name.startswith(PREFIX)):
        why = f"{name} can be changed for a listener only, as {PREFIX}NAME.{name}"
        raise RefusedError(Code.INVALID_REQUEST, why)
    stored_passwords.check(state, name)
    try:
        setting.parse(text)
        if name in VALUE_CHECKS:
            VALUE_CHECKS[name](text)
    except (ConfigError, ValueError) as error:
        raise RefusedError(
            Code.INVALID_CONFIG, f"Invalid value {text} for configuration {name}: {error}"
        ) from None


def _check_topic_value(state: ControllerState, name: str, text: str) -> None:
    try:
        parse_topic(name, text)
    except ConfigError as error:
        raise RefusedError(Code.INVALID_CONFIG, str(error)) from None
    refused = refused_topic_value(state, name, text)
    if refused:
        raise RefusedError(Code.INVALID_CONFIG, refused)
