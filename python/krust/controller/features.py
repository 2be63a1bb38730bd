"""The finalized features of the cluster (KIP-584): krust knows `transaction.version` alone.

UpdateFeatures 0-2: sets levels, all or none. `/feature` holds them; its version is their epoch.
A feature that it does not name has level 0.
A new cluster of krust begins at the newest level, as one of Kafka 4 does. A new cluster in a
ZooKeeper begins at 0, because a Kafka in ZooKeeper mode exits when it finds a finalized feature
that it does not know, and may be the next broker that joins. An administrator may ask for more
while every registered broker is krust. If a Kafka registers all the same (before 2.7 they do not
read `/feature`), the controller sets the level to 0.
Version notes: v0 allows downgrades by `allow_downgrade`, v1 by `upgrade_type`; v2 has no results.
Source: KIP-584, KIP-890.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.controller.state import FinalizedFeatures
from krust.errors import Code, ServerError
from krust.metadata import znodes
from krust.metadata.contents import Features
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Create, Read, Refusal, SetData

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from krust.controller.state import ControllerState, Decision, Request, Steps, Transactions
    from krust.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from krust.metadata.store import MultiResult, Node, Write

TRANSACTION_VERSION = "transaction.version"
LATEST = 2
NEW_CLUSTER = Features({TRANSACTION_VERSION: LATEST})
"""The features of a new cluster that no Kafka can join."""
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class _InvalidUpdateError(Exception):
    """Why an update is refused."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def read(state: ControllerState) -> Steps:
    """Read the finalized features. ServerError: the tree cannot be read now."""
    try:
        yield from _read(state)
    except BadZnodeError as error:
        state.fault(znodes.FEATURE, error)


def _read(
    state: ControllerState,
) -> Generator[Transactions, list[MultiResult], tuple[dict[str, int], Node | None]]:
    """The levels in `/feature`, and the node; None: there is none (Kafka before 2.7).

    raises  ServerError: the tree cannot be read now; BadZnodeError: the node makes no sense
    """
    (done,) = yield [[Read(znodes.FEATURE, state.shared)]]
    node = store_reads.node(znodes.FEATURE, done.results[0])
    levels = {} if node is None else dict(Features.decode(node.data).levels)
    _take(state, levels, -1 if node is None else node.stat.version)
    return levels, node


def _write(levels: Mapping[str, int], node: Node | None) -> Write:
    data = Features(levels).encode()
    if node is None:
        return Create(znodes.FEATURE, data)
    return SetData(znodes.FEATURE, data, node.stat.version)


def cap(state: ControllerState) -> Steps:
    """Set the level to 0 if a broker that is not krust is registered. The controller does."""
    if not state.features.transaction_version or not foreign_brokers(state):
        return
    try:
        levels, node = yield from _read(state)
    except BadZnodeError as error:
        state.fault(znodes.FEATURE, error)
        return
    if levels.pop(TRANSACTION_VERSION, 0):
        line = f"{TRANSACTION_VERSION} is 0 from now on: {_why_capped(state)}"
        state.changes.lines.append((logging.WARNING, line))
        yield [[state.fence(), _write(levels, node)]]


def foreign_brokers(state: ControllerState) -> list[int]:
    """The registered brokers that are not krust."""
    return sorted(
        number
        for number, live in state.brokers.items()
        if number != state.node_id and live.kept_epoch is None
    )


def _why_capped(state: ControllerState) -> str:
    numbers = ", ".join(map(str, foreign_brokers(state)))
    return (
        f"a broker is not krust ({numbers}), and a Kafka in ZooKeeper mode exits when it finds "
        "a finalized feature"
    )


def _take(state: ControllerState, levels: Mapping[str, int], epoch: int) -> None:
    level = levels.get(TRANSACTION_VERSION, 0)
    state.set_features(FinalizedFeatures(level if 0 <= level <= LATEST else 0, epoch))


def update(
    state: ControllerState, request: Request[UpdateFeaturesRequest]
) -> Decision[UpdateFeaturesResponse]:
    """UpdateFeatures."""
    updates = request.message["feature_updates"]
    try:
        levels, node = yield from _read(state)
        for each in updates:
            level = _level(state, each)
            levels.pop(TRANSACTION_VERSION, None)
            levels |= {TRANSACTION_VERSION: level} if level else {}
        if len({each["feature"] for each in updates}) != len(updates):
            raise _InvalidUpdateError(Code.INVALID_REQUEST, "a feature is named twice")
    except ServerError as error:
        return _response(updates, Code.REQUEST_TIMED_OUT, str(error))
    except BadZnodeError as error:
        return _response(updates, Code.FEATURE_UPDATE_FAILED, f"{znodes.FEATURE}: {error}")
    except _InvalidUpdateError as refused:
        return _response(updates, refused.code, str(refused))
    if request.message.get("validate_only") or not updates:
        return _response(updates, Code.NONE, None)
    (done,) = yield [[state.fence(), _write(levels, node)]]
    if done.refused is not None:
        lost = done.results[0] is Refusal.BAD_VERSION
        code = Code.NOT_CONTROLLER if lost else Code.FEATURE_UPDATE_FAILED
        return _response(updates, code, f"{znodes.FEATURE} cannot be written now")
    _take(state, levels, 0 if node is None else node.stat.version + 1)
    return _response(updates, Code.NONE, None)


def _level(state: ControllerState, asked: FeatureUpdateKey) -> int:
    """The level that an update asks for. _InvalidUpdateError: it is refused."""
    name, level = asked["feature"], asked["max_version_level"]
    kind = asked.get("upgrade_type", _UPGRADE)
    downgrades = asked.get("allow_downgrade") or kind in (_SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
    if name != TRANSACTION_VERSION:
        raise _InvalidUpdateError(
            Code.INVALID_UPDATE_VERSION,
            f"krust has no feature {name!r}: its only one is {TRANSACTION_VERSION}",
        )
    if not _UPGRADE <= kind <= _UNSAFE_DOWNGRADE:
        raise _InvalidUpdateError(Code.INVALID_REQUEST, f"there is no upgrade type {kind}")
    if not 0 <= level <= LATEST:
        raise _InvalidUpdateError(
            Code.INVALID_UPDATE_VERSION, f"{name} has the levels 0 to {LATEST}, not {level}"
        )
    if level < state.features.transaction_version and not downgrades:
        raise _InvalidUpdateError(
            Code.INVALID_UPDATE_VERSION,
            f"{name} {level} is lower than {state.features.transaction_version}: allow a downgrade",
        )
    if level > 0 and foreign_brokers(state):
        raise _InvalidUpdateError(
            Code.FEATURE_UPDATE_FAILED, f"{name} stays at 0: {_why_capped(state)}"
        )
    return level


def _response(
    updates: Sequence[FeatureUpdateKey], code: Code, text: str | None
) -> UpdateFeaturesResponse:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": text,
        "results": [
            {"feature": name, "error_code": code, "error_message": text}
            for name in dict.fromkeys(each["feature"] for each in updates)
        ],
    }
