"""Finds the code blocks of documents and checks them as far as possible without running them.

A document is any Markdown file of the checkout. A block is the text between two fences; the fence
names its language, one of LANGUAGES. A block that cannot run has `<!-- not run: WHY -->` on the
line before; it is checked all the same.

`problems` lists what is wrong with a block: Python that does not compile or imports what krust does
not have, command lines that krust, make or pip would refuse, files that krust would not read.
Blocks of Python run in `tests/run_blocks.py`.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
import shlex
import subprocess
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click

from krust import config
from krust.cli import root
from krust.cli.options import Options
from krust.coordinator.assignors.find import ASSIGNORS
from krust.errors import KrustError
from krust.retention.policies import POLICIES
from krust.spark import recipe

ROOT = Path(__file__).parents[1]
PYTHON = ("py", "python", "pycon")
SHELL = ("console", "sh", "bash")
LANGUAGES = (*PYTHON, *SHELL, "toml", "sql", "properties", "json", "text")
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w+-]*)")
_MARK = re.compile(r"^\s*<!-- not run: (.*\S) -->\s*$")
_SPAN = re.compile(r"`(krust [a-z][^`]*)`", re.DOTALL)
_BETWEEN = {"|", "||", "&&", ";", "&", "(", ")", "|&"}
_BEFORE = {"time", "exec", "sudo", "nohup", "env"}
_PLACE = re.compile(r"(?:docs|examples|tests|benches|python|rust)/[\w./-]+")


class Block(NamedTuple):
    """The text between two fences; `line` is that of its first line."""

    page: str
    line: int
    language: str
    code: str
    reason: str = ""
    """why it does not run; empty: it does"""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every document of the checkout."""
    found = list(ROOT.glob("*.md"))
    for folder in ("docs", "examples", "tests", "benches"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def all_blocks() -> list[Block]:
    return [each for path in pages() for each in blocks(path.read_text(), _name(path))]


def is_pipeline(block: Block) -> bool:
    """Whether it is a file for `krust pipeline`."""
    return block.language == "toml" and bool(re.search(r"^\[sink\]", block.code, re.MULTILINE))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, page: str) -> list[Block]:
    """The blocks of a page, in order. AssertionError: a fence has no end."""
    found, lines, reason = [], text.split("\n"), ""
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            mark = _MARK.match(lines[at])
            reason = mark[1] if mark else ""
            at += 1
            continue
        ends = (n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[2])
        end = next(ends, None)
        assert end is not None, f"{page}:{at + 1}: a fence without an end"
        code = textwrap.dedent("\n".join([*lines[at + 1 : end], ""]))
        found.append(Block(page, at + 2, fence[3], code, reason))
        at, reason = end + 1, ""
    return found


def mentions(text: str, page: str) -> Iterator[tuple[str, str]]:
    """Place and text of each `krust ...` in a sentence."""
    bare = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.DOTALL)
    for found in _SPAN.finditer(bare):
        line = bare.count("\n", 0, found.start()) + 1
        yield f"{page}:{line}", " ".join(found[1].split())


def problems(block: Block) -> list[str]:
    """The problems of a block that can be found without running it."""
    if block.language in PYTHON:
        return _of_python(block)
    if block.language in SHELL:
        return _of_shell(block)
    if block.language == "toml":
        return _of_toml(block.code)
    if block.language == "properties":
        return _of_settings(block.code, "server.properties")
    if block.language == "json":
        return _of_json(block.code)
    if block.language == "sql":
        return _of_sql(block.code)
    return [] if block.language == "text" else [f"{block.language!r} is none of {LANGUAGES}"]


def _of_python(block: Block) -> list[str]:
    if block.language == "pycon":
        return ["a session cannot run; write a block of py, with its output as comments"]
    try:
        tree = ast.parse(block.code)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    return [each for node in ast.walk(tree) for each in _unknown_import(node)]


def _unknown_import(node: ast.AST) -> Iterator[str]:
    """An import from krust that does not exist."""
    names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    for name in names:
        if name.partition(".")[0] != "krust":
            continue
        if importlib.util.find_spec(name) is None:
            yield f"there is no module {name}"
        elif isinstance(node, ast.ImportFrom) and not name.startswith("krust.spark"):
            module = import_module(name)
            yield from (
                f"{name} has no {a.name}" for a in node.names if not hasattr(module, a.name)
            )


def lines_of_shell(block: Block) -> list[str]:
    """The command lines of a block: in `console` the text after `$`, else all of it."""
    joined = re.sub(r"\\\n(?:> )?", " ", block.code).split("\n")
    if block.language == "console":
        return [line[2:] for line in joined if line.startswith("$ ")]
    return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]


def _of_shell(block: Block) -> list[str]:
    lines = lines_of_shell(block)
    if not lines:
        return ["no command in it; one begins with `$ `"]
    code = block.code if block.language != "console" else "\n".join(lines)
    run = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
    if run.returncode:
        return [run.stderr.strip()]
    return [
        f"{' '.join(words)}: {wrong}"
        for line in lines
        for words in simple_commands(line)
        for wrong in _of_command(words)
    ]


def simple_commands(line: str) -> list[list[str]]:
    """The commands of a line, without redirections and pipes."""
    split = shlex.shlex(re.sub(r"\d>&\d", "", line), posix=True, punctuation_chars=True)
    split.whitespace_split = True
    found: list[list[str]] = [[]]
    words = iter(split)
    for word in words:
        if word in _BETWEEN:
            found.append([])
        elif set(word) <= {"<", ">", "&"}:
            next(words, None)
        elif found[-1] or not (re.match(r"\w+=", word) or word in _BEFORE):
            found[-1].append(word)
    return [each for each in found if each]


def _of_command(words: list[str]) -> Iterator[str]:
    name = Path(words[0]).name
    if words[1:3] == ["-m", "krust"]:
        yield from of_krust(words[3:])
    elif name == "krust":
        yield from of_krust(words[1:])
    elif name == "make":
        yield from (
            f"the Makefile has no {each}"
            for each in words[1:]
            if re.fullmatch(r"[a-z][a-z-]*", each) and each not in _targets()
        )
    elif name in ("pip", "pipx", "uv") and "install" in words:
        yield from (wrong for each in words if (wrong := _of_requirement(each)))
    for each in words:
        if _PLACE.fullmatch(each) and not (ROOT / each).exists():
            yield f"there is no {each}"


def of_krust(words: list[str]) -> Iterator[str]:
    """click's errors for the arguments of `krust`."""
    command: click.Command = root
    try:
        with redirect_stdout(io.StringIO()):  # --help writes its page
            context = command.make_context("krust", list(words), obj=Options())
            while isinstance(command, click.Group):
                given = [*context._protected_args, *context.args]
                name, found, rest = command.resolve_command(context, given)
                assert found is not None
                command = found
                context = command.make_context(name, rest, parent=context)
    except (click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):
        return
    except (click.ClickException, KrustError) as error:
        yield getattr(error, "format_message", error.__str__)()


def of_mention(text: str) -> list[str]:
    """The same for a sentence, which may quote only the start of a command line."""
    spoken = re.sub(r"\s*(\.\.\.?|…)$", "", text)
    wrong: list[str] = []
    for line in simple_commands(spoken):
        wrong += of_krust(line[1:]) if line[0] == "krust" else []
    unfinished = ("Missing ", "requires an argument", "is not a valid", "no commands")
    return [each for each in wrong if not any(part in each for part in unfinished)]


@cache
def _targets() -> frozenset[str]:
    lines = (ROOT / "Makefile").read_text().split("\n")
    heads = [line.partition(":")[0] for line in lines if re.match(r"[a-z][a-z -]*:(?!=)", line)]
    return frozenset(name for head in heads for name in head.split())


@cache
def _project() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return found


def _of_requirement(text: str) -> str:
    if re.match(r"krust(\W|$)", text):
        return "krust on PyPI is another package; install from the checkout: '.[extra]'"
    extras = re.fullmatch(r"\.\[([\w,-]+)\]", text)
    there = _project()["project"]["optional-dependencies"]
    assert isinstance(there, dict)
    lacking = [each for each in (extras[1].split(",") if extras else ()) if each not in there]
    return f"there is no extra {lacking[0]}" if lacking else ""


def _of_toml(code: str) -> list[str]:
    try:
        tree = tomllib.loads(code)
    except tomllib.TOMLDecodeError as error:
        return [str(error)]
    if "source" in tree or "sink" in tree:
        return _of_pipeline(code)
    if "project" in tree:
        groups = tree["project"].get("entry-points", {})
        known = {ASSIGNORS.group, POLICIES.group}
        return [f"krust looks for no entry points {each}" for each in groups.keys() - known]
    return [] if "tool" in tree else _of_settings(code, "krust.toml")


def _of_pipeline(code: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flights.toml"
        path.write_text(code)
        try:
            recipe.read(path)
        except KrustError as error:
            return [str(error)]
    return []


def _of_settings(code: str, name: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(code)
        try:
            config.load(files=[path], mode="strict")
        except KrustError as error:
            return [str(error), *getattr(error, "__notes__", [])]
    return []


def _of_json(code: str) -> list[str]:
    try:
        json.loads(code)
    except ValueError as error:
        return [str(error)]
    return []


def _of_sql(code: str) -> list[str]:
    """By sqlglot where it is; by Spark's own parser in `tests/run_blocks.py` where that is."""
    if importlib.util.find_spec("sqlglot") is None:
        return []
    sqlglot = import_module("sqlglot")
    try:
        sqlglot.parse(code, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        return [str(error)]
    return []
