"""Where Spark finds `format("krust")`: it imports every top-level module named `pyspark_*`.

One of them that raises hides the formats of all the others. So nothing is raised here: what is
wrong with the installation is said by the format, when it is used.
"""

__all__ = ["DefaultSource"]

try:
    try:
        from krust.spark.source import KrustDataSource as DefaultSource
    except Exception as error:
        from pyspark.sql.datasource import DataSource

        _reason = f"krust is installed, but its Spark source cannot be loaded: {error!r}"

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """Says why there is no source."""

            reason = _reason

            @classmethod
            def name(cls) -> str:
                """What stands in `format(...)`."""
                return "krust"

            def _fail(self, *_: object, **__: object) -> None:
                raise ImportError(self.reason)

            schema = reader = streamReader = writer = streamWriter = _fail  # noqa: N815 (Spark's names)

except Exception:  # noqa: S110 (no pyspark of 4.0 or newer: nobody asks for a format)
    pass
