"""krust's own maker of named tuples."""

from __future__ import annotations

import pickle
from types import new_class

import pytest

from krust.metadata.store import Stat
from krust.named_tuple import NamedTuple


class Point(NamedTuple):
    """A point."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


def test_a_named_tuple_has_its_fields_defaults_and_methods() -> None:
    point = Point(1)
    assert point == (1, 2)
    assert (point.total, point._replace(y=5).total) == (3, 6)
    assert (Point.__doc__, Point.__name__, Point._fields) == ("A point.", "Point", ("x", "y"))
    assert repr(point) == "Point(x=1, y=2)"
    assert not hasattr(point, "__dict__")


def test_a_named_tuple_crosses_processes() -> None:
    stat = Stat(*range(len(Stat._fields)))
    assert pickle.loads(pickle.dumps(stat)) == stat


def test_a_required_field_behind_a_default_is_refused() -> None:
    fields = {"__annotations__": {"a": "int", "b": "int"}, "a": 1}
    with pytest.raises(TypeError, match="a required field behind a default"):
        new_class("Wrong", (NamedTuple,), exec_body=lambda namespace: namespace.update(fields))
