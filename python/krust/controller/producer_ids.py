"""AllocateProducerIds 0: gives a broker a block of 1000 producer ids that no other broker gets.

`/latest_producer_id_block` holds the last allocated block; the next one begins behind it. Ids that
a broker did not use before it stopped are lost; there are 2^63.
The logs may name higher ids, because the tree was lost or another broker wrote the directory. Then
`reserve_below` raises the block in the tree first. If an id were allocated twice, the broker would
take the first batches of the second producer for duplicates.
Source: KIP-730.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import ProducerIds
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Node, Read, Refusal, SetData

if TYPE_CHECKING:
    from krust.controller.state import ControllerState, Decision, Request, Steps
    from krust.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )

BLOCK = 1000
_LAST_BLOCK = 2**63 - 1 - BLOCK


def allocate(
    state: ControllerState, request: Request[AllocateProducerIdsRequest]
) -> Decision[AllocateProducerIdsResponse]:
    """AllocateProducerIds."""
    broker: int = request.message.get("broker_id", state.node_id)
    if state.shared and broker != state.node_id:
        from krust.controller.leader_requests import refused_broker

        code = refused_broker(state, broker, request.message.get("broker_epoch", -1))
        if code is not Code.NONE:
            return _answer(code, -1, 0)
    while True:
        (read,) = yield [[Read(znodes.PRODUCER_IDS)]]
        node = read.results[0]
        if not isinstance(node, Node):
            return _answer(Code.UNKNOWN_SERVER_ERROR, -1, 0)
        try:
            block = ProducerIds.decode(node.data)
        except BadZnodeError as error:
            state.fault(znodes.PRODUCER_IDS, error)
            return _answer(Code.UNKNOWN_SERVER_ERROR, -1, 0)
        first = block.last + 1 if block is not None else 0
        if first > _LAST_BLOCK:
            return _answer(Code.UNKNOWN_SERVER_ERROR, -1, 0)
        data = ProducerIds(broker, first, first + BLOCK - 1).encode()
        take = SetData(znodes.PRODUCER_IDS, data, node.stat.version)
        (done,) = yield [[state.fence(), take]]
        if done.refused is None:
            return _answer(Code.NONE, first, BLOCK)
        if done.results[0] is Refusal.BAD_VERSION:
            return _answer(Code.NOT_CONTROLLER, -1, 0)
        if done.refused is not Refusal.BAD_VERSION:
            return _answer(Code.UNKNOWN_SERVER_ERROR, -1, 0)


def reserve_below(state: ControllerState, first_free_id: int) -> Steps:
    """Write a block, so that the next one begins at `first_free_id` or above."""
    while first_free_id > 0:
        (read,) = yield [[Read(znodes.PRODUCER_IDS)]]
        node = read.results[0]
        try:
            block = ProducerIds.decode(node.data) if isinstance(node, Node) else None
        except BadZnodeError as error:
            state.fault(znodes.PRODUCER_IDS, error)
            return
        if not isinstance(node, Node) or (block is not None and block.last >= first_free_id - 1):
            return
        used = ProducerIds(state.node_id, max(first_free_id - BLOCK, 0), first_free_id - 1)
        (done,) = yield [[SetData(znodes.PRODUCER_IDS, used.encode(), node.stat.version)]]
        if done.refused is None:
            known = block.last if block is not None else "none"
            last = (
                f"logs name producer ids up to {first_free_id - 1}, the metadata knows of {known}"
            )
            state.warn(f"{last}: new ones go on at {first_free_id}")
            return
        if done.results[0] is not Refusal.BAD_VERSION:
            return


def _answer(code: Code, first: int, count: int) -> AllocateProducerIdsResponse:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "producer_id_start": first,
        "producer_id_len": count,
    }
