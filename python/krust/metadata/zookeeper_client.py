"""A kazoo client as `zookeeper.py` needs it.

kazoo calls back on two threads, one for watches and one for answers, which parts them; here both
are called on the connection's own thread, in the order of what was read. It never pauses longer
than LONGEST_PAUSE_S between attempts to connect, and no attempt takes as long as a session lasts.
Its debug lines, which show passwords, are off, and so are those for each attempt to connect.
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
"""States that kazoo does not leave by itself; its thread has ended, maybe of what it read."""

_log = logging.getLogger("krust.zookeeper")
_kazoo_log = logging.getLogger("krust.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)


def client(ensemble: Ensemble, credentials: Credentials | None = None) -> tuple[Any, list[float]]:
    """A client that is not connected, and its session's length, which the server may change."""
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

    made._connection._connect = shake
    return made, length


def _sasl(shown: str) -> dict[str, str]:
    """Kazoo's options. ConfigError: its library is not there, or this is no `user:password`."""
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
    """Wait until it has a session and may ask. ServerError: nobody answers in time, or lets it."""
    hosts = ",".join(f"{host}:{port}" for host, port in made.hosts)
    try:
        made.start(seconds)
    except KazooTimeoutError:
        raise ServerError(
            f"no ZooKeeper answers at {hosts} within {seconds:g} s",
            hint="start it, or mend zookeeper.connect",
        ) from None
    try:
        made.exists("/")
    except exceptions.KazooException as error:
        if isinstance(error, exceptions.ConnectionLoss) and made.client_state not in ENDED:
            return  # it is lost later as well, and that is looked after
        raise ServerError(
            f"ZooKeeper at {hosts} refuses us: {error!r}",
            hint="look at krust.zookeeper.sasl, and at what ZooKeeper logs",
        ) from None


def end(made: Any) -> None:
    """End its session, if there is a connection, and leave nothing behind here."""
    try:
        made.stop()
        made.close()
    except Exception as error:
        _log.warning("the ZooKeeper session is left to end by itself: %s", error)


class _Direct(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads without its two for callbacks: they are called where the news arrived."""

    def __init__(self, connect_s: float, tls: Tls | None) -> None:
        super().__init__()
        self._connect_s = connect_s
        self._tls = _context(tls) if tls is not None else None

    def start(self) -> None:
        """There is nothing to start, so `running` stays False, and callbacks are called at once."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def spawn(self, func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """A thread; what it dies of is logged by kazoo, and seen by the client's state."""

        def run() -> None:
            with suppress(Exception):
                func(*args, **options)

        return super().spawn(run)

    def dispatch_callback(self, callback: Any) -> None:
        """Call it."""
        callback.func(*callback.args)

    def create_connection(self, address: tuple[str, int], **options: Any) -> socket.socket:
        """Connect; a server that does not answer may not cost the session."""
        made = socket.create_connection(address, min(options["timeout"], self._connect_s))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return made
        try:
            return self._tls.wrap_socket(made, server_hostname=options["hostname"])
        except BaseException:
            made.close()
            raise


def _context(tls: Tls) -> ssl.SSLContext:
    """ConfigError: a file of it cannot be read."""
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
