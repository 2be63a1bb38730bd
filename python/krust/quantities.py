"""Formats numbers in messages: plurals, commas between thousands, units of bytes."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `2 records`, `1,001 records`; `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size(count: float) -> str:
    """`17 B`, `4.2 GB`: bytes in powers of 1,000."""
    for unit in _UNITS:
        if count < 999.5 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
