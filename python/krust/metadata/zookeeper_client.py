"""The kazoo client of `zookeeper.py`.

kazoo has one thread for the callbacks of watches and one for those of answers, so their order is
lost. Here the connection's thread calls both, in the order of arrival. The client pauses at most
LONGEST_PAUSE_S between attempts to connect, and no attempt takes as long as a session timeout: a
ZooKeeper that is starting may accept a connection and never answer on it. Its debug lines, which
show passwords, and its lines for each attempt to connect are off.
"""

from __future__ import annotations

import logging
import socket
import ssl
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from krust.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.metadata.ensemble import Credentials, Ensemble, Tls

LONGEST_PAUSE_S = 1.0
"""between two attempts to connect"""

ENDED = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
"""States that kazoo does not leave by itself: its thread has ended, maybe by an exception."""

_log = logging.getLogger("krust.zookeeper")
_kazoo_log = logging.getLogger("krust.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)


def client(ensemble: Ensemble, credentials: Credentials | None = None) -> tuple[Any, list[float]]:
    """A client that is not connected, and its session timeout, which the server may change."""
    seconds = ensemble.session_timeout_ms / 1000
    hosts = len(ensemble.hosts.split(","))
    handler = _Direct(min(seconds / max(hosts, 2), 5.0), ensemble.tls)
    made = KazooClient(
        hosts=ensemble.hosts,
        timeout=seconds,
        client_id=tuple(credentials) if credentials is not None else None,
        handler=handler,
        auth_data={("digest", ensemble.digest)} if ensemble.digest is not None else None,
        sasl_options=_sasl(ensemble.sasl) if ensemble.sasl is not None else None,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=LONGEST_PAUSE_S),
        logger=_kazoo_log,
    )
    length = [seconds]
    shaking = made._connection._connect

    def shake(*where: Any) -> Any:
        read_s, connect_s = shaking(*where)
        length[0] = read_s * 1.5 / 1000
        return read_s, connect_s

    invoking = made._connection._invoke

    def invoke(timeout_s: float, *request: Any, **more: Any) -> Any:
        return invoking(min(timeout_s, handler.connect_s), *request, **more)

    made._connection._connect = shake
    made._connection._invoke = invoke
    return made, length


def _sasl(shown: str) -> dict[str, str]:
    """Options of kazoo. ConfigError: a library is missing, or the text is no `user:password`."""
    name, colon, password = shown.partition(":")
    if not colon:
        raise ConfigError("krust.zookeeper.sasl has no colon", hint="it is user:password")
    if find_spec("puresasl") is None:
        raise ConfigError(
            "krust.zookeeper.sasl needs pure-sasl",
            hint="from the checkout: pip install '.[cluster,sasl]'",
        )
    return {"mechanism": "DIGEST-MD5", "username": name, "password": password}


def connect(made: Any, seconds: float) -> None:
    """Wait for a session that may read. ServerError: none in time, or not allowed."""
    hosts = ",".join(f"{host}:{port}" for host, port in made.hosts)
    try:
        made.start(seconds)
    except KazooTimeoutError:
        raise ServerError(
            f"no ZooKeeper answers at {hosts} within {seconds:g} s",
            hint="start it, or fix zookeeper.connect",
        ) from None
    try:
        made.exists("/")
    except exceptions.KazooException as error:
        if isinstance(error, exceptions.ConnectionLoss) and made.client_state not in ENDED:
            return  # a connection can be lost later too, and `zookeeper.py` handles that
        raise ServerError(
            f"ZooKeeper at {hosts} refuses us: {error!r}",
            hint="look at krust.zookeeper.sasl, and at what ZooKeeper logs",
        ) from None


def end(made: Any) -> None:
    """End the session, if there is a connection, and all threads."""
    try:
        made.stop()
        made.close()
    except Exception as error:
        _log.warning("the ZooKeeper session is left to end by itself: %s", error)


class _Direct(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads without those for callbacks, which the connection's thread calls."""

    def __init__(self, connect_s: float, tls: Tls | None) -> None:
        super().__init__()
        self.connect_s = connect_s
        self._tls = _context(tls) if tls is not None else None

    def start(self) -> None:
        """Start nothing: `running` stays False, so kazoo calls callbacks at once."""

    def stop(self) -> None:
        """Stop nothing."""

    def spawn(self, func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Start a thread. kazoo logs its exception, and the client's state shows that it ended."""

        def run() -> None:
            with suppress(Exception):
                func(*args, **options)

        return super().spawn(run)

    def dispatch_callback(self, callback: Any) -> None:
        """Call a callback."""
        callback.func(*callback.args)

    def create_connection(self, address: tuple[str, int], **options: Any) -> socket.socket:
        """Connect, with a timeout shorter than the session's."""
        made = socket.create_connection(address, min(options["timeout"], self.connect_s))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return made
        try:
            return self._tls.wrap_socket(made, server_hostname=options["hostname"])
        except BaseException:
            made.close()
            raise


def _context(tls: Tls) -> ssl.SSLContext:
    """The TLS context. ConfigError: a file cannot be read."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.own is not None:
            context.load_cert_chain(tls.own, password=tls.password or "")
    except OSError as error:
        raise ConfigError(
            f"the certificates for ZooKeeper ({tls.ca}, {tls.own}) cannot be read: {error}",
            hint="they are PEM files; look at zookeeper.ssl.*",
        ) from None
    context.check_hostname = tls.check_hostname
    return context
