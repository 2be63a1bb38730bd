"""Completes the AlterPartition requests of this broker's leaders, which propose in-sync sets.

The core's event `AlterPartition` is Kafka's request without broker id and broker epoch, because the
core does not know the broker's registration. This module adds both. If this broker is
the controller, `controller/controller.py` then decides the request. Otherwise it sends the request
to the controller. The answer reaches the core unchanged.
Not promised: an answer for each partition. After an error of the whole response the outcome of the
proposals is unknown, and the core repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.controller.state import ControllerState, Request
    from krust.messages.alter_partition import AlterPartitionRequest


NEWEST = 3
"""The version that the core speaks; it fills in the fields of older ones too."""


def with_sender(
    state: ControllerState, request: Request[AlterPartitionRequest]
) -> Request[AlterPartitionRequest]:
    """The request with the id and the epoch of this broker, if its own core sent it."""
    if "broker_id" in request.message:
        return request
    message: AlterPartitionRequest = {
        "broker_id": state.node_id,
        "broker_epoch": state.broker_epoch,
        "topics": request.message["topics"],
    }
    return request._replace(version=NEWEST, message=message)
