"""Controller election: which broker is the controller, and when it stops being it.

The broker that creates the ephemeral node `/controller` becomes the controller, and increments
`/controller_epoch` in the same transaction. If several brokers try, one succeeds. Every write of
the controller checks the version that `/controller_epoch` has then (`ControllerState.fence`).
The controller resigns when `/controller` belongs to another session, when a write fails that check,
when the store has not answered for as long as a session lasts, and when its session expires. It
does not wait for a message from its successor. A node with this broker's number but of another
session counts as another broker's.
Every broker watches `/controller`, the controller too: deleting the node starts an election.
Not promised: that the state equals the tree after `elect`; see `jobs.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.metadata import znodes
from krust.metadata.contents import ControllerRegistration
from krust.metadata.json_fields import BadZnodeError, number
from krust.metadata.store import Create, Exists, Node, Read, Refusal, SetData

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.state import ControllerState, Transactions
    from krust.metadata.store import MultiResult

_ATTEMPTS = 20


class RetryLaterError(Exception):
    """The store refused a read or write. The running job ends, and starts again later."""


def elect(state: ControllerState, now_ms: int) -> Generator[Transactions, list[MultiResult], bool]:
    """Become the controller if there is none. Returns whether this broker is it.

    raises  RetryLaterError: the store does not say which broker is the controller
    """
    for _ in range(_ATTEMPTS):
        (read,) = yield [
            [
                Exists(znodes.CONTROLLER, watch=True),
                Read(znodes.CONTROLLER),
                Read(znodes.CONTROLLER_EPOCH),
            ]
        ]
        holder, node = read.results[1:]
        known = _epoch_of(state, node)
        if isinstance(holder, Node):
            if known is None:
                raise RetryLaterError(f"{znodes.CONTROLLER_EPOCH} holds no epoch")
            if holder.stat.owner == state.session:
                if state.epoch_version != known[1]:
                    state.become_controller(*known)
                return True
            state.set_controller(_controller_id(state, holder), known[0])
            return False
        if holder is not Refusal.NO_NODE:
            raise RetryLaterError(f"the controllership: {holder}")
        state.set_controller(-1)
        if known is None:
            yield [[Create(znodes.CONTROLLER_EPOCH, b"0")]]
            continue
        epoch, version = known  # an answer may be so late that others were elected since
        (done,) = yield [
            [
                Create(
                    znodes.CONTROLLER, ControllerRegistration(state.node_id, now_ms).encode(), True
                ),
                SetData(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), version),
            ]
        ]
        if done.refused is None and epoch >= state.controller_epoch:
            state.become_controller(epoch + 1, version + 1)
            return True
        if done.refused is Refusal.NOT_APPLIED:
            break
    raise RetryLaterError("no broker could become the controller")


def _epoch_of(state: ControllerState, node: object) -> tuple[int, int] | None:
    """The epoch and its node's version; None: the node does not exist."""
    if node is Refusal.NO_NODE:
        return None
    if not isinstance(node, Node):
        raise RetryLaterError(f"{znodes.CONTROLLER_EPOCH}: {node}")
    try:
        return number(node.data), node.stat.version
    except BadZnodeError as error:
        state.fault(znodes.CONTROLLER_EPOCH, error)
        raise RetryLaterError(f"{znodes.CONTROLLER_EPOCH} holds no epoch: {error}") from None


def _controller_id(state: ControllerState, holder: Node) -> int:
    """The controller's broker id; -1: the node is not legal."""
    try:
        return ControllerRegistration.decode(holder.data).broker
    except BadZnodeError as error:
        state.fault(znodes.CONTROLLER, error)
        return -1
