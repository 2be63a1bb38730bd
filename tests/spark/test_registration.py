"""Spark finds `format("krust")`, and no other package loses its format."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_wheel_has_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    there = {path.parent.name for path in (ROOT / "python").glob("*/__init__.py")}
    assert set(project["tool"]["maturin"]["python-packages"]) == there


def test_the_source_can_be_registered_explicitly(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    import krust.spark
    from krust.spark.session import PUSHDOWN

    session = spark.newSession()
    krust.spark.register(session)
    try:
        assert session.conf.get(PUSHDOWN) == "true"
        reader = session.read.format("krust").option("kafka.bootstrap.servers", bootstrap)
        assert reader.option("subscribe", topic).load().count() == 0
    finally:
        session.conf.unset(PUSHDOWN)


def test_the_source_is_pickled_by_reference() -> None:
    pytest.importorskip("pyspark")
    from pyspark.cloudpickle import dumps

    import pyspark_krust
    from krust.spark.source import KrustDataSource

    assert pyspark_krust.DefaultSource is KrustDataSource
    assert len(dumps(KrustDataSource)) < 200
    assert pickle.loads(dumps(KrustDataSource)) is KrustDataSource


def test_looking_up_formats_loads_no_native_module() -> None:
    """Every process that plans a query pays for what is imported."""
    pytest.importorskip("pyspark")
    code = "import sys, pyspark_krust; print({'krust._krust', 'pyarrow'} & set(sys.modules))"
    assert python(code) == "set()"


def test_a_broken_installation_raises_when_the_source_is_used() -> None:
    pytest.importorskip("pyspark")
    code = (
        "import sys; sys.modules['krust.spark.source'] = None\n"
        "from pyspark_krust import DefaultSource as D\n"
        "from pyspark.sql.datasource import DataSource\n"
        "assert issubclass(D, DataSource) and D.name() == 'krust'\n"
        "for call in ('schema', 'reader', 'writer', 'streamReader', 'streamWriter'):\n"
        "    try: getattr(D({}), call)()\n"
        "    except ImportError as error: print(error)\n"
    )
    assert python(code).count("its Spark source cannot be loaded: ModuleNotFoundError") == 5


def test_the_package_imports_without_pyspark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyspark.sql'] = None\n"
        "import pyspark_krust; print(hasattr(pyspark_krust, 'DefaultSource'))"
    )
    assert python(code) == "False"
