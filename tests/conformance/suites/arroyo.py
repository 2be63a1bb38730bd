"""sentry-arroyo's consumer tests (librdkafka behind Sentry's processing loop), from its sdist.

The sdist lacks `tests/assertions.py`; the one below stands in for it. Where its tests take the
broker's address, they also take what the listener asks for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conformance.outcomes import from_junit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.access import Access

VERSION = "2.48.0"
SETTINGS: dict[str, str] = {}
NEEDS: tuple[str, ...] = ()
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
REQUIREMENTS = (f"sentry-arroyo=={VERSION}", "pytest", "pytest-timeout")
FILES = ("tests/backends/test_kafka.py", "tests/test_kip848_e2e.py")
ADDRESS = '"bootstrap.servers": os.environ.get("DEFAULT_BROKERS"'
SECURITY = '**__import__("json").loads(os.environ["CLIENT_SECURITY"]), '
ASSERTIONS = '''"""What a call gives before and after a block."""

import contextlib


@contextlib.contextmanager
def assert_changes(call, before, after):
    assert call() == before
    yield
    assert call() == after


@contextlib.contextmanager
def assert_does_not_change(call, value):
    assert call() == value
    yield
    assert call() == value
'''


def prepare(cache: Path) -> None:
    """Fetch and unpack the sdist, and make a virtual environment for it."""
    python = cache / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(cache / "venv")], check=True)
    pip = [str(python), "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *REQUIREMENTS], check=True)
    download = ["download", "--no-binary", "sentry-arroyo", "--no-deps", "-d", str(cache)]
    subprocess.run([*pip, *download, f"sentry-arroyo=={VERSION}"], check=True)
    sdist = next(cache.glob("sentry_arroyo-*.tar.gz"))
    subprocess.run(["tar", "xzf", str(sdist), "-C", str(cache)], check=True)
    (_source(cache) / "tests/assertions.py").write_text(ASSERTIONS)
    for name in FILES:
        file = _source(cache) / name
        text = file.read_text()
        assert text.count(ADDRESS) == 1
        file.write_text(text.replace(ADDRESS, SECURITY + ADDRESS))
    (_source(cache) / "pytest.ini").touch()  # otherwise pytest finds the settings of krust's tests


def run(cache: Path, access: Access) -> dict[str, bool]:
    """Run the tests that need a broker; test ids as pytest prints them."""
    report = cache / "report.xml"
    command = [str(cache / "venv/bin/python"), "-m", "pytest", *FILES, "-q", "--timeout", "60"]
    command += [f"--junit-xml={report}", "-o", "junit_family=xunit1"]
    environment = {
        **os.environ,
        "PYTHONPATH": ".",
        "DEFAULT_BROKERS": access.bootstrap,
        "CLIENT_SECURITY": json.dumps(access.librdkafka),
    }
    report.unlink(missing_ok=True)  # an older run's would be taken for this one's
    subprocess.run(command, cwd=_source(cache), env=environment, check=False)
    return from_junit(report)


def _source(cache: Path) -> Path:
    return cache / f"sentry_arroyo-{VERSION}"
