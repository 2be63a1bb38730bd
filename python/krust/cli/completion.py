"""`krust completion`, and the completion of topic and group names, which the broker lists.

If the broker does not answer within WAIT_MS, no names are completed and no error is shown. Options
before the word are used (`krust -b host:1 topic describe <TAB>`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from krust.cli.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krust import _krust

WAIT_MS = 1000
"""the longest wait for a connection, and for an answer"""
VARIABLE = "_KRUST_COMPLETE"
"""set by the script: `krust` then answers the shell instead of running"""
SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def command(shell: str | None) -> None:
    """Print a script that completes commands, options, topics and groups in SHELL.

    The default is $SHELL.

    \b
    bash  echo 'eval "$(krust completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(krust completion zsh)"' >> ~/.zshrc
    fish  krust completion fish > ~/.config/fish/completions/krust.fish
    """  # noqa: D301, click wants the character
    import os
    from pathlib import Path

    from click.shell_completion import get_completion_class

    from krust.cli import root

    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise click.UsageError(f"which shell? {', '.join(SHELLS)}")
    click.echo(kind(root, {}, "krust", VARIABLE).source())


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The topics whose names begin with the text."""
    return [name for name in _names_from_broker(ctx, _topics) if name.startswith(incomplete)]


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The groups whose names begin with the text."""
    return [name for name in _names_from_broker(ctx, _groups) if name.startswith(incomplete)]


def _names_from_broker(
    ctx: click.Context, names: Callable[[_krust.Client], Iterable[str]]
) -> list[str]:
    from krust import _krust
    from krust.errors import KrustError

    options = ctx.ensure_object(Options)
    wait = min(options.timeout_ms, WAIT_MS)
    patience = {"request.timeout.ms": wait, "socket.connection.setup.timeout.ms": wait}
    try:
        return sorted(names(_krust.Client(options.bootstrap, {**options.properties, **patience})))
    except (KrustError, OSError):
        return []


def _topics(asked: _krust.Client) -> Iterable[str]:
    found = asked.request("Metadata", {"topics": None})["topics"]
    return (topic["name"] for topic in found if not topic["error_code"])


def _groups(asked: _krust.Client) -> Iterable[str]:
    for broker in asked.request("Metadata", {"topics": []})["brokers"]:
        answer = asked.request("ListGroups", {"states_filter": []}, broker=broker["node_id"])
        yield from (group["group_id"] for group in answer["groups"])
