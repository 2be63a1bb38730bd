"""A broker's metadata, moved between its own file and a ZooKeeper while nobody runs.

What goes and what stands in the way is decided in `metadata/transfer.py`. Into a file everything
goes in one commit; into a ZooKeeper in transactions below its limit, with `/controller_epoch` last,
so that a transfer that broke off is simply done again.
What somebody else set in the target since the last transfer is not replaced unasked
(`metadata/differences.py`); what that transfer wrote is remembered in `krust-transfer.json`.
The caller holds the data directory's lock. Threads: one.
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
    Done,
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

_AT_ONCE = 500
"""lists that wait for their answer"""
_NAMED = 5
"""differences or topics in a message"""
WRITTEN = "krust-transfer.json"

_log = logging.getLogger("krust")


class Moved(NamedTuple):
    """What a transfer did, or would do."""

    cluster_id: str
    topics: int
    partitions: int
    created: int
    changed: int
    removed: int
    kept: int
    differences: list[Difference]
    """what is there already and becomes another, goes, or (the foreign ones) is kept"""


class How(NamedTuple):
    """What a user says of a transfer."""

    force: bool = False
    """write over a side that is newer"""
    keep: bool = False
    """leave what others set in the target"""
    replace: bool = False
    """write over what others set in the target"""
    dry_run: bool = False


def export(config: Config, folder: Path, how: How) -> Moved:
    """Carry the metadata of a data directory into the ZooKeeper that the settings name.

    raises  ServerError: it may not or cannot be (`transfer.obstacle`), or it would replace what
            others set there
    """
    _identity(folder)
    if not any((folder / name).exists() for name in (metadata.FILE, metadata.JOURNAL)):
        raise ServerError(
            f"{folder} has no {metadata.FILE}", hint="start a krust on it once, without ZooKeeper"
        )
    with _file(config) as file, _zookeeper(config) as zookeeper:
        return _move(file, zookeeper, folder, how)


def take(config: Config, folder: Path, how: How) -> Moved:
    """Carry the metadata of the ZooKeeper that the settings name into a data directory.

    raises  ServerError: as `export`; or partitions of the cluster are on other brokers
    """
    node_id, cluster_id = _identity(folder)
    with _zookeeper(config) as zookeeper, _file(config, replaced=True) as file:
        source = zookeeper.side()
        others = transfer.elsewhere(source, node_id)
        if others:
            named = ", ".join(others[:_NAMED])
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            raise ServerError(
                f"topics have replicas on other brokers than {node_id}: {named}{more}",
                hint="krust on its own is one broker: move or delete them first",
            )
        moved = _move(zookeeper, file, folder, how._replace(dry_run=True))
        if cluster_id not in (None, moved.cluster_id):
            raise ServerError(
                f"{folder} belongs to cluster {cluster_id}, {source.name} to {moved.cluster_id}",
                hint="choose another chroot, or another --data-dir",
            )
        return moved if how.dry_run else _move(zookeeper, file, folder, how)


def _move(source: _Open, target: _Open, folder: Path, how: How) -> Moved:
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
    return Moved(
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
    listed = "; ".join(map(str, foreign[:_NAMED]))
    more = f"; and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    return ServerError(
        f"{name} has what was not written from here and would be lost: {listed}{more}",
        hint="--dry-run lists all; --keep leaves settings, quotas and topics that are only there "
        "as they are; --replace writes over them",
    )


def _written(folder: Path, cluster_id: str | None) -> dict[str, int]:
    """What the last transfer of this cluster wrote; nothing where that is not known."""
    try:
        facts = json.loads((folder / WRITTEN).read_bytes())
        if facts["cluster_id"] != cluster_id:
            return {}
        return {str(path): int(number) for path, number in facts["nodes"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(folder: Path, cluster_id: str | None, nodes: dict[str, int]) -> None:
    """Remember what a transfer wrote; where that fails the next one asks before it replaces."""
    draft = folder / f"{WRITTEN}.tmp"
    try:
        draft.write_text(json.dumps({"version": 1, "cluster_id": cluster_id, "nodes": nodes}))
        draft.replace(folder / WRITTEN)
    except OSError as error:
        _log.warning("cannot write %s: %s", folder / WRITTEN, error.strerror)


def _identity(folder: Path) -> tuple[int, str | None]:
    """The broker's number and the cluster's id that a log directory was marked with."""
    place = folder / "meta.properties"
    try:
        meta = properties(place.read_text())
        return int(meta["broker.id"]), meta.get("cluster.id")
    except (OSError, ConfigError, KeyError, ValueError) as error:
        raise ServerError(
            f"{folder} is no broker's log directory: {place.name}: {error}",
            hint="give the --data-dir that the broker served",
        ) from None


class _Open:
    """A store that is asked and waited for."""

    def __init__(self, store: Store, name: str, woken: threading.Event) -> None:
        self._store, self._name, self._woken = store, name, woken

    def side(self) -> ClusterTree:
        """The tree as it is now."""
        nodes: dict[str, bytes] = {}
        alive: list[str] = []
        (top,) = self._ask([[Children("/")]])
        level = [f"/{name}" for name in _names(top) if name in transfer.ROOTS | {"controller"}]
        while level:
            read = self._ask([[Read(path), Children(path)] for path in level])
            deeper = []
            for path, done in zip(level, read, strict=True):
                node = done.results[0]
                if not isinstance(node, Node):
                    if node is Refusal.NO_NODE:
                        continue
                    raise ServerError(f"{path} in {self._name}: {done.refused}", hint=_LOOK)
                if node.stat.owner:
                    if path.startswith((znodes.CONTROLLER, znodes.BROKERS)):
                        alive.append(path)
                    continue
                nodes[path] = node.data
                if path not in transfer.NEWS:
                    deeper += [f"{path}/{name}" for name in _names(done, 1)]
            level = deeper
        return ClusterTree(self._name, nodes, tuple(alive))

    def write(self, operations: Sequence[Write]) -> None:
        """Do all of it, in order."""
        whole: list[Operation] = list(operations)
        for transaction in chunks(Check("/", ANY), whole):
            (done,) = self._ask([transaction])
            if done.refused is not None:
                raise ServerError(
                    f"{self._name} refuses the metadata: {done.refused.value}",
                    hint="see that nobody uses it, and do this again",
                )

    def _ask(self, lists: Sequence[Sequence[Operation]]) -> list[Done]:
        """The answers to lists, in their order."""
        found: list[Done] = []
        for begin in range(0, len(lists), _AT_ONCE):
            found += self._answers(lists[begin : begin + _AT_ONCE])
        return found

    def _answers(self, lists: Sequence[Sequence[Operation]]) -> list[Done]:
        for token, operations in enumerate(lists):
            self._store.submit(operations, token)
        found: dict[object, Done] = {}
        while len(found) < len(lists):
            self._woken.clear()
            for event in self._store.events():
                if isinstance(event, Done):
                    found[event.token] = event
                elif isinstance(event, SessionChanged) and event.state in _GONE:
                    raise ServerError(f"{self._name} does not answer any more", hint=_LOOK)
            if len(found) < len(lists):
                self._woken.wait(min(self._store.due_s(), 1.0))
        return [found[token] for token in range(len(lists))]


_GONE = (SessionState.OVERDUE, SessionState.EXPIRED)
_LOOK = "look at the store, and do this again"


def _names(done: Done, place: int = 0) -> tuple[str, ...]:
    """The answer to Children; none where there was no such node."""
    found = done.results[place]
    return () if isinstance(found, Refusal) else cast("tuple[str, ...]", found)


@contextmanager
def _file(config: Config, *, replaced: bool = False) -> Iterator[_Open]:
    """The metadata of a data directory.

    replaced  it is to be replaced, so that it need not be whole
    """
    from krust.metadata.local import Tree

    kept = metadata.kept(config.log_dirs())
    tree = Tree(kept._replace(known=None, adopt=True) if replaced else kept)
    try:
        yield _Open(tree.session(), str(kept.path), threading.Event())
    finally:
        tree.close()


@contextmanager
def _zookeeper(config: Config) -> Iterator[_Open]:
    woken = threading.Event()
    opened = metadata.opened(config, (), woken.set)
    try:
        yield _Open(opened.store, opened.name, woken)
    finally:
        opened.close()
