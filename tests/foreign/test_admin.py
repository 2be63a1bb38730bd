"""Changes by foreign admin clients apply to the next request."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

WAIT_S = 60


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def setting(admin: AdminClient) -> Callable[[str, str], ConfigEntry]:
    """Ask for one setting of a topic."""

    def ask(topic: str, name: str) -> ConfigEntry:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = admin.describe_configs([resource])[resource].result(WAIT_S)
        entry = entries[name]
        assert isinstance(entry, ConfigEntry)
        return entry

    return ask


def change(admin: AdminClient, topic: str, name: str, value: str | None) -> None:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=kind)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def test_a_changed_setting_takes_effect_at_once(
    bootstrap: str,
    topic: str,
    admin: AdminClient,
    setting: Callable[[str, str], ConfigEntry],
) -> None:
    assert setting(topic, "max.message.bytes").source == ConfigSource.DEFAULT_CONFIG.value
    change(admin, topic, "max.message.bytes", "1000")
    entry = setting(topic, "max.message.bytes")
    assert (entry.value, entry.source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT_S) == 0
    assert "MSG_SIZE_TOO_LARGE" in repr(refused)
    change(admin, topic, "max.message.bytes", None)
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT_S) == 0
    assert refused[1:] == [None]


def test_a_bad_setting_is_refused_with_its_name(topic: str, admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match=r"INVALID_CONFIG.*retention\.ms"):
        change(admin, topic, "retention.ms", "soon")


def test_a_topic_grows_and_the_new_partition_takes_records(
    bootstrap: str, topic: str, admin: AdminClient
) -> None:
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    assert len(admin.list_topics(topic, WAIT_S).topics[topic].partitions) == 3
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x", partition=2, on_delivery=lambda error, _: errors.append(error))
    assert (producer.flush(WAIT_S), errors) == (0, [None])
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)


def test_a_deleted_topic_is_gone_and_can_be_created_again(topic: str, admin: AdminClient) -> None:
    admin.delete_topics([topic])[topic].result(WAIT_S)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        admin.delete_topics([topic])[topic].result(WAIT_S)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_S)
    assert len(admin.list_topics(topic, WAIT_S).topics[topic].partitions) == 2


def test_electing_a_current_leader_answers_election_not_needed(
    topic: str, admin: AdminClient
) -> None:
    partition = TopicPartition(topic, 0)
    answered = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert answered[partition].name() == "ELECTION_NOT_NEEDED"


def test_no_user_has_a_scram_password(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(WAIT_S) == {}
    with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
        admin.describe_user_scram_credentials(["ann"])["ann"].result(WAIT_S)


def test_a_broker_describes_all_its_settings(bootstrap: str, admin: AdminClient) -> None:
    (broker,) = admin.list_topics(timeout=WAIT_S).brokers
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    entries = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert len(entries) > 200
    assert entries["log.retention.hours"].value == "168"
    assert not entries["log.retention.ms"].is_read_only
    assert entries["broker.id"].is_read_only
