"""Shared by commands that also write where brokers read, without a broker: `--data-dir`,
`--zookeeper`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from krust.cli.exits import Exit
from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from krust.config import Config

    F = TypeVar("F", bound=Callable[..., Any])


def where(function: F) -> F:
    """The options that name where the metadata is."""
    for option in (
        click.option("--data-dir", metavar="DIR", help="The directory of a stopped broker."),
        click.option("--zookeeper", metavar="HOSTS[/CHROOT]", help="The brokers' ZooKeeper."),
    ):
        function = option(function)
    return function


@contextmanager
def settings(places: Mapping[str, str | None], what: str, *, create: bool) -> Iterator[Config]:
    """The settings that lead to the metadata. The data directory is locked meanwhile.

    places  the values of the options
    what    what to do again after a broker that runs there has been stopped
    create  whether to create a data directory that does not exist
    """
    from krust.cli import serve
    from krust.cli.log_repair import locked

    if all(places.values()):
        raise click.UsageError("--data-dir or --zookeeper, not both")
    config = serve.configure(**cast("Any", places))
    if config.text("zookeeper.connect"):
        yield config
        return
    folder = config.log_dirs()[0]
    if create:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        error = KrustError(f"there is no data directory {folder}", hint="look at --data-dir")
        error.exit = int(Exit.NOT_FOUND)
        raise error
    with locked(folder, what):
        yield config
