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
from typing import TYPE_CHECKING

from krust.errors import ConfigError, ServerError
from krust.metadata import differences, transfer
from krust.metadata.store import (
    Create,
    Delete,
)
from krust.named_tuple import NamedTuple
from krust.properties import properties
from krust.runtime import metadata
from krust.runtime.offline_store import open_files, open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from krust.config import Config
    from krust.metadata.differences import Difference
    from krust.runtime.offline_store import OpenStore

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
    with open_files(config) as file, open_zookeeper(config) as zookeeper:
        return _transfer(file, zookeeper, folder, how)


def import_tree(config: Config, folder: Path, how: TransferOptions) -> TransferResult:
    """Copy the metadata of the ZooKeeper that the settings name to a data directory.

    raises  ServerError: as `export_tree`; or partitions are on other brokers, or the data directory
            belongs to another cluster
    """
    node_id, cluster_id = _identity(folder)
    with open_zookeeper(config) as zookeeper, open_files(config, replaced=True) as file:
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
    source: OpenStore, target: OpenStore, folder: Path, how: TransferOptions
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
