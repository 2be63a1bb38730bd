"""Copies a broker's metadata between its file and a ZooKeeper while the broker is stopped.

`metadata/transfer.py` decides which nodes are moved, and what prevents a transfer. A file gets all
nodes in one commit. A ZooKeeper gets transactions below its size limit, with `/controller_epoch`
last, so a transfer that was interrupted can be repeated.
Values that another program set in the target since the last transfer are not replaced unless the
user asks for it (`metadata/differences.py`). `krust-transfer.json` lists what that transfer wrote.
The caller holds the lock of the data directory. Threads: one.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

from krust.controller.state import chunks
from krust.errors import ConfigError, ServerError
from krust.metadata import differences, transfer, znodes
from krust.metadata.cluster_tree import ClusterTree
from krust.metadata.store import (
    ANY,
    Check,
    Children,
    Create,
    Delete,
    MultiResult,
    Node,
    Read,
    Refusal,
    SessionChanged,
    SessionState,
)
from krust.properties import properties
from krust.runtime import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from krust.config import Config
    from krust.metadata.differences import Difference
    from krust.metadata.store import Operation, Store, Write

_MAX_PENDING = 500
"""how many lists may wait for their answer"""
_LISTED = 5
"""how many differences or topics a message names"""
WRITTEN = "krust-transfer.json"

_log = logging.getLogger("krust")


class TransferResult(NamedTuple):
    """The result of a transfer, or of its dry run."""

    cluster_id: str
    topics: int
    partitions: int
    created: int
    changed: int
    removed: int
    kept: int
    differences: list[Difference]
    """nodes of the target that are replaced, deleted, or (those of other programs) kept"""


class TransferOptions(NamedTuple):
    """The options of a transfer."""

    force: bool = False
    """replace a target that is newer"""
    keep: bool = False
    """keep what other programs set in the target"""
    replace: bool = False
    """replace what other programs set in the target"""
    dry_run: bool = False


def export_tree(config: Config, folder: Path, how: TransferOptions) -> TransferResult:
    """Copy the metadata of a data directory to the ZooKeeper that the settings name.

    raises  ServerError: an obstacle (`transfer.obstacle`), or it would replace what other programs
            set there
    """
    _identity(folder)
    if not any((folder / name).exists() for name in (metadata.FILE, metadata.JOURNAL)):
        raise ServerError(
            f"{folder} has no {metadata.FILE}", hint="start a krust on it once, without ZooKeeper"
        )
    with _open_files(config) as file, _open_zookeeper(config) as zookeeper:
        return _transfer(file, zookeeper, folder, how)


def import_tree(config: Config, folder: Path, how: TransferOptions) -> TransferResult:
    """Copy the metadata of the ZooKeeper that the settings name to a data directory.

    raises  ServerError: as `export_tree`; or partitions are on other brokers, or the data directory
            belongs to another cluster
    """
    node_id, cluster_id = _identity(folder)
    with _open_zookeeper(config) as zookeeper, _open_files(config, replaced=True) as file:
        source = zookeeper.side()
        others = transfer.elsewhere(source, node_id)
        if others:
            named = ", ".join(others[:_LISTED])
            more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
            raise ServerError(
                f"topics have replicas on other brokers than {node_id}: {named}{more}",
                hint="krust on its own is one broker: move or delete them first",
            )
        moved = _transfer(zookeeper, file, folder, how._replace(dry_run=True))
        if cluster_id not in (None, moved.cluster_id):
            raise ServerError(
                f"{folder} belongs to cluster {cluster_id}, {source.name} to {moved.cluster_id}",
                hint="choose another chroot, or another --data-dir",
            )
        return moved if how.dry_run else _transfer(zookeeper, file, folder, how)


def _transfer(
    source: _OpenStore, target: _OpenStore, folder: Path, how: TransferOptions
) -> TransferResult:
    ours, theirs = source.side(), target.side()
    problem = transfer.obstacle(ours, theirs, force=how.force)
    if problem is not None:
        raise ServerError(problem[0], hint=problem[1])
    written = _written(folder, ours.cluster_id)
    found = differences.differences(ours, theirs, written)
    kept = differences.kept(found) if how.keep else set()
    foreign = [each for each in found if each.foreign and each.path not in kept]
    if foreign and not how.replace and not how.dry_run:
        raise _refusal(theirs.name, foreign)
    stays = kept | differences.empty(ours, theirs, written)
    operations = transfer.writes(ours, theirs, stays)
    if not how.dry_run:
        target.write(operations)
        _write(folder, ours.cluster_id, differences.written(target.side().nodes, kept))
    topics = ours.topics().values()
    return TransferResult(
        ours.cluster_id or "",
        len(topics),
        sum(len(topic.replicas) for topic in topics),
        sum(isinstance(each, Create) for each in operations),
        sum(not isinstance(each, Create | Delete) for each in operations),
        sum(isinstance(each, Delete) for each in operations),
        len(kept),
        found,
    )


def _refusal(name: str, foreign: Sequence[Difference]) -> ServerError:
    listed = "; ".join(map(str, foreign[:_LISTED]))
    more = f"; and {len(foreign) - _LISTED} more" if len(foreign) > _LISTED else ""
    return ServerError(
        f"{name} has what was not written from here and would be lost: {listed}{more}",
        hint="--dry-run lists all; --keep leaves settings, quotas and topics that are only there "
        "as they are; --replace writes over them",
    )


def _written(folder: Path, cluster_id: str | None) -> dict[str, int]:
    """What the last transfer of this cluster wrote; empty: not known."""
    try:
        saved = json.loads((folder / WRITTEN).read_bytes())
        if saved["cluster_id"] != cluster_id:
            return {}
        return {str(path): int(number) for path, number in saved["nodes"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(folder: Path, cluster_id: str | None, nodes: dict[str, int]) -> None:
    """Save what a transfer wrote. If that fails, the next transfer asks before it replaces."""
    draft = folder / f"{WRITTEN}.tmp"
    try:
        draft.write_text(json.dumps({"version": 1, "cluster_id": cluster_id, "nodes": nodes}))
        draft.replace(folder / WRITTEN)
    except OSError as error:
        _log.warning("cannot write %s: %s", folder / WRITTEN, error.strerror)


def _identity(folder: Path) -> tuple[int, str | None]:
    """The broker id and the cluster id in a log directory."""
    place = folder / "meta.properties"
    try:
        meta = properties(place.read_text())
        return int(meta["broker.id"]), meta.get("cluster.id")
    except (OSError, ConfigError, KeyError, ValueError) as error:
        raise ServerError(
            f"{folder} is no broker's log directory: {place.name}: {error}",
            hint="give the --data-dir that the broker served",
        ) from None


class _OpenStore:
    """A store with calls that wait for their answer."""

    def __init__(self, store: Store, name: str, woken: threading.Event) -> None:
        self._store, self._name, self._woken = store, name, woken

    def side(self) -> ClusterTree:
        """Read the tree."""
        nodes: dict[str, bytes] = {}
        alive: list[str] = []
        (top,) = self._ask([[Children("/")]])
        level = [
            f"/{name}" for name in _child_names(top) if name in transfer.ROOTS | {"controller"}
        ]
        while level:
            read = self._ask([[Read(path), Children(path)] for path in level])
            deeper = []
            for path, done in zip(level, read, strict=True):
                node = done.results[0]
                if not isinstance(node, Node):
                    if node is Refusal.NO_NODE:
                        continue
                    raise ServerError(f"{path} in {self._name}: {done.refused}", hint=_HINT)
                if node.stat.owner:
                    if path.startswith((znodes.CONTROLLER, znodes.BROKERS)):
                        alive.append(path)
                    continue
                nodes[path] = node.data
                if path not in transfer.NOTIFICATION_PARENTS:
                    deeper += [f"{path}/{name}" for name in _child_names(done, 1)]
            level = deeper
        return ClusterTree(self._name, nodes, tuple(alive))

    def write(self, operations: Sequence[Write]) -> None:
        """Make all writes, in order."""
        whole: list[Operation] = list(operations)
        for transaction in chunks(Check("/", ANY), whole):
            (done,) = self._ask([transaction])
            if done.refused is not None:
                raise ServerError(
                    f"{self._name} refuses the metadata: {done.refused.value}",
                    hint="stop the programs that use it, and repeat this",
                )

    def _ask(self, lists: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Submit lists. Returns their answers, in their order."""
        found: list[MultiResult] = []
        for begin in range(0, len(lists), _MAX_PENDING):
            found += self._answers(lists[begin : begin + _MAX_PENDING])
        return found

    def _answers(self, lists: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        for token, operations in enumerate(lists):
            self._store.submit(operations, token)
        found: dict[object, MultiResult] = {}
        while len(found) < len(lists):
            self._woken.clear()
            for event in self._store.events():
                if isinstance(event, MultiResult):
                    found[event.token] = event
                elif isinstance(event, SessionChanged) and event.state in _GONE:
                    raise ServerError(f"{self._name} does not answer any more", hint=_HINT)
            if len(found) < len(lists):
                self._woken.wait(min(self._store.due_s(), 1.0))
        return [found[token] for token in range(len(lists))]


_GONE = (SessionState.OVERDUE, SessionState.EXPIRED)
_HINT = "look at the store, and do this again"


def _child_names(done: MultiResult, place: int = 0) -> tuple[str, ...]:
    """The children in an answer; empty: there is no such node."""
    found = done.results[place]
    return () if isinstance(found, Refusal) else cast("tuple[str, ...]", found)


@contextmanager
def _open_files(config: Config, *, replaced: bool = False) -> Iterator[_OpenStore]:
    """Open the metadata of a data directory.

    replaced  it will be replaced, so it need not be whole
    """
    from krust.metadata.local import Tree

    kept = metadata.tree_files(config.log_dirs())
    tree = Tree(kept._replace(known=None, adopt=True) if replaced else kept)
    try:
        yield _OpenStore(tree.session(), str(kept.path), threading.Event())
    finally:
        tree.close()


@contextmanager
def _open_zookeeper(config: Config) -> Iterator[_OpenStore]:
    woken = threading.Event()
    opened = metadata.open_metadata(config, (), woken.set)
    try:
        yield _OpenStore(opened.store, opened.name, woken)
    finally:
        opened.close()
