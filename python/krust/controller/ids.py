"""Topic ids and cluster ids: 16 random bytes, written as 22 characters of URL-safe base64."""

from __future__ import annotations

from base64 import urlsafe_b64encode


def from_random(raw: bytes) -> str:
    """A new id from 16 random bytes: a version 4 UUID, as Kafka's are."""
    marked = bytearray(raw)
    marked[6] = (marked[6] & 0x0F) | 0x40
    marked[8] = (marked[8] & 0x3F) | 0x80
    return urlsafe_b64encode(marked).rstrip(b"=").decode()
