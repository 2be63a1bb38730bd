"""franz-go's client tests (`pkg/kgo`), built out of Go's module cache.

Its tests log in by SCRAM only in two of them; LOGIN has the clients of all do so where the listener
asks for it. Left out: the tests of share groups, until krust serves those.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from krust._krust import Client
from tests.conformance.access import MECHANISM, PASSWORD, USER
from tests.conformance.broker import REPLICAS
from tests.conformance.outcomes import from_go

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.access import Access

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.0"
SETTINGS: dict[str, str] = {}
NEEDS = ("go",)
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
NO_TLS = ("TestIssue769",)  # it connects by its own hand
TESTS = (
    "Test848RegexBrokerResolves",
    "TestAddRemovePartitions",
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestConsumeMaxDecompressBatchBytes",
    "TestConsumeRegex",
    "TestConsumeTopicRetrieval",
    "TestConsumeTopicRetrieval_Many",
    "TestDirectPartitionPurge",
    "TestGroupETL",
    "TestGroupSimple",
    "TestHookPollStart",
    "TestIssue1034",
    "TestIssue325",
    "TestIssue337",
    "TestIssue434",
    "TestIssue523",
    "TestIssue648",
    "TestIssue769",
    "TestIssue810",
    "TestIssue831",
    "TestIssue865",
    "TestIssueFetchLargerThanBrokerMaxReadBytes",
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
    "TestPauseIssue489",
    "TestPauseIssueOct2023",
    "TestPing",
    "TestPooling",
    "TestSCRAMAuth",
    "TestSCRAMAuthBadCredentials",
    "TestTxnEtl",
    "TestUnknownGroupOffsetFetchPinned",
)

BEFORE = """	if testCert != nil {
		opts = append(opts, DialTLSConfig(testCert))
"""
LOGIN = """	if os.Getenv("KGO_TEST_LOGIN") != "" {
		opts = append(opts, SASL(saslScram))
	}
"""


def prepare(cache: Path) -> None:
    """Download the module and build its test binary."""
    source = cache / "kgo"
    if source.exists():
        shutil.rmtree(source)
    listed = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"],
        cwd=cache,
        capture_output=True,
        check=True,
    )
    shutil.copytree(json.loads(listed.stdout)["Dir"], source)
    subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
    options = source / "pkg/kgo/helpers_test.go"
    text = options.read_text()
    assert text.count(BEFORE) == 1
    options.write_text(text.replace(BEFORE, LOGIN + BEFORE))
    build = ["go", "test", "-c", "-o", "kgo.test", "."]
    subprocess.run(build, cwd=source / "pkg/kgo", check=True)


def run(cache: Path, access: Access) -> dict[str, bool]:
    """Run the tests; their topics have a replica on each broker."""
    brokers = len(Client(access.at["PLAINTEXT"]).request("Metadata", {"topics": []})["brokers"])
    environment = {
        **os.environ,
        "KGO_SEEDS": access.bootstrap,
        "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:{MECHANISM.rpartition('-')[2]}",
        "KGO_TEST_SCRAM_SEEDS": access.at["SASL_PLAINTEXT"],
        "KGO_TEST_RF": str(min(brokers, REPLICAS)),
        "KGO_TEST_RECORDS": "5000",
        "KGO_LOG_LEVEL": "none",
    }
    if access.has_logins:
        environment["KGO_TEST_LOGIN"] = "1"
    if access.is_encrypted:
        environment["KGO_TEST_TLS"] = f"ca:{access.authority}"
    tests = [test for test in TESTS if not (access.is_encrypted and test in NO_TLS)]
    command = ["./kgo.test", "-test.v", "-test.timeout", "9m"]
    command += ["-test.run", f"^({'|'.join(tests)})$"]
    folder = cache / "kgo/pkg/kgo"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    outcomes = from_go(done.stdout)
    output = cache / "output"
    output.write_text(f"{done.stdout}\n{done.stderr}")
    for name, passed in outcomes.items():
        if not passed:
            print(f"{name} failed, see {output}")
    return outcomes
