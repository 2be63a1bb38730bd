"""Which failures of a pipeline are retried: decided by class and condition, not by message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from krust.errors import ConfigError, KafkaError, UnreachableError
from krust.spark.dead_letters import BadRecordError
from krust.spark.errors import PlanError
from krust.spark.failures import PYTHON, StoppedError, passes, query_error

EXCEPTION = ("java.lang.Exception", "java.lang.Throwable")
SPARK = ("org.apache.spark.SparkException", *EXCEPTION)
IO = ("java.io.IOException", *EXCEPTION)


@dataclass
class Kind:
    """A class of Java's, by its name and those above it."""

    names: tuple[str, ...]
    methods: tuple[str, ...] = ()

    def getName(self) -> str:  # noqa: N802
        return self.names[0]

    def getSuperclass(self) -> Kind | None:  # noqa: N802
        return Kind(self.names[1:]) if self.names[1:] else None

    def getMethods(self) -> list[Kind]:  # noqa: N802
        return [Kind((name,)) for name in self.methods]


@dataclass
class Java:
    """An exception of Java's."""

    names: tuple[str, ...]
    cause: Java | None = None
    condition: str | None = None
    message: str = "connection reset; please retry"

    def getClass(self) -> Kind:  # noqa: N802
        return Kind(self.names, ("getCondition",) if self.names[0].startswith("org") else ())

    def getCause(self) -> Java | None:  # noqa: N802
        return self.cause

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition

    def getMessage(self) -> str:  # noqa: N802
        return self.message


class Captured(Exception):  # noqa: N818
    """What pyspark raises for it."""

    def __init__(self, origin: Java) -> None:
        super().__init__(origin.message)
        self._origin = origin


def worker(line: str) -> Java:
    text = f"Traceback (most recent call last):\n  File x, line 1\n{line}\n"
    return Java(SPARK, Java((PYTHON, *EXCEPTION), message=text))


@pytest.mark.parametrize(
    ("java", "again"),
    [
        (Java(SPARK), True),  # executors were lost: a job aborted, without a cause
        (Java(SPARK, Java(("java.io.EOFException", *IO))), True),
        (Java(SPARK, Java(("java.io.FileNotFoundException", *IO))), False),
        (Java(SPARK, Java(("java.util.concurrent.TimeoutException", *EXCEPTION))), True),
        (Java(SPARK, condition="PARSE_SYNTAX_ERROR"), False),
        (Java(SPARK, Java(SPARK, condition="DIVIDE_BY_ZERO"), "STREAM_FAILED"), False),
        (Java(SPARK, Java(SPARK), "STREAM_FAILED"), True),
        (Java(("java.lang.NullPointerException", *EXCEPTION)), False),
        (worker("ValueError: connection timed out"), False),
        (worker("ConnectionResetError: reset"), True),
        (worker("krust.errors.UnreachableError: no broker"), True),
        (worker("krust.spark.dead_letters.BadRecordError: no JSON"), False),
        (worker("shop.clean.RetriableError: again"), False),
    ],
)
def test_a_failure_of_spark_is_retried_by_its_class(java: Java, again: bool) -> None:
    assert passes(Captured(java)) is again
    failure: Any = query_error(Captured(java))
    assert isinstance(failure, StoppedError)
    assert failure.retriable is again


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        (UnreachableError, True),
        (KafkaError, True),
        (TimeoutError, True),
        (PermissionError, False),
        (ConfigError, False),
        (BadRecordError, False),
        (PlanError, False),
        (ZeroDivisionError, False),
        (type("CommitFailedError", (Exception,), {}), True),
    ],
)
def test_a_failure_of_python_is_retried_by_its_class(
    kind: type[BaseException], again: bool
) -> None:
    from krust.spark import failures

    assert failures._class_passes(kind) is again


def test_the_error_of_a_worker_is_shown_to_users() -> None:
    text = str(query_error(Captured(worker("ValueError: no such country").cause or Java(SPARK))))
    assert text == "the pipeline stopped: no such country (ValueError)"
