"""Shows a plan before it is carried out, with `--yes` or after a question."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from krust.cli import output, session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.cli.options import Options


def confirm_plan(
    options: Options, rows: Sequence[dict[str, Any]], dry_run: bool, question: str
) -> bool:
    """Show the plan. Returns whether to carry it out: with `--yes`, or after yes on a terminal."""
    if options.yes and not dry_run:
        return True
    if options.output in ("table", "wide") and rows:
        output.table(list(rows[0]), rows)
    if not dry_run and sys.stdin.isatty() and sys.stderr.isatty():
        session.confirm(options, question)
        return True
    session.note(options, "nothing is changed; --yes does it")
    return False


def report_offsets(
    options: Options,
    columns: Sequence[str],
    rows: Sequence[dict[str, Any]],
    failed: Mapping[tuple[str, int], int],
    *,
    done: bool,
) -> None:
    """Report the result of each offset: (topic, partition) -> error code."""
    many = session.ItemResults(len(rows))
    for row in rows:
        code = failed.get((row["topic"], row["partition"]), 0)
        with many.item():
            session.check({"error_code": code}, f"{row['topic']}:{row['partition']}")
        row["moved"] = done and not code
    if done or options.output not in ("table", "wide"):
        output.rows(options, columns, rows)
    many.raise_failure()
