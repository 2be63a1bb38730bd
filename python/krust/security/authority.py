"""An authority of its own for a cluster of a developer, and the certificate of its brokers.

    ca.pem          the authority's certificate, which clients trust
    authority.key   its key (PKCS8, not encrypted: the folder is the owner's alone)
    brokers.pem     the brokers' key, then their certificate

Each file is used again until it is about to expire, cannot be read or does not fit: the brokers'
certificate is renewed by the same authority, so that clients need no new file. A new authority is
made only if there is none any more. The authority signs brokers only: its path length is 0.
The only module that imports `cryptography` (the extra `secure`).
Not promised: use by two processes at once, and lists of revoked certificates.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from krust.errors import ConfigError
from krust.named_tuple import NamedTuple
from krust.security.private import write_private

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigError(
        f"certificates cannot be made, because there is no package cryptography ({error})",
        hint="pip install cryptography (from the checkout: pip install '.[secure]')",
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CA, KEY, BROKERS = "ca.pem", "authority.key", "brokers.pem"

_AUTHORITY_DAYS, _BROKERS_DAYS = 3650, 365
_EARLY = timedelta(days=30)
"""what expires within it is renewed, because a broker reads its files at its start"""
_SKEW = timedelta(hours=1)
"""how far the clocks of clients may be behind"""
_HOST = re.compile(r"[A-Za-z0-9*_]([A-Za-z0-9_.-]{0,252})\Z", re.ASCII)
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_ALWAYS = ("localhost", "127.0.0.1", "::1")


class _Authority(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def prepare(folder: Path, hosts: Iterable[str] = (), now: datetime | None = None) -> list[str]:
    """Make what is missing or about to expire.

    hosts    names and addresses that the certificate has beside those of this machine
    now      for tests
    returns  a line for each file that replaced another one
    raises   ConfigError: a host is none; OSError: a file cannot be written
    """
    now = now or datetime.now(UTC)
    names = _names(hosts)
    replaced = []
    authority = _read_authority(folder, now)
    if authority is None:
        if (folder / CA).exists():
            replaced.append(f"clients need the new {folder / CA}: the old authority has expired, "
                            "or its files cannot be read")  # fmt: skip
        authority = _make_authority(folder, now)
    if not _fits(folder, authority, names, now):
        if (folder / BROKERS).exists():
            replaced.append("the brokers have a new certificate: the old one had expired, or did "
                            "not fit")  # fmt: skip
        _certify(folder, authority, names, now)
    return replaced


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """What the certificate is for: this machine, and these hosts."""
    own = socket.gethostname()
    found: dict[str, x509.GeneralName] = {}
    for host in (*_ALWAYS, *([own] if _HOST.match(own) else []), *hosts):
        try:
            found[host] = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            if not _HOST.match(host):
                raise ConfigError(
                    f"{host!r} is no host that a certificate can name",
                    hint="write a DNS name in ASCII, or an IP address",
                ) from None
            found[host] = x509.DNSName(host)
    return list(found.values())


def _read_authority(folder: Path, now: datetime) -> _Authority | None:
    """The authority in the folder; None: there is none that can be used."""
    try:
        key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    fits = certificate.public_key() == key.public_key()
    return _Authority(key, certificate) if fits and _lasts(certificate, now) else None


def _lasts(certificate: x509.Certificate, now: datetime) -> bool:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return bool(begins <= now and ends - now > _EARLY)


def _make_authority(folder: Path, now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    mark = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _subject(f"authority {mark.digest.hex()[:8]}")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _builder(name, name, key, now, now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(mark, critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    write_private(folder / KEY, _key_text(key))
    write_private(folder / CA, certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(key, certificate)


def _fits(
    folder: Path, authority: _Authority, names: list[x509.GeneralName], now: datetime
) -> bool:
    """Whether the brokers' certificate is of this authority, lasts, and has the names."""
    try:
        text = (folder / BROKERS).read_bytes()
        key = serialization.load_pem_private_key(text, None)
        certificate = x509.load_pem_x509_certificate(text)
        certificate.verify_directly_issued_by(authority.certificate)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except Exception:  # whatever is wrong with it, a new one helps
        return False
    is_own = certificate.public_key() == key.public_key()
    return is_own and _lasts(certificate, now) and set(names) <= set(found.value)


def _certify(
    folder: Path, authority: _Authority, names: list[x509.GeneralName], now: datetime
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    ends = min(now + timedelta(days=_BROKERS_DAYS), issuer.not_valid_after_utc)
    signer = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(_subject("brokers"), issuer.subject, key, now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer.value),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    text = _key_text(key) + certificate.public_bytes(serialization.Encoding.PEM)
    write_private(folder / BROKERS, text)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
    )


def _subject(name: str) -> x509.Name:
    parts = ((NameOID.ORGANIZATION_NAME, "krust dev"), (NameOID.COMMON_NAME, name))
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])


def _usage(**allowed: bool) -> x509.KeyUsage:
    return x509.KeyUsage(**dict.fromkeys(_USAGES, False) | allowed)


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
