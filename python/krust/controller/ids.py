"""Topic ids and cluster ids: 16 random bytes, written as 22 characters of URL-safe base64."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode


def to_text(raw: bytes) -> str:
    """16 bytes as 22 characters."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def to_bytes(text: str) -> bytes:
    """22 characters as 16 bytes; ValueError: it is no id."""
    raw = urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no id of 22 characters")
    return raw


def from_random(raw: bytes) -> str:
    """A new id from 16 random bytes: a version 4 UUID, as Kafka's are."""
    marked = bytearray(raw)
    marked[6] = (marked[6] & 0x0F) | 0x40
    marked[8] = (marked[8] & 0x3F) | 0x80
    return to_text(bytes(marked))
