"""Tables by kind: Parquet with manifests, Delta, Iceberg. The contract of all is in `table`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.errors import ConfigError
from krust.spark.files import StagingTarget, local_path, materialize
from krust.spark.table import Commit, OverlapError, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Commit", "OverlapError", "StagingTarget", "Table", "materialize", "open_table"]

KINDS = ("parquet", "delta", "iceberg")


def open_table(
    kind: str, place: str, options: Mapping[str, str] | None = None, *, schema: Any = None
) -> Table:
    """A table of a kind. The first batch creates Delta and Iceberg tables.

    place    a folder; Iceberg: `namespace.table`
    options  Iceberg: properties of the catalog, with its name as `catalog`
    raises   ConfigError: an unknown kind, or a missing package
    """
    if kind == "parquet":
        from krust.spark.parquet import ParquetTable

        return ParquetTable(local_path(place))
    if kind == "delta":
        need("deltalake", kind)
        from krust.spark.delta import DeltaLakeTable

        return DeltaLakeTable(local_path(place))
    if kind == "iceberg":
        need("pyiceberg", kind)
        from krust.spark.iceberg import IcebergTable

        return IcebergTable(place, dict(options or {}), schema)
    raise ConfigError(f"there are no tables of kind {kind!r}", hint=f"one of {', '.join(KINDS)}")


def need(package: str, kind: str) -> None:
    """Raise ConfigError if a package is missing."""
    from importlib.util import find_spec

    for name in (package, "pyarrow"):
        if find_spec(name) is None:
            raise ConfigError(
                f"{kind} tables need the package {name}, which is not installed",
                hint="from the checkout: pip install '.[tables]'",
            )
