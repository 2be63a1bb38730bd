"""The table of decoding options, as a Spark source and a pipeline's file spell them.

valueFormat         json, avro, protobuf; without it values stay as they are
valueSchema         json: columns as in SQL, or @FILE with them; avro: the reader's schema, JSON or
a file, or `latest` of the registry's subject (`valueSubject`)
schema.registry.url, schemaDir     where writers' Avro schemas are: a registry, a folder of ID.avsc
descriptorFile, messageName        protobuf: a descriptor set, a message of it
framing             confluent (the 5-byte header), none; default: confluent but for json
keep                which of the record's own columns stay, `topic,partition,offset,..`, each
with `_` before its name
badRecords          file (default), topic, drop, fail;  deadLetterTopic: where `topic` sends them
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.decode.result import Decoder
    from krust.decode.schemas import Schemas

OPTIONS = (
    "valueFormat",
    "valueSchema",
    "valueSubject",
    "schema.registry.url",
    "schemaDir",
    "descriptorFile",
    "messageName",
    "framing",
    "keep",
    "badRecords",
    "deadLetterTopic",
)
FORMATS = ("json", "avro", "protobuf")
KEPT = ("topic", "partition", "offset", "timestamp", "key")
KEEPABLE = (*KEPT, "timestampType", "headers")
BAD = ("file", "topic", "drop", "fail")
_EXTRAS = {"avro": "fastavro", "protobuf": "google.protobuf"}


def chosen(given: Mapping[str, str]) -> dict[str, str]:
    """The decoding options among a source's options, as OPTIONS spells them; {}: no decoding.

    given   options by name, in any case
    raises  ConfigError: an invalid option, or a missing one that another needs
    """
    lower = {name.lower(): value for name, value in given.items()}
    found = {name: lower[name.lower()] for name in OPTIONS if name.lower() in lower}
    if not found:
        return {}
    form = found.get("valueFormat", "").lower()
    if not form:
        raise ConfigError(f"valueFormat is missing: it is one of {', '.join(FORMATS)}")
    if form not in FORMATS:
        raise ConfigError(f"valueFormat {form!r} is not supported: {', '.join(FORMATS)}")
    found["valueFormat"] = form
    _check(found, form)
    return found


def _check(found: Mapping[str, str], form: str) -> None:
    needs = {
        "json": ("valueSchema",),
        "avro": ("valueSchema",),
        "protobuf": ("descriptorFile", "messageName"),
    }
    for name in needs[form]:
        if name not in found:
            raise ConfigError(f"valueFormat={form} needs {name}")
    if _framing(found) not in ("confluent", "none"):
        raise ConfigError(f"framing: {found['framing']!r} is neither confluent nor none")
    places = [name for name in ("schema.registry.url", "schemaDir") if name in found]
    if form == "avro" and _framing(found) == "confluent" and len(places) != 1:
        raise ConfigError("Avro with a header needs schema.registry.url or schemaDir, one of them")
    for name in kept(found):
        if name not in KEEPABLE:
            raise ConfigError.choice("keep", KEEPABLE, name)
    bad = bad_records(found)
    if bad not in BAD:
        raise ConfigError.choice("badRecords", BAD, bad)
    if bad == "topic" and "deadLetterTopic" not in found:
        raise ConfigError("badRecords=topic needs deadLetterTopic")


def kept(found: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the record that stay, in the given order."""
    if "keep" not in found:
        return KEPT
    return tuple(name.strip() for name in found["keep"].split(",") if name.strip())


def bad_records(found: Mapping[str, str]) -> str:
    """What to do with records that cannot be decoded."""
    return found.get("badRecords", "topic" if "deadLetterTopic" in found else "file").lower()


def _framing(found: Mapping[str, str]) -> str:
    default = "none" if found["valueFormat"] == "json" else "confluent"
    return found.get("framing", default).lower()


def decoder(found: Mapping[str, str]) -> Decoder:
    """The decoder of `chosen` options. ConfigError: a missing or invalid schema."""
    form = found["valueFormat"]
    _need(form)
    if form == "json":
        from krust.decode import ddl
        from krust.decode.from_json import JsonDecoder

        if _framing(found) == "confluent":
            raise ConfigError("JSON with a schema header is not supported", hint="framing=none")
        return JsonDecoder(ddl.schema(_text("valueSchema", found["valueSchema"])))
    if form == "avro":
        from krust.decode.from_avro import AvroDecoder

        return AvroDecoder(_reader_schema(found), _schemas(found))
    from krust.decode import from_protobuf

    descriptors = from_protobuf.read_descriptors(found["descriptorFile"])
    framed = _framing(found) == "confluent"
    return from_protobuf.ProtobufDecoder(descriptors, found["messageName"], framed=framed)


def _need(form: str) -> None:
    from importlib.util import find_spec

    for package in filter(None, ("pyarrow", _EXTRAS.get(form))):
        top = package.partition(".")[0]
        if find_spec(top) is None or find_spec(package) is None:
            raise ConfigError(
                f"valueFormat={form} needs the package {package}, which is not installed",
                hint="from the checkout: pip install '.[tables]'",
            )


def _text(name: str, value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text()
    except OSError as error:
        raise ConfigError(f"{name}: {value[1:]!r}: {error.strerror}") from error


def _reader_schema(found: Mapping[str, str]) -> Any:
    from krust.decode.schemas import Registry

    value = found["valueSchema"].strip()
    if value == "latest":
        if "schema.registry.url" not in found or "valueSubject" not in found:
            raise ConfigError("valueSchema=latest needs schema.registry.url and valueSubject")
        try:
            return Registry(found["schema.registry.url"]).latest(found["valueSubject"])
        except KeyError:
            raise ConfigError(
                f"the registry has no subject {found['valueSubject']!r}",
                hint="a topic's is TOPIC-value",
            ) from None
    text = value if value.startswith(("{", "[")) else _text("valueSchema", "@" + value.lstrip("@"))
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"valueSchema is not JSON: {error}") from error


def _schemas(found: Mapping[str, str]) -> Schemas | None:
    from krust.decode.schemas import Registry, Schemas, from_folder

    if _framing(found) == "none":
        return None
    if "schemaDir" in found:
        return Schemas(from_folder(Path(found["schemaDir"])))
    return Schemas(Registry(found["schema.registry.url"]).schema)
