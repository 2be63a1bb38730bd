"""The matrix: every row asked of a broker by the user of every scenario, and the answers as text.

The broker has a listener on which users log in by SASL/PLAIN (`settings`), with the password
PASSWORD each. Requests of one scenario are about names that no other has, so all ACLs are there at
once; scenarios whose ACLs are about others' resources too follow one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tests.acl_matrix import cluster_rows, group_rows, newer_rows, topic_rows, transaction_rows
from tests.acl_matrix.connection import Connection
from tests.acl_matrix.outcomes import asked
from tests.acl_matrix.reference import Reference
from tests.acl_matrix.rows import Names, Row
from tests.acl_matrix.rules import BITS, Rule
from tests.acl_matrix.scenarios import HERE, SUPER, Scenario, few, scenarios
from tests.waiting import until

AUTHORIZERS = {
    "3.9.1": "kafka.security.authorizer.AclAuthorizer",
    "4.3.0": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
ADMIN, PASSWORD = "admin", "secret"
SUPERS = {ADMIN, SUPER}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ROWS = [
    *topic_rows.ROWS,
    *transaction_rows.ROWS,
    *group_rows.ROWS,
    *cluster_rows.ROWS,
    *topic_rows.DELETIONS,
]
OF_BROKERS = [
    *topic_rows.OF_BROKERS,
    *transaction_rows.OF_BROKERS,
    *cluster_rows.OF_BROKERS,
]
RESOURCES = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
OPERATIONS = {"All": 2, **BITS}
EVERYTHING = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}
MANY = 1000
Cells = dict[str, dict[str, str]]
"""by row and version, then by user: the outcomes of the items, as text"""


class World(NamedTuple):
    """A broker whose answers are one part of the matrix.

    kafka    the version that shows what is right
    is_open  whether everybody may do what no ACL is about
    """

    name: str
    kafka: str
    is_open: bool
    rows: Sequence[Row]
    scenarios: Sequence[Scenario]


WORLDS = [
    World("closed", "3.9.1", False, ROWS, scenarios()),
    World("open", "3.9.1", True, ROWS, [each._replace(shared=True) for each in few()]),
    World("brokers", "3.9.1", False, OF_BROKERS, few()),
    World("newer", "4.3.0", False, newer_rows.ROWS, few()),
]


def settings(world: World, port: int) -> dict[str, object]:
    """Those of a broker: its users, and its authorizer."""
    names = sorted({ADMIN, *(each.user for each in world.scenarios)})
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in names)
    login = f'username="{ADMIN}" password="{PASSWORD}"'
    return {
        "listeners": f"PLAINTEXT://{{bootstrap}},SASL_PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required {login} {users};",
        "authorizer.class.name": AUTHORIZERS[world.kafka],
        "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *sorted(SUPERS))),
        "allow.everyone.if.no.acl.found": str(world.is_open).lower(),
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }


def measured(place: str, world: World) -> Cells:
    """What a broker answers."""
    cells: Cells = {}
    with Connection(place, ADMIN, PASSWORD) as admin:
        known = _prepared(admin, world.scenarios)
        for phase in _phases(world.scenarios):
            rules = [rule for each in phase for rule in each.rules]
            create(admin, rules)
            for each in phase:
                _ask(place, each, known[each.user], world.rows, cells)
            delete(admin)
    return cells


def expected(world: World, *, of_krust: bool = False) -> Cells:
    """What the reference says of the same; of krust: where it means to differ."""
    cells: Cells = {}
    for phase in _phases(world.scenarios):
        rules = [rule for each in phase for rule in each.rules]
        for each in phase:
            reference = Reference(rules, each.user, HERE, SUPERS, is_open=world.is_open)
            for row in world.rows:
                checks = row.krusts if of_krust else row.checks
                if checks is None:
                    continue
                text = as_text(reference.expected(checks, each.names))
                for version in each.versions(row):
                    cells.setdefault(f"{row.name} {version}", {})[each.user] = text
    return cells


def as_text(outcome: dict[str, int]) -> str:
    """Of the items of a row."""
    return " ".join(f"{item or 'all'}={code}" for item, code in outcome.items())


def _phases(wanted: Sequence[Scenario]) -> Iterator[list[Scenario]]:
    yield [each for each in wanted if not each.shared]
    for each in wanted:
        if each.shared:
            yield [each]


def _ask(place: str, scenario: Scenario, names: Names, rows: Sequence[Row], cells: Cells) -> None:
    connection = Connection(place, scenario.user, PASSWORD)
    for row in rows:
        for version in scenario.versions(row):
            outcome = asked(connection, row, version, names)
            cells.setdefault(f"{row.name} {version}", {})[scenario.user] = as_text(outcome)
            if connection.is_closed:
                connection = Connection(place, scenario.user, PASSWORD)
    connection.close()


def create(admin: Connection, rules: Sequence[Rule]) -> None:
    """Make these ACLs."""
    rows = [
        {
            "resource_type": RESOURCES[each.resource],
            "resource_pattern_type": 4 if each.pattern == "prefixed" else 3,
            "resource_name": each.name,
            "principal": each.principal,
            "host": each.host,
            "operation": OPERATIONS[each.operation],
            "permission_type": 2 if each.permission == "Deny" else 3,
        }
        for each in rules
    ]
    for start in range(0, len(rows), MANY):
        told = admin.ask("CreateAcls", 3, {"creations": rows[start : start + MANY]})
        wrong = [
            (row, each)
            for row, each in zip(rules[start : start + MANY], told["results"], strict=True)
            if each["error_code"]
        ]
        assert not wrong, wrong
    until(lambda: len(_listed(admin)) == len(set(rules)))


def delete(admin: Connection) -> None:
    """Delete all ACLs."""
    [told] = admin.ask("DeleteAcls", 3, {"filters": [EVERYTHING]})["filter_results"]
    assert told["error_code"] == 0, told
    until(lambda: not _listed(admin))


def _listed(admin: Connection) -> list[Any]:
    told = admin.ask("DescribeAcls", 3, EVERYTHING)
    return [each for resource in told["resources"] for each in resource["acls"]]


def _prepared(admin: Connection, wanted: Sequence[Scenario]) -> dict[str, Names]:
    """Make topics, groups and transactions; the names of each user."""
    names = {each.user: each.names for each in wanted}
    created = [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for each in names.values()
        for name in (each.there, each.doomed)
    ]
    told = admin.ask("CreateTopics", 7, {"topics": created, "timeout_ms": 60_000})
    assert not any(each["error_code"] for each in told["topics"]), told
    ids = {each["name"]: each["topic_id"] for each in told["topics"]}
    [broker, *_] = admin.ask("Metadata", 1, {"topics": None})["brokers"]
    known = {}
    for user, each in names.items():
        own = {name: ids[name] for name in (each.there, each.doomed)}
        known[user] = each._replace(ids=own, node=broker["node_id"])
        until(partial(_commits, admin, each))
        until(partial(_begins, admin, each))
    return known


def _commits(admin: Connection, names: Names) -> bool:
    body: dict[str, Any] = {
        "group_id": names.group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": names.there, "partitions": [{"committed_leader_epoch": -1}]}],
    }
    admin.ask("FindCoordinator", 1, {"key": names.group})
    [topic] = admin.ask("OffsetCommit", 8, body)["topics"]
    return bool(topic["partitions"][0]["error_code"] == 0)


def _begins(admin: Connection, names: Names) -> bool:
    """A transaction that has a partition."""
    admin.ask("FindCoordinator", 1, {"key": names.txn, "key_type": 1})
    common = {"transactional_id": names.txn, "transaction_timeout_ms": 900_000}
    made = admin.ask("InitProducerId", 2, common)
    if made["error_code"]:
        return False
    body = {
        "v3_and_below_transactional_id": names.txn,
        "v3_and_below_producer_id": made["producer_id"],
        "v3_and_below_producer_epoch": made["producer_epoch"],
        "v3_and_below_topics": [{"name": names.there, "partitions": [0]}],
    }
    [topic] = admin.ask("AddPartitionsToTxn", 3, body)["results_by_topic_v3_and_below"]
    return bool(topic["results_by_partition"][0]["partition_error_code"] == 0)
