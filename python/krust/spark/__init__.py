"""`format("krust")`: topics in PySpark 4, batch and stream, source and sink, without a jar.

    spark.read.format("krust").option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders").load()

Spark finds the format by itself if krust is installed (`pyspark_krust`); `register` does it
explicitly. Options, schema and checkpoints are those of Spark's Kafka connector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.spark.listener import KrustListener as KrustListener
    from krust.spark.session import register as register

__all__ = ["KrustListener", "register"]
_HOME = {"KrustListener": "krust.spark.listener", "register": "krust.spark.session"}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562), because planners import this package for each
    query.
    """
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'krust.spark' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
