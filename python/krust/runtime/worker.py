"""The worker process of `runners.WorkerProcess`: it calls one assignor.

Answers are `{"shares": [(member id, [(topic, partition)])]}`. See `krust.plugin_worker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust import plugin_worker
from krust.coordinator.assignors.assignor import validate
from krust.coordinator.assignors.find import ASSIGNORS

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import Assignor, GroupSpec, Topics


def main(import_path: str, trace: int) -> None:
    """Serve calls of the assignor at `import_path` until standard input ends."""
    plugin_worker.serve(import_path, trace, ASSIGNORS.find, _shares)


def _shares(assignor: Assignor, asked: tuple[GroupSpec, Topics]) -> dict[str, Any]:
    group, topics = asked
    shares = assignor.assign(group, topics)
    validate(group, topics, shares)
    return {
        "shares": [
            (member_id, [(topic, partition) for topic, partition in share])
            for member_id, share in shares.items()
        ]
    }
