"""ACLs through `krust acl` and `krust.Admin`, on krust and on Kafka alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krust import Acl, Admin, AsyncAdmin
from krust.errors import ConfigError, KafkaError
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.peers.on_demand import OF_KAFKA
from tests.serving import ServedBroker
from tests.three_brokers import Command
from tests.waiting import until

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
AUTHORIZERS = {
    "krust": ACL_AUTHORIZER,
    "kafka39": ACL_AUTHORIZER,
    "kafka43": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
VERSIONS = {"kafka39": "3.9.1", "kafka43": "4.3.0"}
ALICE = "User:alice"
READS = Acl(principal=ALICE, operation="Read", resource_type="Topic", name="orders")


@pytest.fixture(
    scope="module",
    params=[
        "krust",
        pytest.param("kafka39", marks=OF_KAFKA),
        pytest.param("kafka43", marks=OF_KAFKA),
    ],
)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    """The command, against each broker in turn, with an authorizer that lets it do everything."""
    folder = tmp_path_factory.mktemp(f"acl-{request.param}")
    settings: dict[str, object] = {"super.users": "User:ANONYMOUS"}
    settings["authorizer.class.name"] = AUTHORIZERS[request.param]
    if request.param == "krust":
        with ServedBroker(folder / "data", "--prod", options=settings) as broker:
            yield Command(broker.bootstrap)
        return
    try:
        with kafka.running(VERSIONS[request.param], folder, settings) as bootstrap:
            yield Command(bootstrap)
    except AbsentError as error:
        pytest.skip(str(error))


def listed(guarded: Command, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = guarded.ok("acl", "list", "--json", *words).json()
    return rows


def test_acls_are_granted_listed_checked_and_revoked(guarded: Command) -> None:
    on_orders = ("--topic", "orders")
    guarded.ok("acl", "grant", ALICE, "--operation", "read,write", *on_orders)
    guarded.ok("acl", "grant", ALICE, "--deny", "--operation", "write", *on_orders)
    guarded.ok("acl", "grant", "User:bob", "--consumer", *on_orders, "--group", "g", "--prefixed")
    until(lambda: len(listed(guarded)) == 6)
    assert len(listed(guarded, *on_orders)) == 5
    assert len(listed(guarded, "--topic", "orders-eu", "--match")) == 2
    assert {row["principal"] for row in listed(guarded, "--group", "g")} == {"User:bob"}
    checked = guarded("acl", "check", ALICE, "--operation", "read,write", *on_orders, "--json")
    assert checked.code == 7
    assert b'"reason": "Deny User:alice Write on Topic orders"' in checked.out
    gone = guarded.ok("acl", "revoke", ALICE, "--operation", "read", *on_orders, "--json").json()
    [row] = gone
    assert (row["operation"], row["permission"], row["pattern_type"]) == (
        "Read",
        "Allow",
        "Literal",
    )
    guarded.ok("acl", "revoke", ALICE, *on_orders, "--deny")
    guarded.ok("acl", "revoke", ALICE, "User:bob", "--any-resource")
    until(lambda: listed(guarded) == [])
    nothing = guarded("acl", "revoke", ALICE, *on_orders)
    assert (nothing.code, nothing.err.splitlines()[0]) == (5, "error: User:alice has no such ACL")


def test_every_kind_of_resource_and_operation_comes_back_as_it_was_granted(
    guarded: Command,
) -> None:
    all_of = ("--topic", "*", "--group", "é b", "--transactional-id", "t-1", "--cluster")
    guarded.ok("acl", "grant", "User:CN=ann,O=x y", "--operation", "all", *all_of)
    tokens = ("--operation", "create-tokens,describe-tokens", "--user-principal", "User:bob")
    guarded.ok("acl", "grant", "User:*", *tokens, "--host", "10.0.0.9")
    until(lambda: len(listed(guarded)) == 6)
    rows = {(row["resource_type"], row["name"], row["operation"]) for row in listed(guarded)}
    assert rows == {
        ("Topic", "*", "All"),
        ("Group", "é b", "All"),
        ("TransactionalId", "t-1", "All"),
        ("Cluster", "kafka-cluster", "All"),
        ("User", "User:bob", "CreateTokens"),
        ("User", "User:bob", "DescribeTokens"),
    }
    assert {row["host"] for row in listed(guarded, "--principal", "User:*")} == {"10.0.0.9"}
    guarded.ok("acl", "revoke", "User:CN=ann,O=x y", "User:*", "--any-resource")
    until(lambda: listed(guarded) == [])


def test_admin_has_acls_by_kafkas_names(guarded: Command) -> None:
    with Admin(bootstrap_servers=guarded.bootstrap) as admin:
        denied = Acl(
            principal="User:*",
            operation="describe-configs",
            resource_type="topic",
            name="ord",
            pattern_type="prefixed",
            permission="deny",
        )
        admin.create_acls([READS, READS, denied])
        until(lambda: len(admin.describe_acls()) == 2)
        assert admin.describe_acls(principal=ALICE) == [READS]
        match = admin.describe_acls(resource_type="Topic", name="orders", pattern_type="Match")
        assert {one.permission for one in match} == {"Allow", "Deny"}
        with pytest.raises(KafkaError, match="kafka-cluster"):
            admin.create_acls(
                [Acl(principal=ALICE, operation="All", resource_type="Cluster", name="other")]
            )
        assert admin.delete_acls(name="orders") == [READS]
        assert [one.operation for one in admin.delete_acls(resource_type="Topic")] == [
            "DescribeConfigs"
        ]
        until(lambda: admin.describe_acls() == [])
        with pytest.raises(ConfigError, match="would delete all"):
            admin.delete_acls()
        with pytest.raises(ConfigError, match="operation must be All"):
            admin.describe_acls(operation="nonsense")


def test_the_awaitable_admin_has_the_same_acls(guarded: Command) -> None:
    async def run() -> list[Acl]:
        async with AsyncAdmin(bootstrap_servers=guarded.bootstrap) as admin:
            await admin.create_acls([READS])
            return await admin.delete_acls(principal=ALICE)

    assert asyncio.run(run()) in ([READS], [])  # a broker of KRaft may not have it yet
    with Admin(bootstrap_servers=guarded.bootstrap) as admin:
        until(lambda: admin.delete_acls(principal=ALICE) == [] == admin.describe_acls())


def test_a_broker_without_an_authorizer_says_so(krust: Command) -> None:
    done = krust("acl", "list")
    assert done.code == 1
    error, hint = done.err.splitlines()
    assert error.endswith("SECURITY_DISABLED (54)")
    assert "authorizer.class.name" in hint


def test_the_first_acls_are_made_before_the_broker_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    offline = Command("127.0.0.1:1")
    everybody = "User:ANONYMOUS"
    words = ("--operation", "all", "--cluster", "--data-dir", str(data))
    offline.ok("acl", "grant", everybody, *words)
    with ServedBroker(data, options={"authorizer.class.name": ACL_AUTHORIZER}) as broker:
        run = Command(broker.bootstrap)
        assert offline("acl", "list", "--data-dir", str(data)).code == 1
        assert len(listed(run)) == 1
        run.ok("acl", "grant", everybody, "--producer", "--topic", "orders")
        run.ok("topic", "create", "orders")
        run.ok("produce", "orders", given=b"one\n")
        asked = ("acl", "check", everybody, "--operation", "read", "--topic", "orders")
        assert run(*asked).code == 7
        assert run("consume", "orders", "-o", "start", "-e").code == 7
        run.ok("acl", "grant", everybody, "--operation", "read", "--topic", "orders")
        assert run(*asked).code == 0
        assert run.ok("consume", "orders", "-o", "start", "-e").text == "one\n"
    assert offline(*asked, "--data-dir", str(data)).code == 0
