r"""`krust produce`: records from stdin, a file or a template into a topic.

What is readable at once goes out together, and is flushed before the next wait: a line typed on a
terminal is sent when it is complete. stdout gets one row for each batch that was written; anything
that was not delivered is an error.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust import _krust
from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.exits import exit_of
from krust.cli.options import KeyValue, Options
from krust.cli.records import FormatError, encode, from_object, parser
from krust.errors import KrustError
from krust.words import counted

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

CHUNK = 256 << 10
MESSAGE_TOO_LARGE, TOPIC = 10, 2
LIMIT = "max.message.bytes"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(no_args_is_help=True)
@click.argument("topic", shell_complete=completion.topics)
@click.option("-f", "--format", "form", default=r"%v\n", show_default=True, help="%k %v %p %d.")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-H", "--header", "headers", multiple=True, type=KeyValue(), help="KEY=VALUE.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: by key.")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none")
@click.option("--tombstone", "--null", "null", is_flag=True, help="Empty values become null.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--idempotent", is_flag=True, help="No duplicates by retries.")
@click.option("--template", help="Make records: {{i}} {{now}} {{random}} {{uuid}}.")
@click.option("--count", type=click.IntRange(0), help="How many records; of a template: 1.")
@click.option("--from", "source", metavar="FILE", default="-", help="Instead of stdin.")
@shared.client
@click.pass_obj
def command(options: Options, /, topic: str, **how: Any) -> None:
    """Write records to TOPIC: a line of stdin each.

    \b
    -f says how records are cut, e.g. '%k\\t%v\\n' (key, tab, value, newline); -f json reads
    objects, one a line: {"key": .., "value": .., "headers": [{"key": .., "value": ..}],
    "partition": 0, "timestamp_ms": 0}. --template makes them instead.
    """  # noqa: D301, click wants the character
    try:
        chunks = _templated(how) if how["template"] is not None else _read(how)
        producer = _krust.Producer(
            options.bootstrap,
            session.properties(
                options,
                acks=how["acks"],
                compression_type=how["compression"],
                enable_idempotence=str(how["idempotent"]).lower(),
                delivery_timeout_ms=options.timeout_ms,
            ),
        )
        written: list[dict[str, object]] = []
        for records in chunks:
            producer.send(topic, records)
            producer.flush()
            _collect(options, producer, written)
    except FormatError as error:
        raise click.UsageError(str(error)) from error
    if options.output in ("table", "wide"):
        _summary(options, topic, written)
    else:
        columns = ("topic", "partition", "base_offset", "records")
        output.rows(options, columns, written)


def _collect(options: Options, producer: _krust.Producer, written: list[dict[str, object]]) -> None:
    failed, topic = None, ""
    for topic, partition, base_offset, count, error in producer.delivered():
        if error is not None:
            failed = failed or error
            continue
        last = written[-1] if written else {}
        follows = last.get("partition") == partition and base_offset >= 0
        if follows and base_offset == int(str(last["base_offset"])) + int(str(last["records"])):
            last["records"] = int(str(last["records"])) + count
            continue
        place = {"topic": topic, "partition": partition}
        written.append(place | {"base_offset": base_offset, "records": count})
    if failed is not None:
        raise failed if failed.code != MESSAGE_TOO_LARGE else _too_large(options, topic, failed)


def _too_large(options: Options, topic: str, error: KrustError) -> KrustError:
    """With the topic's limit, where the broker tells it."""
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": [LIMIT]}
    body = {"resources": [resource]}
    try:
        [result] = session.client(options).request("DescribeConfigs", body)["results"]
        [limit] = [int(each["value"]) for each in result["configs"] or () if each["name"] == LIMIT]
    except (KrustError, ValueError):
        return error
    text = str(error).replace(f"{LIMIT} of the topic", f"{LIMIT} ({limit:,}) of topic {topic}")
    return session.refused(MESSAGE_TOO_LARGE, text, hint=error.hint)


def _summary(options: Options, topic: str, written: Sequence[dict[str, Any]]) -> None:
    total = sum(row["records"] for row in written)
    spans: dict[int, list[int]] = {}
    for row in written:
        span = spans.setdefault(row["partition"], [row["base_offset"], -1])
        span[1] = row["base_offset"] + row["records"] - 1
    places = "; ".join(
        f"partition {partition}" + (f" offsets {first}-{last}" if first >= 0 else "")
        for partition, (first, last) in sorted(spans.items())
    )
    session.note(
        options,
        f"{counted(total, 'record')} to {topic}" + (f": {places}" if places else ""),
    )


def _read(how: dict[str, Any]) -> Iterator[list[Any]]:
    """Records as they come, those that are there at once together."""
    cut = _json_lines if how["form"] == "json" else _cutter(how["form"])
    left = how["count"]
    held = b""
    for data in _input(how["source"]):
        held += data
        records, held = cut(held, not data, how)
        if left is not None:
            records = records[:left]
            left -= len(records)
        if records:
            yield records
        if left == 0:
            return


def _input(source: str) -> Iterator[bytes]:
    """What can be read, chunk by chunk; b"" once, at the end."""
    if source == "-":
        descriptor, close = sys.stdin.fileno(), False
    else:
        descriptor, close = _opened(source), True
    try:
        while True:
            data = os.read(descriptor, CHUNK)
            while data and len(data) < 16 * CHUNK and select.select([descriptor], [], [], 0)[0]:
                more = os.read(descriptor, CHUNK)
                if not more:
                    break
                data += more
            yield data
            if not data:
                return
    finally:
        if close:
            os.close(descriptor)


def _opened(source: str) -> int:
    try:
        return os.open(Path(source), os.O_RDONLY)
    except OSError as error:
        why = "no such file" if error.errno == errno.ENOENT else str(error.strerror).lower()
        failed = KrustError(f"cannot read {source}: {why}")
        failed.exit = int(exit_of(error))
        raise failed from error


def _cutter(form: str) -> Any:
    pattern, verbs = parser(form)

    def cut(held: bytes, ended: bool, how: dict[str, Any]) -> tuple[list[Any], bytes]:
        records, at = [], 0
        if ended and held and form.endswith(r"\n") and not held.endswith(b"\n"):
            held += b"\n"  # the last line of a file
        while at < len(held) and (found := pattern.match(held, at)) and found.end() > at:
            at = found.end()
            records.append(_record(dict(zip(verbs, found.groups(), strict=True)), how))
        rest = held[at:]
        if ended and rest and pattern.fullmatch(rest):
            found = pattern.fullmatch(rest)
            values = found.groups() if found else ()
            return [*records, _record(dict(zip(verbs, values, strict=True)), how)], b""
        if ended and rest:
            raise FormatError(f"the input does not follow {form!r} at {rest[:40]!r}")
        return records, rest

    return cut


def _record(fields: dict[str, bytes], how: dict[str, Any]) -> Any:
    values = {verb[0]: _decoded(data, verb[1:]) for verb, data in fields.items()}
    key = values.get("k", how["key"].encode() if how["key"] is not None else None)
    value = values.get("v")
    if how["null"] and not value:
        value = None
    partition = int(values["p"]) if "p" in values else how["partition"]
    timestamp = int(values["d"]) if "d" in values else None
    return key, value, _headers(how), partition, timestamp


def _decoded(data: bytes, form: str) -> bytes:
    if form == "{hex}":
        return bytes.fromhex(data.decode("ascii", "replace"))
    if form == "{base64}":
        from base64 import b64decode

        return b64decode(data)
    return data


def _headers(how: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode()) for name, value in how["headers"]]


def _json_lines(held: bytes, ended: bool, how: dict[str, Any]) -> tuple[list[Any], bytes]:
    import json

    lines = held.split(b"\n")
    rest = b"" if ended else lines.pop()
    records = []
    for line in filter(bytes.strip, lines):
        try:
            fields = from_object(json.loads(line))
            headers = [(str(one["key"]), encode(one["value"])) for one in fields.get("headers", ())]
            key = fields.get("key", how["key"])
            value = encode(fields.get("value"))
        except FormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"no record: {line[:60]!r} ({error})") from error
        partition = fields.get("partition") if how["partition"] is None else how["partition"]
        place = (partition, fields.get("timestamp_ms"))
        records.append((encode(key), value, headers + _headers(how), *place))
    return records, rest


def _templated(how: dict[str, Any]) -> Iterator[list[Any]]:
    import random
    import re

    template: str = how["template"]
    key: str | None = how["key"]
    place = re.compile(r"\{\{(\w+)\}\}")
    unknown = set(place.findall(template)) - {"i", "now", "random", "uuid"}
    if unknown:
        raise FormatError(f"{{{{{unknown.pop()}}}}} is unknown; there are i now random uuid")

    def fill(text: str, number: int) -> bytes:
        def value(found: re.Match[str]) -> str:
            if found[1] == "i":
                return str(number)
            if found[1] == "now":
                return str(int(time.time() * 1000))
            if found[1] == "random":
                return str(random.getrandbits(31))
            from uuid import uuid4

            return str(uuid4())

        return place.sub(value, text).encode()

    total = 1 if how["count"] is None else how["count"]
    for first in range(0, total, 1000):
        yield [
            (
                None if key is None else fill(key, number),
                None if how["null"] and not template else fill(template, number),
                _headers(how),
                how["partition"],
                None,
            )
            for number in range(first, min(first + 1000, total))
        ]
