"""ACLs as other projects make, list and delete them, and as their clients are bound by them.

Each test runs against krust, and with KRUST_KAFKA_CLUSTER=1 against a Kafka 3.9.1 with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from krust import jaas
from tests.acl_matrix.connection import Connection
from tests.peers import kafka, tools
from tests.peers.absent import AbsentError
from tests.peers.on_demand import OF_KAFKA
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

USERS = ("admin", "alice", "bob", "carl", "dora", "emil", "fred")
PASSWORD = "secret"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ANY = (None, None, AclOperation.ANY, AclPermissionType.ANY)


class Guarded(NamedTuple):
    """A broker whose users, but for the super user "admin", may do what ACLs allow."""

    place: str

    def settings(self, user: str) -> dict[str, Any]:
        """Those of librdkafka."""
        return {
            "bootstrap.servers": self.place,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def admin(self, user: str = "admin") -> AdminClient:
        return AdminClient(self.settings(user))

    def create(self, topic: str) -> None:
        admin = self.admin()
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)

    def grant(self, *bindings: AclBinding) -> None:
        admin = self.admin()
        for each in admin.create_acls(list(bindings)).values():
            each.result(WAIT_S)

    def revoke(self, *bindings: AclBinding) -> None:
        admin = self.admin()
        for each in admin.delete_acls([filter_of(each) for each in bindings]).values():
            assert len(each.result(WAIT_S)) == 1

    def listed(self, wanted: AclBindingFilter) -> set[AclBinding]:
        admin = self.admin()
        return set(admin.describe_acls(wanted).result(WAIT_S))

    def java(self, folder: Path) -> tuple[str, ...]:
        """The words that connect a tool of Kafka's."""
        file = folder / "admin.properties"
        login = f'{jaas.PLAIN} required username="admin" password="{PASSWORD}";'
        lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]
        file.write_text("\n".join([*lines, f"sasl.jaas.config={login}"]))
        return ("--bootstrap-server", self.place, "--command-config", str(file))


def filter_of(each: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        each.restype,
        each.name,
        each.resource_pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )


def may(
    user: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = TOPIC,
    permission: AclPermissionType = ALLOW,
) -> AclBinding:
    """An ACL of a user on one resource."""
    return AclBinding(kind, name, LITERAL, f"User:{user}", "*", operation, permission)


@pytest.fixture(
    scope="module",
    params=["krust", pytest.param("kafka", marks=OF_KAFKA)],
)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    [port] = free_ports(1)
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    settings: dict[str, object] = {
        "listeners": f"PLAINTEXT://{{bootstrap}},SASL_PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas.PLAIN} required {users};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    folder = tmp_path_factory.mktemp(f"acls-{request.param}")
    here = Guarded(f"127.0.0.1:{port}")
    if request.param == "krust":
        listeners = str(settings["listeners"]).replace("{bootstrap}", "127.0.0.1:0")
        options = {**settings, "listeners": listeners}
        with ServedBroker(folder / "data", port=None, options=options):
            yield here
        return
    try:
        with kafka.running("3.9.1", folder, settings):
            yield here
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.mark.java
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_kafkas_own_tool_adds_lists_and_removes_acls(
    guarded: Guarded, tmp_path: Path, version: str
) -> None:
    topic, group = f"tool-{version}", f"readers-{version}"
    reads = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    denied = "(principal=User:bob, host=10.0.0.1, operation=WRITE, permissionType=DENY)"
    with tools.tools(version) as run:
        at = guarded.java(tmp_path)
        alice = ("--allow-principal", "User:alice", "--topic", topic)
        code, said = run("kafka-acls", *at, "--add", *alice, "--consumer", "--group", group)
        assert (code, reads in said) == (0, True), said
        bob = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Write")
        prefixed = ("--topic", "tool-", "--resource-pattern-type", "prefixed")
        code, said = run("kafka-acls", *at, "--add", *bob, *prefixed)
        assert (code, denied in said) == (0, True), said
        code, said = run("kafka-acls", *at, "--list", "--topic", topic)
        assert (code, reads in said, denied in said) == (0, True, False), said
        matching = ("--topic", topic, "--resource-pattern-type", "match")
        code, said = run("kafka-acls", *at, "--list", *matching)
        assert (code, reads in said, denied in said) == (0, True, True), said
        code, said = run("kafka-acls", *at, "--list", "--principal", "User:alice")
        assert (code, f"name={group}" in said, denied in said) == (0, True, False), said
        read = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", topic)
        assert run("kafka-acls", *at, "--remove", "--force", *read)[0] == 0
        code, said = run("kafka-acls", *at, "--list", "--topic", topic)
        assert (code, reads in said, "operation=DESCRIBE" in said) == (0, False, True), said
        for words in (("--topic", topic), ("--group", group), prefixed):
            assert run("kafka-acls", *at, "--remove", "--force", *words)[0] == 0
        code, said = run("kafka-acls", *at, "--list", "--resource-pattern-type", "any")
        assert (code, topic in said, group in said) == (0, False, False), said


@pytest.mark.java
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_kafkas_own_tool_tells_what_is_wrong(
    guarded: Guarded, tmp_path: Path, version: str
) -> None:
    """A user that may not, and resources that cannot be."""
    with tools.tools(version) as run:
        at = guarded.java(tmp_path)
        file = Path(at[-1])
        file.write_text(file.read_text().replace('username="admin"', 'username="carl"'))
        code, said = run("kafka-acls", *at, "--list")
        assert (code, "ClusterAuthorizationException" in said) == (1, True), said
        code, said = run("kafka-acls", *at, "--add", "--allow-principal", "User:carl", "--cluster")
        assert (code, "ClusterAuthorizationException" in said) == (1, True), said


def test_confluents_admin_makes_finds_and_deletes_acls(guarded: Guarded) -> None:
    ours = {
        may("alice", AclOperation.READ, "confluent-a"),
        may("alice", AclOperation.WRITE, "confluent-a", permission=DENY),
        may("bob", AclOperation.ALL, "confluent-group", GROUP),
        AclBinding(TOPIC, "confluent-", PREFIXED, "User:*", "10.0.0.1", AclOperation.READ, ALLOW),
    }
    guarded.grant(*ours)
    found = partial(AclBindingFilter, TOPIC)
    assert guarded.listed(found("confluent-a", LITERAL, *ANY)) == {
        each for each in ours if each.name == "confluent-a"
    }
    assert guarded.listed(found("confluent-a", ResourcePatternType.MATCH, *ANY)) == {
        each for each in ours if each.restype == TOPIC
    }
    some = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:bob",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert guarded.listed(some) == {may("bob", AclOperation.ALL, "confluent-group", GROUP)}
    guarded.grant(*ours)  # those that are there are no error
    match = found("confluent-a", ResourcePatternType.MATCH, *ANY)
    admin = guarded.admin()
    gone = admin.delete_acls([match, some])
    assert {len(each.result(WAIT_S)) for each in gone.values()} == {3, 1}
    assert guarded.listed(match) == set()
    assert guarded.listed(some) == set()


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        (may("alice", AclOperation.ALTER, "cluster", CLUSTER), "kafka-cluster"),
        (may("alice", AclOperation.READ, "a/b"), "Failed to create ACL|resource name"),
    ],
)
def test_an_acl_that_cannot_be_is_refused(guarded: Guarded, binding: AclBinding, said: str) -> None:
    with pytest.raises(KafkaException, match=said) as refused:
        guarded.grant(binding)
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_a_user_that_may_not_alter_the_cluster_changes_no_acl(guarded: Guarded) -> None:
    admin = guarded.admin("dora")
    there = may("dora", AclOperation.READ, "of-dora-alone")
    guarded.grant(there)
    [made] = admin.create_acls([may("dora", AclOperation.ALL, "*")]).values()
    [gone] = admin.delete_acls([filter_of(there)]).values()
    for each in (made, gone):
        with pytest.raises(KafkaException) as refused:
            each.result(WAIT_S)
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert admin.describe_acls(filter_of(there)).result(WAIT_S) == []  # it looks for no error
    of_dora = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:dora", *ANY[1:]
    )
    assert guarded.listed(of_dora) == {there}
    guarded.revoke(there)


def test_kafka_pythons_admin_makes_finds_and_deletes_acls(guarded: Guarded) -> None:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from kafka.admin import ResourceType as Resource

    settings = {
        "bootstrap_servers": guarded.place,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "admin",
        "sasl_plain_password": PASSWORD,
    }
    with closing(KafkaAdminClient(**settings)) as admin:
        pattern = ResourcePattern(Resource.TOPIC, "python-", ACLResourcePatternType.PREFIXED)
        made = [
            ACL("User:alice", "*", operation, permission, pattern)
            for operation, permission in (
                (ACLOperation.READ, ACLPermissionType.ALLOW),
                (ACLOperation.DELETE, ACLPermissionType.DENY),
            )
        ]
        done = admin.create_acls(made)
        assert (len(done["succeeded"]), done["failed"]) == (2, [])
        wanted = ResourcePatternFilter(Resource.TOPIC, "python-x", ACLResourcePatternType.MATCH)
        some = ACLFilter("User:alice", "*", ACLOperation.ANY, ACLPermissionType.ANY, wanted)
        found, error = admin.describe_acls(some)
        assert set(found) == set(made), error
        [(_, gone, _)] = admin.delete_acls([some])
        assert set(gone) == set(made)
        assert admin.describe_acls(some)[0] == []


def test_a_producer_is_refused_allowed_and_refused_again(guarded: Guarded) -> None:
    guarded.create("produced")
    producer = Producer({**guarded.settings("alice"), "topic.metadata.refresh.interval.ms": 100})
    write = may("alice", AclOperation.WRITE, "produced")
    assert sent(producer, "produced") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.grant(write)
    until(lambda: sent(producer, "produced") is None)
    deny = may("alice", AclOperation.WRITE, "produced", permission=DENY)
    guarded.grant(deny)
    until(lambda: sent(producer, "produced") == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    guarded.revoke(deny)
    until(lambda: sent(producer, "produced") is None)
    guarded.revoke(write)
    until(lambda: sent(producer, "produced") == KafkaError.TOPIC_AUTHORIZATION_FAILED)


def sent(producer: Producer, topic: str) -> int | None:
    """The code of the error of a record; None: it is acknowledged."""
    errors: list[KafkaError | None] = []
    try:
        producer.produce(
            topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    except KafkaException as refused:
        errors.append(refused.args[0])
    assert producer.flush(WAIT_S) == 0
    [error] = errors
    return None if error is None else error.code()


def test_a_consumer_is_refused_allowed_and_refused_again(guarded: Guarded) -> None:
    guarded.create("consumed")
    guarded.grant(
        may("bob", AclOperation.READ, "consumed", GROUP),
        may("bob", AclOperation.DESCRIBE, "consumed"),
    )
    producer = Producer(guarded.settings("admin"))
    for _ in range(2):
        assert sent(producer, "consumed") is None
    settings = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 100}
    consumer = Consumer({**guarded.settings("bob"), **settings, "group.id": "consumed"})
    consumer.assign([TopicPartition("consumed", 0, 0)])
    read = may("bob", AclOperation.READ, "consumed")
    assert polled(consumer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.grant(read)
    until(lambda: polled(consumer) is None)
    until(lambda: polled(consumer) is None)
    guarded.revoke(read)
    until(lambda: polled(consumer) == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    consumer.close()


def polled(consumer: Consumer) -> int | None:
    """The code of the error that comes next; None: a record comes."""
    message: Message | None = None
    while message is None:
        message = consumer.poll(WAIT_S)
    error = message.error()
    return None if error is None else error.code()


def test_a_member_joins_its_group_once_it_may_read_it(guarded: Guarded) -> None:
    guarded.create("of-a-group")
    assert sent(Producer(guarded.settings("admin")), "of-a-group") is None
    guarded.grant(may("carl", AclOperation.READ, "of-a-group"))
    common = {**guarded.settings("carl"), "auto.offset.reset": "earliest"}
    refused = Consumer({**common, "group.id": "of-carl"})
    refused.subscribe(["of-a-group"])
    error = until(lambda: (message := refused.poll(1)) and message.error())
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    refused.close()
    guarded.grant(may("carl", AclOperation.READ, "of-carl", GROUP))
    member = Consumer({**common, "group.id": "of-carl"})
    member.subscribe(["of-a-group"])
    until(lambda: (message := member.poll(1)) and message.value() == b"x")
    member.commit(asynchronous=False)
    member.close()


def test_an_idempotent_producer_needs_no_more_than_its_topic(guarded: Guarded) -> None:
    guarded.create("idempotent")
    guarded.grant(may("emil", AclOperation.WRITE, "idempotent"))
    producer = Producer({**guarded.settings("emil"), "enable.idempotence": True})
    assert sent(producer, "idempotent") is None


def test_a_transactional_producer_needs_its_id(guarded: Guarded) -> None:
    guarded.create("transactional")
    guarded.grant(may("emil", AclOperation.WRITE, "transactional"))
    producer = Producer({**guarded.settings("emil"), "transactional.id": "of-emil"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    kind = ResourceType.TRANSACTIONAL_ID
    guarded.grant(may("emil", AclOperation.WRITE, "of-emil", kind))
    producer = Producer({**guarded.settings("emil"), "transactional.id": "of-emil"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    assert sent(producer, "transactional") is None
    producer.commit_transaction(WAIT_S)


def test_an_open_connection_obeys_every_change(guarded: Guarded) -> None:
    guarded.create("same-connection")
    wanted = {"topics": [{"name": "same-connection"}]}
    describe = may("fred", AclOperation.DESCRIBE, "same-connection")
    with Connection(guarded.place, "fred", PASSWORD) as connection:

        def code() -> int:
            [topic] = connection.ask("Metadata", 4, wanted)["topics"]
            return int(topic["error_code"])

        for _ in range(5):
            assert code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            guarded.grant(describe)
            until(lambda: code() == 0)
            guarded.revoke(describe)
            until(lambda: code() != 0)


def test_clients_see_the_operations_that_they_may_do(guarded: Guarded) -> None:
    guarded.create("operations")
    guarded.grant(
        may("dora", AclOperation.WRITE, "operations"),
        may("dora", AclOperation.ALTER_CONFIGS, "operations"),
        may("dora", AclOperation.READ, "of-dora", GROUP),
        may("dora", AclOperation.ALTER, "kafka-cluster", CLUSTER),
    )
    admin = guarded.admin("dora")
    topics = admin.describe_topics(
        TopicCollection(["operations"]), include_authorized_operations=True
    )
    assert set(topics["operations"].result(WAIT_S).authorized_operations) == {
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    }
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert set(cluster.authorized_operations) == {AclOperation.ALTER, AclOperation.DESCRIBE}
    groups = admin.describe_consumer_groups(["of-dora"], include_authorized_operations=True)
    assert set(groups["of-dora"].result(WAIT_S).authorized_operations) == {
        AclOperation.READ,
        AclOperation.DESCRIBE,
    }


def test_lists_have_what_a_user_may_describe(guarded: Guarded) -> None:
    for name in ("seen-by-fred", "hidden-from-fred"):
        guarded.create(name)
    guarded.grant(may("fred", AclOperation.READ, "seen-by-fred"))
    found = guarded.admin("fred").list_topics(timeout=WAIT_S)
    assert {name for name in found.topics if "fred" in name} == {"seen-by-fred"}
