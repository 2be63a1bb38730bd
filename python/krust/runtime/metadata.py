"""Opens the store of a broker's metadata: a ZooKeeper, or files of the broker.

The files are `krust-metadata.db` in the first log directory and a second copy beside it. A second
log directory has a copy too.

The session's id and password are kept in `krust-session.json` in the first log directory, so that
the next start after a kill ends the old session at once and need not wait until it expires. A
program that reads the file can take over the session, so its mode is 0600.
Threads: the policy thread.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from krust.errors import ConfigError, ServerError
from krust.named_tuple import NamedTuple
from krust.runtime import provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from krust.config import Config
    from krust.metadata.ensemble import Credentials, Ensemble, Tls
    from krust.metadata.local import Tree
    from krust.metadata.saved import TreeFiles
    from krust.metadata.shared import SharedTree
    from krust.metadata.store import Store
    from krust.metadata.zookeeper import ZooKeeperStore

FILE = provenance.BROKER_FILE
JOURNAL = provenance.JOURNALS[FILE]
SESSION = "krust-session.json"

_COPIES = 2
"""how many log directories have a copy"""

_log = logging.getLogger("krust")


class OpenMetadata(NamedTuple):
    """An open store."""

    store: Store
    name: str
    """for messages"""
    close: Callable[[], None]
    keep: Callable[[], None]
    """called when the session changed: saves its id and password"""
    expire: Callable[[], object]
    """ends the session as if it had timed out; a new one begins"""
    hold: Callable[[], None] = lambda: None
    """from now on changes need not be durable one by one"""
    release: Callable[[], bool] = lambda: True
    """makes all changes durable; False: this failed"""


def open_metadata(
    config: Config,
    folders: Sequence[Path],
    wake: Callable[[], None],
    shared: SharedTree | None = None,
    *,
    adopt: bool = False,
    memory: Tree | None = None,
) -> OpenMetadata:
    """Open the store that the settings name.

    folders the log directories; none: the tree is kept in memory
    memory  an earlier tree in memory
    wake    called by a thread of the store when it has events
    shared  the tree of a cluster in this process, used instead
    adopt   a damaged or missing file is no error
    raises  ConfigError: no kazoo, or no address; ServerError: no server answers, or such a file
    """
    if shared is not None:
        session = shared.session(wake)
        return OpenMetadata(session, "this process", session.close, lambda: None, session.expire)
    connect = config.text("zookeeper.connect")
    if connect:
        return _in_zookeeper(_ensemble(config, connect), folders[0] if folders else None, wake)
    from krust.metadata.local import Tree

    tree = memory or Tree(tree_files(folders, adopt=adopt) if folders else None)
    store = tree.session()

    def close() -> None:
        store.close()
        tree.close()

    name = f"its {FILE}"
    return OpenMetadata(store, name, close, lambda: None, lambda: None, tree.hold, tree.release)


def tree_files(folders: Sequence[Path], *, adopt: bool = False) -> TreeFiles:
    """The files with the metadata of a lone broker."""
    from krust.metadata.saved import TreeFiles

    copies = tuple(folder / JOURNAL for folder in folders)
    known = provenance.served_by_krust(folders)
    return TreeFiles(folders[0] / FILE, copies[:_COPIES], copies[_COPIES:], known, adopt)


def open_beside(config: Config, wake: Callable[[], None]) -> Store:
    """A second session with the ZooKeeper that the settings name.

    raises  ConfigError, ServerError: as `opened`
    """
    return _open_store()(_ensemble(config, str(config.text("zookeeper.connect"))), wake)


def _ensemble(config: Config, connect: str) -> Ensemble:
    from krust.metadata.ensemble import Ensemble

    session_ms = config.whole("zookeeper.session.timeout.ms")
    wanted = config.text("zookeeper.connection.timeout.ms")
    return Ensemble(
        connect,
        session_timeout_ms=session_ms,
        connection_timeout_ms=int(wanted) if wanted is not None else session_ms,
        digest=config.text("krust.zookeeper.digest"),
        sasl=config.text("krust.zookeeper.sasl"),
        protect=config.true("zookeeper.set.acl"),
        tls=_tls(config),
    )


def _tls(config: Config) -> Tls | None:
    """The settings of TLS; None: the connection is not secured."""
    if not config.true("zookeeper.ssl.client.enable"):
        return None
    from krust.metadata.ensemble import Tls

    trusted = _pem(
        config.text("zookeeper.ssl.truststore.location"),
        config.text("zookeeper.ssl.truststore.type"),
    )
    own = _pem(
        config.text("zookeeper.ssl.keystore.location"),
        config.text("zookeeper.ssl.keystore.type"),
    )
    return Tls(
        trusted,
        own,
        config.text("zookeeper.ssl.keystore.password"),
        check_hostname=bool(config.text("zookeeper.ssl.endpoint.identification.algorithm")),
    )


def _pem(path: str | None, kind: str | None) -> str | None:
    """The path of a PEM file; the type or the name of the file shows that it is PEM."""
    if path and (kind or ("PEM" if path.endswith(".pem") else "JKS")).upper() != "PEM":
        raise ConfigError(
            f"zookeeper.ssl: {path} is no PEM file",
            hint="convert it, and set zookeeper.ssl.keystore.type or .truststore.type to PEM",
        )
    return path


def _in_zookeeper(
    ensemble: Ensemble, folder: Path | None, wake: Callable[[], None]
) -> OpenMetadata:
    open_store = _open_store()
    from krust.metadata.zookeeper import end_session

    path = folder / SESSION if folder is not None else None
    left = _read(path) if path is not None else None
    if left is not None and end_session(ensemble, left):
        _log.info("ended the ZooKeeper session %x that an earlier process left", left.session)
    store = open_store(ensemble, wake)

    def keep() -> None:
        if path is not None:
            _write(path, store.credentials)

    def close() -> None:
        ends = store.credentials.session != 0  # without a connection it exists until it expires
        store.close()
        if path is not None and ends:
            path.unlink(missing_ok=True)

    def expire() -> None:
        end_session(ensemble, store.credentials)

    keep()
    return OpenMetadata(store, f"the ZooKeeper at {ensemble.connect}", close, keep, expire)


def _open_store() -> Callable[[Ensemble, Callable[[], None]], ZooKeeperStore]:
    """The class of the store. Its modules are loaded only with a ZooKeeper."""
    try:
        from krust.metadata.zookeeper import open_store
    except ImportError as error:
        raise ConfigError(
            f"zookeeper.connect is set, but there is no kazoo ({error})",
            hint="from the checkout: pip install '.[cluster]'",
        ) from None
    return open_store


def _read(path: Path) -> Credentials | None:
    """The saved session of an earlier process; None: there is none that can be read."""
    from krust.metadata.ensemble import Credentials

    try:
        saved = json.loads(path.read_bytes())
        return Credentials(int(saved["session"]), bytes.fromhex(saved["password"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return None


def _write(path: Path, credentials: Credentials) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    saved = {"session": credentials.session, "password": credentials.password.hex()}
    try:
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(saved, file)
        draft.replace(path)
    except OSError as error:
        raise ServerError(
            f"cannot write {path}: {error.strerror}", hint="choose another --data-dir"
        ) from None
