"""Shared by client commands: a client with the options, and refusals as exceptions.

`ItemResults` runs many items with one connection and continues after an error. The exit code tells
the result: if all items failed, it is the code of the first error (`exits.py`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from krust import _krust
from krust.cli.exits import Exit
from krust.clients.options import renamed
from krust.errors import KafkaError, KrustError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from krust.cli.options import Options

UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5


def properties(options: Options, **defaults: object) -> dict[str, object]:
    """Client properties: what the command needs, then `-X`, which wins."""
    given: dict[str, object] = {"request.timeout.ms": options.timeout_ms}
    given["socket.connection.setup.timeout.ms"] = options.timeout_ms
    given.update((name.replace("_", "."), value) for name, value in defaults.items())
    given.update(options.properties)
    return renamed(given)


def client(options: Options) -> _krust.Client:
    """A client for requests."""
    return _krust.Client(options.bootstrap, properties(options))


def refused(code: int, message: str, *, hint: str | None = None) -> KafkaError:
    """The exception for one of Kafka's error codes."""
    name, retriable = _krust.error_info(code)
    return KafkaError(message, code=code, name=name, retriable=retriable, hint=hint)


def check(answer: dict[str, Any], subject: str) -> None:
    """Raise the exception of an answer's `error_code` unless it is NONE."""
    code = answer["error_code"]
    if code:
        raise refused(code, f"{subject}: {answer.get('error_message') or _error_text(code)}")


def _error_text(code: int) -> str:
    return _krust.error_info(code)[0].replace("_", " ").lower()


def metadata(
    asked: _krust.Client, topics: Sequence[str] | None = None, *, create: bool = False
) -> dict[str, Any]:
    """A Metadata response for these topics, or for all, with sorted partitions."""
    body: dict[str, object] = {
        "topics": None if topics is None else [{"name": name} for name in topics],
        "allow_auto_topic_creation": create,
    }
    answer = asked.request("Metadata", body)
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


def topics(asked: _krust.Client, names: Sequence[str], bootstrap: str) -> dict[str, dict[str, Any]]:
    """Metadata of topics that must exist, by name, in the order asked."""
    found = {topic["name"]: topic for topic in metadata(asked, names)["topics"]}
    for name in names:
        code = found[name]["error_code"] if name in found else UNKNOWN_TOPIC
        if code == UNKNOWN_TOPIC:
            raise missing(asked, name, bootstrap)
        if code not in (0, LEADER_NOT_AVAILABLE):
            raise refused(code, f"topic {name!r}: {_error_text(code)}")
    return {name: found[name] for name in names}


def missing(asked: _krust.Client, name: str, bootstrap: str, *, wanted: bool = True) -> KafkaError:
    """The error for a topic that does not exist. It suggests a similar name.

    wanted  whether creating the topic may help
    """
    from difflib import get_close_matches

    known = [topic["name"] for topic in metadata(asked)["topics"] if not topic["error_code"]]
    near = get_close_matches(name, known, 1)
    hints = [f'did you mean "{near[0]}"?'] if near else []
    if set(name) & set("*?[]"):
        hints = ["patterns are not accepted here: krust topic list PATTERN shows what matches"]
    elif wanted:
        hints.append(f"create it: krust topic create {name}")
    hint = "    ".join(hints) or "list the topics: krust topic list"
    return refused(UNKNOWN_TOPIC, f'topic "{name}" does not exist on {bootstrap}', hint=hint)


def partitions_of(text: str) -> tuple[str, list[int] | None]:
    """Parse `T`, `T:P` or `T:P,P`."""
    name, colon, rest = text.partition(":")
    if not colon:
        return name, None
    return name, numbers(rest)


def numbers(text: str) -> list[int]:
    """Parse `0,2,5-7`."""
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise click.BadParameter(f"{text!r} is not a list of partitions; write 0,2 or 0-3")
        chosen.extend(range(int(first), int(last or first) + 1))
    return chosen


class ItemResults:
    """The results of many items. Each error is reported at once, and the other items continue.

    The error of a single item is the command's. If some of many fail, the exit code is 8; if all
    fail, it is that of the first error.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._errors: list[KrustError] = []

    @contextmanager
    def item(self) -> Iterator[None]:
        """Run one item."""
        try:
            yield
        except KrustError as error:
            self._errors.append(error)
            if self._count > 1:
                click.echo(f"error: {error}", err=True)
                if error.hint:
                    click.echo(f"  {error.hint}", err=True)

    def raise_failure(self) -> None:
        """Raise if items failed."""
        if not self._errors:
            return
        if len(self._errors) < self._count:
            sys_exit(Exit.PARTIAL)
        raise self._errors[0]


def sys_exit(code: Exit) -> NoReturn:
    """Exit with a code, without an error message."""
    click.get_current_context().exit(int(code))


def confirm(options: Options, question: str) -> None:
    """Ask before something that cannot be undone, on a terminal and without --yes."""
    import sys

    if not options.yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(question, abort=True, err=True)


def note(options: Options, text: str) -> None:
    """Write a note to stderr, unless -q is given."""
    if not options.quiet:
        click.echo(text, err=True)
