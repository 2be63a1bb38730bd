"""A pipeline in Python: its function is any that takes a DataFrame and returns one.

krust pipeline run examples/pipeline/own.py --once
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from krust.spark.recipe import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_route(frame: DataFrame) -> DataFrame:
    """Flights with their route, and how much they made up for in the air."""
    return frame.selectExpr(
        "concat(origin, '-', dest) AS route", "dep_delay - arr_delay AS made_up", "_offset"
    )


pipeline = Pipeline(
    topics=("flights",),
    decode={
        "valueFormat": "json",
        "valueSchema": "origin string, dest string, dep_delay int, arr_delay int",
    },
    function=by_route,
    sink="parquet",
    place=str(Path(__file__).parent / "routes-table"),
    name="routes",
)
