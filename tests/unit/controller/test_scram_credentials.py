"""SCRAM credentials: how nodes hold them, and the requests that describe and alter them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krust.controller import scram
from krust.messages import Message
from krust.metadata.store import Create
from tests.unit.controller.runtime import Runtime, write

SHA256, SHA512 = scram.MECHANISMS.values()
NO_USER, DUPLICATE, UNACCEPTABLE, UNSUPPORTED = 91, 92, 93, 33


def text(mechanism: str, iterations: int = 4096, password: str = "secret") -> str:
    salted = scram.salted_password(mechanism, password, b"salt", iterations)
    return scram.of_salted_password(mechanism, b"salt", salted, iterations).text


def upsertion(name: str, mechanism: int = SHA256, **other: object) -> dict[str, object]:
    length = {SHA256: 32, SHA512: 64}.get(mechanism, 1)
    parts = {"iterations": 4096, "salt": b"salt", "salted_password": b"x" * length}
    return {"name": name, "mechanism": mechanism, **parts, **other}


def deletion(name: str, mechanism: int = SHA256) -> dict[str, object]:
    return {"name": name, "mechanism": mechanism}


def alter(
    runtime: Runtime,
    *upsertions: dict[str, object],
    deletions: tuple[dict[str, object], ...] = (),
) -> dict[str, int]:
    message: Message = {"deletions": deletions, "upsertions": upsertions}
    answer: Any = runtime.ask("AlterUserScramCredentials", message)
    return {each["user"]: each["error_code"] for each in answer["results"]}


def test_the_text_of_a_node_is_kafkas_and_is_read_back() -> None:
    # kafka-configs.sh of Kafka 3.9.1 made the same keys of this salt and password.
    for mechanism in scram.HASHES:
        credential = scram.parse(mechanism, text(mechanism, 8192))
        assert credential is not None
        assert (credential.text, credential.iterations) == (text(mechanism, 8192), 8192)
        assert "salt" not in repr(credential)
    assert text("SCRAM-SHA-256").startswith("salt=c2FsdA==,stored_key=")


@pytest.mark.parametrize(
    "bad", ["", "?", "salt=,stored_key=,server_key=,iterations=4096", "iterations=4096"]
)
def test_a_text_that_is_no_credential_is_none(bad: str) -> None:
    good = text("SCRAM-SHA-256")
    for each in (bad, good.replace("=", ":"), good[:-3] + "x", good + "\n"):
        assert scram.parse("SCRAM-SHA-256", each) is None
    assert scram.parse("SCRAM-SHA-512", good) is None, "its keys are too short"


def test_users_are_described_by_mechanism_and_iterations_only() -> None:
    runtime = Runtime()
    rate = {"producer_byte_rate": "1"}
    whole = {**{name: text(name, 8192) for name in scram.HASHES}, **rate}
    for user, config in {"ann": whole, "bob": {"SCRAM-SHA-256": "?"}, "eve": rate}.items():
        data = json.dumps({"version": 1, "config": config}).encode()
        write(runtime.tree, Create(f"/config/users/{user}", data))
    answer = runtime.ask("DescribeUserScramCredentials", {"users": None})
    assert "stored_key" not in repr(answer)
    assert [(each["user"], each["error_code"]) for each in answer["results"]] == [
        ("ann", 0),
        ("bob", -1),
    ]
    assert answer["results"][0]["credential_infos"] == [
        {"mechanism": SHA256, "iterations": 8192},
        {"mechanism": SHA512, "iterations": 8192},
    ]
    asked = [{"name": name} for name in ("eve", "", "ann", "x", "x")]
    answer = runtime.ask("DescribeUserScramCredentials", {"users": asked})
    codes = [(each["user"], each["error_code"]) for each in answer["results"]]
    assert codes == [("eve", NO_USER), ("", NO_USER), ("ann", 0), ("x", DUPLICATE)]


def test_credentials_are_set_and_deleted_and_the_core_gets_them() -> None:
    runtime = Runtime()
    assert alter(runtime, upsertion("ann"), upsertion("ann", SHA512), upsertion("bob")) == {
        "ann": 0,
        "bob": 0,
    }
    known = runtime.state.credentials
    assert {user: list(each) for user, each in known.items()} == {
        "ann": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "bob": ["SCRAM-SHA-256"],
    }
    assert len(scram.rows(known)) == 3
    assert alter(runtime, deletions=(deletion("ann"), deletion("bob"))) == {"ann": 0, "bob": 0}
    assert {user: list(each) for user, each in known.items()} == {"ann": ["SCRAM-SHA-512"]}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), UNACCEPTABLE),
        (upsertion("ann", 0), UNSUPPORTED),
        (upsertion("ann", 3), UNSUPPORTED),
        (upsertion("ann", iterations=4095), UNACCEPTABLE),
        (upsertion("ann", iterations=16385), UNACCEPTABLE),
        (upsertion("ann", salt=b""), UNACCEPTABLE),
        (upsertion("ann", salted_password=b"short"), UNACCEPTABLE),
    ],
)
def test_a_credential_that_cannot_be_is_refused_and_nothing_of_its_user_changes(
    change: dict[str, object], code: int
) -> None:
    runtime = Runtime()
    name = str(change["name"])
    good = [upsertion(name, SHA512)] if name else []
    assert alter(runtime, *good, change, upsertion("other")) == {name: code, "other": 0}
    assert list(runtime.state.credentials) == ["other"]


def test_a_credential_named_twice_or_not_there_is_refused() -> None:
    runtime = Runtime()
    assert alter(runtime, upsertion("ann"), upsertion("ann")) == {"ann": DUPLICATE}
    assert alter(runtime, deletions=(deletion("ann"),)) == {"ann": NO_USER}
    assert not runtime.state.credentials
