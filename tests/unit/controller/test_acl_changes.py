"""Several brokers with an authorizer: each obeys every change, whoever makes it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from krust.controller import acl_changes, acl_nodes, acls, change_notifications
from krust.controller.acl_nodes import AclEntry
from krust.controller.acls import LITERAL, PREFIXED, AclBinding, AclFilter, ResourcePattern
from krust.metadata.store import Create, Delete, SessionChanged, SessionState, SetData
from tests.unit.controller.nodes import Member, Nodes
from tests.unit.controller.runtime import Runtime, write
from tests.unit.controller.test_acl_requests import (
    ANN,
    BOB,
    EVE,
    NODE,
    OPTIONS,
    PREFIX,
    PREFIX_NODE,
    creations,
    fields,
    next_start,
)

AUTHORIZER: dict[str, Any] = OPTIONS
LITERAL_CHANGES, PREFIXED_CHANGES = acl_nodes.CHANGES.values()


def of_all(nodes: Nodes) -> list[set[AclBinding]]:
    """The ACLs that each broker obeys."""
    return [set(each.state.acl_bindings()) for each in nodes.members.values()]


def create(member: Member, *bindings: AclBinding) -> None:
    answer = member.ask("CreateAcls", creations(bindings))
    assert all(each["error_code"] == 0 for each in answer["results"]), answer


def delete(member: Member, *filters: AclFilter) -> None:
    answer = member.ask("DeleteAcls", {"filters": [fields(each) for each in filters]})
    assert all(each["error_code"] == 0 for each in answer["filter_results"]), answer


def data(*bindings: AclBinding) -> bytes:
    return acl_nodes.encode([AclEntry(*each[3:]) for each in bindings])


def notification(*, prefixed: bool = False, named: AclBinding = ANN) -> Create:
    pattern = (PREFIX if prefixed else named).pattern
    change = acl_nodes.encode_change(pattern)
    return Create(acl_nodes.change_path(pattern), change, sequential=True)


def test_the_first_broker_with_an_authorizer_makes_kafkas_nodes() -> None:
    nodes = Nodes(1, **AUTHORIZER)
    for path in acl_nodes.PERSISTENT:
        assert nodes.node(path) == "", path
    assert nodes.children("/kafka-acl") == sorted(acls.RESOURCE_TYPES)


def test_brokers_without_an_authorizer_read_and_make_nothing() -> None:
    nodes = Nodes(1, 2)
    assert nodes.node("/kafka-acl") is None
    nodes.write(*(Create(path) for path in acl_nodes.PERSISTENT))
    nodes.write(Create(NODE, data(ANN)), notification())
    assert of_all(nodes) == [set(), set()]


def test_any_broker_changes_acls_and_all_obey() -> None:
    nodes = Nodes(1, 2, 3, **AUTHORIZER)
    create(nodes.members[3], ANN, BOB)
    create(nodes.members[2], PREFIX)
    assert of_all(nodes) == [{ANN, BOB, PREFIX}] * 3
    delete(nodes.members[1], AclFilter(*PREFIX))
    assert of_all(nodes) == [{ANN, BOB}] * 3


def test_cve_2024_27309_the_other_acls_of_a_resource_hold_on_every_broker() -> None:
    nodes = Nodes(1, 2, 3, **AUTHORIZER)
    create(nodes.members[1], ANN, BOB, EVE)
    delete(nodes.members[2], AclFilter(*ANN))
    assert of_all(nodes) == [{BOB, EVE}] * 3
    nodes.members[1].die()
    Member(nodes, 4, **AUTHORIZER)
    assert of_all(nodes) == [{BOB, EVE}] * 3, "after a new controller, and at a new broker"


def test_the_broker_that_writes_obeys_before_it_answers() -> None:
    nodes = Nodes(1, 2, **AUTHORIZER)
    member = nodes.members[2]
    ticket = member.send("CreateAcls", creations([ANN]))
    while ticket not in member.answers:
        for event in member.store.events():
            member.take_event(event)
    assert set(member.state.acl_bindings()) == {ANN}
    assert of_all(nodes)[0] == set(), "the other broker has heard nothing yet"
    nodes.rest()
    assert of_all(nodes) == [{ANN}] * 2


def test_what_kafkas_tools_write_holds_at_once() -> None:
    nodes = Nodes(1, 2, **AUTHORIZER)
    nodes.write(Create(NODE, data(ANN)), notification())
    nodes.write(Create(PREFIX_NODE, data(PREFIX)), notification(prefixed=True))
    assert of_all(nodes) == [{ANN, PREFIX}] * 2
    nodes.write(SetData(NODE, data(EVE)), Delete(PREFIX_NODE))
    assert of_all(nodes) == [{ANN, PREFIX}] * 2, "nobody was told"
    nodes.write(notification(), notification(prefixed=True))
    assert of_all(nodes) == [{EVE}] * 2


def test_what_changed_before_a_start_is_read_at_the_start() -> None:
    nodes = Nodes(1, **AUTHORIZER)
    create(nodes.members[1], ANN, PREFIX)
    Member(nodes, 2, **AUTHORIZER)
    assert of_all(nodes) == [{ANN, PREFIX}] * 2


def test_a_start_tells_the_core_the_acls_even_if_there_are_none() -> None:
    assert Runtime(OPTIONS).applied_acls
    assert Runtime(OPTIONS, shared=True).applied_acls
    assert not Runtime().applied_acls


def test_after_a_lost_session_everything_is_read_again() -> None:
    nodes = Nodes(1, 2, **AUTHORIZER)
    create(nodes.members[1], ANN, PREFIX)
    member = nodes.members[2]
    member.take_event(SessionChanged(SessionState.SUSPENDED))
    nodes.tool.submit([SetData(NODE, data(EVE)), Delete(PREFIX_NODE)], "tool")
    nodes.tool.events()
    member.expire()
    assert set(member.state.acl_bindings()) == {EVE}, "without a notification"
    create(nodes.members[1], BOB)
    assert set(member.state.acl_bindings()) == {EVE, BOB}, "it watches again"


def test_a_node_that_cannot_be_read_denies_everybody_its_resource_alone() -> None:
    nodes = Nodes(1, 2, **AUTHORIZER)
    create(nodes.members[1], ANN, PREFIX)
    nodes.write(SetData(NODE, b"{"), notification())
    (closed,) = acl_changes.CLOSED
    assert of_all(nodes) == [{closed.of(ANN.pattern), PREFIX}] * 2
    assert "everybody is denied everything there" in nodes.members[2].faults[NODE]
    nodes.write(SetData(NODE, data(EVE)), notification())
    assert of_all(nodes) == [{EVE, PREFIX}] * 2


@pytest.mark.parametrize("bad", [b"", b"nothing", b"PLACE:orders", b"\xff"])
def test_a_notification_that_names_nothing_has_all_read_again(bad: bytes) -> None:
    nodes = Nodes(1, 2, **AUTHORIZER)
    create(nodes.members[1], ANN, PREFIX)
    nodes.write(SetData(NODE, data(EVE)), Delete(PREFIX_NODE))
    nodes.write(Create(f"{LITERAL_CHANGES}/acl_changes_", bad, sequential=True))
    assert of_all(nodes) == [{EVE}] * 2
    assert len(nodes.members[2].faults) == 1


def test_a_notification_of_a_name_that_cannot_be_changes_nothing() -> None:
    nodes = Nodes(1, **AUTHORIZER)
    create(nodes.members[1], ANN)
    nodes.write(Create(f"{LITERAL_CHANGES}/acl_changes_", b"TOPIC:a/b", sequential=True))
    assert of_all(nodes) == [{ANN}]


def test_the_controller_deletes_notifications_after_15_minutes() -> None:
    nodes = Nodes(1, 2, **AUTHORIZER)
    create(nodes.members[2], ANN, PREFIX)
    nodes.pass_time(change_notifications.KEEP_MS - 1)
    assert len(nodes.children(LITERAL_CHANGES)) == len(nodes.children(PREFIXED_CHANGES)) == 1
    create(nodes.members[2], BOB)
    nodes.pass_time(1)
    assert len(nodes.children(LITERAL_CHANGES)) == 1, "the newer one"
    assert nodes.children(PREFIXED_CHANGES) == []
    delete(nodes.members[1], AclFilter(*ANN))
    assert of_all(nodes) == [{BOB, PREFIX}] * 2


def test_a_lone_broker_deletes_the_notifications_of_its_last_run() -> None:
    runtime = Runtime(OPTIONS)
    runtime.ask("CreateAcls", creations([ANN, PREFIX]))
    again = next_start(runtime)
    assert set(again.state.acl_bindings()) == {ANN, PREFIX}
    for folder in acl_nodes.CHANGES.values():
        assert list(again.nodes(folder)) == [folder]


def test_acls_of_several_slices_are_all_read() -> None:
    runtime = Runtime(OPTIONS)
    many = {ANN._replace(name=f"t{number}") for number in range(250)}
    for each in many:
        write(runtime.tree, Create(acl_nodes.path(each.pattern), data(each)))
    assert set(next_start(runtime).state.acl_bindings()) == many


def test_children_that_are_no_types_of_resources_are_left_alone() -> None:
    first = Runtime(OPTIONS)
    write(first.tree, Create("/kafka-acl/Place"), Create("/kafka-acl/Place/x", data(ANN)))
    runtime = next_start(first)
    assert (runtime.state.acls, runtime.faults) == ({}, {})


@pytest.mark.parametrize("seed", range(6))
def test_brokers_that_come_go_and_change_acls_all_obey_the_same(seed: int) -> None:
    chance = random.Random(seed)
    nodes = Nodes(1, 2, 3, **AUTHORIZER)
    model: dict[ResourcePattern, set[AclEntry]] = {}
    number = 3
    for _ in range(80):
        member = chance.choice(list(nodes.members.values()))
        kind = chance.choice((LITERAL, PREFIXED))
        name, who = chance.choice("ab*"), chance.choice(("User:a", "User:b", "User:*"))
        binding = AclBinding(acls.GROUP, kind, name, who, "*", 3, chance.choice((2, 3)))
        entry = AclEntry(*binding[3:])
        match chance.choice(("create",) * 4 + ("delete",) * 3 + ("tool", "expire", "die")):
            case "create":
                create(member, binding)
                model.setdefault(binding.pattern, set()).add(entry)
            case "delete":
                delete(member, AclFilter(principal=who, permission=binding.permission))
                for entries in model.values():
                    entries -= {e for e in entries if e[0] == who and e[3] == entry[3]}
            case "tool":
                path = acl_nodes.path(binding.pattern)
                there = nodes.node(path) is not None
                put = SetData(path, data(binding)) if there else Create(path, data(binding))
                nodes.write(put, notification(named=binding))
                model[binding.pattern] = {entry}
            case "expire":
                member.expire()
            case "die":
                member.die()
                number += 1
                Member(nodes, number, **AUTHORIZER)
        nodes.rest()
        wanted = {entry.of(pattern) for pattern, entries in model.items() for entry in entries}
        assert of_all(nodes) == [wanted] * len(nodes.members)
