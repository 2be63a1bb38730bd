"""Partitions of a failed log directory have no leader until the directory is back."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.brokers import Cluster
from tests.faults.test_disk import produce
from tests.peers.zookeeper import LONG_MS
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

NOTICES = "/log_dir_event_notification"


def test_the_controller_leaves_partitions_of_a_failed_log_directory_without_a_leader(
    three: Cluster, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    options = {"log.dirs": f"{one},{two}", "zookeeper.session.timeout.ms": LONG_MS}

    def serve() -> ServedBroker:
        return ServedBroker(
            one, "--zookeeper", three.connect, "--node-id", "4", options=dict(options)
        )

    def leaders() -> dict[str, int]:
        path = "/brokers/topics/{}/partitions/0/state"
        data = {each: three.tree.get(path.format(each))[0] for each in ("disk-a", "disk-b")}
        return {name: json.loads(text)["leader"] for name, text in data.items()}

    def notices() -> int:
        return int(three.tree.get(NOTICES)[1].cversion)

    admin = AdminClient({"bootstrap.servers": three.bootstrap()})
    with serve() as broker:
        until(lambda: 4 in [each["node_id"] for each in three.view(three.controller)["brokers"]])
        for name in ("disk-a", "disk-b"):
            new = NewTopic(name, num_partitions=1, replica_assignment=[[4]])
            admin.create_topics([new])[name].result(WAIT_S)
            while produce(broker.bootstrap, name, b"kept"):  # until the broker knows that it leads
                pass
        assert broker.stop() == 0
    (lost,) = (path.name.removesuffix("-0") for path in two.glob("disk-*"))
    (kept,) = {"disk-a", "disk-b"} - {lost}
    two.rename(tmp_path / "away")
    two.write_text("a file where a directory should be")
    before = notices()
    with serve() as broker:
        until(lambda: notices() >= before + 2)  # made by the broker, taken away by the controller
        until(lambda: leaders() == {lost: -1, kept: 4})
        assert broker.stop() == 0
    two.unlink()
    (tmp_path / "away").rename(two)
    with serve():
        until(lambda: leaders() == {lost: 4, kept: 4})
        for name, outcome in admin.delete_topics([lost, kept]).items():
            assert outcome.result(WAIT_S) is None, name
