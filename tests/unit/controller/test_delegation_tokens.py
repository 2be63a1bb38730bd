"""Delegation tokens: whose they are, how long they last, and what each broker knows of them."""

from __future__ import annotations

import hashlib
import hmac
from itertools import product
from typing import Any

import pytest

from krust.controller import (
    change_notifications,
    delegation_token_changes,
    delegation_tokens,
)
from krust.controller.delegation_tokens import DelegationToken, Principal, TokenLimits
from krust.errors import Code
from krust.messages import RequestContext
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Create, Delete, SessionChanged, SessionState, SetData
from tests.unit.controller.nodes import NOW_MS, Member, Nodes
from tests.unit.controller.runtime import Runtime, write

KEY = "a key"
OPTIONS: dict[str, Any] = {"delegation.token.secret.key": KEY}
DAY_MS = 86_400_000
ANN, BOB, EVE = (Principal("User", name) for name in ("ann", "bob", "eve"))
DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, EXPIRED, BAD_TYPE = 61, 62, 63, 64, 66, 67
TOKEN = DelegationToken("id", ANN, BOB, (EVE,), NOW_MS, NOW_MS + 7 * DAY_MS, NOW_MS + DAY_MS)
BYTES = (
    b'{"issueTimestamp":%d,"renewers":["User%%3Aeve"],"tokenRequester":"User%%3Abob",'
    b'"tokenId":"id","owner":"User%%3Aann","expiryTimestamp":%d,"maxTimestamp":%d,"version":3}'
) % (TOKEN.issued_ms, TOKEN.expires_ms, TOKEN.max_ms)


def client(who: Principal = ANN, proof: str = "login") -> RequestContext:
    return {"user": who.name, "proof": proof}


def creation(
    owner: Principal | None = None, *renewers: Principal, lasts_ms: int = -1
) -> dict[str, Any]:
    return {
        "owner_principal_type": owner.type if owner is not None else None,
        "owner_principal_name": owner.name if owner is not None else None,
        "renewers": [{"principal_type": kind, "principal_name": name} for kind, name in renewers],
        "max_lifetime_ms": lasts_ms,
    }


def next_start(runtime: Runtime, options: dict[str, Any] = OPTIONS) -> Runtime:
    runtime.store.close()
    return Runtime(options, tree=runtime.tree)


def create(asked: Runtime | Member, *renewers: Principal, who: Principal = ANN) -> dict[str, Any]:
    found: Any = asked.ask("CreateDelegationToken", creation(None, *renewers), client=client(who))
    assert found["error_code"] == 0
    return dict(found)


def change(
    asked: Runtime | Member, api: str, secret: bytes, period_ms: int, who: Principal = ANN
) -> tuple[int, int]:
    name = "renew_period_ms" if api == "Renew" else "expiry_time_period_ms"
    body = {"hmac": secret, name: period_ms}
    answer = asked.ask(f"{api}DelegationToken", body, client=client(who))
    return answer["error_code"], answer["expiry_timestamp_ms"]


def described(asked: Runtime | Member, *owners: Principal, of_all: bool = True) -> list[str]:
    named = [{"principal_type": kind, "principal_name": name} for kind, name in owners]
    body = {"owners": None if of_all and not owners else named}
    answer = asked.ask("DescribeDelegationToken", body, client=client())
    assert answer["error_code"] == 0
    return [each["token_id"] for each in answer["tokens"]]


def test_a_node_has_kafkas_bytes_and_is_read_back() -> None:
    assert TOKEN.encode() == BYTES
    assert DelegationToken.decode("id", BYTES) == TOKEN
    odd = TOKEN._replace(owner=Principal("User", "a b~*:ü/%"), renewers=())
    assert b'"owner":"User%3Aa%20b%7E%2A%3A%C3%BC%2F%25"' in odd.encode()
    assert DelegationToken.decode("id", odd.encode()) == odd
    for version in (1, 2):  # before KIP-373
        old = BYTES.replace(b'"version":3', b'"version":%d' % version)
        assert DelegationToken.decode("id", old) == TOKEN._replace(requester=ANN)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        BYTES.replace(b"3}", b"4}"),
        BYTES.replace(b"3}", b"true}"),
        BYTES.replace(b'"id"', b'"other"'),
        BYTES.replace(b"User%3Aann", b"ann"),
        BYTES.replace(b"User%3Aann", rb"User%3Aann\ud800"),
        BYTES.replace(b'["User%3Aeve"]', b'"User%3Aeve"'),
        BYTES.replace(b'"User%3Aeve"', b"1"),
        BYTES.replace(b'"maxTimestamp":', b'"maxTimestamp":1e400,"x":'),
    ],
)
def test_other_bytes_are_no_token(bad: bytes) -> None:
    with pytest.raises(BadZnodeError):
        DelegationToken.decode("id", bad)


@pytest.mark.parametrize("bad", [b"", b"a/b", b"..", b"\xff"])
def test_a_change_that_names_no_token_is_told(bad: bytes) -> None:
    with pytest.raises(BadZnodeError):
        delegation_tokens.decode_change(bad)


def test_a_token_lasts_as_long_as_wanted_and_at_most_as_long_as_the_settings_say() -> None:
    limits = TokenLimits(7 * DAY_MS, DAY_MS)
    for wanted_ms, lasts_ms, first_ms in [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (1000, 1000, 1000),
        (2**63 - 1, 7 * DAY_MS, DAY_MS),
    ]:
        made = delegation_tokens.made("id", ANN, ANN, (), (limits, wanted_ms, NOW_MS))
        times = (made.issued_ms, made.max_ms, made.expires_ms)
        assert times == (NOW_MS, NOW_MS + lasts_ms, NOW_MS + first_ms)
    endless = TokenLimits(2**63 - 1, 2**63 - 1)
    made = delegation_tokens.made("id", ANN, ANN, (), (endless, -1, NOW_MS))
    assert (made.max_ms, made.expires_ms) == (2**63 - 1,) * 2


@pytest.mark.parametrize("name", ["delegation.token.secret.key", "delegation.token.master.key"])
def test_the_hmac_is_kafkas_under_the_old_name_of_the_key_too(name: str) -> None:
    runtime = Runtime({name: f" {KEY}\t"})
    made = create(runtime)
    assert made["hmac"] == hmac.digest(KEY.encode(), made["token_id"].encode(), hashlib.sha512)
    (row,) = runtime.state.tokens.rows([made["token_id"]])
    assert row == (made["token_id"], ("ann", made["hmac"], NOW_MS + DAY_MS))
    assert KEY not in repr(runtime.state.tokens)


def test_a_token_is_written_with_a_notification() -> None:
    nodes = Nodes(1, **OPTIONS)
    made = create(nodes.members[1], EVE)
    token_id = made["token_id"]
    written = TOKEN._replace(id=token_id, requester=ANN)
    assert nodes.node(delegation_tokens.path(token_id)) == written.encode().decode()
    assert nodes.children(delegation_tokens.CHANGES) == ["token_change_0000000000"]
    assert nodes.node(f"{delegation_tokens.CHANGE}0000000000") == token_id
    named = [made[name] for name in ("principal_type", "principal_name")]
    assert named == ["User", "ann"]
    assert made["expiry_timestamp_ms"] == NOW_MS + DAY_MS
    assert made["max_timestamp_ms"] == NOW_MS + 7 * DAY_MS


def test_a_token_of_another_owner_names_who_asked() -> None:
    runtime = Runtime(OPTIONS)
    answer = runtime.ask("CreateDelegationToken", creation(BOB), client=client())
    names = ("principal_name", "token_requester_principal_name")
    assert (answer["error_code"], *(answer[name] for name in names)) == (0, "bob", "ann")
    assert described(runtime, BOB) == [answer["token_id"]]
    assert described(runtime, ANN) == []


APIS = ("Create", "Renew", "Expire", "Describe")
BODY = {
    **creation(),
    "hmac": b"",
    "renew_period_ms": 1,
    "expiry_time_period_ms": 1,
    "owners": None,
}


@pytest.mark.parametrize(("api", "proof"), list(product(APIS, ("nothing", "token", ""))))
def test_who_proved_nothing_or_logged_in_by_a_token_is_refused(api: str, proof: str) -> None:
    for options in ({}, OPTIONS):
        runtime = Runtime(options)
        who = client(proof=proof) if proof else None
        answer = runtime.ask(f"{api}DelegationToken", BODY, client=who)
        assert answer["error_code"] == NOT_ALLOWED


@pytest.mark.parametrize("api", APIS)
def test_without_a_key_there_are_no_tokens(api: str) -> None:
    runtime = Runtime()
    write(runtime.tree, *map(Create, delegation_tokens.PERSISTENT))
    write(runtime.tree, Create(delegation_tokens.path("id"), BYTES))
    runtime = next_start(runtime, {})
    answer = runtime.ask(f"{api}DelegationToken", BODY, client=client(proof="certificate"))
    assert answer["error_code"] == DISABLED
    assert list(runtime.state.tokens) == []


def test_owners_and_renewers_that_cannot_log_in_are_refused() -> None:
    runtime = Runtime(OPTIONS)
    group = Principal("Group", "ann")
    for asked in (creation(group), creation(None, EVE, group)):
        answer = runtime.ask("CreateDelegationToken", asked, client=client())
        assert answer["error_code"] == BAD_TYPE
    write(runtime.tree, Create(delegation_tokens.path("id"), TOKEN._replace(owner=group).encode()))
    restarted = next_start(runtime)
    assert [each.id for each in restarted.state.tokens] == ["id"]
    assert restarted.state.tokens.rows(["id", "other"]) == [("id", None), ("other", None)]


def test_its_owner_and_its_renewers_change_a_token_and_nobody_else() -> None:
    runtime = Runtime(OPTIONS)
    secret = create(runtime, EVE)["hmac"]
    week_ms = NOW_MS + 7 * DAY_MS
    assert change(runtime, "Renew", secret, 2 * DAY_MS, EVE) == (0, NOW_MS + 2 * DAY_MS)
    assert change(runtime, "Renew", secret, -1) == (0, NOW_MS + DAY_MS)
    assert change(runtime, "Renew", secret, 30 * DAY_MS) == (0, week_ms)
    assert change(runtime, "Expire", secret, 2**63 - 1) == (0, week_ms)
    assert change(runtime, "Expire", secret, 1000, EVE) == (0, NOW_MS + 1000)
    for api in ("Renew", "Expire"):
        assert change(runtime, api, secret, -1, BOB) == (MISMATCH, -1)
        assert change(runtime, api, secret[:-1], 1) == (NOT_FOUND, -1)
    assert change(runtime, "Expire", secret, -1, EVE) == (0, NOW_MS)
    assert change(runtime, "Renew", secret, 1) == (NOT_FOUND, -1)
    assert runtime.nodes(delegation_tokens.TOKENS).keys() == {delegation_tokens.TOKENS}


def test_an_expired_token_is_not_renewed_but_can_be_deleted() -> None:
    runtime = Runtime(OPTIONS)
    secret = create(runtime)["hmac"]
    later_ms = NOW_MS + DAY_MS + 1
    for api, name in (("Renew", "renew_period_ms"), ("Expire", "expiry_time_period_ms")):
        asked = {"hmac": secret, name: 5}
        answer = runtime.ask(f"{api}DelegationToken", asked, client=client(), now_ms=later_ms)
        assert answer["error_code"] == EXPIRED
    asked = {"hmac": secret, "expiry_time_period_ms": -1}
    answer = runtime.ask("ExpireDelegationToken", asked, client=client(), now_ms=later_ms)
    assert (answer["error_code"], answer["expiry_timestamp_ms"]) == (0, later_ms)


def test_tokens_are_described_by_owner_or_renewer() -> None:
    runtime = Runtime(OPTIONS)
    of_ann, of_bob = create(runtime, EVE), create(runtime, who=BOB)
    ids = [of_ann["token_id"], of_bob["token_id"]]
    assert described(runtime) == ids
    assert described(runtime, BOB, EVE) == ids
    assert described(runtime, EVE) == ids[:1]
    assert described(runtime, Principal("Group", "ann")) == []
    assert described(runtime, of_all=False) == [], "nobody's are asked for"
    answer = runtime.ask("DescribeDelegationToken", {"owners": None}, client=client())
    [found, _] = answer["tokens"]
    assert found["hmac"] == of_ann["hmac"]
    assert found["renewers"] == [{"principal_type": "User", "principal_name": "eve"}]


def test_a_lone_broker_knows_its_tokens_after_a_restart() -> None:
    runtime = Runtime(OPTIONS)
    secret = create(runtime)["hmac"]
    restarted = next_start(runtime)
    assert restarted.nodes(delegation_tokens.CHANGES).keys() == {delegation_tokens.CHANGES}
    assert change(restarted, "Expire", secret, -1) == (0, NOW_MS)


def known(nodes: Nodes) -> list[set[str]]:
    """The tokens that each broker knows."""
    return [{token.id for token in each.state.tokens} for each in nodes.members.values()]


def test_any_broker_changes_tokens_and_all_know() -> None:
    nodes = Nodes(1, 2, 3, **OPTIONS)
    one, two = create(nodes.members[3]), create(nodes.members[2], BOB)
    assert known(nodes) == [{one["token_id"], two["token_id"]}] * 3
    assert change(nodes.members[1], "Renew", two["hmac"], 5000, BOB) == (0, NOW_MS + 5000)
    rows = [each.state.tokens.rows([two["token_id"]]) for each in nodes.members.values()]
    assert rows == [[(two["token_id"], ("ann", two["hmac"], NOW_MS + 5000))]] * 3
    assert change(nodes.members[2], "Expire", one["hmac"], -1) == (0, NOW_MS)
    assert known(nodes) == [{two["token_id"]}] * 3


def test_what_a_kafka_writes_holds_and_a_broken_token_is_none() -> None:
    nodes = Nodes(1, 2, **OPTIONS)
    path = delegation_tokens.path("id")
    told = delegation_token_changes.changed("id")
    nodes.write(Create(path, BYTES))
    assert known(nodes) == [set()] * 2, "nobody was told"
    nodes.write(told)
    assert known(nodes) == [{"id"}] * 2
    nodes.write(SetData(path, b"{"), told)
    assert known(nodes) == [set()] * 2
    assert "nobody logs in by this delegation token" in nodes.members[2].faults[path]
    nodes.write(SetData(path, BYTES), Create(delegation_tokens.CHANGE, b"", sequential=True))
    assert known(nodes) == [{"id"}] * 2, "a change that cannot be told: all are read"
    nodes.write(Delete(path), told)
    assert known(nodes) == [set()] * 2


def test_a_change_is_decided_on_what_the_tree_has_now() -> None:
    nodes = Nodes(1, **OPTIONS)
    made = create(nodes.members[1])
    path = delegation_tokens.path(made["token_id"])
    others = TOKEN._replace(id=made["token_id"], owner=BOB, renewers=())
    nodes.write(SetData(path, others.encode()))
    assert change(nodes.members[1], "Expire", made["hmac"], -1) == (MISMATCH, -1)
    nodes.write(Delete(path))
    assert change(nodes.members[1], "Expire", made["hmac"], -1) == (NOT_FOUND, -1)
    assert known(nodes) == [set()]


def test_the_controller_deletes_tokens_that_have_expired() -> None:
    nodes = Nodes(1, 2, **OPTIONS)
    first, second = create(nodes.members[2]), create(nodes.members[2])
    assert change(nodes.members[2], "Expire", first["hmac"], 1000) == (0, NOW_MS + 1000)
    nodes.pass_time(3_600_000)
    assert known(nodes) == [{second["token_id"]}] * 2
    assert nodes.children(delegation_tokens.TOKENS) == [second["token_id"]]
    assert any(first["token_id"] in line for line in nodes.leader.lines)
    nodes.pass_time(3_600_000)
    assert nodes.children(delegation_tokens.TOKENS) == [second["token_id"]]


def test_a_lone_broker_deletes_tokens_that_have_expired() -> None:
    runtime = Runtime(OPTIONS)
    create(runtime)
    later_ms = NOW_MS + DAY_MS + 1
    assert runtime.controller.due_ms(later_ms) == 0
    waiting = [runtime.controller.tick(later_ms)]
    while waiting or runtime.controller.is_paused:
        outcome = waiting.pop() if waiting else runtime.controller.resume()
        for token, operations in outcome.submits:
            runtime.store.submit(operations, token)
        waiting += [runtime.take_event(each) for each in runtime.store.events()]
    assert list(runtime.state.tokens) == []
    assert runtime.nodes(delegation_tokens.TOKENS).keys() == {delegation_tokens.TOKENS}
    assert runtime.controller.due_ms(later_ms) == 3_600_000


def test_notifications_are_deleted_after_a_quarter_of_an_hour() -> None:
    nodes = Nodes(1, 2, **OPTIONS)
    create(nodes.members[2])
    assert len(nodes.children(delegation_tokens.CHANGES)) == 1
    nodes.pass_time(change_notifications.KEEP_MS)
    assert nodes.children(delegation_tokens.CHANGES) == []


def test_after_a_lost_session_everything_is_read_again() -> None:
    nodes = Nodes(1, 2, **OPTIONS)
    made = create(nodes.members[1])
    member = nodes.members[2]
    member.take_event(SessionChanged(SessionState.SUSPENDED))
    nodes.tool.submit([Delete(delegation_tokens.path(made["token_id"]))], "tool")
    nodes.tool.events()
    member.expire()
    assert known(nodes)[1] == set(), "without a notification"


def test_brokers_without_a_key_read_and_make_nothing() -> None:
    nodes = Nodes(1, 2)
    assert nodes.node(delegation_tokens.TOKENS) is None
    nodes.write(*map(Create, delegation_tokens.PERSISTENT))
    nodes.write(Create(delegation_tokens.path("id"), BYTES), delegation_token_changes.changed("id"))
    assert known(nodes) == [set()] * 2


def test_the_first_broker_with_a_key_makes_kafkas_nodes() -> None:
    nodes = Nodes(1, **OPTIONS)
    for path in delegation_tokens.PERSISTENT:
        assert nodes.node(path) == "", path


def test_a_token_has_a_thousand_renewers_at_most() -> None:
    runtime = Runtime(OPTIONS)
    renewers = [Principal("User", f"renewer-{number}") for number in range(1001)]
    for count, code in ((1000, 0), (1001, Code.INVALID_REQUEST)):
        body = creation(None, *renewers[:count])
        answer = runtime.ask("CreateDelegationToken", body, client=client(ANN))
        assert answer["error_code"] == code, count
