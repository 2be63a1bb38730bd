"""`krust bench`: measures how fast a broker accepts and serves records, with krust's client.

The client is one thread that makes real batches and reads real records, so the figures include its
cost. Use them to compare brokers and settings on one machine.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.options import Duration, Options
from krust.cli.produce import CODECS
from krust.clients import load

RECORDS = 1_000_000
"""The number of records without --count and --duration."""


@click.group(no_args_is_help=True)
def command() -> None:
    """Measure producing and consuming."""


@command.command()
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "--size", type=click.IntRange(1), default=100, show_default=True, help="Bytes of each value."
)
@click.option(
    "--count", type=click.IntRange(1), help=f"[{RECORDS:,}, or as many as fit in --duration]"
)
@click.option("--duration", type=Duration(), help="Stop after this time, e.g. 10s.")
@click.option("--batch", type=click.IntRange(1), default=256 << 10, show_default=True)
@click.option(
    "-z",
    "--compression",
    "--codec",
    "codec",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--idempotent", is_flag=True, help="Idempotent: five batches of a partition in flight."
)
@shared.client
@click.pass_obj
def produce(options: Options, /, topic: str, **how: Any) -> None:
    """Write many records of one size to TOPIC.

    With --duration it stops then. It counts all delivered records, including those still in flight.
    """
    count: int | None = how["count"]
    if count is None and how["duration"] is None:
        count = RECORDS
    properties = session.properties(
        options,
        acks=how["acks"],
        compression_type=how["codec"],
        batch_size=how["batch"],
        enable_idempotence=str(how["idempotent"]).lower(),
    )
    writer, value = load.Writer(options.bootstrap, properties, topic), load.value(how["size"])
    writer.warm(value)
    clock, sent = _Clock(how["duration"]), 0
    with _bar(options, count or 0, "produce") as bar:
        for step in () if clock.over() else writer.write(value, count):
            sent += step
            bar.update(step)
            if clock.over():
                break
        writer.flush()
    _report(options, clock, (sent, sent * how["size"]), {"topic": topic} | _kept(how))


def _kept(how: dict[str, Any]) -> dict[str, object]:
    return {name: how[name] for name in ("size", "codec", "acks", "idempotent")}


@command.command()
@click.argument("topic", shell_complete=completion.topics)
@click.option("--count", type=click.IntRange(1), help="Stop after this number of records.")
@click.option("--duration", type=Duration(), help="Stop after this time, e.g. 10s.")
@shared.client
@click.pass_obj
def consume(options: Options, topic: str, count: int | None, duration: int | None) -> None:
    """Read TOPIC from its start to its end. Bytes are those of the batches.

    With --duration it reads the topic again and again until then.
    """
    asked = session.client(options)
    found = session.topics(asked, [topic], options.bootstrap)[topic]
    spans = load.spans(asked, topic, [each["partition_index"] for each in found["partitions"]])
    reader = load.Reader(options.bootstrap, session.properties(options), spans)
    total = sum(end - start for _, _, start, end in spans)
    clock, records, size = _Clock(duration), 0, 0
    with _bar(options, min(total, count or total), "consume") as bar:
        while not clock.over():
            for more, more_bytes in reader.read():
                records, size = records + more, size + more_bytes
                bar.update(more)
                if clock.over() or (count is not None and records >= count):
                    break
            if duration is None or not total or (count is not None and records >= count):
                break
    _report(options, clock, (records, size), {"topic": topic})


class _Clock:
    def __init__(self, duration_ms: int | None) -> None:
        self._begun = time.perf_counter()
        self._cpu = time.process_time()
        self._duration = None if duration_ms is None else duration_ms / 1000

    def over(self) -> bool:
        return self._duration is not None and self.spent()[0] >= self._duration

    def spent(self) -> tuple[float, float]:
        """Seconds passed, and seconds of this process's CPU."""
        return time.perf_counter() - self._begun, time.process_time() - self._cpu


def _report(
    options: Options, clock: _Clock, did: tuple[int, int], fields: dict[str, object]
) -> None:
    seconds, cpu = clock.spent()
    records, size = did
    measured: dict[str, object] = {
        "records": records,
        "bytes": size,
        "elapsed_ms": round(seconds * 1000),
        "records_per_second": round(records / seconds),
        "bytes_per_second": round(size / seconds),
        "client_cpu_ms": round(cpu * 1000),
    }
    if options.output in ("table", "wide"):
        click.echo(
            f"{records:,} records, {size / 1e6:,.1f} MB in {seconds:.2f} s: "
            f"{records / seconds:,.0f} records/s, {size / seconds / 1e6:,.1f} MB/s, "
            f"client CPU {cpu:.2f} s"
        )
    else:
        output.one(options, fields | measured)


def _bar(options: Options, length: int, label: str) -> Any:
    from contextlib import nullcontext

    if options.quiet or not sys.stderr.isatty():
        return nullcontext(_Silent())
    return click.progressbar(length=length, label=label, file=sys.stderr)


class _Silent:
    def update(self, count: int) -> None:
        """Show nothing."""
