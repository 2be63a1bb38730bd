"""Passwords that are stored in metadata, encrypted by `password.encoder.secret` as Kafka does it.

Format (KIP-226): `name:value` pairs in any order, with commas between; bytes are Base64:
    keyFactoryAlgorithm   PBKDF2WithHmac and SHA1, SHA224, SHA256, SHA384 or SHA512; makes the key
                          of secret, `salt`, `iterations` and `keyLength` (in bits)
    cipherAlgorithm       AES/CBC/PKCS5Padding or AES/GCM/NoPadding, with `initializationVector`;
                          GCM also has `authenticationTagLength` (in bits)
    encryptedPassword     and `passwordLength`, in UTF-16 units, which tells a wrong secret
Cost: a key takes milliseconds, so what was decoded is remembered. A text may ask for at most
MOST_ITERATIONS, because a broker decodes it between two requests.
Not promised: who may write the metadata can put one password in another's place.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from krust import _krust

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.listeners import SettingLookup

SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
MOST_ITERATIONS = 1_000_000
_HASHES = {f"PBKDF2WithHmac{name.upper()}": name for name in ("sha1", "sha224", "sha256")}
_HASHES |= {f"PBKDF2WithHmac{name.upper()}": name for name in ("sha384", "sha512")}
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_IV_BYTES = {_CBC: 16, _GCM: 12}
_KEY_BITS = (128, 192, 256)
_TAG_BITS = "128"
_SALT_BYTES = 256
_REMEMBERED = 256
"""the most passwords whose texts are remembered"""


class PasswordEncoder:
    """Encodes with one secret and one set of parameters, and decodes what any parameters made.

    key_factory  a name of PBKDF2
    cipher       a name of AES
    key_bits     128, 192 or 256
    """

    def __init__(
        self,
        secret: str,
        key_factory: str = DEFAULT_KEY_FACTORY,
        cipher: str = _CBC,
        key_bits: int = 128,
        iterations: int = 4096,
    ) -> None:
        self._secret = secret.encode()
        self._key_factory, self._cipher = key_factory, cipher
        self._key_bits, self._iterations = key_bits, iterations
        self._decoded: dict[str, str] = {}

    @staticmethod
    def of(text: SettingLookup, secret: str = SECRET) -> PasswordEncoder | None:
        """The encoder of a broker with these settings; None: they have no secret."""
        given = text(secret)
        if not given:
            return None
        return PasswordEncoder(
            given,
            _named(text("password.encoder.keyfactory.algorithm"), _HASHES) or DEFAULT_KEY_FACTORY,
            _named(text("password.encoder.cipher.algorithm"), _IV_BYTES) or _CBC,
            int(text("password.encoder.key.length") or 128),
            int(text("password.encoder.iterations") or 4096),
        )

    def encode(self, password: str) -> str:
        """The text that is stored."""
        salt, iv = os.urandom(_SALT_BYTES), os.urandom(_IV_BYTES[self._cipher])
        key = self._key(self._key_factory, salt, self._iterations, self._key_bits)
        fields = {
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": str(self._key_bits),
            "salt": _text(salt),
            "iterations": str(self._iterations),
            "encryptedPassword": _text(_krust.encrypt(self._cipher, key, iv, password.encode())),
            "passwordLength": str(_length(password)),
            "initializationVector": _text(iv),
        }
        if self._cipher == _GCM:
            fields["authenticationTagLength"] = _TAG_BITS
        encoded = ",".join(f"{name}:{value}" for name, value in fields.items())
        self._remember(encoded, password)
        return encoded

    def decode(self, encoded: str) -> str:
        """The password. ValueError: the text is no password of this secret; it shows nothing."""
        known = self._decoded.get(encoded)
        if known is not None:
            return known
        pairs = (each.rpartition(":") for each in encoded.split(","))
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        try:
            length = int(fields["passwordLength"])
            iterations, key_bits = int(fields["iterations"]), int(fields["keyLength"])
            named = ("salt", "initializationVector", "encryptedPassword")
            salt, iv, encrypted = (b64decode(fields[name], validate=True) for name in named)
        except (KeyError, ValueError):
            raise ValueError("it is no encrypted password") from None
        cipher = _named(fields.get("cipherAlgorithm"), _IV_BYTES)
        tag_bits = fields.get("authenticationTagLength", _TAG_BITS)
        if cipher is None or key_bits not in _KEY_BITS or tag_bits != _TAG_BITS:
            raise ValueError("its cipher is not offered")
        key_factory = _named(fields.get("keyFactoryAlgorithm", DEFAULT_KEY_FACTORY), _HASHES)
        key = self._key(key_factory, salt, iterations, key_bits)
        found = _krust.decrypt(cipher, key, iv, encrypted)
        try:
            password = None if found is None else found.decode()
        except UnicodeDecodeError:
            password = None
        if password is None or _length(password) != length:
            raise ValueError(f"{SECRET} does not decrypt it")
        self._remember(encoded, password)
        return password

    def _key(self, factory: str | None, salt: bytes, iterations: int, bits: int) -> bytes:
        import hashlib

        if factory is None:
            raise ValueError("its key is made in a way that is not offered")
        if not 0 < iterations <= MOST_ITERATIONS:
            raise ValueError(f"its key takes more than {MOST_ITERATIONS} iterations")
        return hashlib.pbkdf2_hmac(_HASHES[factory], self._secret, salt, iterations, bits // 8)

    def _remember(self, encoded: str, password: str) -> None:
        if len(self._decoded) >= _REMEMBERED:
            self._decoded.clear()
        self._decoded[encoded] = password


def _named(name: str | None, known: Iterable[str]) -> str | None:
    """A name of Java's, which has small letters for large ones too; None: it is not known."""
    return next((each for each in known if each.lower() == (name or "").lower()), None)


def _length(password: str) -> int:
    return len(password.encode("utf-16-le")) // 2


def _text(content: bytes) -> str:
    return b64encode(content).decode()
