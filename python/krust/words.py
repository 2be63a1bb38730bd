"""Numbers in sentences: one place for the plural, one for the thousands' commas."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `2 records`, `1,001 records`; `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
