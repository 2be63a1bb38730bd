"""The address of a ZooKeeper, its TLS and authentication, and the ACLs of nodes."""

from __future__ import annotations

from enum import Enum

from krust.errors import ConfigError
from krust.metadata.store import is_path
from krust.named_tuple import NamedTuple

_HIDDEN = ("/config/users", "/config/brokers", "/delegation_token/tokens")
_OPEN = "/consumers"


class Tls(NamedTuple):
    """PEM files. The server's certificate is always checked."""

    ca: str | None = None
    """None: the authorities that the system trusts"""
    own: str | None = None
    """key and certificates of the client, for servers that require them"""
    password: str | None = None
    check_hostname: bool = True


class Ensemble(NamedTuple):
    """The address and the security settings of a ZooKeeper."""

    connect: str
    """`host:port,host:port/chroot`"""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    digest: str | None = None
    """`user:password`"""
    sasl: str | None = None
    """`user:password` of DIGEST-MD5, which ZooKeeper may require"""
    protect: bool = False
    """only the creator may write new nodes; others may read most of them (`zookeeper.set.acl`)"""
    tls: Tls | None = None

    @property
    def hosts(self) -> str:
        """`host:port,host:port`"""
        return self.connect.partition("/")[0]

    @property
    def root(self) -> str:
        """The chroot: empty, or `/a/b`. ConfigError: it is not a path."""
        hosts, slash, rest = self.connect.partition("/")
        path = slash + rest.rstrip("/")
        if not hosts or not is_path(path or "/"):
            raise ConfigError(
                f"zookeeper.connect is {self.connect!r}", hint="it is host:port,host:port/chroot"
            )
        return "" if path == "/" else path


class Credentials(NamedTuple):
    """The id and password of a session."""

    session: int
    password: bytes


class Access(Enum):
    """The kinds of ACL of a node."""

    OPEN = "anybody may do anything"
    READABLE = "its maker may do anything, others read"
    HIDDEN = "its maker alone"


def access(path: str) -> Access:
    """The ACL of a protected node, as Kafka's (`ZkData.SensitiveRootPaths`).

    The nodes of consumers of 2013 are open, because these consumers create them.
    """
    if _under(path, _OPEN):
        return Access.OPEN
    return Access.HIDDEN if any(_under(path, each) for each in _HIDDEN) else Access.READABLE


def _under(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
