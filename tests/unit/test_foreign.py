"""A `server.properties` that was written for Kafka: what starts, is listed, or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import krust
from krust import foreign
from krust.config import Config, load
from krust.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

KRAFT = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
share.coordinator.state.topic.replication.factor=1
log.retention.hours=168
"""
"""The settings of Kafka 3.9's `config/kraft/server.properties`, and of 4.x's."""

ZOOKEEPER = """\
broker.id=0
port=9092
host.name=localhost
num.network.threads=3
log.dirs=/tmp/kafka-logs
log.cleaner.enable=true
inter.broker.protocol.version=2.8
log.message.format.version=2.8
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
quota.producer.default=1048576
log4j.rootLogger=INFO, stdout
"""

CONFLUENT = """\
broker.id=0
listeners=PLAINTEXT://:9092
zookeeper.connect=zk1:2181,zk2:2181/kafka
metric.reporters=io.confluent.metrics.reporter.ConfluentMetricsReporter
confluent.metrics.reporter.bootstrap.servers=localhost:9092
confluent.metrics.reporter.sasl.mechanism=PLAIN
confluent.license.topic.replication.factor=1
confluent.balancer.enable=true
num.partition=3
"""

SECURED = """\
broker.id=0
listeners=SASL_SSL://:9093,PLAINTEXT://:9092
security.inter.broker.protocol=SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
ssl.keystore.location=/etc/kafka/broker.jks
ssl.keystore.password=secret
ssl.client.auth=required
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
allow.everyone.if.no.acl.found=false
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=ScramLoginModule required;
confluent.authorizer.access.rule.providers=ZK_ACL
zookeeper.connect=localhost:2181
"""


def read(tmp_path: Path, text: str, mode: str | None = None) -> Config:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return load(files=[file], mode=mode)


def refused(tmp_path: Path, text: str, mode: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, mode)
    assert all(each.hint for each in caught.value.problems)
    return str(caught.value)


@pytest.mark.parametrize("text", [KRAFT, ZOOKEEPER, CONFLUENT])
def test_a_file_of_kafka_starts_and_one_notice_lists_all_that_does_nothing(
    tmp_path: Path, text: str
) -> None:
    config = read(tmp_path, text)
    [notice] = config.notices
    head, *lines = notice.splitlines()
    assert str(tmp_path / "server.properties") in head
    assert f"{len(lines)} of its settings do nothing" in head
    assert all(": " in line for line in lines)


def test_kraft_keys_are_listed_and_the_listener_of_its_controller_stays_closed(
    tmp_path: Path,
) -> None:
    config = read(tmp_path, KRAFT)
    assert config.text("listeners") == "PLAINTEXT://:9092"
    assert config.text("advertised.listeners") == "PLAINTEXT://localhost:9092"
    assert config.whole("broker.id") == 1
    for name in ("process.roles", "controller.quorum.voters", "controller.listener.names"):
        assert f"\n  {name}: " in config.notices[0]
    assert "no KRaft" in config.notices[0]
    assert "socket.send.buffer.bytes" not in config.notices[0], "it is Kafka's default"


def test_removed_kafka_settings_are_reported_with_their_replacement(tmp_path: Path) -> None:
    [notice] = read(tmp_path, ZOOKEEPER).notices
    assert "port: Kafka 3.0 removed it; listeners=PLAINTEXT://:PORT says it" in notice
    assert "log4j.rootLogger: a setting of Java's logging" in notice


def test_a_misspelt_key_of_a_foreign_file_is_listed_with_what_was_probably_meant(
    tmp_path: Path,
) -> None:
    [notice] = read(tmp_path, CONFLUENT).notices
    assert "num.partition: no setting of a broker that krust knows; did you mean" in notice
    assert "confluent.balancer.enable: a setting of Confluent Server" in notice


@pytest.mark.parametrize("mode", [None, foreign.WARN, foreign.STRICT])
def test_security_that_would_be_ignored_is_refused_in_every_mode_and_all_of_it_at_once(
    tmp_path: Path, mode: str | None
) -> None:
    message = refused(tmp_path, SECURED, mode)
    asked = SECURED.split("broker.id=0\n")[1].splitlines()
    for line in asked[2:-1]:
        name = line.partition("=")[0]
        acts = not name.startswith("confluent.")
        assert (f"{name} asks" in message) != acts, "krust has TLS, SASL and ACLs"
    assert "sasl.mechanism.inter.broker.protocol is GSSAPI" in message
    assert "secret" not in message


def test_strict_refuses_all_that_has_no_use_at_once(tmp_path: Path) -> None:
    message = refused(tmp_path, KRAFT, foreign.STRICT)
    for name in ("process.roles", "controller.quorum.voters", "share.coordinator"):
        assert name in message


def test_a_properties_file_with_a_key_of_krusts_own_is_strict_and_so_is_toml(
    tmp_path: Path,
) -> None:
    assert "num.partition" in refused(tmp_path, "num.partition=3\nkrust.threads=1\n")
    (tmp_path / "krust.toml").write_text('"num.partition" = 3\n')
    with pytest.raises(ConfigError, match=r"num\.partition "):
        load(files=[tmp_path / "krust.toml"])
    assert load(files=[tmp_path / "krust.toml"], mode=foreign.WARN).notices


def test_options_are_strict_even_if_files_are_not() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles cannot be set"):
        load(options={"process.roles": "broker"}, mode=foreign.WARN)


def test_bad_values_are_errors_in_a_foreign_file_too_and_all_of_them_at_once(
    tmp_path: Path,
) -> None:
    message = refused(tmp_path, "num.partitions=many\nlog.retention.hours=x\nbroker.id=1\n")
    assert "2 settings cannot be used" in message
    assert "num.partitions" in message
    assert "log.retention.hours" in message


def test_a_value_that_only_a_provider_knows_is_refused(tmp_path: Path) -> None:
    text = "config.providers=file\nlog.dirs=${file:/etc/x.properties:dirs}\n"
    assert "log.dirs refers to a provider" in refused(tmp_path, text)
    assert read(tmp_path, "config.providers=file\nlog.dirs=/x\n").text("log.dirs") == "/x"


def test_the_file_of_a_kraft_controller_alone_is_refused(tmp_path: Path) -> None:
    text = "process.roles=controller\nlisteners=CONTROLLER://:9093\n"
    text += "controller.listener.names=CONTROLLER\n"
    assert "krust runs brokers only" in refused(tmp_path, text)


def test_variables_of_kafkas_image_are_listed_and_their_security_is_refused() -> None:
    environ = {"KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_HEAP_OPTS": "-Xmx1g"}
    [notice] = load(environ=environ).notices
    assert "process.roles: " in notice
    assert "HEAP" not in notice
    with pytest.raises(ConfigError, match="asks for security"):
        load(environ={"KAFKA_SASL_KERBEROS_SERVICE_NAME": "kafka"})
    assert load(environ={"KAFKA_SUPER_USERS": "User:a"}).text("super.users") == "User:a"


def test_the_credentials_of_a_client_in_the_environment_are_no_security_of_the_broker() -> None:
    [notice] = load(environ={"KAFKA_SASL_USERNAME": "a", "KAFKA_SASL_PASSWORD": "b"}).notices
    assert notice.endswith("KAFKA_SASL_PASSWORD, KAFKA_SASL_USERNAME")


def test_a_broker_runs_on_the_file_of_a_kraft_broker(tmp_path: Path) -> None:
    text = KRAFT.replace("PLAINTEXT://:9092,CON", "PLAINTEXT://127.0.0.1:0,CON", 1)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("advertised."))
    text = text.replace("/tmp/kraft-combined-logs", str(tmp_path / "data"))
    with krust.Broker(config=read(tmp_path, text)) as broker:
        broker.create_topic("t")
        assert broker.node_id == 1
        assert [name for name, _ in broker.listeners] == ["PLAINTEXT"]


def test_the_setting_of_two_phase_commit_is_listed_with_the_reason() -> None:
    meaning = foreign.meaning("transaction.two.phase.commit.enable")
    assert meaning == "there is no two-phase commit of transactions"
