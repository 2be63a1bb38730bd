"""Ids that krust makes: 16 random bytes as Kafka writes them."""

from base64 import urlsafe_b64decode
from uuid import UUID

from krust.controller import ids


def test_an_id_is_a_version_4_uuid_and_never_begins_with_a_dash() -> None:
    for first in range(256):
        made = ids.from_random(bytes([first]) + bytes(15))
        assert len(made) == 22
        assert not made.startswith("-")
        found = UUID(bytes=urlsafe_b64decode(made + "=="))
        assert (found.version, found.variant) == (4, "specified in RFC 4122")
