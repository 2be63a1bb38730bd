"""A broker applies the settings of a single group, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner

import krust
from krust._krust import Client
from krust.cli import root
from tests.waiting import until

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def config(bootstrap: str, *words: str) -> str:
    done = CliRunner().invoke(root, ["-b", bootstrap, "config", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def beat(client: Client, member_id: str, epoch: int) -> Any:
    message = {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    client.request("FindCoordinator", {"key_type": 0, "key": "g", "coordinator_keys": ["g"]})

    def answer() -> Any:
        said = client.request("ConsumerGroupHeartbeat", message)
        assert said["error_code"] in (0, 14, 15, 16), said
        return None if said["error_code"] else said

    return until(answer)


def test_a_group_config_sets_the_heartbeat_interval_at_once_and_after_a_restart(
    tmp_path: Path,
) -> None:
    with krust.Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 1)
        client = Client(broker.bootstrap)
        first = beat(client, "m", 0)
        assert first["heartbeat_interval_ms"] == 5000
        config(broker.bootstrap, "set", "--group", "g", f"{HEARTBEAT}=6000", f"{SESSION}=50000")
        later = beat(client, first["member_id"], first["member_epoch"])
        assert later["heartbeat_interval_ms"] == 6000, "of a member that was there before"
    with krust.Broker(data_dir=tmp_path) as broker:
        client = Client(broker.bootstrap)
        shown = config(broker.bootstrap, "show", "--group", "g", "--source").split()
        assert {HEARTBEAT, "6000", SESSION, "50000", "group"} <= set(shown)
        assert beat(client, "new", 0)["heartbeat_interval_ms"] == 6000
        config(broker.bootstrap, "unset", "--group", "g", HEARTBEAT)
        assert config(broker.bootstrap, "get", "--group", "g", HEARTBEAT).strip() == "5000"
        config(broker.bootstrap, "set", "--group", "g2", f"{HEARTBEAT}=7000")
        words = ["-b", broker.bootstrap, "config", "set", "--group", "g", f"{SESSION}=1"]
        refused = CliRunner().invoke(root, words)
        assert refused.exit_code != 0
        assert "must be greater than or equal to group.consumer.min" in str(refused.exception)
        listed = client.request("ListConfigResources", {"resource_types": [32]})
        assert [each["resource_name"] for each in listed["config_resources"]] == ["g", "g2"]
