"""kafka-python's own integration tests, from its source distribution.

The sdist lacks the fixtures that start brokers; `test/service.py` below stands in for them with a
broker that runs already. Left out: TLS and SASL, which the listener of this run does not have, and
DescribeQuorum, which is KRaft's.

A test that fails is run again, TRIES times in all: a consumer of this version that subscribes while
it bootstraps often never asks any broker for its topic, and waits until the test is out of time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conformance.outcomes import from_junit

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "3.0.12"
SETTINGS = {"group.min.session.timeout.ms": "1000", "num.partitions": "4"}
NEEDS: tuple[str, ...] = ()
REQUIREMENTS = (
    f"kafka-python=={VERSION}",
    "pytest",
    "pytest-timeout",
    "pytest-mock",
    "py",
    "lz4",
    "zstandard",
    "python-snappy",
    "crc32c",
    "xxhash",
)
TAKEN_FOR = "4.3.0"  # what this client takes krust for, by the versions that it offers
CHOICE = "not SCRAM and not PLAIN and not metadata_quorum"
TRIES = 5
ONE_BROKER = (
    # It looks for its topic's only replica on the first broker.
    "test/integration/test_admin_integration.py::test_alter_replica_log_dirs",
    # It wants every partition's records from one poll; several brokers answer one after the other.
    "test/integration/test_admin_integration.py::test_delete_records",
)
ZOOKEEPERS = "test_describe_configs_broker_resource"  # for 4.x it wants what KRaft answers
SERVICE = '''"""A broker that runs already, in the place of one that the suite starts."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self): ...
    def close(self): ...
    def stop(self): ...
    def dump_logs(self): ...
    def wait_for(self, *args, **kwargs): ...


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("this run has one broker, started outside")
'''


def prepare(cache: Path) -> None:
    """Fetch and unpack the sdist, and make a virtual environment for it."""
    python = cache / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(cache / "venv")], check=True)
    pip = [str(python), "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *REQUIREMENTS], check=True)
    download = ["download", "--no-binary", ":all:", "--no-deps", "-d", str(cache)]
    subprocess.run([*pip, *download, f"kafka-python=={VERSION}"], check=True)
    sdist = next(cache.glob("kafka_python-*.tar.gz"))
    subprocess.run(["tar", "xzf", str(sdist), "-C", str(cache)], check=True)
    tests = _source(cache) / "test"
    (tests / "__init__.py").touch()
    (tests / "service.py").write_text(SERVICE)


def run(cache: Path, bootstrap: str) -> dict[str, bool]:
    """Run `test/integration`; test ids as pytest prints them."""
    whole = ("test/integration", "--deselect", "test/integration/test_ssl_integration.py")
    outcomes = _pytest(cache, bootstrap, TAKEN_FOR, *whole, "-k", f"{CHOICE} and not {ZOOKEEPERS}")
    for _ in range(1, TRIES):
        if failed := [test for test, passed in outcomes.items() if not passed]:
            outcomes |= _pytest(cache, bootstrap, TAKEN_FOR, *failed)
    return outcomes | _pytest(cache, bootstrap, "3.9.0", *whole, "-k", ZOOKEEPERS)


def _pytest(cache: Path, bootstrap: str, version: str, *chosen: str) -> dict[str, bool]:
    report = cache / "report.xml"
    command = [str(cache / "venv/bin/python"), "-m", "pytest", *chosen, "-q"]
    # A test that is out of time fails alone; the suite's own way ends the whole run.
    command += ["--timeout", "60", "--timeout-method=signal"]
    command += [f"--junit-xml={report}", "-o", "junit_family=xunit1"]
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": version,
        "KAFKA_ROOT": str(cache),
    }
    report.unlink(missing_ok=True)  # an older run's would be taken for this one's
    subprocess.run(command, cwd=_source(cache), env=environment, check=False)
    return from_junit(report)


def _source(cache: Path) -> Path:
    return cache / f"kafka_python-{VERSION}"
