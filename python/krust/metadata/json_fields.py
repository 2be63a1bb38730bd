"""JSON in znodes: objects whose fields are read with their types and bounds.

The bytes may come from any client of the ZooKeeper: what is not as it must be is a BadZnodeError
that says what. Encoded JSON is compact, as Kafka's is.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT = 2**31
_LONG = 2**63
_DIGITS = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)
_MISSING = object()


class BadZnodeError(Exception):
    """The bytes are invalid for such a node; the text says why."""


class JsonFields:
    """A JSON object whose fields are read with their types."""

    def __init__(self, data: bytes) -> None:
        self.empty = not data
        if self.empty:
            self._values: dict[str, Any] = {}
            return
        self._values = parse(data)

    @classmethod
    def of(cls, value: object) -> JsonFields:
        """The fields of a nested object."""
        made = cls(b"")
        made._values = _object(value, "a part of it")
        return made

    def has(self, name: str) -> bool:
        """Whether there is such a field, and not null."""
        return self._values.get(name) is not None

    def value(self, name: str, default: object = _MISSING) -> Any:
        """A field of any type."""
        found = self._values.get(name, default)
        if found is _MISSING:
            raise BadZnodeError(f"it has no {name}")
        return found

    def version(self, *known: int) -> int:
        """The version, one of the known ones."""
        found = self.whole("version")
        if found not in known:
            raise BadZnodeError(f"its version is {found}, known are {known[0]} to {known[-1]}")
        return found

    def version_text(self, known: str) -> None:
        """Check a version that is a text."""
        if str(self.value("version"))[:20] != known:
            raise BadZnodeError(f"its version is not {known}")

    def whole(self, name: str, default: object = _MISSING) -> int:
        """A number of 32 bits."""
        found = self._values.get(name)
        if type(found) is int and -_INT <= found < _INT:
            return found
        return whole(self.value(name, default), name)

    def long(self, name: str, default: object = _MISSING) -> int:
        """A number of 64 bits."""
        return _bounded(self.value(name, default), name, _LONG)

    def natural(self, name: str) -> int:
        """A number of 32 bits that is not negative."""
        found = self.whole(name)
        if found < 0:
            raise BadZnodeError(f"{name} is {found}")
        return found

    broker = natural

    def port(self, name: str) -> int:
        """A port."""
        found = self.whole(name)
        if not 0 <= found <= 65535:
            raise BadZnodeError(f"{name} is {found}")
        return found

    def text(self, name: str) -> str:
        """A text."""
        found = self.value(name)
        if not isinstance(found, str):
            raise BadZnodeError(f"{name} is no text")
        return found

    def filled(self, name: str) -> str:
        """A text that is not empty."""
        found = self.text(name)
        if not found:
            raise BadZnodeError(f"{name} is empty")
        return found

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        found = self.value(name)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise BadZnodeError(f"{name} is no list of texts")
        return found

    def long_text(self, name: str, default: object = _MISSING) -> int:
        """A 64-bit number. Kafka writes it as text, other programs as a number."""
        found = self.value(name, default)
        text = found if isinstance(found, str) else str(_bounded(found, name, _LONG))
        if _DIGITS.match(text) is None:
            raise BadZnodeError(f"{name} is no number")
        return _bounded(int(text), name, _LONG)

    def mapping(self, name: str, default: object = _MISSING) -> dict[str, Any]:
        """An object."""
        return _object(self.value(name, default), name)

    def rows(self, name: str) -> list[JsonFields]:
        """A list of objects."""
        found = self.value(name)
        if not isinstance(found, list):
            raise BadZnodeError(f"{name} is no list")
        return [JsonFields.of(each) for each in found]


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object. BadZnodeError: the bytes are none."""
    try:
        value = json.loads(data.decode())
        if b"\\ud" in data.lower():  # a lone surrogate cannot be encoded again
            encode(value)
    except (ValueError, RecursionError) as error:
        raise BadZnodeError(f"it is no JSON: {str(error)[:100]}") from None
    return _object(value, "it")


def encode(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def number(data: bytes) -> int:
    """Decode digits: `/controller_epoch`, an old consumer's offset. BadZnodeError: no digits."""
    text = data.decode("ascii", "replace").strip()
    if _DIGITS.match(text) is None or not -_LONG <= int(text) < _LONG:
        raise BadZnodeError(f"it is no number: {data[:40]!r}")
    return int(text)


def whole(value: object, name: str) -> int:
    """A number of 32 bits."""
    return _bounded(value, name, _INT)


def brokers(value: object, name: str) -> tuple[int, ...]:
    """Broker ids, each once."""
    if not isinstance(value, list):
        raise BadZnodeError(f"{name} is no list")
    for each in value:
        if type(each) is not int or not 0 <= each < _INT:
            whole(each, name)
            raise BadZnodeError(f"{name} names no broker, or one twice")
    if len(set(value)) < len(value):
        raise BadZnodeError(f"{name} names no broker, or one twice")
    return tuple(value)


def by_partition(value: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """Lists of broker ids by partition."""
    found = {}
    for key, listed in value.items():
        index = int(key) if _DIGITS.match(key) is not None else -1
        if not 0 <= index < _INT or str(index) != key:
            raise BadZnodeError(f"{key[:40]!r} is no partition")
        found[index] = brokers(listed, f"partition {key}")
    return found


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadZnodeError(f"{name} is no object")
    return value


def _bounded(value: object, name: str, bound: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadZnodeError(f"{name} is no whole number")
    if not -bound <= value < bound:
        raise BadZnodeError(f"{name} is out of its range")
    return value
