"""`krust.spark.register(spark)`: the format in a session, said in so many words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.spark.source import KrustDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, filter_pushdown: bool = True) -> None:
    """Make `format("krust")` known to a session.

    Spark looks for formats with the Python that `PYSPARK_PYTHON` names, else `python3` of the
    path; in an environment that is not activated it finds nothing, and says so. This needs no
    looking.

    filter_pushdown  let Spark hand filters to Python sources (4.1 and newer), as the option
                     `filterPushdown` needs
    """
    spark.dataSource.register(KrustDataSource)
    if filter_pushdown and not spark.version.startswith("4.0"):
        spark.conf.set(PUSHDOWN, "true")
