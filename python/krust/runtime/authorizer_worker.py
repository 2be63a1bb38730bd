"""The process of a user's authorizer: it gives the ACLs of one client after another.

Answers are `krust.controller.authorizers.Answer`. See `krust.plugin_worker`.
"""

from __future__ import annotations

from krust import plugin_worker
from krust.controller.authorizers import AUTHORIZERS, asked


def main(import_path: str, trace: int) -> None:
    """Serve calls of the authorizer at `import_path` until standard input ends."""
    plugin_worker.serve(import_path, trace, AUTHORIZERS.find, asked)
