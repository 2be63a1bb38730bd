"""Writes results to stdout: a table for people, or json, ndjson, csv for programs.

Promised: the names and types of fields in json, ndjson and csv. Not promised: the form of the
table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.cli.options import Options


NAMES = frozenset(
    {
        *("broker", "controller", "coordinator", "generation", "leader", "partition"),
        *("committed", "end", "new", "new_start", "old", "position"),
        *("clean_to", "epoch", "first", "key", "last", "recovery_point"),
    }
)
_NAMES_END = ("_id", "_offset", "_epoch", "port", "_code")
"""Columns whose numbers are ids or offsets, which are written without commas. Other numbers are
counts or sizes."""


def rows(options: Options, columns: Sequence[str], found: Sequence[Mapping[str, object]]) -> None:
    """Write rows. A table and csv have these columns, json has all fields."""
    if options.output == "json":
        click.echo(to_json(list(found)))
    elif options.output == "ndjson":
        for row in found:
            click.echo(to_json(row, compact=True))
    elif options.output == "csv":
        _csv(columns, found)
    else:
        table(columns, found)


def one(options: Options, fields: Mapping[str, object]) -> None:
    """Write one thing: a line for each field, or one JSON object."""
    if options.output in ("json", "ndjson"):
        click.echo(to_json(fields, compact=options.output == "ndjson"))
    elif options.output == "csv":
        _csv(list(fields), [fields])
    else:
        width = max(map(len, fields), default=0)
        for name, value in fields.items():
            click.echo(f"{name.replace('_', ' '):{width}}  {cell(value, name)}".rstrip())


def table(columns: Sequence[str], found: Sequence[Mapping[str, object]]) -> None:
    """Write aligned columns. Numbers are right-aligned."""
    head = [column.upper().replace("_", " ") for column in columns]
    cells = [[cell(row.get(column), column) for column in columns] for row in found]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = [
        bool(found) and all(isinstance(row.get(name), int | None) for row in found)
        for name in columns
    ]
    for line in [head, *cells]:
        parts = (
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, right, strict=True)
        )
        click.echo("  ".join(parts).rstrip())


def cell(value: object, column: str = "") -> str:
    """A value for people. Ids and offsets have no commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if column in NAMES or column.endswith(_NAMES_END) else f"{value:,}"
    if isinstance(value, list | tuple):
        return ",".join("-" if item is None else str(item) for item in value) or "-"
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items()) or "-"
    return str(value)


def to_json(value: object, *, compact: bool = False) -> str:
    """JSON as every command writes it."""
    import json

    return json.dumps(value, ensure_ascii=False, indent=None if compact else 2)


def _csv(columns: Sequence[str], found: Sequence[Mapping[str, object]]) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in found:
        values = (row.get(column) for column in columns)
        writer.writerow([_plain(value) for value in values])
    click.echo(text.getvalue(), nl=False)


def _plain(value: object) -> object:
    return to_json(value, compact=True) if isinstance(value, list | tuple | dict) else value
