"""Tokens for tests, signed with the `openssl` command: an issuer with its keys, as of OAuth."""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.certificates import missing, openssl

AUDIENCE, ISSUER = "krust", "https://issuer.example"
_NEW_KEY = {
    "RS": ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "PS": ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ES256": ("EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "ES384": ("EC", "-pkeyopt", "ec_paramgen_curve:P-384"),
    "EdDSA": ("ED25519",),
}
_CURVES = {"ES256": ("P-256", 32), "ES384": ("P-384", 48)}
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """A private key of an algorithm, in a folder."""

    def __init__(self, folder: Path, name: str, algorithm: str = "RS256") -> None:
        if reason := missing():
            pytest.skip(reason)
        self.name, self.algorithm, self._folder = name, algorithm, folder
        kind, *rest = _NEW_KEY.get(algorithm) or _NEW_KEY[algorithm[:2]]
        openssl(folder, "genpkey", "-algorithm", kind, *rest, "-out", f"{name}.key")
        openssl(folder, "pkey", "-in", f"{name}.key", "-pubout", "-out", f"{name}.public")

    @property
    def public_pem(self) -> bytes:
        return (self._folder / f"{self.name}.public").read_bytes()

    def jwk(self) -> dict[str, str]:
        """The public key, as a key set has it."""
        der = self._run(b"", "pkey", "-in", f"{self.name}.key", "-pubout", "-outform", "DER")
        common = {"kid": self.name, "use": "sig", "alg": self.algorithm}
        if self.algorithm == "EdDSA":
            return common | {"kty": "OKP", "crv": "Ed25519", "x": encoded(der[-32:])}
        if self.algorithm in _CURVES:
            curve, size = _CURVES[self.algorithm]
            x, y = der[-2 * size : -size], der[-size:]
            return common | {"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)}
        said = self._run(b"", "rsa", "-in", f"{self.name}.key", "-modulus", "-noout").decode()
        modulus = bytes.fromhex(said.strip().removeprefix("Modulus="))
        return common | {"kty": "RSA", "n": encoded(modulus), "e": encoded(b"\x01\x00\x01")}

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, as a token has it."""
        if self.algorithm == "EdDSA":
            (self._folder / "message").write_bytes(message)
            key = ("-inkey", f"{self.name}.key", "-rawin", "-in", "message")
            return self._run(b"", "pkeyutl", "-sign", *key)
        padding = ("-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1")
        rest = padding if self.algorithm[:2] == "PS" else ()
        digest = f"-sha{self.algorithm[2:]}"
        signature = self._run(message, "dgst", digest, "-sign", f"{self.name}.key", *rest)
        if self.algorithm not in _CURVES:
            return signature
        size = _CURVES[self.algorithm][1]
        first, rest_of = _integer(signature[2:])
        return first.to_bytes(size, "big") + _integer(rest_of)[0].to_bytes(size, "big")

    def _run(self, stdin: bytes, *arguments: str) -> bytes:
        command = ["openssl", *arguments]
        run = subprocess.run(
            command, cwd=self._folder, input=stdin, check=True, capture_output=True, timeout=60
        )
        return run.stdout


def _integer(der: bytes) -> tuple[int, bytes]:
    """The integer at the beginning of DER bytes, and what follows it."""
    assert der[0] == 2
    return int.from_bytes(der[2 : 2 + der[1]], "big"), der[2 + der[1] :]


class Issuer:
    """An issuer of tokens: a key, and a file with its key set."""

    def __init__(self, folder: Path, algorithm: str = "RS256") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = Key(folder, "first", algorithm)
        self.file = folder / "keys.json"
        self.publish(self.key)

    @property
    def url(self) -> str:
        return self.file.as_uri()

    def publish(self, *keys: Key) -> None:
        """Have the key set consist of these keys."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"keys": [key.jwk() for key in keys]}))
        new.rename(self.file)

    def token(
        self,
        *,
        key: Key | None = None,
        header: Mapping[str, object] | None = None,
        lasts_s: float = 300,
        **claims: object,
    ) -> str:
        """A token of alice, with claims or parts of the header changed."""
        key = key or self.key
        now_s = int(time.time())
        said = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "scope": "kafka"}
        said |= {"exp": now_s + lasts_s, **claims}
        head = {"alg": key.algorithm, "typ": "JWT", "kid": key.name, **(header or {})}
        message = ".".join(encoded(json.dumps(part).encode()) for part in (head, said))
        return f"{message}.{encoded(self._signature(key, str(head['alg']), message.encode()))}"

    def _signature(self, key: Key, algorithm: str, message: bytes) -> bytes:
        if algorithm == "none":
            return b""
        if algorithm == "HS256":
            return hmac.new(key.public_pem, message, hashlib.sha256).digest()
        return key.sign(message)

    def broker(self, *listeners: str) -> dict[str, object]:
        """The settings of a broker whose listeners accept this issuer's tokens."""
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in listeners),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self.url,
            "krust.sasl.oauthbearer.allowed.urls": self.url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
        }


def wrong_tokens(issuer: Issuer) -> dict[str, str]:
    """Tokens that no broker may accept, by what is wrong with them."""
    other = Key(issuer.folder, "other")
    renamed = {"kid": issuer.key.name}
    now_s = int(time.time())
    return {
        "wrong signature": issuer.token(key=other, header=renamed),
        "expired": issuer.token(lasts_s=-3600, iat=now_s - 7200),
        "not valid yet": issuer.token(nbf=now_s + 3600, lasts_s=7200),
        "other issuer": issuer.token(iss="https://other.example"),
        "other audience": issuer.token(aud=["others"]),
        "no audience": issuer.token(aud=None),
        "no user": issuer.token(sub=""),
        "alg none": issuer.token(header={"alg": "none"}),
        "HS256 with the public key": issuer.token(header={"alg": "HS256"}),
        "unknown key": issuer.token(key=other),
        "no token": "a.b.c",
    }
