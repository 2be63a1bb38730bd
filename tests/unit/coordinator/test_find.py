"""Assignors are found by name, by `module:Class`, and in installed packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from krust.coordinator.assignors.find import ASSIGNORS, BUILT_IN
from krust.plugins import FindError

GOOD = """
class Mine:
    name = "mine"
    def assign(self, group, topics):
        return {}
class Costly(Mine):
    def __init__(self, price): ...
class Nameless(Mine):
    name = ""
other = 7
ready = Mine()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "krust_find_good.py").write_text(GOOD)
    (tmp_path / "krust_find_raises.py").write_text("1 / 0")
    (tmp_path / "krust_find_needs.py").write_text("import krust_find_absent")
    offered = tmp_path / "shop-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    points = "[krust.assignors]\nby_shop = krust_find_good:Mine\n"
    (offered / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("krust_find_")]:
        del sys.modules[name]


def test_built_in_assignors_are_found_by_name() -> None:
    for name in BUILT_IN:
        assert ASSIGNORS.find(name).name == name


@pytest.mark.parametrize("place", ["krust_find_good:Mine", "krust_find_good:ready", "by_shop"])
def test_a_custom_assignor_is_found(folder: Path, place: str) -> None:
    assert ASSIGNORS.find(place).name == "mine"


def test_assignors_of_installed_packages_are_listed(folder: Path) -> None:
    [offered] = [one for one in ASSIGNORS.known() if one.source == "shop"]
    assert (offered.name, offered.import_path) == ("by_shop", "krust_find_good:Mine")


@pytest.mark.parametrize(
    ("place", "message", "hint"),
    [
        ("stiky", "no assignor 'stiky'", "did you mean sticky"),
        ("frob", "no assignor 'frob'", "there are range, roundrobin"),
        (":Mine", "names no class", "module:Class"),
        ("krust_find_good:", "names no class", "module:Class"),
        ("krust_find_absent:Mine", "no module 'krust_find_absent'", "PYTHONPATH"),
        ("krust_find_good.deep:Mine", "no module 'krust_find_good.deep'", "PYTHONPATH"),
        ("krust_find_needs:Mine", "needs krust_find_absent", "No module named"),
        ("krust_find_raises:Mine", "cannot be imported", "ZeroDivisionError: division by zero"),
        ("krust_find_good:Yours", "has no Yours", "it has Mine, Costly, Nameless"),
        ("krust_find_good:Costly", "without arguments", "TypeError"),
        ("krust_find_good:Nameless", "has no name", "name ="),
        ("krust_find_good:other", "is no assignor", "assign"),
    ],
)
def test_a_missing_assignor_is_an_error_with_a_hint(
    folder: Path, place: str, message: str, hint: str
) -> None:
    with pytest.raises(FindError, match=message) as caught:
        ASSIGNORS.find(place)
    assert hint in caught.value.hint
