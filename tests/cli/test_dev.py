"""`krust dev`: several brokers, as a user starts them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from krust import Cluster
from krust.cli.exits import Exit
from tests.three_brokers import Command, leader_count
from tests.waiting import WAIT_S, until


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
        details = json.loads(ready.read_text())
        krust = Command(details["bootstrap"])
        krust.ok("produce", "t", given=b"one\ntwo\n")
        until(lambda: leader_count(details["bootstrap"], "t") == 6)
        assert sorted(krust.ok("consume", "t", "-e").out.split()) == [b"one", b"two"]
        cluster = json.loads(krust.ok("cluster", "info", "--output", "json").out)
        assert [broker["node_id"] for broker in cluster["brokers"]] == [0, 1, 2]
        assert sum(broker["leads"] for broker in cluster["brokers"]) == 6
        assert cluster["without_leader"] == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert details["bootstrap"] in process.stderr.read()
    assert not ready.exists()


def test_an_invalid_cluster_is_reported_with_an_exit_code() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("t", 3)
        krust = Command(cluster.bootstrap)
        assert krust.ok("cluster", "health", "--json").json()["problems"] == []
        lost = next(n for n in range(3) if n != cluster.controller)
        partition = next(p for p in range(3) if cluster.leader("t", p) == lost)
        place = f"t:{partition}"
        cluster.kill(lost)
        until(lambda: cluster.leader("t", partition) == -1)
        krust = Command(cluster.bootstrap)
        done = krust("cluster", "health", "--json")
        assert done.code == Exit.PROBLEMS
        found = json.loads(done.out)
        assert (found["healthy"], found["brokers"]) == (False, 2)
        [problem] = found["problems"]
        assert (problem["problem"], problem["subject"]) == ("no leader", place)
        assert problem["detail"] == f"broker {lost} is away: 1 partition has no leader"
        assert place in krust("cluster", "health").text
        assert len(krust.ok("cluster", "brokers", "--json").json()) == 2
