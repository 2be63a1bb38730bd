"""Tests that a page names as `path::name`, in Python or Rust, and whether there are any such.

A Rust test counts only if its file belongs to a program of tests: below `rust/src`, or a module of
a `main.rs` below `rust/tests`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"`([\w./-]+\.(?:py|rs))::(\w+)`")
_RUST_TEST = re.compile(r"#\[test\]\s+(?:#\[[^\]]*\]\s+)*fn (\w+)\(")
_CVE = re.compile(r"cve_(\d{4})_(\d+)")


class Row(NamedTuple):
    """A row of the table of the security record."""

    id: str
    what: str
    how: str
    tests: str


def rows(text: str) -> list[Row]:
    """The rows of the table, without its head."""
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| CVE-")]
    return [Row(*(cell.strip() for cell in each)) for each in cells]


def missing(text: str) -> Iterator[str]:
    """The tests that a text names and that do not exist."""
    for path, name in NAME.findall(text):
        if not (ROOT / path).is_file():
            yield f"there is no {path}"
        elif name not in tests_of(ROOT / path):
            yield f"{path} has no test {name}"


@cache
def tests_of(path: Path) -> frozenset[str]:
    """The names of the tests in a file."""
    text = path.read_text()
    if path.suffix == ".rs":
        return frozenset(_RUST_TEST.findall(text)) if _is_compiled(path) else frozenset()
    if not path.name.startswith("test_"):
        return frozenset()
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return frozenset(each.name for each in functions if each.name.startswith("test_"))


def _is_compiled(path: Path) -> bool:
    if path.is_relative_to(ROOT / "rust/src") or path.parent == ROOT / "rust/tests":
        return True
    main = path.parent / "main.rs"
    return main.is_file() and f"mod {path.stem};" in main.read_text()


def ids_of_tests() -> dict[str, str]:
    """The ids that tests have in their names, each with such a test."""
    found: dict[str, str] = {}
    for folder, pattern in (("tests", "test_*.py"), ("rust", "*.rs")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            for name in tests_of(path):
                for year, number in _CVE.findall(name):
                    place = f"{path.relative_to(ROOT)}::{name}"
                    found[f"CVE-{year}-{number}"] = place
    return found
