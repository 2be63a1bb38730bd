"""The certificates of `krust dev --secure`: what they are for, and when they are made anew."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509

from krust.errors import ConfigError
from krust.security.authority import BROKERS, CA, KEY, prepare
from krust.security.private import private_folder

NOW = datetime(2030, 1, 1, tzinfo=UTC)
FILES = (CA, KEY, BROKERS)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_a_second_start_uses_the_same_files_until_they_are_about_to_expire(tmp_path: Path) -> None:
    assert prepare(tmp_path, now=NOW) == []
    first = contents(tmp_path)
    assert prepare(tmp_path, now=NOW + timedelta(days=334)) == []
    assert contents(tmp_path) == first
    [line] = prepare(tmp_path, now=NOW + timedelta(days=336))
    assert "new certificate" in line
    renewed = contents(tmp_path)
    assert renewed[BROKERS] != first[BROKERS]
    assert (renewed[CA], renewed[KEY]) == (first[CA], first[KEY])


def test_an_authority_that_expires_is_replaced_and_said_so(tmp_path: Path) -> None:
    prepare(tmp_path, now=NOW)
    first = contents(tmp_path)
    lines = prepare(tmp_path, now=NOW + timedelta(days=3650))
    assert str(tmp_path / CA) in lines[0]
    assert not set(contents(tmp_path).values()) & set(first.values())


@pytest.mark.parametrize("damaged", FILES)
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_damaged_or_missing_file_is_made_anew(
    tmp_path: Path, damaged: str, content: bytes | None
) -> None:
    prepare(tmp_path)
    first = contents(tmp_path)
    (tmp_path / damaged).unlink()
    if content is not None:
        (tmp_path / damaged).write_bytes(content)
    prepare(tmp_path)
    again = contents(tmp_path)
    assert again[BROKERS] != first[BROKERS]
    assert (again[CA] == first[CA]) is (damaged == BROKERS)
    assert prepare(tmp_path) == []


def test_a_key_of_another_authority_is_not_used(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        private_folder(folder)
        prepare(folder)
    (mine / KEY).write_bytes((other / KEY).read_bytes())
    assert len(prepare(mine)) == 2


def test_the_certificate_names_this_machine_and_the_hosts_that_were_asked_for(
    tmp_path: Path,
) -> None:
    prepare(tmp_path)
    [line] = prepare(tmp_path, ["broker.example", "10.0.0.9"])
    assert "new certificate" in line
    assert prepare(tmp_path, ["broker.example"]) == []
    found = x509.load_pem_x509_certificate((tmp_path / BROKERS).read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "broker.example"} <= set(names.get_values_for_type(x509.DNSName))
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    assert {"127.0.0.1", "::1", "10.0.0.9"} <= set(addresses)
    with pytest.raises(ConfigError, match="'a b' is no host"):
        prepare(tmp_path, ["a b"])


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    private_folder(folder)
    prepare(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}


def test_the_strictest_checks_of_openssl_accept_the_certificate(tmp_path: Path) -> None:
    prepare(tmp_path)
    client = ssl.create_default_context(cafile=str(tmp_path / CA))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / BROKERS)
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    ours = client.wrap_bio(pipes[0], pipes[1], server_hostname="localhost")
    theirs = server.wrap_bio(pipes[1], pipes[0], server_side=True)
    waiting = [ours, theirs]
    for _ in range(4):
        for each in list(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
    assert waiting == []
    assert "krust dev" in str(ours.getpeercert())
