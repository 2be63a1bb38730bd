"""JAAS strings, as `sasl.jaas.config` carries them: a login module and its options.

`org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";`
Only the name of the module and the options mean something; no Java is loaded. Errors do not show
the text, because it holds passwords.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krust.errors import ConfigError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES = (PLAIN, SCRAM, OAUTHBEARER)

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s="\';]+)|([=;]))', re.DOTALL)
_OPTION_TOKENS = 3
_EXAMPLE = f'{PLAIN} required username="NAME" password="PASSWORD";'


class JaasLogin(NamedTuple):
    """One login of a JAAS string."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasLogin({self.module}, {', '.join(self.options)})"


def parse(text: str, name: str = "sasl.jaas.config") -> JaasLogin:
    """The login that a JAAS string describes. ConfigError: it is none, or its module is unknown.

    name  the setting that has the text, for errors
    """
    tokens = _tokens(text, name)
    if len(tokens) < _OPTION_TOKENS or tokens[-1] != ";" or tokens[1].lower() not in _FLAGS:
        raise _not_jaas(name)
    module, rest = tokens[0], tokens[2:-1]
    if len(rest) % _OPTION_TOKENS or any(sign != "=" for sign in rest[1::_OPTION_TOKENS]):
        raise _not_jaas(name)
    known = module.removeprefix("kafkashaded.")
    if known not in MODULES:
        raise ConfigError(
            f"{name}: there is no login module {module}",
            hint=f"known are {', '.join(MODULES)}",
        )
    pairs = zip(rest[::_OPTION_TOKENS], rest[2::_OPTION_TOKENS], strict=True)
    return JaasLogin(known, dict(pairs))


def quoted(text: str) -> str:
    """A text as the value of an option."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tokens(text: str, name: str) -> list[str]:
    """The words and signs of a JAAS string, without quotes."""
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _not_jaas(name)
        quoted, word, sign = match.groups()
        found.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else word or sign)
        at = match.end()
    return found


def _not_jaas(name: str) -> ConfigError:
    return ConfigError(f"{name} is no JAAS string (it is not shown)", hint=f"write {_EXAMPLE}")
