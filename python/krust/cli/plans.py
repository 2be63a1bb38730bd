"""What changes much is shown before it is done, and done with `--yes` or after a question."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from krust.cli import output, session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.cli.options import Options


def agreed(options: Options, rows: Sequence[dict[str, Any]], dry_run: bool, question: str) -> bool:
    """Whether to go on from a plan: `--yes`, or yes on a terminal. The plan is shown first."""
    if options.yes and not dry_run:
        return True
    if options.output in ("table", "wide") and rows:
        output.table(list(rows[0]), rows)
    if not dry_run and sys.stdin.isatty() and sys.stderr.isatty():
        session.confirm(options, question)
        return True
    session.note(options, "nothing is changed; --yes does it")
    return False
