"""Where a ZooKeeper is, how it is spoken to, and who may do what there: facts, without a client."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from krust.errors import ConfigError
from krust.metadata.store import is_path

_HIDDEN = ("/config/users", "/config/brokers", "/delegation_token/tokens")
_OPEN = "/consumers"


class Tls(NamedTuple):
    """PEM files; the server's certificate is always checked."""

    ca: str | None = None
    """None: what the system trusts"""
    own: str | None = None
    """key and certificates, for servers that want to see them"""
    password: str | None = None
    check_hostname: bool = True


class Ensemble(NamedTuple):
    """Where a ZooKeeper is, and how it is spoken to."""

    connect: str
    """`host:port,host:port/chroot`"""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    digest: str | None = None
    """`user:password`"""
    sasl: str | None = None
    """`user:password` of DIGEST-MD5, which ZooKeeper may ask every client for"""
    protect: bool = False
    """new nodes belong to who made them; others read most of them (`zookeeper.set.acl`)"""
    tls: Tls | None = None

    @property
    def hosts(self) -> str:
        """`host:port,host:port`"""
        return self.connect.partition("/")[0]

    @property
    def root(self) -> str:
        """The chroot: empty, or `/a/b`. ConfigError: it is no path."""
        hosts, slash, rest = self.connect.partition("/")
        path = slash + rest.rstrip("/")
        if not hosts or not is_path(path or "/"):
            raise ConfigError(
                f"zookeeper.connect is {self.connect!r}", hint="it is host:port,host:port/chroot"
            )
        return "" if path == "/" else path


class Credentials(NamedTuple):
    """What a session is taken up again with."""

    session: int
    password: bytes


class Access(Enum):
    """Who may do what with a node."""

    OPEN = "anybody may do anything"
    READABLE = "its maker may do anything, others read"
    HIDDEN = "its maker alone"


def access(path: str) -> Access:
    """How a protected node is kept, as Kafka does it (`ZkData.SensitiveRootPaths`).

    Consumers of 2013 register themselves, so what is theirs is open.
    """
    if _under(path, _OPEN):
        return Access.OPEN
    return Access.HIDDEN if any(_under(path, each) for each in _HIDDEN) else Access.READABLE


def _under(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
