"""Benches run seldom: what they import from krust and its tests is there."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

BENCHES = Path(__file__).parents[2] / "benches"


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of each import from krust or the tests."""
    for node in ast.walk(ast.parse(path.read_text())):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.partition(".")[0] in ("krust", "tests"):
            yield from ((module, alias.name) for alias in node.names)


def is_there(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ModuleNotFoundError as error:
        return not (error.name or "").startswith(("krust", "tests"))


def test_what_benches_import_is_there() -> None:
    uses = {(path.name, *use) for path in BENCHES.glob("*.py") for use in imported(path)}
    assert len(uses) > 50
    assert not sorted(use for use in uses if not is_there(use[1], use[2]))


def test_a_name_that_is_gone_is_found() -> None:
    assert not is_there("krust.clients", "Producer")
    assert is_there("krust", "Producer")
