"""The failures of a pipeline, and whether a retry may succeed.

Classes and conditions decide that, never a text of Spark: for a Java exception its class and base
classes, for an exception of Spark its condition (`getCondition`), for an exception of a worker the
Python class at the end of its traceback. A failure that is in no table is permanent.
"""

from __future__ import annotations

import builtins
import importlib
import re
from typing import TYPE_CHECKING, Any

from krust.errors import KafkaError, KrustError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSES = (KafkaError, UnreachableError, EOFError, OSError)
"""Python classes of temporary failures. A permanent refusal leaves a worker as a PlanError."""
LASTS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Subclasses of them that are permanent."""
RACES = frozenset({"CommitFailedError", "CommitFailedException", "CommitStateUnknownException"})
"""Exceptions of deltalake and pyiceberg: another writer was faster. A retry is safe."""
JAVA_PASSES = ("java.io.IOException", "java.util.concurrent.TimeoutException")
JAVA_LASTS = ("java.io.FileNotFoundException", "java.nio.file.FileSystemException")
AROUND = frozenset({"STREAM_FAILED", "JOB_ABORTED", "FAILED_EXECUTE_UDF", "INTERNAL_ERROR"})
"""Conditions whose cause has to be looked at."""
PYTHON = "org.apache.spark.api.python.PythonException"
_SPARK = "org.apache.spark.SparkException"
_RAISED = re.compile(r"^((?:\w+\.)*\w+): (.+)$", re.MULTILINE)
_DEEP = 20


AGAIN = "--debug shows where; run again, it goes on after the last batch that was published"


class StoppedError(KrustError):
    """A pipeline has ended; the message is the reason."""


def query_error(error: BaseException, what: str = "stopped") -> Exception:
    """The exception that a worker or the driver raised, without Spark's wrappers."""
    if isinstance(error, KrustError):
        return error
    text, name = _error_text(error)
    stopped = StoppedError(
        f"the pipeline {what}: {text}" + (f" ({name})" if name else ""),
        hint=AGAIN if what == "stopped" else "--debug shows where",
    )
    stopped.retriable = passes(error)
    return stopped


def passes(error: BaseException) -> bool:
    """Whether a retry may succeed."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return _class_passes(type(error))
    chain = list(_chain(java))
    for throwable in reversed(chain):
        verdict = _java_passes(throwable)
        if verdict is not None:
            return verdict
    return any(_SPARK in _above(throwable) for throwable in chain)  # executors were lost


def _java_passes(throwable: Any) -> bool | None:
    """Whether the failure of a Java exception is temporary; None: not known."""
    names = _above(throwable)
    if PYTHON in names:
        return _class_passes(_raised(str(throwable.getMessage())))
    if names & set(JAVA_LASTS):
        return False
    if names & set(JAVA_PASSES):
        return True
    condition = _condition(throwable)
    if condition is None or condition in AROUND:
        return None
    if condition.startswith("PYTHON_"):  # a process of a data source raised it
        return _class_passes(_raised(str(throwable.getMessage())))
    return False


def _class_passes(kind: type[BaseException] | None) -> bool:
    if kind is None or issubclass(kind, LASTS):
        return False
    foreign = any(one.__name__ in RACES for one in kind.__mro__)
    return foreign or issubclass(kind, PASSES)


def _chain(java: Any) -> Iterator[Any]:
    """A Java exception and its causes."""
    for _ in range(_DEEP):
        if java is None:
            return
        yield java
        java = java.getCause()


def _above(throwable: Any) -> set[str]:
    """The names of its class and base classes."""
    names: set[str] = set()
    kind = throwable.getClass()
    while kind is not None and len(names) < _DEEP:
        names.add(str(kind.getName()))
        kind = kind.getSuperclass()
    return names


def _condition(throwable: Any) -> str | None:
    """Spark's condition (before 4.0: error class); None: it has none."""
    kinds = {str(method.getName()) for method in throwable.getClass().getMethods()}
    for name in ("getCondition", "getErrorClass"):
        if name in kinds:
            found = getattr(throwable, name)()
            return None if found is None else str(found)
    return None


def _raised(traceback: str) -> type[BaseException] | None:
    """The class at the end of a Python traceback; None: it is unknown."""
    found = _RAISED.findall(traceback)
    if not found:
        return None
    module, _, name = found[-1][0].rpartition(".")
    try:
        place = importlib.import_module(module) if module.startswith("krust.") else builtins
    except ImportError:
        return None
    kind = getattr(place, name, None) if not module or module.startswith("krust.") else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def _error_text(error: BaseException) -> tuple[str, str]:
    """The text for people: Python's exception if there is one, else the first line."""
    found = [each for each in _RAISED.findall(str(error)) if _is_error(each[0])]
    if found:
        return found[-1][1], found[-1][0].rpartition(".")[2]
    return str(error).strip().partition("\n")[0], type(error).__name__


def _is_error(name: str) -> bool:
    return name.endswith(("Error", "Exception"))
