"""Which nodes of the target a transfer replaces or deletes, and whether it may.

A transfer may add nodes. It may replace nodes that the last transfer wrote or read there
(`Written`: the checksums of those nodes), and values that follow from the logs: the controller
epoch, leaders whose epoch does not fall, assumed settings of topics that were taken over. All other
nodes of the target were set by another program (`foreign`): settings of a topic, a quota, a topic.
The user says whether they stay (`keep`) or are replaced (`replace`). Producer ids never fall: the
higher block of both trees holds. The target keeps its own finalized features, because a Kafka that
finds one in a ZooKeeper exits (`controller/features.py`). Nodes without data that only the target
has stay, unless a node above them is deleted. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from krust.metadata import znodes
from krust.metadata.contents import (
    ASSUMED,
    EntityConfig,
    Features,
    PartitionState,
    ProducerIds,
    TopicAssignment,
)
from krust.metadata.json_fields import BadZnodeError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from krust.metadata.cluster_tree import ClusterTree

    Written = Mapping[str, int]

_T = TypeVar("_T")
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)(/partitions(?:/\d+)?)?")
_COUNTED = frozenset({znodes.CONTROLLER_EPOCH, znodes.BROKER_SEQUENCE, znodes.FEATURE})
_KINDS = {"topics": "topic", "brokers": "broker", "clients": "client", "users": "user", "ips": "IP"}
_LONGEST = 200


class Difference(NamedTuple):
    """A node of the target that a transfer would replace or delete."""

    path: str
    old: bytes
    new: bytes | None
    """None: the node is deleted"""
    foreign: bool
    """whether another program wrote the old data"""

    @property
    def subject(self) -> str:
        """What the node describes, in the user's words."""
        return subject(self.path)

    @property
    def texts(self) -> tuple[str, str]:
        """The old and the new data as texts. Of settings, those that differ."""
        old, new = _settings(self.path, self.old), _settings(self.path, self.new or b"")
        if old is None or new is None:
            gone = "(removed)" if self.new is None else _as_text(self.new)
            return _as_text(self.old), gone
        names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        before = ", ".join(f"{name}={old[name]}" for name in names if name in old)
        after = ", ".join(f"{name}={new.get(name, '(removed)')}" for name in names)
        return before[:_LONGEST], after[:_LONGEST]

    def __str__(self) -> str:
        old, new = self.texts
        return f"{self.subject}: {old or '(nothing)'} -> {new or '(nothing)'}"


def differences(source: ClusterTree, target: ClusterTree, written: Written) -> list[Difference]:
    """All nodes of the target that are replaced or deleted, foreign ones first."""
    found = []
    idle = empty(source, target, written)
    for path, old in sorted(target.nodes.items()):
        new = carried(source, target, path)
        if path in idle:
            continue
        if new is None or not _same(path, old, new):
            foreign = written.get(path) != crc32(old) and not _is_derived(path, old, new)
            found.append(Difference(path, old, new, foreign))
    return sorted(found, key=lambda each: not each.foreign)


def empty(source: ClusterTree, target: ClusterTree, written: Written) -> set[str]:
    """Nodes without data that only the target has and that stay."""
    found: set[str] = set()
    for path, data in sorted(target.nodes.items()):
        above = path.rpartition("/")[0]
        stays = not above or above in source.nodes or above in found
        ours = path in source.nodes or path in written or path.startswith(f"{znodes.TOPICS}/")
        if stays and not ours and not data:
            found.add(path)
    return found


def carried(source: ClusterTree, target: ClusterTree, path: str) -> bytes | None:
    """The data that a node of the source will have in the target; None: the source has no node."""
    new, old = source.nodes.get(path), target.nodes.get(path)
    if path == znodes.FEATURE and new is not None:
        return Features({}).encode() if old is None else old
    if path == znodes.PRODUCER_IDS and new is not None and old is not None:
        return max(old, new, key=_last_id) if _last_id(old) != _last_id(new) else new
    return new


def kept(found: Collection[Difference]) -> set[str]:
    """The nodes that stay if foreign nodes are kept: settings, quotas, nodes that would be deleted.

    A topic whose partitions or leaders differ in the two trees does not stay.
    """
    paths = {
        each.path
        for each in found
        if each.foreign and (each.new is None or each.path.startswith(f"{znodes.CONFIG}/"))
    }
    above = {path[:end] for path in paths for end in _slashes(path)}
    return paths | {each.path for each in found if each.new is None and each.path in above}


def written(nodes: Mapping[str, bytes], but: Collection[str]) -> dict[str, int]:
    """The checksums of the nodes that the next transfer may replace, without those of `but`."""
    return {
        path: crc32(data)
        for path, data in nodes.items()
        if path not in but and not _STATE.fullmatch(path)
    }


def subject(path: str) -> str:
    """What a node describes, in the user's words."""
    state, topic = _STATE.fullmatch(path), _TOPIC.fullmatch(path)
    if state is not None:
        return f"leader of {state[1]}:{state[2]}"
    if topic is not None:
        return f"topic {topic[1]}" if topic[2] is None else f"partitions of topic {topic[1]}"
    parts = path.split("/")[1:]
    if parts[0] == "config" and len(parts) > 2 and parts[1] in _KINDS:
        names = dict(zip(parts[1::2], parts[2::2], strict=False))
        of = ", ".join(f"{_KINDS.get(k, k)} {znodes.unsanitised(v)}" for k, v in names.items())
        what = "settings" if parts[1] in ("topics", "brokers") else "quotas"
        return f"{what} of {of}"
    return path


def _is_derived(path: str, old: bytes, new: bytes | None) -> bool:
    """Whether the new data of a node follows from the source's logs."""
    if path in _COUNTED or path == znodes.PRODUCER_IDS or (path.count("/") == 1 and not old):
        return new is not None
    if _STATE.fullmatch(path) and new is not None:
        before, after = _read(PartitionState.decode, old), _read(PartitionState.decode, new)
        return before is None or (after is not None and after.leader_epoch >= before.leader_epoch)
    return path.startswith(f"{znodes.TOPIC_CONFIGS}/") and _settings(path, old) == ASSUMED


def _same(path: str, old: bytes, new: bytes) -> bool:
    """Whether two contents of a node are equal."""
    if old == new:
        return True
    settings = _settings(path, old)
    if settings is not None:
        return settings == _settings(path, new)
    topic = _TOPIC.fullmatch(path)
    if topic is not None and topic[2] is None:
        assignment = _read(TopicAssignment.decode, old)
        return assignment is not None and assignment == _read(TopicAssignment.decode, new)
    return False


def _settings(path: str, data: bytes) -> dict[str, str] | None:
    """The settings in a node; None: it has no settings."""
    if not path.startswith(f"{znodes.CONFIG}/"):
        return None
    entity = _read(EntityConfig.decode, data)
    return None if entity is None else dict(entity.config)


def _read(decode: Callable[[bytes], _T], data: bytes) -> _T | None:
    try:
        return decode(data)
    except BadZnodeError:
        return None


def _last_id(data: bytes) -> int:
    block = _read(ProducerIds.decode, data)
    return -1 if block is None else block.last


def _slashes(path: str) -> list[int]:
    return [at for at, letter in enumerate(path) if letter == "/" and at]


def _as_text(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
