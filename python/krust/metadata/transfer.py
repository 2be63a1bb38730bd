"""Copies a cluster's tree from one store to another: the nodes, the obstacles, the writes.

A transfer has every persistent node of Kafka 3.9. It leaves out nodes of other programs in the
ZooKeeper and children that are notifications (`NOTIFICATION_PARENTS`). It leaves out ephemeral
nodes: if there is one, a broker runs, and the transfer is refused.
`/controller_epoch` tells which of two trees of one cluster is newer, because it rises with each
election. It is written last, so that a transfer that was interrupted can be repeated.
Pure.
Not promised: versions and zxids of nodes, which begin again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.metadata import znodes
from krust.metadata.differences import carried
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Create, Delete, SetData

if TYPE_CHECKING:
    from collections.abc import Collection

    from krust.metadata.cluster_tree import ClusterTree
    from krust.metadata.store import Write

ROOTS = frozenset(
    {
        "admin",
        "brokers",
        "cluster",
        "config",
        "consumers",
        "controller_epoch",
        "delegation_token",
        "feature",
        "isr_change_notification",
        "kafka-acl",
        "kafka-acl-changes",
        "kafka-acl-extended",
        "kafka-acl-extended-changes",
        "latest_producer_id_block",
        "log_dir_event_notification",
    }
)
"""The first names of Kafka's persistent paths."""

NOTIFICATION_PARENTS = frozenset(
    {
        "/config/changes",
        "/delegation_token/token_changes",
        "/isr_change_notification",
        "/kafka-acl-changes",
        "/kafka-acl-extended-changes",
        "/log_dir_event_notification",
    }
)
"""Nodes whose children notify running brokers of a change, and are deleted later."""


def obstacle(source: ClusterTree, target: ClusterTree, *, force: bool) -> tuple[str, str] | None:
    """Why a transfer is refused, and what to do; None: it is allowed.

    force  allows a target that seems newer
    """
    for side in (source, target):
        if side.alive:
            paths = ", ".join(side.alive)
            return (
                f"{side.name} is in use: {paths}",
                "stop the brokers; a killed one is gone when its session has ended",
            )
    try:
        ours, theirs = source.cluster_id, target.cluster_id
        newer = target.epoch - source.epoch
    except BadZnodeError as error:
        return f"the id or the epoch of a cluster cannot be read: {error}", "fix that node"
    if ours is None:
        return (
            f"there is no cluster in {source.name}",
            "look at the address, its chroot, --data-dir",
        )
    if theirs is not None and theirs != ours:
        return (
            f"{target.name} has cluster {theirs}, {source.name} has {ours}",
            "choose another chroot, or another --data-dir",
        )
    if newer > 0 and not force:
        return (
            f"{target.name} is newer: it has had {newer} more controllers than {source.name}",
            "carry it the other way, or give --force to lose what happened there",
        )
    return None


def elsewhere(side: ClusterTree, node_id: int) -> list[str]:
    """Topics with replicas on other brokers. Internal topics come last."""
    found = [
        name
        for name, assignment in side.topics().items()
        if any(set(replicas) != {node_id} for replicas in assignment.replicas)
    ]
    return sorted(found, key=lambda name: (name.startswith("__"), name))


def writes(source: ClusterTree, target: ClusterTree, kept: Collection[str] = ()) -> list[Write]:
    """The writes that make the target the same, parents before children, the epoch last.

    kept  nodes of the target that stay as they are
    """
    made: list[Write] = []
    changed: list[Write] = []
    for path in sorted(source.nodes):
        new = carried(source, target, path)
        if new is None:
            continue
        if path not in target.nodes:
            made.append(Create(path, new))
        elif path not in kept and target.nodes[path] != new:
            changed.append(SetData(path, new))
    gone = sorted(target.nodes.keys() - source.nodes.keys() - set(kept), reverse=True)
    removed: list[Write] = [Delete(path) for path in gone]
    whole = [*made, *changed, *removed]
    return sorted(whole, key=lambda one: one.path == znodes.CONTROLLER_EPOCH)
