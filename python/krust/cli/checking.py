"""`krust serve --check`: checks whether a broker could start, without starting it.

It checks everything and reports each problem with what to do: the settings; plug-ins, which are
imported, created and configured; the connection to ZooKeeper; the log directories, which must be
writable, not in use and this broker's; the listeners, which are bound and released. It writes
nothing and creates no directory.
Not promised: that a start a moment later succeeds.
Threads: the main thread. The code of plug-ins runs in this process, without a time limit.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from krust import authorizer
from krust import config as settings
from krust.config import ASSIGNORS, KAFKA_SELECTORS, RETENTION, SELECTOR
from krust.controller.authorizers import AUTHORIZERS
from krust.coordinator.assignors.find import ASSIGNORS as KNOWN_ASSIGNORS
from krust.errors import ConfigError, KrustError, ServerError
from krust.listeners import addresses
from krust.plugins import FindError, parameters
from krust.replica_selectors.selector import SELECTORS
from krust.retention.policies import POLICIES
from krust.runtime import identity, metadata, provenance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krust.config import Config
    from krust.plugins import Plugins

_LOCK = ".lock"


def problems(config: Config) -> Iterator[KrustError]:
    """The problems that keep a broker with these settings from starting or from following them."""
    yield from _plug_ins(config)
    dirs, broken = config.log_dirs(), False
    for each in dirs:
        for problem in _directory(each):
            broken = True
            yield problem
    answers = True
    if config.text("zookeeper.connect"):
        for problem in _zookeeper(config):
            answers = False
            yield problem
    if not broken:
        yield from _owner(config, dirs, answers=answers)
    yield from _listeners(config)


def _plug_ins(config: Config) -> Iterator[KrustError]:
    sys.path.insert(0, "")  # as in the processes that run plug-ins
    given = {name: setup.text for name, setup in config.given().items()}
    offered = config["group.consumer.assignors"]
    named = {place for _, place in settings.rules(ASSIGNORS, config.text(ASSIGNORS) or "")}
    places = sorted(named | set(offered if isinstance(offered, list) else ()))
    yield from _kind(KNOWN_ASSIGNORS, ASSIGNORS, places, parameters(given, ASSIGNORS))
    places = sorted({place for _, place in settings.rules(RETENTION, config.text(RETENTION) or "")})
    yield from _kind(POLICIES, RETENTION, places, parameters(given, RETENTION))
    places = sorted({config.text(SELECTOR) or ""} - {"", *KAFKA_SELECTORS})
    yield from _kind(SELECTORS, SELECTOR, places, parameters(given, SELECTOR))
    places = sorted({authorizer.plug_in(config.text)} - {""})
    yield from _kind(AUTHORIZERS, authorizer.CLASS, places, parameters(given, authorizer.CLASS))


def _kind(
    plugins: Plugins[Any], setting: str, places: list[str], given: dict[str, dict[str, str]]
) -> Iterator[KrustError]:
    """Create every plug-in of a kind, as the broker does."""
    unnamed = False
    names = {one.name for one in plugins.known()} | set(places)
    for place in places:
        try:
            names.add(str(plugins.find(place, given).name))
        except FindError as error:
            unnamed = True
            yield ConfigError(f"{plugins.noun} {place}: {error}", hint=error.hint)
        except (Exception, SystemExit) as error:
            unnamed = True
            what = f"{plugins.noun} {place} raises {type(error).__name__}: {error}"
            yield ConfigError(what, hint="fix its code, or take it out")
    for name in () if unnamed else sorted(set(given) - names):
        what = f"{setting}.{name}.* are parameters, but there is no {plugins.noun} {name}"
        yield ConfigError(what, hint=f"known are {', '.join(sorted(names))}")


def _directory(folder: Path) -> Iterator[KrustError]:
    """Problems of a log directory, which may be missing if it can be created."""
    whole = folder.absolute()
    there = next(place for place in (whole, *whole.parents) if place.exists())
    if not there.is_dir():
        yield ServerError(f"{there} is no directory", hint="choose another with --data-dir")
    elif not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        what = f"cannot write {folder}" if there == whole else f"cannot make {folder} in {there}"
        yield ServerError(what, hint="let this user write there, or choose another --data-dir")
    elif there == whole and _is_locked(whole):
        what = f"{folder} is in use by another process"
        yield ServerError(what, hint="stop that broker, or choose another with --data-dir")


def _is_locked(folder: Path) -> bool:
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _owner(config: Config, dirs: list[Path], *, answers: bool) -> Iterator[KrustError]:
    """Problems if the directories belong to another broker."""
    alone = not config.text("zookeeper.connect")
    try:
        if alone:
            provenance.refuse_cluster(dirs[0])
        if not alone and config.whole("broker.id") < 0 and not answers:
            return  # the id would be generated there
        identity.known_id(config, dirs)
    except KrustError as error:
        yield error


def _zookeeper(config: Config) -> Iterator[KrustError]:
    """Problems of a connection to ZooKeeper."""
    logging.getLogger("krust.zookeeper").setLevel(logging.CRITICAL)
    try:
        metadata.open_beside(config, lambda: None).close()
    except KrustError as error:
        yield error
    except OSError as error:
        what = f"zookeeper.connect = {config.text('zookeeper.connect')}: {error}"
        yield ServerError(what, hint="fix zookeeper.connect")


def _listeners(config: Config) -> Iterator[KrustError]:
    """Problems of binding all listeners at once, as the broker does."""
    held: list[socket.socket] = []
    try:
        for name, host, port in addresses(str(config.text("listeners"))):
            where = f"{host or '*'}:{port}"
            try:
                found = socket.getaddrinfo(
                    host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
            except socket.gaierror as error:
                what = f"listener {name}: {host} is no address of this machine: {error.strerror}"
                yield ServerError(what, hint="name an address of this machine, or none for all")
                continue
            family, kind, protocol, _, address = found[0]
            probe = socket.socket(family, kind, protocol)
            held.append(probe)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
                probe.listen(1)
            except OSError as error:
                what = f"cannot listen on {where}: {_reason(error)}"
                yield ServerError(what, hint="choose another with --port, 0 for any free one")
    finally:
        for probe in held:
            probe.close()


def _reason(error: OSError) -> str:
    """Why a port cannot be bound, in the same words as at a start (`rust/src/net/listener.rs`)."""
    reasons = {
        errno.EADDRINUSE: "the port is in use by another process",
        errno.EACCES: "not permitted (ports below 1024 need it)",
        errno.EADDRNOTAVAIL: "this machine does not have that address",
    }
    return reasons.get(error.errno or 0, error.strerror or str(error))
