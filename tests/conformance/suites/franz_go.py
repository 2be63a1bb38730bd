"""franz-go's client tests (`pkg/kgo`), built out of Go's module cache.

Left out: the tests of share groups, until krust serves those.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from krust._krust import Client
from tests.conformance.broker import REPLICAS
from tests.conformance.outcomes import from_go

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.0"
SETTINGS: dict[str, str] = {}
NEEDS = ("go",)
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
    "TestTxnEtl",
    "TestUnknownGroupOffsetFetchPinned",
)


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
    build = ["go", "test", "-c", "-o", "kgo.test", "."]
    subprocess.run(build, cwd=source / "pkg/kgo", check=True)


def run(cache: Path, bootstrap: str) -> dict[str, bool]:
    """Run the tests; their topics have a replica on each broker."""
    brokers = len(Client(bootstrap).request("Metadata", {"topics": []})["brokers"])
    environment = {
        **os.environ,
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": str(min(brokers, REPLICAS)),
        "KGO_TEST_RECORDS": "5000",
        "KGO_LOG_LEVEL": "none",
    }
    command = ["./kgo.test", "-test.v", "-test.timeout", "9m"]
    command += ["-test.run", f"^({'|'.join(TESTS)})$"]
    folder = cache / "kgo/pkg/kgo"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    outcomes = from_go(done.stdout)
    for name, passed in outcomes.items():
        if not passed:
            print(f"{name} failed:\n{done.stdout[-4000:]}")
    return outcomes
