"""`krust acl`: the ACLs that its words mean, what it shows, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from krust.cli import main, session
from krust.cli.exits import Exit
from krust.clients import acls
from krust.controller.acls import (
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    LITERAL,
    PREFIXED,
    TOPIC,
    TRANSACTIONAL_ID,
    AclBinding,
    AclFilter,
    validate,
)
from krust.errors import Code

ALICE = "User:alice"


class Broker:
    """What answers the requests about ACLs as a broker does, in memory."""

    def __init__(self) -> None:
        self.held: set[AclBinding] = set()
        self.refusal = Code.NONE

    def request(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self, api)(body)
        return answer

    def _none(self) -> dict[str, Any]:
        return {"error_code": self.refusal, "error_message": None}

    def _found(self, body: dict[str, Any]) -> list[AclBinding]:
        kind, pattern, name = (
            body[f"{each}_filter"] for each in ("resource_type", "pattern_type", "resource_name")
        )
        who, host = body["principal_filter"], body["host_filter"]
        asked = AclFilter(kind, pattern, name, who, host, body["operation"])
        asked = asked._replace(permission=body["permission_type"])
        return [each for each in self.held if asked.matches(each)]

    def DescribeAcls(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        found = [_split(each) for each in self._found(body)]
        resources = [{**resource, "acls": [entry]} for resource, entry in found]
        return {**self._none(), "resources": resources}

    def CreateAcls(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        results = []
        for row in body["creations"]:
            binding = AclBinding(
                *(row["resource_type"], row["resource_pattern_type"], row["resource_name"]),
                *(row["principal"], row["host"], row["operation"], row["permission_type"]),
            )
            wrong = validate(binding)
            if wrong is None and not self.refusal:
                self.held.add(binding)
            code = Code.INVALID_REQUEST if wrong else self.refusal
            results.append({"error_code": code, "error_message": wrong})
        return {"results": results}

    def DeleteAcls(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        results = []
        for asked in body["filters"]:
            found = self._found(asked)
            self.held -= set(found)
            gone = [{**resource, **entry, **self._none()} for resource, entry in map(_split, found)]
            results.append({**self._none(), "matching_acls": gone})
        return {"filter_results": results}


def _split(binding: AclBinding) -> tuple[dict[str, Any], dict[str, Any]]:
    kind, pattern, name, principal, host, operation, permission = binding
    return (
        {"resource_type": kind, "pattern_type": pattern, "resource_name": name},
        {
            "principal": principal,
            "host": host,
            "operation": operation,
            "permission_type": permission,
        },
    )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(session, "client", lambda options: broker)
    return broker


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["acl", *words])
    return int(str(ended.value.code))


def held(broker: Broker) -> set[tuple[int, int, str, str]]:
    """What alice is allowed from everywhere, by the names of operations."""
    shown = [(each, acls.shown(each)) for each in broker.held]
    rest = {(each.principal, each.host, fields["permission"]) for each, fields in shown}
    assert rest <= {(ALICE, "*", "Allow")}
    return {(*each.pattern, fields["operation"]) for each, fields in shown}


def test_an_operation_is_granted_on_each_resource(broker: Broker) -> None:
    names = ("--topic", "a", "--topic", "b", "--group", "g")
    assert run("grant", ALICE, "--operation", "read,DESCRIBE", *names) == 0
    resources = [(TOPIC, LITERAL, "a"), (TOPIC, LITERAL, "b"), (GROUP, LITERAL, "g")]
    assert held(broker) == {(*each, name) for each in resources for name in ("Read", "Describe")}


def test_words_of_an_operation_may_be_written_as_in_any_tool(broker: Broker) -> None:
    for text in ("describe-configs", "DescribeConfigs", "DESCRIBE_CONFIGS"):
        assert run("grant", ALICE, "--operation", text, "--cluster") == 0
    assert held(broker) == {(CLUSTER, LITERAL, CLUSTER_NAME, "DescribeConfigs")}


def test_a_producer_gets_what_kafkas_own_tool_gives_it(broker: Broker) -> None:
    words = ("--producer", "--idempotent", "--topic", "eu-", "--transactional-id", "t")
    assert run("grant", ALICE, *words, "--prefixed") == 0
    assert held(broker) == {
        *((TOPIC, PREFIXED, "eu-", each) for each in ("Write", "Describe", "Create")),
        *((TRANSACTIONAL_ID, PREFIXED, "t", each) for each in ("Write", "Describe")),
        (CLUSTER, LITERAL, CLUSTER_NAME, "IdempotentWrite"),
    }


def test_a_consumer_gets_what_kafkas_own_tool_gives_it(broker: Broker) -> None:
    assert run("grant", ALICE, "--consumer", "--topic", "*", "--group", "g") == 0
    assert held(broker) == {
        *((TOPIC, LITERAL, "*", each) for each in ("Read", "Describe")),
        (GROUP, LITERAL, "g", "Read"),
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("alice", "--operation", "read", "--topic", "t"), "write User:alice"),
        ((ALICE, "--operation", "rread", "--topic", "t"), "Read"),
        ((ALICE, "--operation", "write", "--group", "g"), "Group has no operation Write"),
        ((ALICE, "--operation", "read"), "on what? --topic"),
        ((ALICE, "--topic", "t"), "which --operation?"),
        ((ALICE, "--topic", "", "--operation", "read"), "a name is empty"),
        ((ALICE, "--consumer", "--topic", "t"), "--consumer needs --group"),
        ((ALICE, "--producer", "--transactional-id", "t"), "--producer needs --topic"),
        ((ALICE, "--producer", "--topic", "t", "--group", "g"), "--group says nothing beside"),
        ((ALICE, "--producer", "--topic", "t", "--operation", "all"), "not both"),
        ((ALICE, "--operation", "all", "--topic", "ord*"), "write ord --prefixed"),
        ((ALICE, "--operation", "all", "--topic", "*", "--prefixed"), "'*' is no prefix"),
    ],
)
def test_words_that_mean_nothing_are_usage_errors(
    broker: Broker, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    assert run("grant", *words) == Exit.USAGE
    assert text in capsys.readouterr().err
    assert not broker.held


def test_the_acls_that_are_refused_among_others_are_named(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("grant", ALICE, "--operation", "read", "--group", "a/b")
    assert run(*words) == Exit.FAILED
    assert run(*words, "--group", "g") == Exit.PARTIAL
    out, err = capsys.readouterr()
    assert err.count("Allow User:alice Read on Group a/b: ACL binding contains invalid") == 2
    assert out.splitlines()[1].split() == [ALICE, "Allow", "Read", "Group", "Literal", "g", "*"]


def test_brokers_without_an_authorizer_say_which_setting_they_need(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.refusal = Code.SECURITY_DISABLED
    for words in (("list",), ("grant", ALICE, "--operation", "all", "--topic", "t")):
        assert run(*words) == Exit.FAILED
        error, hint = capsys.readouterr().err.splitlines()
        assert error.endswith("SECURITY_DISABLED (54)")
        assert "authorizer.class.name" in hint


@pytest.fixture
def several(broker: Broker) -> Broker:
    for words in (
        (ALICE, "--operation", "read,write", "--topic", "orders"),
        (ALICE, "--operation", "read", "--topic", "ord", "--prefixed"),
        (ALICE, "--operation", "read", "--topic", "orders", "--host", "10.0.0.9"),
        (ALICE, "--operation", "write", "--topic", "orders", "--deny"),
        ("User:*", "--operation", "describe", "--topic", "*"),
        ("User:bob", "--operation", "read", "--group", "orders"),
    ):
        assert run("grant", *words) == 0
    assert len(broker.held) == 7
    return broker


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ((), 7),
        (("--topic", "orders"), 4),
        (("--topic", "orders", "--match"), 6),
        (("--topic", "ord", "--prefixed"), 1),
        (("--topic", "orders", "--group", "orders"), 5),
        (("--principal", ALICE), 5),
        (("--principal", "User:bob", "--topic", "orders", "--match"), 0),
    ],
)
@pytest.mark.usefixtures("several")
def test_a_list_has_the_acls_of_a_resource_or_all_that_hold_for_it(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], count: int
) -> None:
    capsys.readouterr()
    assert run("list", *words, "--json") == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == count
    assert ("there are no ACLs" in err) is (count == 0)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--topic", "orders"), 3),
        (("--topic", "orders", "--operation", "read"), 2),
        (("--topic", "orders", "--host", "10.0.0.9"), 1),
        (("--topic", "orders", "--deny"), 1),
        (("--topic", "ord", "--prefixed"), 1),
        (("--any-resource",), 4),
        (("--any-resource", "--operation", "write"), 1),
    ],
)
def test_what_is_revoked_is_shown_and_nothing_else_goes(
    several: Broker, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], count: int
) -> None:
    before = set(several.held)
    capsys.readouterr()
    assert run("revoke", ALICE, *words, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    gone = before - several.held
    assert len(gone) == count
    assert [acls.shown(each) for each in sorted(gone)] == shown


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ((ALICE, "--topic", "other"), Exit.NOT_FOUND),
        ((ALICE, "--topic", "ord"), Exit.NOT_FOUND),
        (("User:bob", "--topic", "orders", "--operation", "describe"), Exit.NOT_FOUND),
        ((ALICE,), Exit.USAGE),
        ((ALICE, "--any-resource", "--topic", "orders"), Exit.USAGE),
    ],
)
def test_a_revocation_that_finds_nothing_says_so(
    several: Broker, words: tuple[str, ...], exit_code: Exit
) -> None:
    assert run("revoke", *words) == exit_code
    assert len(several.held) == 7


def test_a_check_names_the_acl_that_decides(
    several: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("check", ALICE, "--topic", "orders", "--json", "--operation")
    capsys.readouterr()
    assert run(*asked, "read") == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["allowed"], row["other_hosts"]) == (True, [])
    assert row["reason"] == "Allow User:alice Read on Topic orders"
    assert run(*asked, "read,write") == Exit.REFUSED
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [row["allowed"] for row in rows] == [True, False]
    assert rows[1]["acl"]["permission"] == "Deny"
    assert "super users" in err
    assert run("check", "User:eve", "--topic", "orders", "--operation", "describe") == 0


def test_a_check_tells_apart_why_nothing_is_allowed(
    several: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    for resource, reason in (("--topic", "no ACL allows it"), ("--cluster", "no ACL names it")):
        name = ("orders",) if resource == "--topic" else ()
        assert run("check", "User:eve", "--operation", "alter", resource, *name) == Exit.REFUSED
        assert reason in capsys.readouterr().out


def test_a_check_without_a_host_tells_that_the_answer_depends_on_it(
    several: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--topic", "orders", "--operation", "delete")
    assert run("grant", ALICE, *given, "--host", "10.0.0.9") == 0
    assert run("check", ALICE, *given) == Exit.REFUSED
    assert "Delete depends on the client's address" in capsys.readouterr().err
    assert run("check", ALICE, *given, "--host", "10.0.0.9") == 0
    assert "depends on" not in capsys.readouterr().err


def test_acls_in_a_data_directory_need_no_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ("--data-dir", str(tmp_path / "data"))
    words = (ALICE, "--operation", "read", "--topic", "orders", *place)
    assert run("list", *place) == Exit.NOT_FOUND
    assert run("grant", *words) == 0
    assert run("grant", *words, "--prefixed") == 0
    capsys.readouterr()
    assert run("list", "--json", *place) == 0
    patterns = [row["pattern_type"] for row in json.loads(capsys.readouterr().out)]
    assert patterns == ["Literal", "Prefixed"]
    assert run("check", *words) == 0
    assert run("revoke", *words) == 0
    assert run("revoke", *words) == Exit.NOT_FOUND
    assert run("check", *words) == 0
    assert run("list", *place, "--zookeeper", "localhost") == Exit.USAGE
