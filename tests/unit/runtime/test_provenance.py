"""The owner of a directory: krust continues its own directory and takes over Kafka's, and each
command recognises the other's."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import krust
from krust.cli.log_files import metadata_problems
from krust.errors import ServerError
from krust.runtime import metadata
from tests.adopted import unpack

FILES = ("krust-metadata.db", "krust-metadata.journal")


def stopped(folder: Path) -> str:
    """A directory with two topics of a broker that is stopped; its cluster's id."""
    with krust.Broker(folder) as broker:
        broker.create_topic("orders", 3, {"retention.ms": 86_400_000})
        broker.create_topic("other", 1)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for topic, partition in (("orders", 0), ("orders", 2), ("other", 0)):
                producer.produce(topic, b"record", partition=partition)
        return broker.cluster_id


def retention(broker: krust.Broker, topic: str) -> str | None:
    state = broker._running().state
    return state.topics[topic].config.get("retention.ms")


def test_a_missing_metadata_file_is_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = stopped(tmp_path)
    for name in FILES:
        (tmp_path / name).unlink()
        with krust.Broker(tmp_path) as broker:
            assert retention(broker, "orders") == "86400000"
            assert broker.cluster_id == cluster
    assert "recovered the metadata" in caplog.text
    assert "took over" not in caplog.text


def test_a_krust_directory_without_metadata_is_refused_and_can_be_adopted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = stopped(tmp_path)
    for name in FILES:
        (tmp_path / name).unlink()
    with pytest.raises(ServerError, match=r"meta\.properties shows.*all of it is missing") as lost:
        krust.Broker(tmp_path)
    assert "krust serve --adopt" in str(lost.value.hint)
    with caplog.at_level(logging.INFO), krust.Broker(tmp_path, adopt=True) as broker:
        assert broker.cluster_id == cluster
        assert retention(broker, "orders") == "-1"
    assert "took over topic orders: 2 partitions; without a directory, and empty now: 1" in (
        caplog.text
    )
    assert "took over 2 topics with 4 partitions that the metadata did not know" in caplog.text
    assert "retention.ms=-1" in caplog.text
    with krust.Broker(tmp_path) as broker:
        assert broker.topics() == ["orders", "other"]


def test_an_adopted_offsets_topic_has_as_many_partitions_as_before(tmp_path: Path) -> None:
    with krust.Broker(tmp_path) as broker:
        with krust.Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
            broker.create_topic("t", 1)
            consumer.commit({("t", 0): 7})
        assert broker._running().state.topics["__consumer_offsets"]
    written = [path for path in tmp_path.glob("__consumer_offsets-*") if path.is_dir()]
    assert 0 < len(written) < 50
    for name in FILES:
        (tmp_path / name).unlink()
    with krust.Broker(tmp_path, adopt=True) as broker:
        assert len(broker._running().state.topics["__consumer_offsets"].partitions) == 50
        with krust.Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
            assert consumer.committed([("t", 0)]) == {("t", 0): 7}


def test_a_kafka_directory_is_adopted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpack("kafka-3.9.1-clean", tmp_path)
    before = (folder / "meta.properties").read_text()
    with krust.Broker(folder) as broker:
        topics = broker.topics()
    assert topics
    assert "that the metadata did not know" in caplog.text
    assert "quotas" in caplog.text
    assert (folder / "meta.properties").read_text() == f"#krust\n{before}"
    for name in FILES:
        (folder / name).unlink()
    with pytest.raises(ServerError, match="all of it is missing"):
        krust.Broker(folder)


def test_log_verify_finds_damage_of_the_metadata(tmp_path: Path) -> None:
    stopped(tmp_path)
    for name in FILES:
        place = tmp_path / name
        whole = place.read_bytes()
        at = whole.index(b"86400000")
        assert metadata_problems([str(tmp_path)]) == []
        place.write_bytes(whole[:at] + b"9" + whole[at + 1 :])
        (row,) = metadata_problems([str(tmp_path)])
        assert name in str(row["problem"])
        place.write_bytes(whole)


def test_the_second_log_directory_has_a_copy_of_the_metadata(tmp_path: Path) -> None:
    dirs = [tmp_path / "1", tmp_path / "2", tmp_path / "3"]
    config = {"log.dirs": ",".join(map(str, dirs))}
    with krust.Broker(config=config) as broker:
        broker.create_topic("t", 1, {"retention.ms": 5000})
    assert [(each / metadata.JOURNAL).exists() for each in dirs] == [True, True, False]
    for name in FILES:
        (dirs[0] / name).unlink()
    with krust.Broker(config=config) as broker:
        assert retention(broker, "t") == "5000"


def test_serve_refuses_the_directory_of_a_dev_cluster(tmp_path: Path) -> None:
    with krust.Cluster(2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 2)
    with pytest.raises(ServerError, match="is the directory of a `krust dev` cluster") as refused:
        krust.Broker(tmp_path)
    assert f"krust dev -n 2 --data-dir {tmp_path}" in str(refused.value.hint)
    with pytest.raises(ServerError, match="belongs to a broker of the `krust dev` cluster"):
        krust.Broker(tmp_path / "broker-1")
    with krust.Cluster(2, data_dir=tmp_path) as cluster:
        assert cluster.leader("t", 0) >= 0


def test_dev_refuses_the_directory_of_a_broker(tmp_path: Path) -> None:
    stopped(tmp_path)
    with pytest.raises(ServerError, match="is the data directory of one broker") as refused:
        krust.Cluster(2, data_dir=tmp_path)
    assert f"krust serve --data-dir {tmp_path}" in str(refused.value.hint)
    assert not list(tmp_path.glob("broker-*"))


def test_a_dev_cluster_without_its_metadata_is_refused_and_can_be_adopted(tmp_path: Path) -> None:
    with krust.Cluster(2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 2)
    (tmp_path / "krust-cluster.db").unlink()
    with krust.Cluster(2, data_dir=tmp_path) as cluster:
        assert cluster.leader("t", 1) >= 0, "from the second copy"
    for each in tmp_path.glob("krust-cluster.*"):
        each.unlink()
    with pytest.raises(ServerError, match="all of it is missing"):
        krust.Cluster(2, data_dir=tmp_path)
    with krust.Cluster(2, data_dir=tmp_path, adopt=True) as cluster:
        assert cluster.controller >= 0
