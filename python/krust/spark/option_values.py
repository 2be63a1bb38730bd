"""Parses the values of options, which are texts by name. Pure.

Names may have any case, and spaces around a value are dropped. An invalid value is an OptionError
with the option, the allowed values, and a valid example.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from krust.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_Read = TypeVar("_Read")
_UNITS_MS = {"": 1, "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000}
_UNITS_MS |= {"h": 3_600_000, "d": 86_400_000}


class OptionTexts:
    """The given options."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value).strip() for name, value in given.items()}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Names in lower case, and values."""
        return iter(sorted(self._given.items()))

    def get(self, name: str) -> str | None:
        """The text; None: absent."""
        return self._given.get(name.lower())

    def switch(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise wrong(name, text, "true", "true or false")
        return text.lower() == "true"

    def choice(self, name: str, default: str, *others: str) -> str:
        """One of the allowed words."""
        text = self.get(name)
        found = default if text is None else text.lower()
        if found not in (default, *others):
            raise wrong(name, text or "", default, f"one of {', '.join((default, *others))}")
        return found

    def count(self, name: str, *, least: int = 1) -> int | None:
        """An integer."""
        text = self.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not least <= int(text) < 2**63:
            raise wrong(name, text, str(max(least, 8)), f"a whole number from {least} up")
        return int(text)

    def listed(self, name: str) -> list[str]:
        """Words that are separated by commas."""
        return [one.strip() for one in (self.get(name) or "").split(",") if one.strip()]

    def duration_ms(self, name: str, default: int) -> int:
        """A time as Spark writes it: `500ms`, `15m`, `2 h`; a bare number is milliseconds."""
        text = self.get(name)
        if text is None:
            return default
        found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.lower())
        unit = _UNITS_MS.get(found[2]) if found else None
        if found is None or unit is None:
            raise wrong(name, text, "15m", f"a time in {', '.join(filter(None, _UNITS_MS))}")
        return int(int(found[1]) * unit)

    def json(self, name: str, read: Callable[[str], _Read], example: str) -> _Read:
        """The result of `read`, whose ValueError becomes an OptionError."""
        text = self.get(name) or ""
        try:
            return read(text)
        except ValueError as error:
            raise wrong(name, text, example, f"JSON such as {example} ({error})") from None


def wrong(name: str, value: str, example: str, wanted: str = "") -> OptionError:
    """The error for an invalid value."""
    wanted = f"It has to be {wanted}. " if wanted else ""
    quoted = f"'{example}'" if '"' in example else f'"{example}"'
    return OptionError(
        "KRUST_INVALID_OPTION",
        f"Option '{name}' cannot be '{value}'. {wanted}Write e.g. .option(\"{name}\", {quoted}).",
    )
