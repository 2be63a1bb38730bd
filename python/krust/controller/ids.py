"""Ids of topics, clusters and tokens: 16 random bytes as 22 characters of URL-safe base64."""

from __future__ import annotations

from base64 import urlsafe_b64encode

_DASH = 62
"""The number whose base64 character is "-"."""


def from_random(raw: bytes) -> str:
    """A new id from 16 random bytes: a version 4 UUID, as Kafka's are.

    It never begins with a dash, which commands read as an option. KIP-516
    """
    marked = bytearray(raw)
    if marked[0] >> 2 == _DASH:
        marked[0] &= 0x7F
    marked[6] = (marked[6] & 0x0F) | 0x40
    marked[8] = (marked[8] & 0x3F) | 0x80
    return urlsafe_b64encode(marked).rstrip(b"=").decode()
