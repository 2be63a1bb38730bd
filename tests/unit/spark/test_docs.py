"""`docs/spark.md` has the table of options as `krust.spark.options` has it."""

from __future__ import annotations

from pathlib import Path

from krust.spark.options import ALL, BATCH, OPTIONS, READ, SINK, STREAM, Option

DOCS = Path(__file__).parents[3] / "docs/spark.md"
_FOR = {ALL: "all", READ: "reads", (BATCH,): "batch", (STREAM,): "stream", (SINK,): "sink"}


def row(option: Option) -> str:
    default = f"`{option.default}`" if option.default else ""
    cells = (f"`{option.name}`", _FOR[option.used], option.fate, default, option.meaning)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def table() -> str:
    head = "| option | for | | default | |\n|---|---|---|---|---|\n"
    return head + "\n".join(map(row, OPTIONS))


def test_the_documented_table_of_options_is_the_real_one() -> None:
    _, _, rest = DOCS.read_text().partition("<!-- options -->\n")
    written, end, _ = rest.partition("\n<!-- /options -->")
    assert end
    assert written == table()
