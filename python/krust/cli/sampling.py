"""Decodes some records of a topic as a pipeline would, to check it before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    from krust.spark.recipe import Pipeline

PARTITIONS = 16
WAIT_MS = 5000


def decoded(made: Pipeline, count: int) -> tuple[str, str]:
    """Decode the newest `count` records of each partition. Returns `ok` or `warning`, and counts.

    raises  KrustError: most records are bad, or one is bad and the pipeline would fail
    """
    import pyarrow as pa

    from krust import _krust
    from krust.decode import options
    from krust.spark import positions

    spans = list(positions.Position(made).spans().items())[:PARTITIONS]
    consumer = _krust.Consumer(made.bootstrap, {"request.timeout.ms": WAIT_MS})
    consumer.assign(
        [(*one, max(span.earliest, span.latest - count), span.latest) for one, span in spans]
    )
    values: list[bytes | None] = []
    while not consumer.done():
        records, _ = consumer.poll(WAIT_MS, 1000)
        values += [record.value for record in records]
    found = options.decoder(made.decode).decode(pa.array(values, pa.binary()))
    if not values:
        return "ok", "no records yet"
    if not found.bad:
        return "ok", f"{counted(len(values), 'record')} decoded"
    are = "is" if len(found.bad) == 1 else "are"
    bad = f"{len(found.bad):,} of {counted(len(values), 'record')} {are} bad"
    text = f"{bad}, such as: {found.bad[0].reason}"
    if made.decode.get("badRecords", "").lower() == "fail":
        raise KrustError(text, hint='the pipeline stops at the first; see [decode] bad = ".."')
    if len(found.bad) * 2 > len(values):
        raise KrustError(text)
    return "warning", text
