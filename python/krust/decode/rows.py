"""Decodes batches of records to batches of a table's rows, and separates bad records.

The table's columns are the value's, then the columns of the record that stay (`_topic`, `_offset`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.decode import options
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from krust.decode.result import Decoder

REASON = "reason"
"""The column with the reason, which bad records have beside their own columns."""


class Rows:
    """Decodes the batches of a pipeline. Created once a task."""

    def __init__(self, chosen: Mapping[str, str], decoder: Decoder | None = None) -> None:
        self._decoder = decoder or options.decoder(chosen)
        self._kept = options.kept(chosen)
        names = [name.lower() for name in self._decoder.schema.names]
        twice = next((name for name in self._kept if f"_{name}".lower() in names), None)
        if twice is not None:
            raise ConfigError(
                f"the value has a field _{twice}, which is the record's own {twice} in the table",
                hint=f"keep the others: keep={','.join(set(self._kept) - {twice})}",
            )

    @property
    def columns(self) -> list[str]:
        """The columns that are read from the source. Bad records have them too."""
        return list(dict.fromkeys(["value", *self._kept, *options.KEPT]))

    def schema(self, source: pa.Schema) -> pa.Schema:
        """The table's columns, from the source's."""
        import pyarrow as pa

        own = [source.field(name).with_name(f"_{name}") for name in self._kept]
        return pa.schema([*self._decoder.schema, *own])

    def split(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """Each batch as rows of the table, and its bad records with their reasons (None: none)."""
        import pyarrow as pa

        for batch in batches:
            decoded = self._decoder.decode(batch.column("value"))
            kept = batch.select(list(self._kept))
            if decoded.good is not None:
                kept = kept.take(pa.array(decoded.good, pa.int32()))
            good = pa.RecordBatch.from_arrays(
                [*decoded.columns.columns, *kept.columns], schema=self.schema(batch.schema)
            )
            if not decoded.bad:
                yield good, None
                continue
            apart = batch.take(pa.array([row for row, _ in decoded.bad], pa.int32()))
            reasons = pa.array([reason for _, reason in decoded.bad], pa.string())
            yield good, apart.append_column(REASON, reasons)
