"""`krust cluster replace-plan`: what stops it, what it warns of, and the order of its steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krust.cli import main, replacement
from krust.cli.brokers import LogDirBytes
from krust.cli.cluster_description import KAFKA, KRUST, BrokerDescription, ClusterDescription
from krust.cli.replacement_checks import PROBLEM, WARNING, findings, may_go_on
from krust.cli.replica_health import PartitionHealth

OLDER = {"inter.broker.protocol.version": "3.6"}
PLAIN = [("PLAINTEXT", "PLAINTEXT", "host:9092")]
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
SETTINGS: dict[str, str | None] = {
    "inter.broker.protocol.version": "3.9-IV0",
    "controlled.shutdown.enable": "true",
    "unclean.leader.election.enable": "false",
    "zookeeper.connect": "zk:2181/kafka",
}


def broker(node: int, kind: str = KAFKA, **more: Any) -> BrokerDescription:
    directory = LogDirBytes(f"/data/{node}", 0, 5, 10**12)
    settings = {**SETTINGS, **more.pop("settings", {})}
    own = frozenset(more.pop("own", ()))
    made = BrokerDescription(node, f"host{node}", 9092, kind, settings, own, [directory], 9, PLAIN)
    return made._replace(**more)


def partition(topic: str = "t", **more: Any) -> PartitionHealth:
    made = PartitionHealth(topic, 0, 1, 0, (1, 2, 3), (1, 2, 3), (), (), (), 2)
    return made._replace(**more)


def cluster(*brokers: BrokerDescription, **more: Any) -> ClusterDescription:
    known = brokers or tuple(map(broker, (1, 2, 3)))
    made = ClusterDescription(
        cluster_id="id",
        zookeeper="zk:2181/kafka",
        controller=1,
        brokers=known,
        partitions=[partition()],
        topic_settings={},
        features={},
        acls=[],
        delegation_tokens=0,
        is_migrating=False,
        deletions=[],
        registered=[each.node for each in known],
        zookeeper_cluster_id="id",
    )
    return made._replace(**more)


def test_a_healthy_cluster_of_kafka_may_be_replaced() -> None:
    found = findings(cluster())
    assert {each.status for each in found} == {"ok"}
    assert may_go_on(found)


def test_tokens_are_no_problem_where_every_broker_has_their_key() -> None:
    keys = ("delegation.token.secret.key", "delegation.token.master.key", "broker.id")
    brokers = [broker(number, own=[key]) for number, key in enumerate(keys, 1)]
    [access] = [
        each for each in findings(cluster(*brokers, delegation_tokens=1)) if each.check == "access"
    ]
    assert access.detail == "1 delegation token, and no delegation.token.secret.key on brokers 3"
    brokers[2] = broker(3, own=keys)
    assert may_go_on(findings(cluster(*brokers, delegation_tokens=1)))


def with_broker(**more: Any) -> ClusterDescription:
    return cluster(broker(1), broker(2), broker(3, **more))


@pytest.mark.parametrize(
    ("cluster", "check", "text"),
    [
        (with_broker(kind="", error="silent"), "brokers", "broker 3 does not answer: silent"),
        (cluster(controller=-1), "brokers", "nobody is the controller"),
        (cluster(broker(1), broker(2)), "brokers", "brokers with replicas are away: 3"),
        (cluster(zookeeper_cluster_id="other"), "ZooKeeper", "has cluster other"),
        (
            cluster(registered=[1, 2]),
            "ZooKeeper",
            "brokers that are not registered in zk:2181/kafka: 3",
        ),
        (cluster(is_migrating=True), "ZooKeeper", "a migration to KRaft has begun"),
        (
            with_broker(list_offsets=8),
            "versions",
            "brokers older than Kafka 3.9, to be updated first: 3",
        ),
        (
            with_broker(settings={"inter.broker.protocol.version": "3.8-IV0"}),
            "versions",
            "brokers differ in inter.broker.protocol.version: 3.8-IV0, 3.9-IV0",
        ),
        (cluster(features={"metadata.version": 7}), "features", "metadata.version 7"),
        (cluster(partitions=[partition(isr=(1, 2))]), "replicas", "1 partition: t:0 (at min ISR)"),
        (cluster(partitions=[partition(leader=-1)]), "replicas", "t:0 (no leader)"),
        (cluster(partitions=[partition(removing=(3,))]), "changes", "partitions move: t:0"),
        (cluster(deletions=["old"]), "changes", "topics are being deleted: old"),
        (
            with_broker(directories=[LogDirBytes("/data/3", 56, 0, -1)]),
            "directories",
            "log directories are offline: broker 3 /data/3",
        ),
        (
            with_broker(settings=AUTHORIZER),
            "access",
            "authorizer.class.name is set on brokers 3 and not on 1, 2",
        ),
        (
            cluster(*(broker(n, settings={"authorizer.class.name": "my.Own"}) for n in (1, 2, 3))),
            "access",
            "authorizers that krust does not have: my.Own",
        ),
        (cluster(delegation_tokens=2), "access", "2 delegation tokens"),
        (
            with_broker(endpoints=[*PLAIN, ("IN", "CUSTOM", "host:9093")]),
            "listeners",
            "SASL_PLAINTEXT and SASL_SSL: broker 3 IN (CUSTOM)",
        ),
        (
            cluster(topic_settings={"cold": {"remote.storage.enable": "true"}}),
            "tiered storage",
            "topics have segments in tiered storage: cold",
        ),
        (
            with_broker(
                settings={"principal.builder.class": "my.Builder"},
                own=["principal.builder.class"],
            ),
            "settings",
            "krust refuses these settings: principal.builder.class",
        ),
    ],
)
def test_what_would_cost_records_or_clients_is_a_problem(
    cluster: ClusterDescription, check: str, text: str
) -> None:
    found = {each.check: each for each in findings(cluster)}
    assert found[check].status == PROBLEM
    assert text in found[check].detail
    assert not may_go_on(found.values())


@pytest.mark.parametrize(
    ("cluster", "check", "text"),
    [
        (
            cluster(*(broker(n, settings=OLDER) for n in (1, 2, 3))),
            "versions",
            "inter.broker.protocol.version is 3.6",
        ),
        (
            cluster(partitions=[partition(), partition("one", replicas=(1,), isr=(1,), min_isr=1)]),
            "redundancy",
            "topics with one replica are away while their broker is replaced: one",
        ),
        (
            cluster(partitions=[partition(min_isr=3)]),
            "redundancy",
            "acks=all is refused while a broker is replaced",
        ),
        (
            with_broker(settings={"controlled.shutdown.enable": "false"}),
            "shutdown",
            "writes wait for an election when these brokers stop",
        ),
        (
            cluster(topic_settings={"t": {"unclean.leader.election.enable": "true"}}),
            "shutdown",
            "unclean.leader.election.enable is true on topics t",
        ),
        (
            cluster(acls=["Topic:orders"]),
            "access",
            "no broker has an authorizer that obeys the ACLs: Topic:orders",
        ),
        (
            with_broker(settings={"background.threads": "3"}, own=["background.threads"]),
            "settings",
            "these settings do nothing in krust: background.threads",
        ),
    ],
)
def test_what_works_otherwise_is_a_warning(
    cluster: ClusterDescription, check: str, text: str
) -> None:
    found = {each.check: each for each in findings(cluster)}
    assert found[check].status == WARNING
    assert text in found[check].detail
    assert may_go_on(found.values())


def test_acls_that_all_brokers_obey_forbid_nothing() -> None:
    own = ["authorizer.class.name", "super.users", "listener.name.in.ssl.keystore.location"]
    brokers = (broker(n, settings=AUTHORIZER, own=own) for n in (1, 2, 3))
    found = findings(cluster(*brokers, acls=["Topic:orders"]))
    assert {each.status for each in found} == {"ok"}


def test_long_lists_are_shortened() -> None:
    [found] = [
        each
        for each in findings(cluster(acls=[f"Topic:{number}" for number in range(9)]))
        if each.check == "access"
    ]
    assert found.detail.endswith("Topic:0, Topic:1, Topic:2, Topic:3, Topic:4 and 4 more")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def ran(known: ClusterDescription, *args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(replacement, "read_cluster", lambda options, zookeeper: known)
        with pytest.raises(SystemExit) as left:
            main(["cluster", "replace-plan", *args])
        code = left.value.code
        return (code if isinstance(code, int) else 0, *capsys.readouterr())

    return ran


def test_the_controller_is_replaced_last_and_what_is_replaced_is_done(run: Any) -> None:
    code, out, _ = run(cluster(broker(1), broker(2, KRUST), broker(3)), "--json")
    assert code == 0
    plan = json.loads(out)
    assert [(step["node"], step["becomes"]) for step in plan["steps"]] == [(3, KRUST), (1, KRUST)]
    _, out, _ = run(cluster(broker(1), broker(2, KRUST), broker(3)), "--back", "--json")
    assert [(step["node"], step["becomes"]) for step in json.loads(out)["steps"]] == [(2, KAFKA)]


def test_a_step_says_what_to_do_and_what_must_be_true_afterwards(run: Any) -> None:
    _, out, _ = run(cluster(), "--next", "--json")
    [step] = json.loads(out)["steps"]
    does = [action["do"] for action in step["actions"]]
    assert step["node"] == 2
    assert does[1] == "stop Kafka on host2 with SIGTERM"
    assert does[2] == "krust serve --prod --config FILE"
    everybody = "host1:9092,host2:9092,host3:9092"
    assert does[3] == f"krust cluster health -b {everybody} --wait 30m"
    assert does[4] == f"krust cluster elect -b {everybody}"
    assert "/data/2" in step["actions"][1]["then"]


def test_a_problem_is_exit_9_and_is_printed_before_the_steps(run: Any) -> None:
    code, out, _ = run(cluster(delegation_tokens=1))
    assert code == 9
    assert out.index("Mend the 1 problem above") < out.index("step 1")
    code, out, err = run(cluster(*(broker(n, KRUST) for n in (1, 2, 3))))
    assert (code, "every broker is krust" in err) == (0, True)


@pytest.mark.parametrize("name", ["teams", "teams:Teams"])
def test_a_python_class_may_be_the_authorizer(name: str) -> None:
    settings = {"authorizer.class.name": name}
    found = findings(cluster(*(broker(n, settings=settings) for n in (1, 2, 3))))
    assert {each.check: each.status for each in found}["access"] != PROBLEM
