"""A Spark session for the command line, on this machine or a cluster.

The output of Spark and its workers goes to a file, so the terminal shows only the pipeline.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from krust.errors import ConfigError, KrustError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


JAVA = "Java 17 or newer"


class Session(NamedTuple):
    """A Spark session, and whether Ctrl-C was pressed, which Spark would handle badly."""

    spark: SparkSession
    interrupted: threading.Event


def missing() -> str:
    """What Spark needs and is missing; empty: nothing."""
    for package in ("pyspark", "pyarrow", "pandas"):
        if find_spec(package) is None:
            return f"the package {package}"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.access(f"{home}/bin/java", os.X_OK)):
        return JAVA
    return ""


@contextmanager
def session(master: str, folder: Path) -> Iterator[Session]:
    """A session until the end of the `with`. Call it on the main thread; it handles Ctrl-C.

    master  `local[2]`, `spark://host:7077`, ...
    folder  for Spark's log, `spark.log`; workers of a cluster write theirs on their machines
    raises  ConfigError: a package or Java is missing; KrustError: it does not start
    """
    lacking = missing()
    if lacking:
        if lacking == JAVA:
            raise ConfigError(
                f"Spark needs {JAVA}", hint="Debian: apt install openjdk-17-jre-headless"
            )
        raise ConfigError(
            f"a pipeline runs on Spark, and {lacking} is not here",
            hint="from the checkout: pip install '.[spark,tables]'",
        )
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "spark.log"
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would log failures a second time
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("krust pipeline")
    for name, value in _settings(master, folder).items():
        builder = builder.config(name, value)
    try:
        with _into(log):
            made = builder.getOrCreate()
    except Exception as error:
        raise KrustError(
            f"Spark does not start at {master}: {str(error).partition(chr(10))[0]}",
            hint=f"its own words are in {log}",
        ) from error
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: _interrupt(interrupted))
    try:
        yield Session(made, interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
        made.stop()


def _interrupt(interrupted: threading.Event) -> None:
    """The first Ctrl-C ends the run cleanly, the second one at once."""
    if interrupted.is_set():
        raise KeyboardInterrupt
    interrupted.set()


def _settings(master: str, folder: Path) -> dict[str, str]:
    """The settings of a session beside those of spark-defaults.conf."""
    quiet = folder / "log4j2.properties"
    quiet.write_text(_LOG4J)
    found = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{quiet}",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        found |= {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
        found |= {"spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "4"}
    return found


@contextmanager
def _into(log: Path) -> Iterator[None]:
    """Use a file as the standard error of processes that are started inside."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
