"""`NamedTuple`: the one of `typing`, whose classes are made in a third of the time.

`typing` compiles the annotation of each field. krust makes 70 such classes before its first broker
is ready, which took 7 of 44 ms. Type checkers see `typing`'s.
Not here: generic ones; they use `typing`'s. A module needs `from __future__ import annotations`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTupleMeta(type):
        """Makes a class of annotated fields a `collections.namedtuple` with its methods."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = namespace.pop("__annotations__")
            required = [each for each in fields if each not in namespace]
            if bases != (NamedTuple,) or list(fields)[: len(required)] != required:
                raise TypeError(f"{name} has another base, or a required field behind a default")
            defaults = [namespace.pop(each) for each in fields if each in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace.pop("__module__"))
            made.__annotations__ = fields
            for attribute, value in namespace.items():
                setattr(made, attribute, value)
            return made

    NamedTuple = type.__new__(_NamedTupleMeta, "NamedTuple", (), {})
