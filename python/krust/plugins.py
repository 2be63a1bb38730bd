"""Finds plug-ins by name: built-in ones, those of installed packages, and `module:Class`.

A plug-in decides something for krust: an assignor, a retention policy or a replica selector. It is
an object with a `name` and the method that decides. A package offers a plug-in as an entry point.
Settings and commands use the name of the entry point, which may differ from the class's `name`.
A class is created without arguments. Then `configure(configs)` is called once, as for a
`Configurable` of Kafka, with the values of `SETTING.NAME.KEY` by KEY. NAME is the name that the
settings use, or the class's `name` for `module:Class`.
"""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Plugin = TypeVar("Plugin")
Parameters: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""Name of a plug-in -> key -> text."""


class FindError(ValueError):
    """A plug-in cannot be found or loaded; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def whole(self) -> str:
        """The error with the traceback of the module's exception. Call it in the `except` block."""
        cause = f"\n{traceback.format_exc()}" if self.__cause__ else ""
        return f"{self} ({self.hint}){cause}"


class KnownPlugin(NamedTuple):
    """A plug-in that can be used by name."""

    name: str
    import_path: str
    source: str
    """`built in`, or the package that offers it"""
    about: str | None
    """the first line of a built-in plug-in's docstring"""


class Plugins(Generic[Plugin]):
    """One kind of plug-in.

    group   the group of entry points
    method  the method that decides
    needs   what a plug-in must have, for messages
    """

    def __init__(
        self,
        noun: str,
        group: str,
        built_in: Mapping[str, type[Plugin]],
        method: str,
        needs: str,
    ) -> None:
        self.noun = noun
        self.group = group
        self.built_in = built_in
        self.method = method
        self.needs = needs

    def known(self) -> Iterator[KnownPlugin]:
        """All plug-ins that have a name. Imports none of them."""
        from importlib import metadata

        for name, kind in self.built_in.items():
            about = (kind.__doc__ or "").partition("\n")[0]
            yield KnownPlugin(
                name, f"{kind.__module__}:{kind.__qualname__}", "built in", about or None
            )
        for point in sorted(metadata.entry_points(group=self.group), key=lambda one: one.name):
            if point.name not in self.built_in:
                yield KnownPlugin(
                    point.name, point.value, point.dist.name if point.dist else "", None
                )

    def find(self, name: str, parameters: Parameters | None = None) -> Plugin:
        """The plug-in of a name or an import path `module:Class`, with its parameters.

        raises  FindError; its `__cause__` is the exception of the plug-in's code
        """
        found = self._found(name)
        key = str(getattr(found, "name", name)) if ":" in name else name
        _configure(found, name, (parameters or {}).get(key, {}))
        return found

    def _found(self, name: str) -> Plugin:
        if ":" in name:
            return self._load(name)
        if name in self.built_in:
            return self.built_in[name]()
        from difflib import get_close_matches
        from importlib import metadata

        for point in metadata.entry_points(group=self.group, name=name):
            return self._load(point.value)
        names = [one.name for one in self.known()]
        near = get_close_matches(name, names, 1)
        hint = "one of your own is module:Class"
        hint = f"there are {', '.join(names)}; {hint}" if names else hint
        hint = f"did you mean {near[0]}?" if near else hint
        raise FindError(f"there is no {self.noun} {name!r}", hint)

    def _load(self, import_path: str) -> Plugin:
        module_name, _, attribute = import_path.partition(":")
        if not module_name or not attribute:
            raise FindError(f"{import_path!r} names no class", "write module:Class")
        found = _imported(module_name)
        for part in attribute.split("."):
            if not hasattr(found, part):
                offered = [name for name, kind in vars(found).items() if self._looks_right(kind)]
                hint = (
                    f"it has {', '.join(offered)}" if offered else f"it has no {self.noun} at all"
                )
                raise FindError(f"{module_name} has no {attribute}", hint)
            found = getattr(found, part)
        return self._made(import_path, found)

    def _made(self, import_path: str, found: object) -> Plugin:
        if isinstance(found, type):
            try:
                found = found()
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise FindError(f"{import_path} cannot be made without arguments", why) from error
        if not callable(getattr(found, self.method, None)) or not hasattr(found, "name"):
            raise FindError(f"{import_path} is no {self.noun}", f"it needs {self.needs}")
        if not isinstance(found.name, str) or not found.name:
            raise FindError(f"{import_path} has no name", 'write name = "..." in the class')
        return cast("Plugin", found)

    def _looks_right(self, kind: object) -> bool:
        return isinstance(kind, type) and hasattr(kind, self.method) and hasattr(kind, "name")


RETENTION_GROUP = "krust.retention"
RETENTION_POLICIES = ("time_and_size", "time", "size", "keep_free_disk_space")
"""Names of the built-in retention policies, whose classes are in `retention/`."""


def entry_points(group: str) -> list[str]:
    """The names of the entry points of installed packages."""
    from importlib import metadata

    return [point.name for point in metadata.entry_points(group=group)]


def parameters(given: Mapping[str, str], setting: str) -> dict[str, dict[str, str]]:
    """The parameters of each plug-in, from the settings `SETTING.NAME.KEY`."""
    found: dict[str, dict[str, str]] = {}
    for name, text in given.items():
        if name.startswith(f"{setting}."):
            plug_in, _, key = name.removeprefix(f"{setting}.").partition(".")
            found.setdefault(plug_in, {})[key] = text
    return found


def _configure(found: object, name: str, configs: Mapping[str, str]) -> None:
    """Give a plug-in its parameters."""
    configure = getattr(found, "configure", None)
    if configure is None:
        if configs:
            what = f"{name} takes no parameters, but has {', '.join(sorted(configs))}"
            raise FindError(what, "take them out, or give the class `configure(configs)`")
        return
    try:
        configure(dict(configs))
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise FindError(f"{name} refuses its parameters", why) from error


def _imported(module_name: str) -> object:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            needs = f"{module_name} needs {error.name}: not installed"
            raise FindError(needs, str(error)) from error
        hint = "is it installed, or its folder on PYTHONPATH?"
        raise FindError(f"there is no module {error.name!r}", hint) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise FindError(f"module {module_name!r} cannot be imported", why) from error


def shown(value: object) -> str:
    """A value of user code as a short text. Its `repr` may raise."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
