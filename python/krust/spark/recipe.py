"""The description of a pipeline: topic -> decode -> transform -> table or topic.

    [source]      topic = "flights" (or topics = [..], pattern = "fl.*"), bootstrap, since, options
    [decode]      format = "json", schema = "id bigint, .." (see DECODE for the rest)
    [transform]   sql = "SELECT .. FROM input", or python = "clean.py:function"
    [sink]        one of parquet = FOLDER, delta = FOLDER, iceberg = "space.table", topic = NAME;
                  file_mb, compression, catalog = { .. }
    [run]         name, checkpoint, trigger = "10s", max_per_trigger

This is FILE.toml. FILE.py creates the same object: `pipeline = krust.spark.recipe.Pipeline(..)`.
Paths in a file are relative to it. Pure, except for reading the file: no Spark, no broker.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from krust import offset_range
from krust.decode import options as decoding
from krust.errors import ConfigError
from krust.spark.files import CODECS, FILE_MB
from krust.spark.table import NoTableError, Table
from krust.spark.tables import KINDS, open_table

DECODE = {
    "format": "valueFormat",
    "schema": "valueSchema",
    "subject": "valueSubject",
    "registry": "schema.registry.url",
    "schemas": "schemaDir",
    "descriptors": "descriptorFile",
    "message": "messageName",
    "framing": "framing",
    "keep": "keep",
    "bad": "badRecords",
    "dead_letters": "deadLetterTopic",
}
"""Keys of [decode] -> the source's options of the same meaning (`krust.decode.options`)."""
_PATHS = ("schemas", "descriptors")
_KEYS = {
    "source": ("topic", "topics", "pattern", "bootstrap", "since", "options"),
    "decode": tuple(DECODE),
    "transform": ("sql", "python"),
    "sink": ("parquet", "delta", "iceberg", "topic", "file_mb", "compression", "catalog"),
    "run": ("name", "checkpoint", "trigger", "max_per_trigger"),
}
SINKS = (*KINDS, "topic")
_NAME = re.compile(r"[\w.][\w.-]*")
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


class PipelineSettings(TypedDict, total=False):
    """The settings of a pipeline beside its source and sink; see `Pipeline`."""

    name: str
    bootstrap: str
    pattern: bool
    since: str
    source_options: Mapping[str, str]
    decode: Mapping[str, str]
    sql: str
    file_mb: int
    compression: str
    catalog: Mapping[str, str]
    checkpoint: str
    trigger_ms: int
    max_per_trigger: int


class TableSettings(PipelineSettings, total=False):
    """The settings of a pipeline into a table."""

    function: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Pipeline:
    """A pipeline.

    topics      names, or one regular expression if `pattern`
    since       SPEC: the start of a new pipeline
    decode      options of decoding by the source's names; empty: no decoding
    sql, function  the transformation; at most one of them
    sink        one of SINKS; place: its folder, table or topic
    checkpoint  Spark's folder; empty: beside the table, `_checkpoint`, or under the state folder
    trigger_ms  a micro-batch at most this often
    """

    topics: tuple[str, ...]
    sink: str
    place: str
    name: str = "pipeline"
    bootstrap: str = ""
    pattern: bool = False
    since: str = "start"
    source_options: Mapping[str, str] = field(default_factory=dict)
    decode: Mapping[str, str] = field(default_factory=dict)
    sql: str = ""
    function: Callable[[Any], Any] | None = None
    file_mb: int = FILE_MB
    compression: str = "zstd"
    catalog: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    trigger_ms: int = 10_000
    max_per_trigger: int = 2_000_000

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise ConfigError("a pipeline needs a topic", hint='[source] topic = "orders"')
        if self.sink not in SINKS or not self.place:
            raise ConfigError(
                f"a pipeline needs one sink of {', '.join(SINKS)}", hint='[sink] delta = "table"'
            )
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name {self.name!r}: letters, digits, _ . - and no other")
        if self.compression not in CODECS:
            raise ConfigError.choice("compression", CODECS, self.compression)
        if self.sql and self.function is not None:
            raise ConfigError("[transform] has both sql and python; one can call the other")
        for name, least in (("file_mb", 1), ("max_per_trigger", 1), ("trigger_ms", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} is {getattr(self, name)}, at least {least} is wanted")
        if decoding.chosen(self.decode) != dict(self.decode):
            raise ConfigError("decode has keys that are no options of decoding")
        begin(self.since)

    @property
    def transforms(self) -> bool:
        """Whether it has a transformation."""
        return bool(self.sql) or self.function is not None

    @property
    def checkpoint_path(self) -> Path:
        """The folder of Spark's checkpoint."""
        if self.checkpoint:
            return Path(self.checkpoint)
        if self.sink in ("parquet", "delta"):
            return Path(self.place) / "_checkpoint" / self.name
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        return Path(state) / "krust" / "pipelines" / self.name


def begin(since: str) -> offset_range.OffsetRange:
    """The start of a new pipeline. ConfigError: an invalid position, or an end too."""
    try:
        found = offset_range.parse(since, int(time.time() * 1000))
    except offset_range.SpecError as error:
        raise ConfigError(f"since: {error}") from error
    if found.end is not None:
        raise ConfigError(f"since: {since!r} has an end, a pipeline has none")
    return found


def read(path: Path, *, bootstrap: str = "") -> Pipeline:
    """Read a file. ConfigError: invalid, with the position.

    bootstrap  the brokers if the file names none
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}", hint="krust pipeline list shows some")
    if path.suffix == ".py":
        found = getattr(_module(path), "pipeline", None)
        if not isinstance(found, Pipeline):
            raise ConfigError(
                f"{path} makes no pipeline",
                hint="pipeline = krust.spark.recipe.Pipeline(topics=(..), sink=.., place=..)",
            )
    else:
        try:
            tree = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        try:
            found = of(tree, path.absolute().parent, path.stem)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}", hint=error.hint) from error
    if found.bootstrap:
        return found
    import dataclasses

    return dataclasses.replace(found, bootstrap=bootstrap)


def of(tree: Mapping[str, Any], folder: Path, name: str) -> Pipeline:
    """Create a pipeline from a file's tables. ConfigError: invalid."""
    parts = {part: _part(tree, part) for part in _KEYS}
    for part in tree:
        if part not in _KEYS:
            raise ConfigError(f"[{part}] is no part of a pipeline", hint=_near(part, _KEYS))
    source, sink, run = parts["source"], parts["sink"], parts["run"]
    sinks = [one for one in SINKS if one in sink]
    if len(sinks) != 1:
        raise ConfigError(
            f"[sink] has {' and '.join(sinks) or 'none'} of {', '.join(SINKS)}; one is wanted",
            hint='[sink] delta = "table"',
        )
    place = _text(sink, "sink", sinks[0])
    if sinks[0] in ("parquet", "delta"):
        place = str(folder / place) if "://" not in place else place
    checkpoint = _text(run, "run", "checkpoint")
    transform = parts["transform"]
    python = _text(transform, "transform", "python")
    return Pipeline(
        topics=_topics(source),
        pattern="pattern" in source,
        sink=sinks[0],
        place=place,
        name=_text(run, "run", "name") or name,
        bootstrap=_text(source, "source", "bootstrap"),
        since=_text(source, "source", "since") or "start",
        source_options=_texts(source, "source", "options"),
        decode=_decode(parts["decode"], folder),
        sql=_text(transform, "transform", "sql"),
        function=_function(python, folder) if python else None,
        file_mb=_number(sink, "sink", "file_mb", FILE_MB),
        compression=_text(sink, "sink", "compression") or "zstd",
        catalog=_texts(sink, "sink", "catalog"),
        checkpoint=str(folder / checkpoint) if checkpoint else "",
        trigger_ms=_milliseconds(_text(run, "run", "trigger") or "10s"),
        max_per_trigger=_number(run, "run", "max_per_trigger", 2_000_000),
    )


def _part(tree: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    found = tree.get(part, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"{part} is not a table; write [{part}] above its keys")
    for key in found:
        if key not in _KEYS[part]:
            raise ConfigError(f"[{part}] has no key {key!r}", hint=_near(key, _KEYS[part]))
    return found


def _near(given: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(given, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def _text(part: Mapping[str, Any], where: str, key: str) -> str:
    found = part.get(key, "")
    if not isinstance(found, str):
        raise ConfigError(f"[{where}] {key} is {found!r}, a text is wanted")
    return found


def _texts(part: Mapping[str, Any], where: str, key: str) -> dict[str, str]:
    found = part.get(key, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"[{where}] {key} is {found!r}; write {key} = {{ name = value }}")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in found.items()
    }


def _number(part: Mapping[str, Any], where: str, key: str, default: int) -> int:
    found = part.get(key, default)
    if type(found) is not int:
        raise ConfigError(f"[{where}] {key} is {found!r}, a whole number is wanted")
    return found


def _milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"[run] trigger is {text!r}; write 500ms, 10s, 5m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _topics(source: Mapping[str, Any]) -> tuple[str, ...]:
    given = [key for key in ("topic", "topics", "pattern") if key in source]
    if len(given) != 1:
        raise ConfigError(
            f"[source] has {' and '.join(given) or 'none'} of topic, topics, pattern; one is wanted"
        )
    found = source[given[0]]
    names = found if given[0] == "topics" else [found]
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ConfigError(f"[source] {given[0]} is {found!r}, names are wanted")
    return tuple(names)


def _decode(part: Mapping[str, Any], folder: Path) -> dict[str, str]:
    found = {}
    for key, value in part.items():
        if key == "keep" and isinstance(value, list):
            text = ",".join(map(str, value))
        else:
            text = _text(part, "decode", key)
        if key in _PATHS:
            text = str(folder / text)
        elif key == "schema" and (text.startswith("@") or text.endswith(".avsc")):
            text = f"@{folder / text.lstrip('@')}"
        if key == "format" and text.lower() not in decoding.FORMATS:
            there = ", ".join(decoding.FORMATS)
            raise ConfigError(f"[decode] format: {text!r} is not supported: {there}")
        found[DECODE[key]] = text
    return decoding.chosen(found)


def _function(text: str, folder: Path) -> Callable[[Any], Any]:
    """The function that `file.py:name` or `package.module:name` names."""
    place, colon, name = text.rpartition(":")
    if not colon or not place:
        raise ConfigError(f"[transform] python is {text!r}; write file.py:function")
    if place.endswith(".py"):
        module = _module(folder / place)
    else:
        from importlib import import_module

        try:
            module = import_module(place)
        except ImportError as error:
            raise ConfigError(f"[transform] python: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"[transform] python: {place} has no function {name!r}")
    function: Callable[[Any], Any] = found
    return function


def _module(path: Path) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    found = spec_from_file_location(path.stem, path)
    if found is None or found.loader is None or not path.is_file():
        raise ConfigError(f"{str(path)!r} is not a Python file")
    module = module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def existing_table(pipeline: Pipeline) -> Table | None:
    """The table of a pipeline; None: it does not exist yet."""
    try:
        return open_table(pipeline.sink, pipeline.place, pipeline.catalog)
    except NoTableError:
        return None
