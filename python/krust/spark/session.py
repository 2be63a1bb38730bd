"""`krust.spark.register(spark)`: registers the format in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.spark.source import KrustDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, filter_pushdown: bool = True) -> None:
    """Register `format("krust")` in a session.

    Spark searches formats with the Python of `PYSPARK_PYTHON`, else with `python3` of the path. In
    an environment that is not activated it finds none. This call needs no search. filter_pushdown
    let Spark pass filters to Python sources (4.1 and newer), which the option
                     `filterPushdown` needs
    """
    spark.dataSource.register(KrustDataSource)
    if filter_pushdown and not spark.version.startswith("4.0"):
        spark.conf.set(PUSHDOWN, "true")
