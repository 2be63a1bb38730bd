"""A broker with its metadata in a real ZooKeeper: its znodes, and its identity over restarts."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient

import krust
from krust._krust import Client
from krust.config import load
from krust.controller import scram
from krust.errors import ConfigError, KafkaError, ServerError
from krust.metadata import znodes
from krust.metadata.contents import BrokerRegistration
from krust.metadata.ensemble import Credentials, Ensemble
from krust.metadata.zookeeper import end_session
from krust.runtime import identity, metadata
from tests.peers import kafka
from tests.peers import zookeeper as peer
from tests.peers.absent import AbsentError
from tests.serving import NotReadyError, ServedBroker
from tests.waiting import WAIT_S, until, until_is

pytestmark = pytest.mark.java

KAFKA = json.loads((Path(__file__).parents[2] / "data/znodes-3.9.1.json").read_text())
THROTTLING_QUOTA_EXCEEDED = 89
FOREIGN = ("/kafka-acl", "/brokers/topics/__consumer_offsets", "/config/topics/__consumer_offsets")


@pytest.fixture
def connect(zookeeper: peer.Ensemble) -> str:
    return f"{zookeeper.connect}/kafka/{uuid.uuid4().hex}"


@pytest.fixture
def tree(connect: str) -> Iterator[KazooClient]:
    """Somebody else who looks at the same tree."""
    client = KazooClient(connect)
    client.start_async().wait(WAIT_S)
    yield client
    client.stop()
    client.close()


def served(folder: Path, connect: str, node_id: int = 7, **more: object) -> ServedBroker:
    options = {"zookeeper.session.timeout.ms": peer.LONG_MS, **more}
    flags = ("--zookeeper", connect, "--node-id", str(node_id))
    return ServedBroker(folder, *flags, options=options)


def create(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): text for key, text in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(WAIT_S)


def produce(bootstrap: str, topic: str, *values: str, **config: Any) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


def nodes(tree: KazooClient, path: str = "/") -> dict[str, tuple[str, bool]]:
    data, stat = tree.get(path)
    found = {path: ((data or b"").decode(), stat.ephemeralOwner != 0)}
    for name in tree.get_children(path):
        found |= nodes(tree, f"{path.rstrip('/')}/{name}")
    return found


def test_the_tree_equals_what_kafka_would_have_written(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    broker = served(tmp_path / "data", connect, node_id=0)
    create(broker.bootstrap, "orders", 3, max_message_bytes="2000000")
    create(broker.bootstrap, "gone")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(WAIT_S)
    produce(broker.bootstrap, "orders", "x", **{"enable.idempotence": True})
    ours = nodes(tree)
    for path, node in KAFKA.items():
        if path.startswith(FOREIGN) or path.startswith("/config/changes/"):
            continue
        data, ephemeral = ours.pop(path)
        assert ephemeral == node["ephemeral"], path
        if (node["data"] or "").startswith("{"):
            keys = [key for key in json.loads(data) if key != "krust"]
            assert keys == list(json.loads(node["data"])), path
    assert not [path for path in ours if not path.startswith("/config/changes/")]
    admin.create_partitions([NewPartitions("orders", 5)])["orders"].result(WAIT_S)
    assert len(tree.get_children("/brokers/topics/orders/partitions")) == 5
    assert broker.stop() == 0
    assert tree.get_children("/brokers/ids") == []
    assert tree.exists("/controller") is None


def test_kafkas_zookeeper_shell_reads_a_broker(tmp_path: Path, connect: str) -> None:
    broker = served(tmp_path / "data", connect)
    hosts, _, chroot = connect.partition("/")
    try:
        jars = kafka.jars("3.9.1")
    except AbsentError as error:
        pytest.skip(str(error))
    shell = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
    run = subprocess.run(
        ["java", "-cp", f"{jars}/*", shell, "-server", hosts, "get", f"/{chroot}/brokers/ids/7"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (line,) = (each for each in run.stdout.splitlines() if each.startswith("{"))
    (endpoint,) = BrokerRegistration.decode(line.encode()).endpoints
    assert endpoint.port == broker.address[1]
    broker.stop()


def test_a_killed_broker_restarts_before_its_session_ends_with_its_state(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    broker = served(tmp_path / "data", connect, **{"zookeeper.session.timeout.ms": peer.MOST_MS})
    create(broker.bootstrap, "kept", 2)
    produce(broker.bootstrap, "kept", "a", "b")
    before = tree.exists("/brokers/ids/7").czxid
    broker.kill()
    assert tree.exists("/brokers/ids/7") is not None
    again = served(tmp_path / "data", connect)
    assert tree.exists("/brokers/ids/7").czxid > before
    assert again.ready["cluster_id"] == broker.ready["cluster_id"]
    produce(again.bootstrap, "kept", "c")
    assert (tmp_path / "data/krust-session.json").stat().st_mode & 0o777 == 0o600
    again.stop()
    assert not (tmp_path / "data/krust-session.json").exists()


def test_a_broker_registers_again_after_its_session_expired(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    broker = served(tmp_path / "data", connect)
    create(broker.bootstrap, "before")
    first = tree.exists("/brokers/ids/7")
    epoch = int(tree.get("/controller_epoch")[0])
    session = json.loads((tmp_path / "data/krust-session.json").read_text())
    credentials = Credentials(session["session"], bytes.fromhex(session["password"]))
    assert end_session(Ensemble(connect), credentials)
    produce(broker.bootstrap, "before", "meanwhile")
    second = until(lambda: tree.exists("/brokers/ids/7"))
    assert second.czxid > first.czxid
    assert second.ephemeralOwner != first.ephemeralOwner
    until_is(epoch + 1, lambda: int(tree.get("/controller_epoch")[0]))
    until(lambda: _creates(broker.bootstrap, "after"))
    kept = json.loads((tmp_path / "data/krust-session.json").read_text())
    assert kept["session"] == second.ephemeralOwner
    assert broker.stop() == 0


def _creates(bootstrap: str, name: str) -> bool:
    try:
        create(bootstrap, name)
    except KafkaException as error:
        return "ALREADY_EXISTS" in str(error)
    return True


def test_a_broker_id_in_use_prevents_the_start(tmp_path: Path, connect: str) -> None:
    broker = served(tmp_path / "one", connect)
    with pytest.raises(NotReadyError) as raised:
        served(tmp_path / "two", connect)
    assert raised.value.code == 3
    port = broker.address[1]
    taken = f"broker id 7 is taken in this cluster by the one at 127.0.0.1:{port}"
    assert taken in raised.value.stderr
    broker.stop()


def test_a_broker_without_an_id_gets_one_and_keeps_it(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    config = load(options={"zookeeper.connect": connect, "reserved.broker.max.id": 6})
    assert [identity.node_id(config, [tmp_path]) for _ in range(2)] == [7, 8]
    assert not tree.get("/brokers/seqid")[0]
    with krust.Broker(tmp_path / "data", config={"zookeeper.connect": connect}) as broker:
        assert broker.node_id == 1003
    with krust.Broker(tmp_path / "data", config={"zookeeper.connect": connect}) as broker:
        assert broker.node_id == 1003
        assert tree.get_children("/brokers/ids") == ["1003"]
    assert tree.exists("/brokers/seqid").version == 3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"broker.id": 1001}, "numbers above 1000 are given"),
        ({"broker.id.generation.enable": "false"}, "broker.id is not set"),
    ],
)
def test_an_invalid_broker_id_is_refused(
    tmp_path: Path, settings: dict[str, object], why: str
) -> None:
    config = load(options={"zookeeper.connect": "127.0.0.1:1", **settings})
    with pytest.raises(ConfigError, match=why):
        identity.node_id(config, [tmp_path])


def test_a_second_broker_joins_and_the_controller_stays(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    first = served(tmp_path / "one", connect)
    second = served(tmp_path / "two", connect, node_id=8)
    assert sorted(tree.get_children("/brokers/ids")) == ["7", "8"]
    assert json.loads(tree.get("/controller")[0])["brokerid"] == 7
    assert second.stop() == 0
    assert tree.get_children("/brokers/ids") == ["7"]
    assert first.stop() == 0


def test_nodes_without_data_have_none_because_kafka_would_read_empty_data_as_damage(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    with served(tmp_path / "data", connect):
        for path in (znodes.PRODUCER_IDS, "/config/users", "/consumers"):
            assert tree.get(path)[0] is None, path


def test_quotas_that_kafka_wrote_are_read_and_passwords_beside_them_stay(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    hosts, _, chroot = connect.partition("/")
    above = KazooClient(hosts)
    above.start_async().wait(WAIT_S)
    above.ensure_path(f"/{chroot}")
    above.stop()
    above.close()
    salted = scram.salted_password("SCRAM-SHA-256", "secret", b"salt", 4096)
    credential = scram.of_salted_password("SCRAM-SHA-256", b"salt", salted, 4096).text
    config = {"consumer_byte_rate": "1024", "SCRAM-SHA-256": credential}
    quota, left = (
        json.dumps({"version": 1, "config": each}, separators=(",", ":")).encode()
        for each in (config, {"SCRAM-SHA-256": credential})
    )
    kept = ("clients/app", "users/carl%20x", "users/carl%20x/clients/app")
    for entity in kept:
        tree.create(f"/config/{entity}", quota, makepath=True)
    with served(tmp_path / "data", connect) as broker:
        client = Client(broker.bootstrap)
        for entity in kept:
            change = json.dumps({"version": 2, "entity_path": entity}).encode()
            tree.create("/config/changes/config_change_", change, sequence=True)
        everything = {"components": [], "strict": False}
        said = client.request("DescribeClientQuotas", everything)["entries"]
        values = [{"key": "consumer_byte_rate", "value": 1024.0}]
        assert [each["values"] for each in said] == [values] * len(kept)
        carl = [{"entity_type": "user", "entity_name": "carl x"}]
        ops = [{"key": "consumer_byte_rate", "value": 0.0, "remove": True}]
        entries = {"entries": [{"entity": carl, "ops": ops}], "validate_only": False}
        [done] = client.request("AlterClientQuotas", entries)["entries"]
        assert done["error_code"] == 0
        slow = b'{"version":1,"config":{"controller_mutation_rate":"1.0E-3"}}'
        tree.create("/config/clients/slow", slow)
        change = b'{"version":2,"entity_path":"clients/slow"}'
        tree.create("/config/changes/config_change_", change, sequence=True)
        slow_client = Client(broker.bootstrap, {"client.id": "slow"})
        numbers = count()
        code = until(lambda: _made(slow_client, f"topic-{next(numbers)}"))
        assert code == THROTTLING_QUOTA_EXCEEDED
    assert [tree.get(f"/config/{entity}")[0] for entity in kept] == [quota, left, quota]
    changes = {
        tree.get(f"/config/changes/{name}")[0] for name in tree.get_children("/config/changes")
    }
    assert b'{"version":2,"entity_path":"users/carl%20x"}' in changes
    assert "passed over" not in broker.stderr()


def _made(client: Client, name: str) -> int:
    request = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    body = {"topics": [{"name": name, **request}], "timeout_ms": 9000, "validate_only": False}
    return int(client.request("CreateTopics", body)["topics"][0]["error_code"])


def test_offsets_of_the_oldest_consumers_are_znodes(
    tmp_path: Path, connect: str, tree: KazooClient
) -> None:
    with served(tmp_path / "data", connect) as broker:
        create(broker.bootstrap, "orders", 3)
        client = Client(broker.bootstrap)
        offsets = [
            {"partition_index": n, "committed_offset": 10 + n, "committed_metadata": ""}
            for n in range(2)
        ]
        body = {"group_id": "g", "topics": [{"name": "orders", "partitions": offsets}]}
        [said] = client.request("OffsetCommit", body, 0)["topics"]
        assert [each["error_code"] for each in said["partitions"]] == [0, 0]
        folder = "/consumers/g/offsets/orders"
        assert [tree.get(f"{folder}/{n}")[0] for n in range(2)] == [b"10", b"11"]
        tree.set(f"{folder}/0", b"77")
        tree.create(f"{folder}/2", b"a few")
        asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0, 1, 2]}]}
        [found] = client.request("OffsetFetch", asked, 0)["topics"]
        committed = [(each["committed_offset"], each["error_code"]) for each in found["partitions"]]
        assert committed == [(77, 0), (11, 0), (-1, -1)]


def test_without_zookeeper_records_flow_and_metadata_does_not_change(tmp_path: Path) -> None:
    with peer.running(tmp_path / "zk") as ensemble:
        session = {"zookeeper.session.timeout.ms": 10_000}
        broker = served(tmp_path / "data", f"{ensemble.connect}/k", **session)
        create(broker.bootstrap, "t")
        back = broker.stderr().count("back in the cluster")
        ensemble.leader.kill()
        until(lambda: "no connection to ZooKeeper" in broker.stderr())
        produce(broker.bootstrap, "t", "a", "b", "c")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        refused = admin.create_topics([NewTopic("late", 1, 1)], request_timeout=3)["late"]
        with pytest.raises(KafkaException):
            refused.result(WAIT_S)
        until(lambda: "silent for as long as a session lasts" in broker.stderr())
        produce(broker.bootstrap, "t", "d")
        ensemble.leader.start()
        until(lambda: broker.stderr().count("back in the cluster") > back)
        produce(broker.bootstrap, "t", "e")
        until(lambda: _creates(broker.bootstrap, "late"))
        assert broker.stop() == 0


def test_an_unreachable_zookeeper_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="no ZooKeeper answers at 127") as e:
        served(tmp_path / "data", "127.0.0.1:1", **{"zookeeper.connection.timeout.ms": 200})
    assert e.value.code == 3
    assert "127.0.0.1:1 within 0.2 s" in e.value.stderr
    assert "Traceback" not in e.value.stderr


def test_a_directory_of_another_cluster_is_refused(
    tmp_path: Path, connect: str, zookeeper: peer.Ensemble
) -> None:
    other = f"{zookeeper.connect}/other/{uuid.uuid4().hex}"
    served(tmp_path / "data", connect).stop()
    served(tmp_path / "another", other).stop()
    with pytest.raises(NotReadyError, match="the directory belongs to cluster"):
        served(tmp_path / "data", other)


def test_a_broker_in_this_process_can_live_in_zookeeper(connect: str, tree: KazooClient) -> None:
    with krust.Broker(config={"zookeeper.connect": connect}) as broker:
        broker.create_topic("here", 2)
        with pytest.raises(KafkaError):
            broker.create_topic("here")
        assert sorted(tree.get_children("/brokers/topics")) == ["here"]
        broker.delete_topic("here")
        assert tree.get_children(znodes.TOPICS) == []


def test_a_missing_kazoo_is_reported_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "krust.metadata.zookeeper", None)
    config = load(options={"zookeeper.connect": "localhost:2181"})
    with pytest.raises(ConfigError, match="no kazoo") as raised:
        metadata.open_metadata(config, (), lambda: None)
    assert ".[cluster]" in str(raised.value.hint)


def test_an_unreadable_session_file_is_ignored(tmp_path: Path, connect: str) -> None:
    (tmp_path / metadata.SESSION).write_text("{")
    config = load(
        options={"zookeeper.connect": connect, "zookeeper.session.timeout.ms": peer.LONG_MS}
    )
    opened = metadata.open_metadata(config, [tmp_path], lambda: None)
    assert opened.store.session == json.loads((tmp_path / metadata.SESSION).read_text())["session"]
    opened.close()


def test_a_session_file_that_cannot_be_written_is_one_error(tmp_path: Path, connect: str) -> None:
    config = load(
        options={"zookeeper.connect": connect, "zookeeper.session.timeout.ms": peer.LONG_MS}
    )
    with pytest.raises(ServerError, match="cannot write"):
        metadata.open_metadata(config, [tmp_path / "nowhere"], lambda: None)
