"""In-sync sets that this broker's leaders propose, on their way to the controller.

The core's event `AlterPartition` is Kafka's request without the broker that asks: the core does not
know under which registration this broker is in the cluster. From here on it is a request as any
other broker sends it. If this broker is the controller, it decides the request itself; else the
controller is asked, and the answer is passed to the core as it is.
Not promised: an answer for each partition. An error of the whole response means that nobody knows
what became of the proposals; the core repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.controller.state import ControllerState, Request
    from krust.messages.alter_partition import AlterPartitionRequest


NEWEST = 3
"""The version that the core speaks; it fills in the fields of older ones too."""


def signed(
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
