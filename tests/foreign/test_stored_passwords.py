"""Passwords among the stored settings of a broker: changed while it runs, and kept for its start;
shared with Kafka 3.9.1 by a ZooKeeper (KRUST_KAFKA_CLUSTER=1 starts brokers of it).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kazoo.client import KazooClient

from krust import Admin, Broker, jaas
from krust.errors import Code, ConfigError, KafkaError
from krust.metadata.contents import EntityConfig
from krust.password_encoder import PasswordEncoder
from tests.certificates import Authority
from tests.peers import kafka, tools
from tests.peers import zookeeper as peer
from tests.peers.on_demand import OF_KAFKA
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

STORE = "listener.name.secure.ssl.keystore."
JAAS = "listener.name.secure.plain.sasl.jaas.config"
NAMES = ("first", "second", "third")
CIPHERS = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")
SECRET = "the-encoders-secret"
BASE: dict[str, object] = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "password.encoder.secret": SECRET,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("stored"))
    for name in NAMES:
        made.certify(name, "DNS:localhost")
    return made


def store(authority: Authority, name: str) -> dict[str, str]:
    """The settings of a store, whose password is the name twice."""
    path = authority.pkcs12(name, name * 2)
    return {
        f"{STORE}location": str(path),
        f"{STORE}type": "PKCS12",
        f"{STORE}password": name * 2,
    }


def shown(at: str, authority: Authority) -> str | None:
    """The name in the certificate at an address; None: there is no session."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    host, _, port = at.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), WAIT_S) as stream,
            context.wrap_socket(stream, server_hostname="localhost") as session,
        ):
            encoded = session.getpeercert(binary_form=True) or b""
    except (ssl.SSLError, ConnectionError):
        return None
    return next(name for name in NAMES if f"\x0c{chr(len(name))}{name}".encode() in encoded)


def alter(bootstrap: str, broker: int, settings: Mapping[str, str]) -> None:
    changes = [
        ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
        for name, text in settings.items()
    ]
    node = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([node])[node].result(WAIT_S)


def test_a_broker_alone_uses_a_stored_password_at_once_and_at_its_next_start(
    authority: Authority, tmp_path: Path
) -> None:
    """At the last start nothing but the metadata names a store."""
    settings = {**BASE, "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0"}
    with Broker(tmp_path, config={**settings, **store(authority, "first")}) as broker:
        assert shown(dict(broker.listeners)["SECURE"], authority) == "first"
        alter(broker.bootstrap, broker.node_id, store(authority, "second"))
        assert until(lambda: shown(dict(broker.listeners)["SECURE"], authority) == "second")
    with Broker(tmp_path, config=settings) as broker:
        assert shown(dict(broker.listeners)["SECURE"], authority) == "second"
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"secondsecond" in each for each in kept)
    with pytest.raises(ConfigError, match=r"listener SECURE: .*is its password right"):
        Broker(tmp_path, config={**settings, "password.encoder.secret": "another"}).start()


def test_users_of_plain_are_changed_while_the_broker_runs(tmp_path: Path) -> None:
    settings = {
        **BASE,
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        JAAS: f'{jaas.PLAIN} required user_alice="wonderland";',
    }

    def logs_in(at: str, user: str, password: str) -> bool:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
        client = {"bootstrap.servers": at, "security.protocol": "SASL_PLAINTEXT", **login}
        try:
            Admin(client).topics()
        except KafkaError as refused:
            return refused.code != Code.SASL_AUTHENTICATION_FAILED
        return True

    with Broker(tmp_path, config=settings) as broker:
        at = dict(broker.listeners)["SECURE"]
        alter(broker.bootstrap, broker.node_id, {JAAS: f'{jaas.PLAIN} required user_bob="build";'})
        assert until(lambda: logs_in(at, "bob", "build"))
        assert not logs_in(at, "alice", "wonderland")
        with pytest.raises(KafkaException, match="is no JAAS string") as refused:
            alter(broker.bootstrap, broker.node_id, {JAAS: f'{jaas.PLAIN} required user_eve="'})
        assert refused.value.args[0].code() == Code.INVALID_REQUEST
    del settings[JAAS]
    with Broker(tmp_path, config=settings) as broker:
        assert logs_in(dict(broker.listeners)["SECURE"], "bob", "build")


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    if reason := peer.missing():
        pytest.skip(reason)
    (tmp_path / "zookeeper").mkdir()
    with peer.running(tmp_path / "zookeeper") as ensemble:
        yield ensemble.connect


@pytest.mark.java
@pytest.mark.timeout(300)
def test_krust_starts_with_a_password_that_kafkas_tool_stored_before_any_broker_ran(
    authority: Authority, tmp_path: Path, connect: str
) -> None:
    settings = of_cluster(connect)
    with tools.tools("3.9.1") as run:
        before_any_broker(run, connect, store(authority, "first"))
    with served(tmp_path / "krust", settings) as broker:
        assert shown(secure(settings), authority) == "first"
        alter(broker.bootstrap, 1, store(authority, "second"))
        assert until(lambda: shown(secure(settings), authority) == "second")
    text = stored(connect)[f"{STORE}password"]
    assert PasswordEncoder(SECRET).decode(text) == "secondsecond"


@pytest.mark.parametrize("cipher", [pytest.param(name, marks=OF_KAFKA) for name in CIPHERS])
def test_krust_and_kafka_take_each_others_place_with_the_passwords_that_the_other_stored(
    authority: Authority, tmp_path: Path, connect: str, cipher: str
) -> None:
    settings = {**of_cluster(connect), "password.encoder.cipher.algorithm": cipher}
    first, second, third = (store(authority, name) for name in NAMES)
    with tools.tools("3.9.1") as run:
        before_any_broker(run, connect, first)
        with served(tmp_path / "krust", settings) as broker:
            assert shown(secure(settings), authority) == "first"
            alter(broker.bootstrap, 1, second)
            assert until(lambda: shown(secure(settings), authority) == "second")
        listeners = f"PLAINTEXT://{{bootstrap}},SECURE://{secure(settings)}"
        theirs = {**settings, "listeners": listeners, "ssl.allow.dn.changes": "true"}
        with kafka.running("3.9.1", tmp_path / "kafka", theirs, zookeeper=connect) as place:
            assert shown(secure(settings), authority) == "second"
            alter(place, 1, third)
            assert until(lambda: shown(secure(settings), authority) == "third")
    renewed = {**settings, "password.encoder.secret": "new", "password.encoder.old.secret": SECRET}
    with served(tmp_path / "krust", renewed):
        assert shown(secure(settings), authority) == "third"
    text = stored(connect)[f"{STORE}password"]
    assert PasswordEncoder("new").decode(text) == "thirdthird"


def of_cluster(connect: str) -> dict[str, object]:
    """The settings of broker 1, of krust and of Kafka."""
    plain, secured = free_ports(2)
    return {
        **BASE,
        "broker.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secured}",
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": peer.LONG_MS,
        "offsets.topic.replication.factor": 1,
    }


def secure(settings: Mapping[str, object]) -> str:
    return str(settings["listeners"]).rpartition("//")[2]


def served(folder: Path, settings: dict[str, object]) -> ServedBroker:
    return ServedBroker(folder, port=None, options=settings)


def before_any_broker(run: tools.Tools, connect: str, settings: dict[str, str]) -> None:
    """Have Kafka's tool store settings of broker 1 in a ZooKeeper."""
    pairs = {**settings, "password.encoder.secret": SECRET}
    given = ",".join(f"{name}={text}" for name, text in pairs.items())
    whose = ("--zookeeper", connect, "--entity-type", "brokers", "--entity-name", "1")
    code, said = run("kafka-configs", *whose, "--alter", "--add-config", given)
    assert code == 0, said
    assert settings[f"{STORE}password"] not in stored(connect)[f"{STORE}password"]


def stored(connect: str) -> Mapping[str, str]:
    """The settings of broker 1 in a ZooKeeper."""
    tree = KazooClient(connect)
    tree.start_async().wait(WAIT_S)
    try:
        return EntityConfig.decode(tree.get("/config/brokers/1")[0]).config
    finally:
        tree.stop()
        tree.close()
