"""The process that calls a user's replica selector for a list of partitions and racks.

Output: a line of JSON, `{"brokers": [id, ...]}` in the order of the selections, -1 for the leader,
or `{"error": text}`. See `krust.plugin_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust import plugin_process
from krust.replica_selectors.selector import SELECTORS, validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.replica_selectors.selector import ReplicaSelector, Selection


def main(import_path: str, seconds: float) -> None:
    """Call the selector at `import_path`."""
    plugin_process.serve_once(import_path, seconds, SELECTORS.find, _asked)


def _asked(selector: ReplicaSelector, selections: Sequence[Selection]) -> dict[str, list[int]]:
    return {"brokers": [validate(each, selector.select(*each)) for each in selections]}
