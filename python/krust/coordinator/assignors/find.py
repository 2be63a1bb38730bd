"""Assignors by name: the built-in ones, those of installed packages, and `module:Class`.

A package offers one in its `pyproject.toml`:

    [project.entry-points."krust.assignors"]
    by_region = "my_package.assignors:ByRegion"

The name of the entry point is what settings and commands say; it need not be the class's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from krust.coordinator.assignors import classic, even
from krust.coordinator.assignors.spec import Assignor

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "krust.assignors"
BUILT_IN: dict[str, type[Assignor]] = {
    kind.name: kind
    for kind in (
        classic.Range,
        classic.RoundRobin,
        even.Sticky,
        even.Uniform,
        even.Weighted,
        even.RackAware,
        even.LagAware,
    )
}
"""THE table of built-in assignors."""


class FindError(ValueError):
    """An assignor that cannot be had; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Known:
    """An assignor that has a name here."""

    name: str
    place: str
    source: str
    """`built in`, or the package that offers it"""


def known() -> Iterator[Known]:
    """All that can be named without a module, without importing any of them."""
    from importlib import metadata

    for name, kind in BUILT_IN.items():
        yield Known(name, f"{kind.__module__}:{kind.__qualname__}", "built in")
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        if point.name not in BUILT_IN:
            yield Known(point.name, point.value, point.dist.name if point.dist else "")


def find(name: str) -> Assignor:
    """The assignor called `name`, or in the place `module:Class`.

    raises  FindError; what a module raises while it is imported is its `__cause__`
    """
    if ":" in name:
        return _load(name)
    if name in BUILT_IN:
        return BUILT_IN[name]()
    from difflib import get_close_matches
    from importlib import metadata

    for point in metadata.entry_points(group=GROUP, name=name):
        return _load(point.value)
    names = [one.name for one in known()]
    near = get_close_matches(name, names, 1)
    hint = f"there are {', '.join(names)}; one of your own is module:Class"
    raise FindError(f"there is no assignor {name!r}", f"did you mean {near[0]}?" if near else hint)


def _load(place: str) -> Assignor:
    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise FindError(f"{place!r} names no class", "write module:Class")
    try:
        found: object = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise FindError(
                f"{module_name} needs {error.name}: not installed", str(error)
            ) from error
        hint = "is it installed, or its folder on PYTHONPATH?"
        raise FindError(f"there is no module {error.name!r}", hint) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise FindError(f"module {module_name!r} cannot be imported", why) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            offered = [name for name, kind in vars(found).items() if _looks_right(kind)]
            hint = f"it has {', '.join(offered)}" if offered else "it has no assignor at all"
            raise FindError(f"{module_name} has no {attribute}", hint)
        found = getattr(found, part)
    return _made(place, found)


def _made(place: str, found: object) -> Assignor:
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise FindError(f"{place} cannot be made without arguments", why) from error
    if not isinstance(found, Assignor) or not callable(found.assign):
        raise FindError(f"{place} is no assignor", "it needs `name` and `assign(group, topics)`")
    if not isinstance(found.name, str) or not found.name:
        raise FindError(f"{place} has no name", 'write name = "..." in the class')
    return found


def _looks_right(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "assign") and hasattr(kind, "name")
