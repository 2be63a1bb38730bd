"""Passwords in the settings of a broker: encrypted in the tree, plain in the state.

They are encrypted where `password.encoder.secret` is set, as Kafka does in ZooKeeper (KIP-226), and
nowhere else: who may read the tree, or a copy of a data directory, would have them. One rule for
both, because `krust cluster export` copies settings from one to the other as they are.
What cannot be decoded has no effect. It stays as it is until it is set again or deleted.
As in Kafka a password is a broker's own, and a listener's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.controller.state import RefusedError
from krust.errors import Code
from krust.listeners import base_name
from krust.metadata import znodes
from krust.metadata.contents import EntityConfig
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Read, SetData
from krust.password_encoder import OLD_SECRET, SECRET, PasswordEncoder
from krust.settings import BROKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.controller.state import ConfigEntity, ControllerState, Steps


def is_password(name: str) -> bool:
    """Whether the value of a broker's setting is never shown."""
    setting = BROKER.get(base_name(name) or name)
    return setting is not None and setting.sensitive


def unseal(state: ControllerState, path: str, config: dict[str, str]) -> dict[str, str]:
    """Decode the passwords in settings that were read.

    returns  those that cannot be decoded, as they are stored; they are taken out of `config`
    """
    sealed: dict[str, str] = {}
    for name in [each for each in config if is_password(each)]:
        try:
            if path == znodes.broker_config(znodes.DEFAULT_ENTITY):
                raise ValueError("a password of all brokers is ignored: set it for each")
            if state.passwords is None:
                raise ValueError(f"it is encrypted, and {SECRET} is not set")
            config[name] = state.passwords.decode(config[name])
        except ValueError as error:
            state.fault(path, f"{name}: {error}")
            sealed[name] = config.pop(name)
    return sealed


def check(state: ControllerState, name: str) -> None:
    """Refuse a password that would be stored as it is."""
    if is_password(name) and state.passwords is None:
        why = f"{name} is a password, and this broker does not store any: set {SECRET}, restart it"
        raise RefusedError(Code.INVALID_REQUEST, why)


def usable(entity: ConfigEntity, config: Mapping[str, str]) -> dict[str, str]:
    """The settings without the passwords that cannot be decoded.

    entity  the settings before
    """
    return {name: text for name, text in config.items() if entity.sealed.get(name) != text}


def seal(state: ControllerState, entity: ConfigEntity, config: Mapping[str, str]) -> bytes:
    """The content of a broker's znode. Settings that `check` has not refused.

    entity  the settings before
    """
    stored = dict(config)
    for name, text in config.items():
        is_new = entity.sealed.get(name) != text
        if is_new and state.passwords is not None and is_password(name):
            stored[name] = state.passwords.encode(text)
    return EntityConfig(stored).encode()


def renew(state: ControllerState) -> Steps:
    """Before the settings are read: encode what only `password.encoder.old.secret` decodes."""
    old, new = PasswordEncoder.of(state.config.text, OLD_SECRET), state.passwords
    if old is None:
        return
    if new is None:
        state.warn(f"{OLD_SECRET} has no effect, because {SECRET} is not set")
        return
    path = znodes.broker_config(str(state.node_id))
    (read,) = yield [[Read(path)]]
    try:
        node = store_reads.node(path, read.results[0])
        config = {} if node is None else dict(EntityConfig.decode(node.data).config)
    except (BadZnodeError, store_reads.UnreadableError):
        return
    renewed = {
        name: found
        for name, text in config.items()
        if is_password(name) and (found := _renewed(old, new, text)) is not None
    }
    if node is None or not renewed:
        return
    data = EntityConfig(config | renewed).encode()
    (done,) = yield [[SetData(path, data, node.stat.version)]]
    if done.refused is not None:
        state.warn(f"passwords in {path} stay encrypted by {OLD_SECRET}: {done.refused.value}")


def _renewed(old: PasswordEncoder, new: PasswordEncoder, text: str) -> str | None:
    """A password encoded by the new secret; None: it is already, or the old one is not its."""
    with suppress(ValueError):
        new.decode(text)
        return None
    with suppress(ValueError):
        return new.encode(old.decode(text))
    return None
