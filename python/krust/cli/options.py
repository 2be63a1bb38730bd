"""The options that all commands have, and their values.

They may come before or after the command (`krust -b host:1 topic list`, `krust topic list -b
host:1`); the later one wins. So all commands share one `Options` object in click's context
(`@click.pass_obj`), and these options are no function arguments.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from krust.properties import properties

FORMATS = ("table", "wide", "json", "ndjson", "csv")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Options:
    """The values of the global options.

    bootstrap   "host:port,host:port"
    properties  client settings by Kafka's name (`-X`, and those of `-F` beside them)
    named       whether `-b` was given, which wins over `bootstrap.servers` in a file
    output      one of FORMATS
    timeout_ms  how long a response may take
    quiet, verbose, yes, debug, color  switches; color is off for NO_COLOR and without a terminal
    """

    bootstrap: str = field(
        default_factory=lambda: os.environ.get("KRUST_BOOTSTRAP", "localhost:9092")
    )
    properties: dict[str, str] = field(default_factory=dict)
    named: bool = False
    output: str = "table"
    timeout_ms: int = 5000
    quiet: bool = False
    verbose: int = 0
    yes: bool = False
    debug: bool = False
    color: bool = field(
        default_factory=lambda: sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )


class Duration(click.ParamType[int]):
    """`500ms`, `5s`, `2m`, `1h`, `7d` or a bare number of seconds; the value is milliseconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Milliseconds. A number is returned unchanged."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration; write 500ms, 5s, 2m, 1h or 7d", param, ctx)
        return int(float(found[1]) * _UNITS_MS[found[2] or "s"])


class Bytes(click.ParamType[int]):
    """`500k`, `10M`, `1.5G`, `64Mi` or a bare number of bytes; k, M, G are powers of 1,000."""

    name = "bytes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Bytes. A number is returned unchanged."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?", str(value))
        if found is None:
            self.fail(f"{value!r} is not a number of bytes; write 500k, 10M or 1G", param, ctx)
        power = " kMGT".index(found[2].replace("K", "k") or " ")
        return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


class KeyValue(click.ParamType[tuple[str, str]]):
    """`KEY=VALUE`; spaces around both are dropped."""

    name = "key=value"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The pair. A pair is returned unchanged."""
        if isinstance(value, tuple):
            return str(value[0]), str(value[1])
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), text.strip()


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        given = ctx.get_parameter_source(param.name or "")
        if given is click.core.ParameterSource.COMMANDLINE:
            options = ctx.ensure_object(Options)
            if name == "properties":
                options.properties.update(value)
            elif name == "file":
                _take_file(options, value)
            else:
                setattr(options, name, value)
                options.named |= name == "bootstrap"

    return callback


def _take_file(options: Options, file: Path) -> None:
    """Use the settings of a properties file, whichever of them `-X` and `-b` do not name."""
    try:
        given = properties(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise click.UsageError(f"--command-config {file}: {reason}") from None
    bootstrap = given.pop("bootstrap.servers", None)
    if bootstrap and not options.named:
        options.bootstrap = bootstrap
    options.properties = {**given, **options.properties}


def _option(name: str, *flags: str, **rest: Any) -> Callable[[F], F]:
    return click.option(*flags, expose_value=False, callback=_keep(name), **rest)


_GENERAL = (
    _option("quiet", "-q", "--quiet", is_flag=True, help="Only results, no notes."),
    _option("verbose", "-v", "--verbose", count=True, help="More notes; twice: even more."),
    _option("debug", "--debug", is_flag=True, help="Show the traceback of an error."),
    _option("color", "--color/--no-color", help="Colours (also NO_COLOR)."),
)
_CLIENT = (
    _option(
        "bootstrap", "-b", "--bootstrap", metavar="HOST:PORT,..", help="Brokers (KRUST_BOOTSTRAP)."
    ),
    _option(
        "properties", "-X", "--property", multiple=True, type=KeyValue(), help="Client property."
    ),
    _option(
        *("file", "-F", "--command-config"),
        type=click.Path(path_type=Path),
        help="Client properties, as Kafka's tools have them; -b and -X win.",
    ),
    _option("output", "--output", type=click.Choice(FORMATS), help="Form of the result."),
    _option("output", "--json", "json_output", flag_value="json", help="Short for --output json."),
    _option("timeout_ms", "--timeout", type=Duration(), help="Longest wait for a response. [5s]"),
    _option("yes", "--yes", is_flag=True, help="Do not ask for confirmation."),
)


def general(command: F) -> F:
    """Give a command the options of its output: -q, -v, --debug, --no-color."""
    for option in reversed(_GENERAL):
        command = option(command)
    return command


def client(command: F) -> F:
    """Give a command the options of `general`, and those of the cluster and the result's format."""
    command = general(command)
    for option in reversed(_CLIENT):
        command = option(command)
    return command
