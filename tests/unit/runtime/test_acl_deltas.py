"""ACLs and tokens on their way to the core: the settings of the authorizer, and the deltas."""

from __future__ import annotations

from typing import Any, cast

import pytest

from krust._krust import Server
from krust.config import Config, load
from krust.controller.acl_nodes import AclEntry
from krust.controller.acls import ResourcePattern
from krust.controller.changes import Changes
from krust.controller.delegation_tokens import DelegationToken, Principal
from krust.controller.state import ControllerState
from krust.runtime.broker_listeners import BrokerListeners
from krust.runtime.entity_changes import APIS, EntityChanges
from krust.runtime.image_deltas import ImageDeltas
from krust.runtime.retention_rules import RetentionRules

CLASS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
ORDERS = ResourcePattern(2, 3, "orders")
ENTRY = AclEntry("User:ann", "*", 3, 3)


class Core:
    """What a server is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


def told(options: dict[str, object]) -> list[tuple[object, ...]]:
    core = Core()
    config = load(options=options)
    BrokerListeners(config, alone=True).secure(config.text, cast("Server", core))
    return [call for call in core.calls if call[0] == "set_authorizer"]


@pytest.mark.parametrize("everyone", [True, False])
def test_the_core_hears_of_the_authorizer_and_of_super_users(everyone: bool) -> None:
    more = {"super.users": "User:a;User:b", "allow.everyone.if.no.acl.found": everyone}
    assert told({**CLASS, **more}) == [("set_authorizer", ["User:a", "User:b"], everyone)]


def test_without_an_authorizer_the_core_hears_nothing() -> None:
    assert told({"super.users": "User:a"}) == []


def changed(config: Config) -> tuple[ControllerState, ImageDeltas]:
    state = ControllerState(config, lambda: "", 0)
    retention = cast("RetentionRules", None)
    return state, ImageDeltas(config, state, retention, alone=True)


def test_a_change_of_acls_sends_all_of_them() -> None:
    state, deltas = changed(load(options=CLASS))
    assert deltas.delta(state.take_changes()) is None
    state.set_acls(ORDERS, frozenset({ENTRY}))
    state.set_acls(ORDERS._replace(name="x"), frozenset())
    delta = deltas.delta(state.take_changes()) or {}
    assert delta["acls"] == [(2, 3, "orders", "User:ann", "*", 3, 3)]
    state.set_acls(ORDERS, frozenset({ENTRY}))
    assert not state.take_changes(), "they are the same"
    state.set_acls(ORDERS, frozenset())
    delta = deltas.delta(state.take_changes()) or {}
    assert delta["acls"] == []


def test_changes_of_a_turn_are_sent_once_and_the_answers_wait_for_that() -> None:
    assert {"CreateAcls", "DeleteAcls"} <= set(APIS)
    turn, changes = EntityChanges(), Changes()
    changes.acls = True
    turn.take(changes)
    assert not changes
    ended, _ = turn.end_turn()
    assert ended.acls
    assert not turn.end_turn()[0]
    later = Changes()
    later.add(ended)
    assert later.acls


def test_tokens_that_changed_in_a_turn_are_sent_once() -> None:
    state, deltas = changed(load(options={"delegation.token.secret.key": "k"}))
    owner = Principal("User", "ann")
    token = DelegationToken("t", owner, owner, (), 1, 7, 5)
    turn = EntityChanges()
    for each in (token, None, token):
        state.set_token("t", each)
        changes = state.take_changes()
        turn.take(changes)
        assert not changes
    state.set_token("t", token)
    assert not state.take_changes(), "it is the same"
    ended, _ = turn.end_turn()
    delta = deltas.delta(ended) or {}
    assert delta["tokens"] == [("t", ("ann", state.tokens.hmac_of("t"), 5))]
    assert not turn.end_turn()[0]
    state.set_token("t", None)
    delta = deltas.delta(state.take_changes()) or {}
    assert delta["tokens"] == [("t", None)]
