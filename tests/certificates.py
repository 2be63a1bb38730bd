"""Certificates for tests, made with the `openssl` command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNKNOWN = "1.3.6.1.4.1.99999.1"
"""A type of attribute that only subjects here have: `/unknown=value`."""
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_RSA = ("-newkey", "rsa:2048", "-nodes")


def missing() -> str | None:
    """Why no certificate can be made here; None: it can."""
    return None if shutil.which("openssl") else "there is no openssl command"


def openssl(folder: Path, *arguments: str) -> None:
    """Run the command in a folder."""
    command = ["openssl", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


class Authority:
    """A certificate authority with its files in a folder of its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if reason := missing():
            pytest.skip(reason)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self.certificate = folder / f"{name}.pem"
        asked = ("req", "-x509", *_EC, "-keyout", f"{name}.key", "-days", "2")
        openssl(folder, *asked, "-out", f"{name}.pem", "-subj", f"/CN={name}")

    def certify(
        self,
        name: str,
        *hosts: str,
        rsa: bool = False,
        days: int = 2,
        subject: str | None = None,
        strings: str = "utf8only",
    ) -> Path:
        """A file with a key, and a certificate for `DNS:name` or `IP:address`.

        days     how long it holds; -1: it has expired
        subject  as `openssl req` takes it; None: the name, in an organization
        strings  the types of its strings, as `string_mask` names them
        """
        hosts = hosts or ("DNS:client",)
        critical = "critical," if subject == "/" else ""
        (self._folder / f"{name}.ext").write_text(
            f"subjectAltName={critical}{','.join(hosts)}\nkeyUsage=digitalSignature\n"
        )
        (self._folder / f"{name}.conf").write_text(
            f"oid_section=types\n[types]\nunknown={UNKNOWN}\n"
            f"[req]\ndistinguished_name=name\nstring_mask={strings}\n[name]\n"
        )
        asked = (*(_RSA if rsa else _EC), "-keyout", f"{name}.key", "-out", f"{name}.csr")
        named = ("-utf8", "-subj", f"/O=krust/CN={name}" if subject is None else subject)
        openssl(self._folder, "req", "-config", f"{name}.conf", *asked, *named)
        signer = ("-CA", f"{self._name}.pem", "-CAkey", f"{self._name}.key", "-CAcreateserial")
        files = ("-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", f"{name}.ext")
        openssl(self._folder, "x509", "-req", *signer, "-days", str(days), *files)
        both = self._folder / f"{name}.pem"
        both.write_text(self.key(name).read_text() + self.chain(name).read_text())
        return both

    def pkcs12(self, name: str, password: str) -> Path:
        """A certificate that was signed, with its key and the authority's, as PKCS12."""
        made = self._folder / f"{name}.p12"
        files = ("-inkey", f"{name}.key", "-in", f"{name}.crt", "-certfile", f"{self._name}.pem")
        openssl(
            self._folder,
            "pkcs12",
            "-export",
            *files,
            "-out",
            made.name,
            "-passout",
            f"pass:{password}",
        )
        return made

    def encrypted(self, name: str, password: str) -> Path:
        """A file with an encrypted key, and its certificate."""
        key = f"{name}.encrypted"
        files = ("-in", f"{name}.key", "-out", key)
        openssl(self._folder, "pkcs8", "-topk8", *files, "-passout", f"pass:{password}")
        both = self._folder / f"{name}-encrypted.pem"
        both.write_text((self._folder / key).read_text() + self.chain(name).read_text())
        return both

    def key(self, name: str) -> Path:
        """The key of a certificate that was signed, alone."""
        return self._folder / f"{name}.key"

    def chain(self, name: str) -> Path:
        """A certificate that was signed, alone."""
        return self._folder / f"{name}.crt"
