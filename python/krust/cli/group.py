"""`krust group`: consumer groups, and the ways they share partitions."""

from __future__ import annotations

import click

from krust.cli import assignors


@click.group(no_args_is_help=True)
def command() -> None:
    """Look at consumer groups, and at how partitions are shared."""


command.add_command(assignors.list_)
command.add_command(assignors.simulate)
