r"""`krust produce`: writes records from stdin, a file or a template to a topic.

The command flushes before it waits for more input: a line on a terminal is sent when it is
complete, and input that is available is sent in full batches. If each field of the format ends with
a literal ('%v\n', '%k\t%v\n'), Rust splits a block at once; otherwise Python splits record by
record. stdout gets a row for each batch. A record that was not delivered is an error. Records
before invalid input may have been written. In a transaction all records are committed at the end
of the input, or none: an error, Ctrl-C and SIGTERM abort.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust import _krust
from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.exits import exit_of
from krust.cli.interrupts import terminable, whole
from krust.cli.options import KeyValue, Options
from krust.cli.records import FormatError, block_fields, encode, from_object, parser
from krust.errors import KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

CHUNK = 1 << 20
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
@click.option("--idempotent", is_flag=True, help="No duplicates after retries.")
@click.option("--transaction", is_flag=True, help="All records in one transaction.")
@click.option(
    "--transactional-id", metavar="ID", help="Of the transaction, and implies it. [random]"
)
@click.option("--template", help="Make records: {{i}} {{now}} {{random}} {{uuid}}.")
@click.option("--count", type=click.IntRange(0), help="Number of records. [of a template: 1]")
@click.option(
    "--from", "source", metavar="FILE", default="-", help="Read this file instead of stdin."
)
@shared.client
@click.pass_obj
def command(options: Options, /, topic: str, **how: Any) -> None:
    """Write records to TOPIC, one for each line of stdin.

    \b
    -f is the format of records, e.g. '%k\\t%v\\n' (key, tab, value, newline). -f json reads one
    object a line: {"key": .., "value": .., "headers": [{"key": .., "value": ..}],
    "partition": 0, "timestamp_ms": 0}. --template makes records instead.

    A transaction is committed at the end of the input. Invalid input, Ctrl-C and a record that was
    not delivered abort it. It may take transaction.timeout.ms (-X, 60 s by default).
    """  # noqa: D301, click wants the character
    given = session.properties(
        options,
        acks=how["acks"],
        compression_type=how["compression"],
        enable_idempotence=str(how["idempotent"]).lower(),
        delivery_timeout_ms=options.timeout_ms,
    )
    transactional_id = how["transactional_id"] or given.get("transactional.id")
    if how["transaction"] or transactional_id:
        transactional_id = transactional_id or _random_id()
        given |= {"enable.idempotence": "true", "transactional.id": transactional_id}
    written: list[dict[str, object]] = []
    try:
        producer = _krust.Producer(options.bootstrap, given)
        with _transaction(options, producer) if transactional_id else nullcontext():
            _send_all(options, topic, how, producer, written)
    except FormatError as error:
        raise click.UsageError(str(error)) from error
    if options.output in ("table", "wide"):
        _summary(options, topic, written)
    else:
        columns = ("topic", "partition", "base_offset", "records")
        output.rows(options, columns, written)


def _random_id() -> str:
    from uuid import uuid4

    return f"krust-produce-{uuid4()}"


@contextmanager
def _transaction(options: Options, producer: _krust.Producer) -> Iterator[None]:
    """A transaction: committed at the end of the block, aborted by what is raised in it."""
    with terminable():
        producer.begin_transaction()
        try:
            yield
            producer.commit_transaction()
        except BaseException:
            with whole():
                _abort(options, producer)
            raise


def _abort(options: Options, producer: _krust.Producer) -> None:
    """Abort, and say what became of the records."""
    try:
        producer.abort_transaction()
    except KrustError as error:
        session.note(options, f"the transaction was not aborted: {error}")
    else:
        session.note(options, "the transaction was aborted: none of its records takes effect")


def _send_all(
    options: Options,
    topic: str,
    how: dict[str, Any],
    producer: _krust.Producer,
    written: list[dict[str, object]],
) -> None:
    """Send all records and wait for their deliveries."""

    def flush() -> None:
        producer.flush()
        _collect(options, producer, written)

    made = _send_made if how["template"] is not None else _send_input
    try:
        for _ in made(topic, how, producer, flush):
            _collect(options, producer, written)  # an error ends the reading
    except FormatError:
        flush()
        raise
    flush()


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
    """The error with the topic's limit, if the broker tells it."""
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


class _UnreadableError(Exception):
    """Input that does not match the format: its position in the block, and the reason."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def _send_input(
    topic: str, how: dict[str, Any], producer: _krust.Producer, flush: Callable[[], None]
) -> Iterator[None]:
    """Send records block by block. `flush` is called before a wait for more input."""
    send = _sender(topic, how, producer)
    left, held, line = how["count"], b"", 1
    for data in _input(how["source"], flush) if left != 0 else ():
        held += data
        try:
            sent, taken = send(held, not data, left)
        except _UnreadableError as error:
            line += held.count(b"\n", 0, error.at)
            raise FormatError(f"line {line}: {error}") from error
        line += held.count(b"\n", 0, taken)
        held = held[taken:]
        yield
        if left is not None:
            left -= sent
        if left == 0:
            return


def _sender(
    topic: str, how: dict[str, Any], producer: _krust.Producer
) -> Callable[[bytes, bool, int | None], tuple[int, int]]:
    """A function (block, whether it is the last, limit) -> (records sent, bytes used)."""
    fields = None if how["form"] == "json" else block_fields(how["form"])
    if fields is None:
        cut = _json_lines if how["form"] == "json" else _cutter(how["form"])

        def send_records(block: bytes, ended: bool, limit: int | None) -> tuple[int, int]:
            records, rest = cut(block, ended, how)
            records = records[:limit]
            producer.send(topic, records)
            return len(records), len(block) - len(rest)

        return send_records
    common = {
        "key": None if how["key"] is None else how["key"].encode(),
        "headers": _headers(how),
        "partition": how["partition"],
        "empty_is_null": how["null"],
    }

    def send_block(block: bytes, ended: bool, limit: int | None) -> tuple[int, int]:
        whole = _ended(block, how["form"]) if ended else block
        sent, taken = producer.send_block(topic, whole, fields, **common, limit=limit)
        if ended and taken < len(whole) and sent != limit:
            raise _does_not_follow(how["form"], block, taken)
        return sent, taken

    return send_block


def _ended(held: bytes, form: str) -> bytes:
    """Add the missing end of a file's last line."""
    lacks = held and form.endswith(r"\n") and not held.endswith(b"\n")
    return held + b"\n" if lacks else held


def _does_not_follow(form: str, block: bytes, at: int) -> _UnreadableError:
    return _UnreadableError(at, f"the input does not follow {form!r} at {block[at : at + 40]!r}")


def _input(source: str, before_wait: Callable[[], None]) -> Iterator[bytes]:
    """The input, chunk by chunk; b"" once, at the end."""
    if source == "-":
        descriptor, close = sys.stdin.fileno(), False
    else:
        descriptor, close = _opened(source), True
    try:
        while True:
            if not select.select([descriptor], [], [], 0)[0]:
                before_wait()
            data = os.read(descriptor, CHUNK)
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

    def record(held: bytes, found: re.Match[bytes], how: dict[str, Any]) -> Any:
        try:
            return _record(dict(zip(verbs, found.groups(), strict=True)), how)
        except ValueError as error:  # invalid hex or base64
            start = found.start()
            why = f"no record: {held[start : start + 60]!r} ({error})"
            raise _UnreadableError(start, why) from error

    def cut(held: bytes, ended: bool, how: dict[str, Any]) -> tuple[list[Any], bytes]:
        records, at = [], 0
        if ended:
            held = _ended(held, form)
        while at < len(held) and (found := pattern.match(held, at)) and found.end() > at:
            at = found.end()
            records.append(record(held, found, how))
        if ended and at < len(held):
            if (found := pattern.fullmatch(held, at)) is None:
                raise _does_not_follow(form, held, at)
            return [*records, record(held, found, how)], b""
        return records, held[at:]

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
    records, at = [], 0
    for line in lines:
        start, at = at, at + len(line) + 1
        if not line.strip():
            continue
        try:
            fields = from_object(json.loads(line))
            headers = [(str(one["key"]), encode(one["value"])) for one in fields.get("headers", ())]
            key = fields.get("key", how["key"])
            value = encode(fields.get("value"))
        except FormatError as error:
            raise _UnreadableError(start, str(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _UnreadableError(start, f"no record: {line[:60]!r} ({error})") from error
        partition = fields.get("partition") if how["partition"] is None else how["partition"]
        place = (partition, fields.get("timestamp_ms"))
        records.append((encode(key), value, headers + _headers(how), *place))
    return records, rest


def _send_made(
    topic: str, how: dict[str, Any], producer: _krust.Producer, _: Callable[[], None]
) -> Iterator[None]:
    """Send records of the template, some in each step."""
    for records in _templated(how):
        producer.send(topic, records)
        yield


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
