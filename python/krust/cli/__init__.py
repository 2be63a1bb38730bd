"""The `krust` command: parses, calls, prints. One table of commands, one place for errors.

A command's module is imported when the command is called. The list of commands needs only click and
the standard library (a test checks it). Each module has a `command`.
Data goes to stdout; progress, notes and errors go to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from krust import __version__, import_quickly
from krust.cli import options
from krust.cli.exits import Exit, exit_of
from krust.cli.options import Options
from krust.named_tuple import NamedTuple


class CommandEntry(NamedTuple):
    """The module of a command, and its line in `krust --help`."""

    module: str
    line: str


COMMANDS = {
    "serve": CommandEntry("krust.cli.serve", "Run a broker."),
    "dev": CommandEntry("krust.cli.dev", "Run several brokers as a cluster on this machine."),
    "topic": CommandEntry("krust.cli.topic", "List, create, describe, delete and alter topics."),
    "produce": CommandEntry("krust.cli.produce", "Write records."),
    "consume": CommandEntry("krust.cli.consume", "Read records."),
    "group": CommandEntry(
        "krust.cli.group", "Show consumer groups, move their offsets; try assignors."
    ),
    "txn": CommandEntry("krust.cli.txn", "Show transactions; find and abort those that hang."),
    "config": CommandEntry(
        "krust.cli.config", "Show and change settings of brokers, topics and groups."
    ),
    "quotas": CommandEntry("krust.cli.quotas", "Show and change what users and clients may use."),
    "user": CommandEntry("krust.cli.user", "Show, make and delete users that log in by SCRAM."),
    "acl": CommandEntry("krust.cli.acl", "Show, create, delete and try out ACLs: who may do what."),
    "token": CommandEntry(
        "krust.cli.token", "Show, make and end delegation tokens: logins for a while."
    ),
    "cluster": CommandEntry(
        "krust.cli.cluster", "Show a cluster and its health; move leaders, metadata."
    ),
    "pipeline": CommandEntry(
        "krust.cli.pipeline", "Write topics to tables, exactly once, with Spark."
    ),
    "log": CommandEntry("krust.cli.log", "Inspect and repair a log directory, without a broker."),
    "retention": CommandEntry("krust.cli.retention", "Show what retention policies would delete."),
    "bench": CommandEntry("krust.cli.bench", "Measure producing and consuming."),
    "completion": CommandEntry("krust.cli.completion", "Print the completion script of a shell."),
}
"""The table of commands."""


class ReaderLeftError(Exception):
    """The reader of stdout has closed it. click would exit with 1."""


class Root(click.Group):
    """A group that imports a command when it is called."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderLeftError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None: there is no such name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = import_quickly(entry.module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or suggest a similar name."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f' Did you mean "{near[0]}"?' if near else ""
            ctx.fail(f'no such command "{args[0]}".{hint}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list from the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.line) for name, entry in COMMANDS.items()])


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="krust")
@options.client
@click.pass_context
def root(ctx: click.Context) -> None:
    """Run krust brokers; use any Kafka brokers."""
    ctx.ensure_object(Options)


def main(args: list[str] | None = None) -> NoReturn:
    """Run one command line and exit with its code (`exits.Exit`)."""
    try:
        code = _run_command(args)
    except KeyboardInterrupt:  # the second Ctrl-C, while the first was handled
        code = Exit.INTERRUPTED
    sys.exit(int(code))


def _run_command(args: list[str] | None) -> int:
    settings = Options()
    try:
        code = root.main(args, "krust", standalone_mode=False, obj=settings)
        sys.stdout.flush()
    except (BrokenPipeError, ReaderLeftError):  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = Exit.OK
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        from krust.cli.interrupts import Terminated

        cause = error.__cause__ or error  # click wraps the exception in Abort
        code = Exit.TERMINATED if isinstance(cause, Terminated) else Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except Exception as error:
        code = _report(error, settings)
    return int(code) if isinstance(code, int) else Exit.OK


def _report(error: Exception, settings: Options) -> Exit:
    """Write what happened and what to do, a line each. A bug shows its traceback."""
    from krust.errors import KrustError

    if settings.debug or not isinstance(error, (KrustError, OSError)):
        import traceback

        traceback.print_exception(error)
    exit_code = exit_of(error)
    hint = str(getattr(error, "hint", None) or "")
    name = str(getattr(error, "name", None) or "")
    code = getattr(error, "code", None)
    if settings.output in ("json", "ndjson"):
        import json

        fields = {
            "name": name or type(error).__name__,
            "kafka_code": code if isinstance(code, int) else None,
            "exit": int(exit_code),
            "retriable": bool(getattr(error, "retriable", False)),
            "message": str(error),
            "hint": hint,
        }
        click.echo(json.dumps({"error": fields}), err=True)
        return exit_code
    kafka = f"    {name} ({code})" if name and isinstance(code, int) else ""
    click.echo(f"error: {error}{kafka}", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)
    return exit_code
