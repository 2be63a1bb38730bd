"""`krust dev`: several brokers, as a user starts them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.conftest import Command


def test_three_brokers_are_a_cluster_until_ctrl_c(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "krust", "dev", "-n", "3", "--port", "0"]
    with subprocess.Popen(
        [*command, "--ready-file", str(ready), "-o", "num.partitions=6"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.01)
        facts = json.loads(ready.read_text())
        krust = Command(facts["bootstrap"])
        krust.ok("produce", "t", given=b"one\ntwo\n")
        assert sorted(krust.ok("consume", "t", "-e").out.split()) == [b"one", b"two"]
        cluster = json.loads(krust.ok("cluster", "info", "--output", "json").out)
        assert [broker["node_id"] for broker in cluster["brokers"]] == [0, 1, 2]
        assert sum(broker["leads"] for broker in cluster["brokers"]) == 6
        assert cluster["without_leader"] == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert facts["bootstrap"] in process.stderr.read()
    assert not ready.exists()
