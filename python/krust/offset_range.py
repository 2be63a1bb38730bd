"""SPEC: a range of a partition's records. All commands and functions use this grammar.

    start  end            the first record; the next record to be written
    10                    offset 10
    +3  -3                three after the start; three before the end
    @TIME                 the first record at or after a time
    BEGIN:END             from BEGIN up to, but not including, END; each is optional
    BEGIN:+5              five offsets from BEGIN

TIME is `-1h` (ago; ms s m h d w), milliseconds since 1970, or `2026-11-01`, `2026-11-01T10:30`,
with an optional `Z` or `+02:00` (else local time). Without `:` the reading continues after the end.

Pure: the time is an argument, and the caller looks up offsets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_LARGEST = 2**63 - 1


class SpecError(ValueError):
    """A text is no SPEC; the message shows valid ones."""


class PositionKind(Enum):
    """What a position is relative to."""

    START = "start"
    """`value` records after the first"""
    END = "end"
    """`value` records before the end"""
    OFFSET = "offset"
    """offset `value`"""
    TIME = "time"
    """the first record at or after `value`, milliseconds since 1970"""
    LENGTH = "length"
    """`value` offsets after the begin of the range; only as an end"""


@dataclass(frozen=True)
class RangePosition:
    """One end of a range."""

    kind: PositionKind
    value: int = 0


@dataclass(frozen=True)
class OffsetRange:
    """A range of records. `end` None: the reading continues."""

    begin: RangePosition
    end: RangePosition | None = None

    def times(self) -> list[int]:
        """The times, in milliseconds, whose offsets `resolve` needs."""
        places = (self.begin, self.end)
        return [place.value for place in places if place and place.kind is PositionKind.TIME]

    def resolve(
        self, start: int, end: int, at: Mapping[int, int] | None = None
    ) -> tuple[int, int | None]:
        """The offsets of the range in one partition, as (first, end).

        start, end  the partition's first offset, and the next offset to be written
        at          time in ms -> offset of the first record at or after it (-1: none)
        returns     start <= first <= end for counts and times; a given offset is not limited
        """
        first = _offset(self.begin, start, end, at or {})
        if self.end is None:
            return first, None
        if self.end.kind is PositionKind.LENGTH:
            return first, first + self.end.value
        return first, max(first, _offset(self.end, start, end, at or {}))


START = OffsetRange(RangePosition(PositionKind.START))
END = OffsetRange(RangePosition(PositionKind.END))


def parse(text: str, now_ms: int) -> OffsetRange:
    """Parse a SPEC.

    now_ms  the wall clock, for `@-1h`
    raises  SpecError
    """
    text = text.strip()
    whole = _place(text, now_ms)
    if whole is not None:
        return OffsetRange(whole)
    for colon in (at for at, char in enumerate(text) if char == ":"):
        left, right = text[:colon], text[colon + 1 :]
        begin = _place(left, now_ms) if left else RangePosition(PositionKind.START)
        if begin is None:
            continue
        if not right:
            return OffsetRange(begin)
        if re.fullmatch(r"\+\d+", right):
            return OffsetRange(begin, RangePosition(PositionKind.LENGTH, _number(right)))
        end = _place(right, now_ms)
        if end is not None:
            return OffsetRange(begin, end)
    raise SpecError(
        f"{text!r} is not a place in a log; write start, end, 10, +3, -3, @-1h, @2026-11-01, "
        "or a range such as 10:20, :end, @-1h:end"
    )


def _place(text: str, now_ms: int) -> RangePosition | None:
    if text in ("start", "end"):
        return RangePosition(PositionKind(text))
    if text.startswith("@"):
        moment = _time(text[1:], now_ms)
        return None if moment is None else RangePosition(PositionKind.TIME, moment)
    if not re.fullmatch(r"[+-]?\d+", text):
        return None
    number = _number(text)
    if text[0] == "+":
        return RangePosition(PositionKind.START, number)
    return (
        RangePosition(PositionKind.END, -number)
        if text[0] == "-"
        else RangePosition(PositionKind.OFFSET, number)
    )


def _number(text: str) -> int:
    number = int(text)
    if abs(number) > _LARGEST:
        raise SpecError(f"{text} is no offset: it does not fit 64 bits")
    return number


def _time(text: str, now_ms: int) -> int | None:
    ago = _AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(float(ago[1]) * UNITS_MS[ago[2]]))
    if text == "now":
        return now_ms
    if text.isdecimal() and len(text) >= 9:
        return _number(text)
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return None
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None


def _offset(place: RangePosition, start: int, end: int, at: Mapping[int, int]) -> int:
    if place.kind is PositionKind.OFFSET:
        return place.value
    if place.kind is PositionKind.TIME:
        found = at.get(place.value, -1)
        return end if found < 0 else found
    wanted = start + place.value if place.kind is PositionKind.START else end - place.value
    return min(max(wanted, start), end)
