"""Retention policies by name: the built-in ones, those of installed packages, and `module:Class`.

A package offers one in its `pyproject.toml`:

    [project.entry-points."krust.retention"]
    by_tenant = "my_package.retention:ByTenant"

The name of the entry point is what settings and commands say; it need not be the class's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from krust.retention.policies import BUILT_IN
from krust.retention.spec import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "krust.retention"


class FindError(ValueError):
    """A policy that cannot be had; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Known:
    """A policy that has a name here."""

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


def find(name: str) -> RetentionPolicy:
    """The policy called `name`, or in the place `module:Class`.

    raises  FindError; what a module raises while it is imported is its `__cause__`
    """
    if ":" in name:
        return _load(name)
    if name in BUILT_IN:
        return BUILT_IN[name]()
    from importlib import metadata

    for point in metadata.entry_points(group=GROUP, name=name):
        return _load(point.value)
    names = ", ".join(one.name for one in known())
    hint = f"there are {names}; one of your own is module:Class"
    raise FindError(f"there is no retention policy {name!r}", hint)


def _load(place: str) -> RetentionPolicy:
    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise FindError(f"{place!r} names no class", "write module:Class")
    try:
        found: object = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            found = found()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise FindError(f"{place} cannot be loaded", why) from error
    if not isinstance(found, RetentionPolicy) or not callable(found.expired):
        hint = "it needs `name` and `expired(disk, partitions, now_ms)`"
        raise FindError(f"{place} is no retention policy", hint)
    return found
