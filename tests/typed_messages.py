"""Writes `python/krust/messages/`: a module per API and per value of a record in
`__consumer_offsets` or `__transaction_state`, with a TypedDict for each struct of its schema.

The core hands requests and records to Python as dicts, and takes responses and records as dicts.
`rust/schema/*.txt` and `rust/schema/records/*_value.txt` say which keys they have;
`rust/build/schema.rs` describes the language and checks the files. This script reads the same
files. `make messages` runs it, `tests/unit/test_messages.py` says when the modules are out of date.

A key is required where every version of its struct has the field and the field has no tag. A
request lacks the fields that its version lacks; the core fills in what a response lacks.
Not promised: messages that are wrong on purpose. The build of the core refuses a wrong schema.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SCHEMAS, MODULES = ROOT / "rust/schema", ROOT / "python/krust/messages"

TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "uuid": "str",
    "bytes": "bytes",
    "records": "bytes | int",
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "int64"), "int"),
}
"""Python's type of each scalar. Records that stay in the core are an int: their length."""

PACKAGE = '''"""Kafka's messages as TypedDicts: a module per API and per value of a record.

Generated from `rust/schema/` by `make messages`; do not edit these files. Keys are Kafka's field
names in snake_case. A UUID is its 22 characters of base64. A key may be absent (`NotRequired`)
where some version of the API lacks the field: a request then lacks it too, and the core gives a
response the field's default. Nothing checks these types while krust runs.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

Message = Mapping[str, Any]
"""A message of any API: the type of code that queues, sends or answers messages of all APIs and
does not know which one it holds. Code that serves one API names that API's TypedDict."""


class RequestContext(TypedDict, total=False):
    """Where a request comes from. News from the core and requests of this process have no keys."""

    id: str | None
    """the client id"""
    host: str | None
    user: str
    """the name of the client's principal; ANONYMOUS without a login and certificate"""
    proof: str
    """how it proved that: `login`, `certificate`, `token` (a delegation token) or `nothing`"""
    listener: str
    connection: int
    """a number that is never used twice"""
    memory: object
    """keeps the memory of the request leased for as long as something refers to it"""
'''


class Versions(NamedTuple):
    """Versions from `first` to `last`, both included."""

    first: int
    last: int


@dataclass
class Field:
    """One line of a schema."""

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    is_required: bool


@dataclass
class Struct:
    """A message, or a struct inside one."""

    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)


class Line(NamedTuple):
    """One line: how deep it is indented, and its words."""

    depth: int
    words: list[str]


def modules() -> dict[str, str]:
    """The text of each module of the package, by file name."""
    texts = {"__init__.py": PACKAGE}
    for path in sorted(SCHEMAS.glob("*.txt")):
        texts[f"{path.stem.partition('_')[2]}.py"] = module(path.read_text())
    for path in sorted(SCHEMAS.glob("records/*_value.txt")):
        texts[f"{path.stem}.py"] = module(path.read_text())
    return texts


def module(schema: str) -> str:
    """The module of one API, or of one record's value."""
    comments = [line[2:] for line in schema.splitlines() if line.startswith("# ")]
    about = re.split(r"(?<=\.)\s", " ".join(comments))[0]
    lines = [
        Line((len(text) - len(text.lstrip())) // 2, text.split())
        for text in schema.splitlines()
        if text.strip() and not text.lstrip().startswith("#")
    ]
    kind, *words = lines.pop(0).words
    structs: dict[str, Struct] = {}
    if kind == "record":
        name, versions, *_ = words
        read_struct(lines, 1, Struct(name, parsed(versions, Versions(0, 0))), structs)
        title = f"{name}, versions {versions}."
    else:
        key, name, versions, *_ = words
        for suffix in ("Request", "Response"):
            lines.pop(0)
            struct = Struct(f"{name}{suffix}", parsed(versions, Versions(0, 0)))
            read_struct(lines, 1, struct, structs)
        title = f"{name} (API {key}), versions {versions}."
    body = "\n\n\n".join(class_text(each) for each in structs.values())
    names = [each for each in ("NotRequired", "TypedDict") if each in body]
    head = f'"""{title}\n\n{about}\n"""\n\n'
    head += "from __future__ import annotations\n\n"
    sequence = "Sequence[" in body
    head += f"from typing import {', '.join(['TYPE_CHECKING'] * sequence + names)}\n\n"
    if sequence:
        head += "if TYPE_CHECKING:\n    from collections.abc import Sequence\n\n"
    return f"{head}\n{body}\n"


def read_struct(lines: list[Line], depth: int, struct: Struct, structs: dict[str, Struct]) -> None:
    """Read the fields of a struct; inner structs are put into `structs` before it."""
    while lines and lines[0].depth >= depth:
        name, kind, *marks = lines.pop(0).words
        if keyword.iskeyword(name):
            raise ValueError(f"{struct.name}.{name}: Python cannot have a key of this name here")
        before_tag = list(takewhile(lambda each: each not in ("tag", "="), marks))
        ranges = [each for each in before_tag if not each.startswith("?")]
        versions = parsed(ranges[0], struct.versions) if ranges else struct.versions
        element = kind.strip("[]")
        struct.fields.append(
            Field(
                name,
                TYPES.get(element, element),
                is_array=kind.startswith("["),
                is_nullable=len(ranges) < len(before_tag),
                is_required=versions == struct.versions and "tag" not in marks,
            )
        )
        if element not in TYPES:
            read_struct(lines, depth + 1, Struct(element, versions), structs)
    structs[struct.name] = struct


def parsed(text: str, parent: Versions) -> Versions:
    """The versions that a schema's `3+`, `0-12` or `5` names."""
    if text.endswith("+"):
        return Versions(int(text[:-1]), parent.last)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def class_text(struct: Struct) -> str:
    """The TypedDict of a struct."""
    return "\n".join([f"class {struct.name}(TypedDict):", *field_lines(struct)])


def field_lines(struct: Struct) -> Iterator[str]:
    """A line for each key."""
    if not struct.fields:
        yield "    pass"
    for each in struct.fields:
        kind = f"Sequence[{each.kind}]" if each.is_array else each.kind
        kind += " | None" * each.is_nullable
        yield f"    {each.name}: {kind if each.is_required else f'NotRequired[{kind}]'}"


def main() -> None:
    """Write the modules, and remove those of APIs that are gone."""
    MODULES.mkdir(exist_ok=True)
    texts = modules()
    for path in MODULES.glob("*.py"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (MODULES / name).write_text(text)


if __name__ == "__main__":
    main()
