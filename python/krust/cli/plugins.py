"""Shared by commands that try plug-ins: list them, find one, report its errors."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from krust.cli import output
from krust.cli.exits import Exit
from krust.errors import ConfigError, KrustError
from krust.plugins import FindError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust.cli.options import Options
    from krust.plugins import Parameters, Plugins

Plugin = TypeVar("Plugin")


def list_plugins(options: Options, plugins: Plugins[Plugin]) -> None:
    """List the plug-ins: built-in ones, and those of installed packages."""
    columns = ("name", "source", "import_path", "about")
    rows = [{column: getattr(one, column) for column in columns} for one in plugins.known()]
    output.rows(options, columns, rows)


def find_plugin(
    plugins: Plugins[Plugin], name: str, parameters: Parameters | None = None
) -> Plugin:
    """The plug-in of a name. Its module may be in the working directory, as for `python -m`."""
    sys.path.insert(0, "")
    try:
        return plugins.find(name, parameters)
    except FindError as error:
        raise ConfigError(str(error), hint=error.hint) from error


@contextmanager
def call_plugin(name: str, rule: type[Exception]) -> Iterator[None]:
    """Call a plug-in. Exit 9: it breaks a rule. Its exception is shown with a traceback."""
    try:
        yield
    except rule as error:
        broken = KrustError(f"{name} breaks a rule: {error}")
        broken.exit = Exit.PROBLEMS
        raise broken from error
    except (KrustError, click.ClickException):
        raise
    except Exception as error:
        import traceback

        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
        raise KrustError(f"{name} raised {type(error).__name__}: {error}") from error
