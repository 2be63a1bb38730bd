"""The process that calls one retention policy once, for ((disk, partitions, now_ms)).

Output: a line of JSON, `{"expired": [[topic, number, count], ...]}` or `{"error": text}`. See
`krust.plugin_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust import plugin_process
from krust.retention.policies import POLICIES
from krust.retention.policy import validate

if TYPE_CHECKING:
    from krust.retention.policy import RetentionPolicy


def main(import_path: str, seconds: float) -> None:
    """Call the policy at `import_path` once."""
    plugin_process.serve_once(import_path, seconds, POLICIES.find, _asked)


def _asked(policy: RetentionPolicy, question: Any) -> dict[str, Any]:
    expired = policy.expired(*question)
    validate(question[1], expired)
    return {"expired": [[topic, number, count] for (topic, number), count in expired.items()]}
