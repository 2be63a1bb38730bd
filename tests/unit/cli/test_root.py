"""The command line as a whole: names, exit codes, errors in one place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

import krust.cli
from krust.cli import COMMANDS, options
from krust.cli.exits import Exit, exit_of
from krust.cli.options import Duration, KeyValue, Options
from krust.errors import ConfigError, KafkaError, ServerError, UnreachableError


def krust_command(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "krust", *args],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", **environ},
    )


def test_every_command_of_the_table_can_be_loaded_and_described() -> None:
    for name, entry in COMMANDS.items():
        command = krust.cli.root.get_command(click.Context(krust.cli.root), name)
        assert isinstance(command, click.Command), name
        assert entry.line.endswith(".")


def pages(command: click.Command, name: str, above: click.Context | None = None) -> Iterator[str]:
    """The help of a command and of all below it."""
    context = click.Context(command, info_name=name, parent=above, terminal_width=80)
    yield command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from pages(found, each, context)


def test_no_help_page_shows_clicks_markup() -> None:
    found = list(pages(krust.cli.root, "krust"))
    assert len(found) > 50
    for page in found:
        assert not re.search(r"\\b(\s|$)|[\b\f]", page), page


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion() -> None:
    run = krust_command("sevre")
    assert run.returncode == Exit.USAGE
    assert 'Did you mean "serve"?' in run.stderr


def test_version_is_one_line() -> None:
    assert krust_command("--version").stdout.split() == ["krust,", "version", krust.__version__]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("no"), 2),
        (ServerError("no"), 3),
        (UnreachableError("no"), 4),
        (TimeoutError("no"), 4),
        (FileNotFoundError("no"), 5),
        (KafkaError("no", code=3, name="UNKNOWN_TOPIC_OR_PARTITION"), 5),
        (KafkaError("no", code=36, name="TOPIC_ALREADY_EXISTS"), 6),
        (KafkaError("no", code=29, name="TOPIC_AUTHORIZATION_FAILED"), 7),
        (KafkaError("no", code=40, name="INVALID_CONFIG"), 1),
        (ValueError("no"), 1),
    ],
)
def test_an_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_of(error) == code


def failing(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    @click.command
    @options.client
    def command() -> None:
        raise KafkaError("topic x: gone", code=3, name="UNKNOWN_TOPIC_OR_PARTITION", hint="make it")

    monkeypatch.setattr(krust.cli.root, "get_command", lambda ctx, name: command)
    with pytest.raises(SystemExit) as caught:
        krust.cli.main(["serve", *args])
    return int(str(caught.value.code))


def test_an_error_has_one_line_and_one_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(monkeypatch) == Exit.NOT_FOUND
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: topic x: gone    UNKNOWN_TOPIC_OR_PARTITION (3)", "  make it"]


def test_an_error_in_json_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(monkeypatch, "--json") == Exit.NOT_FOUND
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["kafka_code"] == 3
    assert error["exit"] == 5
    assert error["hint"] == "make it"


def test_debug_shows_the_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, "--debug")
    assert "Traceback" in capsys.readouterr().err


def test_global_options_are_accepted_before_or_after_the_command() -> None:
    found: list[Options] = []

    @click.group
    @options.client
    @click.pass_context
    def group(ctx: click.Context) -> None:
        ctx.ensure_object(Options)

    @group.command
    @options.client
    @click.pass_obj
    def leaf(given: Options, /) -> None:
        found.append(given)

    for args in (
        ["-b", "one:1", "leaf"],
        ["leaf", "-b", "one:1"],
        ["-b", "x:2", "leaf", "-b", "one:1"],
    ):
        group.main([*args, "--timeout", "2m", "-X", "a=b"], standalone_mode=False)
        assert found[-1].bootstrap == "one:1"
        assert found[-1].timeout_ms == 120_000
        assert found[-1].properties == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5000), ("1.5s", 1500), ("20ms", 20), ("2h", 7_200_000)]
)
def test_durations_have_units(text: str, value: int) -> None:
    assert Duration().convert(text, None, None) == value


def test_a_setting_without_equals_sign_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is not KEY=VALUE"):
        KeyValue().convert("num.partitions", None, None)


def options_of(command: click.Command, name: str) -> Iterator[tuple[str, click.Option]]:
    """Every option of a command and of those below it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from options_of(found, f"{name} {below}")
    yield from ((name, one) for one in command.params if isinstance(one, click.Option))


def test_an_option_has_the_same_name_in_all_commands() -> None:
    for name, option in options_of(krust.cli.root, "krust"):
        metavar = str(option.metavar)
        if "CHROOT" in metavar:
            assert option.opts == ["--zookeeper"], name
        if "-z" in option.opts:
            assert option.opts[1] == "--compression", name
        if "--dry-run" in option.opts:
            assert option.is_flag, name
