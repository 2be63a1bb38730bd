"""kafka-python's own integration tests, from its source distribution.

Its fixtures start brokers of each security protocol; PLUGIN gives them a listener of a broker that
runs already. As for the suite's own brokers, ACLs act and what has none is open. Left out:
DescribeQuorum, which is KRaft's.

A test that fails is run again, TRIES times in all: a consumer of this version that subscribes while
it bootstraps often never asks any broker for its topic, and waits until the test is out of time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conformance.access import MECHANISM
from tests.conformance.outcomes import from_junit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.access import Access

VERSION = "3.0.12"
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "4",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
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
CHOICE = "not metadata_quorum"
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
        raise RuntimeError("this run has brokers that were started outside")
'''
PLUGIN = '''"""Gives fixtures that start a broker a listener of one that runs already."""

import json
import os

from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture

LISTENERS = json.loads(os.environ["KRUST_LISTENERS"])


def instance(cls, broker_id, transport=LISTENERS["protocol"], sasl_mechanism=None, **others):
    if transport.startswith("SASL") and sasl_mechanism is None:
        sasl_mechanism = LISTENERS["mechanism"]
    host, _, port = LISTENERS["at"][transport].rpartition(":")
    chosen = {"transport": transport, "sasl_mechanism": sasl_mechanism}
    found = cls(host, int(port), broker_id, partitions=4, external=True, **chosen)
    found.ssl_dir = LISTENERS["folder"]
    return found


def get_topic_names(self):
    with KafkaAdminClient(**self._enrich_client_params({})) as admin:
        return admin.list_topics()


KafkaFixture.instance = classmethod(instance)
KafkaFixture.get_topic_names = get_topic_names
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


def run(cache: Path, access: Access) -> dict[str, bool]:
    """Run `test/integration`; test ids as pytest prints them."""
    (_source(cache) / "krust_listeners.py").write_text(PLUGIN)
    shutil.copy(access.authority, cache / "ca-cert")
    whole = "test/integration"
    chosen = f"{CHOICE} and not {ZOOKEEPERS}"
    outcomes = _pytest(cache, access, TAKEN_FOR, whole, "-k", chosen)
    for _ in range(1, TRIES):
        if failed := [test for test, passed in outcomes.items() if not passed]:
            outcomes |= _pytest(cache, access, TAKEN_FOR, *failed)
    return outcomes | _pytest(cache, access, "3.9.0", whole, "-k", ZOOKEEPERS)


def _pytest(cache: Path, access: Access, version: str, *chosen: str) -> dict[str, bool]:
    report = cache / "report.xml"
    command = [str(cache / "venv/bin/python"), "-m", "pytest", *chosen, "-q", "-rs"]
    # A test that is out of time fails alone; the suite's own way ends the whole run.
    command += ["-p", "krust_listeners", "--timeout", "60", "--timeout-method=signal"]
    command += [f"--junit-xml={report}", "-o", "junit_family=xunit1"]
    listeners = {"at": access.at, "protocol": access.protocol}
    listeners |= {"mechanism": MECHANISM, "folder": str(cache)}
    environment = {
        **os.environ,
        "KRUST_LISTENERS": json.dumps(listeners),
        "KAFKA_VERSION": version,
        "KAFKA_ROOT": str(cache),
        "PYTHONPATH": ".",
    }
    report.unlink(missing_ok=True)  # an older run's would be taken for this one's
    subprocess.run(command, cwd=_source(cache), env=environment, check=False)
    return from_junit(report)


def _source(cache: Path) -> Path:
    return cache / f"kafka_python-{VERSION}"
