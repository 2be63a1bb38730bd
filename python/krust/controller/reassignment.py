"""ListPartitionReassignments 0: which partitions are on their way to other brokers.

Not done: reassignment itself, so the list is empty, whoever asks for whatever.
Source: KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import Code

if TYPE_CHECKING:
    from krust.controller.state import Policy, Request, State


def list_ongoing(_state: State, _request: Request) -> Policy:
    """ListPartitionReassignments."""
    yield from ()
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "topics": [],
    }
