"""DescribeAcls, CreateAcls and DeleteAcls: codes, texts, and what they write."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from krust.controller import acl_nodes, acls, refusals
from krust.controller.acls import ANY, LITERAL, MATCH, PREFIXED, AclBinding, AclFilter
from krust.messages import Message
from krust.metadata.store import Create, Delete, Operation, SetData
from tests.unit.controller.runtime import Runtime, write

OPTIONS: dict[str, object] = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
READ, WRITE = acls.OPERATIONS["Read"], acls.OPERATIONS["Write"]
ANN = AclBinding(acls.TOPIC, LITERAL, "orders", "User:ann", "*", READ, acls.ALLOW)
BOB = ANN._replace(principal="User:bob", operation=WRITE)
EVE = ANN._replace(principal="User:eve", permission=acls.DENY)
PREFIX = ANN._replace(pattern_type=PREFIXED, name="ord")
NODE, PREFIX_NODE = "/kafka-acl/Topic/orders", "/kafka-acl-extended/prefixed/Topic/ord"
DISABLED, INVALID, UNKNOWN, NOT_CONTROLLER = 54, 42, -1, 41
EVERYTHING = AclFilter()


def broker() -> Runtime:
    return Runtime(OPTIONS)


def next_start(runtime: Runtime) -> Runtime:
    """The same broker after a restart."""
    runtime.store.close()
    return Runtime(OPTIONS, tree=runtime.tree)


def creations(bindings: Sequence[AclBinding]) -> Message:
    return {
        "creations": [
            {
                "resource_type": each.resource_type,
                "resource_pattern_type": each.pattern_type,
                "resource_name": each.name,
                "principal": each.principal,
                "host": each.host,
                "operation": each.operation,
                "permission_type": each.permission,
            }
            for each in bindings
        ]
    }


def fields(wanted: AclFilter) -> dict[str, object]:
    return {
        "resource_type_filter": wanted.resource_type or ANY,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type or ANY,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation or ANY,
        "permission_type": wanted.permission or ANY,
    }


def create(runtime: Runtime, *bindings: AclBinding) -> list[tuple[int, str]]:
    answer = runtime.ask("CreateAcls", creations(bindings))
    return [(each["error_code"], each["error_message"]) for each in answer["results"]]


def described(runtime: Runtime, wanted: AclFilter = EVERYTHING) -> set[AclBinding]:
    answer = runtime.ask("DescribeAcls", fields(wanted))
    assert answer["error_code"] == 0, answer
    found = [
        AclBinding(
            *(resource["resource_type"], resource["pattern_type"], resource["resource_name"]),
            *(each["principal"], each["host"], each["operation"], each["permission_type"]),
        )
        for resource in answer["resources"]
        for each in resource["acls"]
    ]
    assert len(found) == len(set(found))
    return set(found)


def delete(runtime: Runtime, *filters: AclFilter) -> list[set[AclBinding]]:
    answer = runtime.ask("DeleteAcls", {"filters": [fields(each) for each in filters]})
    out = []
    for each in answer["filter_results"]:
        assert each["error_code"] == 0, answer
        for match in each["matching_acls"]:
            assert match["error_code"] == 0, answer
        out.append({_matched(match) for match in each["matching_acls"]})
    return out


def _matched(match: dict[str, Any]) -> AclBinding:
    return AclBinding(
        *(match["resource_type"], match["pattern_type"], match["resource_name"]),
        *(match["principal"], match["host"], match["operation"], match["permission_type"]),
    )


def entries(runtime: Runtime, path: str = NODE) -> set[str]:
    """The principals in a node."""
    folder = path.rpartition("/")[0]
    data = runtime.nodes(folder)[path][0].encode()
    return {each.principal for each in acl_nodes.decode(data)}


def changes(runtime: Runtime, folder: str = "/kafka-acl-changes") -> list[str]:
    found = runtime.nodes(folder)
    return [data for path, (data, _) in sorted(found.items()) if path != folder]


def test_without_an_authorizer_every_item_is_refused_with_security_disabled() -> None:
    runtime = Runtime()
    answer: Any = runtime.ask("DescribeAcls", fields(EVERYTHING))
    text = "No Authorizer is configured"
    assert (answer["error_code"], answer["error_message"]) == (DISABLED, f"{text} on the broker")
    assert create(runtime, ANN, BOB) == [(DISABLED, f"{text}.")] * 2
    answer = runtime.ask("DeleteAcls", {"filters": [fields(EVERYTHING)] * 3})
    assert [each["error_code"] for each in answer["filter_results"]] == [DISABLED] * 3
    assert not any(path.startswith("/kafka-acl") for path in runtime.nodes())


def test_with_a_class_that_gives_acls_every_item_is_refused_with_its_name() -> None:
    runtime = Runtime({"authorizer.class.name": "teams:Teams"})
    answer: Any = runtime.ask("DescribeAcls", fields(EVERYTHING))
    text = "a class of the user's decides what clients may do: authorizer.class.name is teams:Teams"
    assert (answer["error_code"], answer["error_message"]) == (DISABLED, text)
    assert create(runtime, ANN) == [(DISABLED, text)]
    answer = runtime.ask("DeleteAcls", {"filters": [fields(EVERYTHING)]})
    assert [each["error_message"] for each in answer["filter_results"]] == [text]
    assert not any(path.startswith("/kafka-acl") for path in runtime.nodes())


def test_created_acls_are_described_by_their_patterns_and_are_in_kafkas_nodes() -> None:
    runtime = broker()
    assert create(runtime, ANN, BOB, PREFIX) == [(0, "")] * 3
    assert described(runtime) == {ANN, BOB, PREFIX}
    answer = runtime.ask("DescribeAcls", fields(EVERYTHING))
    assert [(each["resource_name"], len(each["acls"])) for each in answer["resources"]] == [
        ("orders", 2),
        ("ord", 1),
    ]
    assert entries(runtime) == {"User:ann", "User:bob"}
    assert entries(runtime, PREFIX_NODE) == {"User:ann"}
    assert changes(runtime) == ["TOPIC:orders"], "the two of one pattern are one change"
    assert len(changes(runtime, "/kafka-acl-extended-changes")) == 1
    assert set(runtime.state.acl_bindings()) == {ANN, BOB, PREFIX}


def test_an_acl_that_is_there_and_one_named_twice_are_fine_and_write_nothing() -> None:
    runtime = broker()
    assert create(runtime, ANN, ANN) == [(0, "")] * 2
    assert create(runtime, ANN) == [(0, "")]
    assert described(runtime) == {ANN}
    assert changes(runtime) == ["TOPIC:orders"]


def test_a_filter_describes_what_it_matches() -> None:
    runtime = broker()
    everyones = ANN._replace(name="*")
    create(runtime, ANN, BOB, EVE, PREFIX, everyones)
    assert described(runtime, AclFilter(principal="User:bob")) == {BOB}
    assert described(runtime, AclFilter(permission=acls.DENY)) == {EVE}
    matching = AclFilter(acls.TOPIC, MATCH, "orders", operation=READ)
    assert described(runtime, matching) == {ANN, EVE, PREFIX, everyones}
    assert described(runtime, AclFilter(acls.GROUP)) == set()


@pytest.mark.parametrize(
    ("field", "number", "text"),
    [
        ("resource_type_filter", 0, "Unknown patternFilter."),
        ("pattern_type_filter", 5, "Unknown patternFilter."),
        ("operation", 15, "Unknown entryFilter."),
        ("permission_type", 0, "Unknown entryFilter."),
    ],
)
def test_a_filter_that_nobody_knows_is_refused_alone(field: str, number: int, text: str) -> None:
    runtime = broker()
    create(runtime, ANN)
    bad = {**fields(EVERYTHING), field: number}
    answer: Any = runtime.ask("DescribeAcls", bad)
    assert (answer["error_code"], answer["error_message"]) == (INVALID, text)
    answer = runtime.ask("DeleteAcls", {"filters": [bad, fields(AclFilter(name="other"))]})
    first, second = answer["filter_results"]
    assert (first["error_code"], first["error_message"]) == (INVALID, text)
    assert (second["error_code"], second["matching_acls"]) == (0, [])
    assert described(runtime) == {ANN}


def test_a_binding_that_cannot_be_is_refused_and_those_beside_it_are_made() -> None:
    runtime = broker()
    bad = {
        "Invalid patternType MATCH": ANN._replace(pattern_type=MATCH),
        "Invalid resourceType UNKNOWN": ANN._replace(resource_type=99),
        "Invalid empty resource name": ANN._replace(name=""),
        "The only valid name for the CLUSTER resource is kafka-cluster": ANN._replace(
            resource_type=acls.CLUSTER
        ),
    }
    answer = create(runtime, *bad.values(), ANN)
    assert answer == [*((INVALID, text) for text in bad), (0, "")]
    assert described(runtime) == {ANN}


def test_requests_of_version_0_mean_literal_patterns() -> None:
    runtime = broker()
    (creation,) = creations([ANN])["creations"]
    del creation["resource_pattern_type"]
    assert runtime.ask("CreateAcls", {"creations": [creation]}, 0)["results"][0]["error_code"] == 0
    create(runtime, PREFIX)
    wanted = {**fields(EVERYTHING)}
    del wanted["pattern_type_filter"]
    assert len(runtime.ask("DescribeAcls", wanted, 0)["resources"]) == 1
    runtime.ask("DeleteAcls", {"filters": [wanted]}, 0)
    assert described(runtime) == {PREFIX}


def test_cve_2024_27309_the_other_acls_of_a_resource_hold_after_one_is_removed() -> None:
    runtime = broker()
    create(runtime, ANN, BOB, EVE)
    assert delete(runtime, AclFilter(*ANN)) == [{ANN}]
    assert set(runtime.state.acl_bindings()) == {BOB, EVE}, "what the core gets"
    assert described(runtime) == {BOB, EVE}
    assert entries(runtime) == {"User:bob", "User:eve"}
    assert set(next_start(runtime).state.acl_bindings()) == {BOB, EVE}, "the next start"


def test_the_node_goes_with_the_last_acl_and_comes_back_with_the_next() -> None:
    runtime = broker()
    create(runtime, ANN, BOB)
    assert delete(runtime, AclFilter(*ANN)) == [{ANN}]
    assert delete(runtime, AclFilter(*BOB)) == [{BOB}]
    assert NODE not in runtime.nodes("/kafka-acl")
    assert runtime.state.acls == {}
    assert changes(runtime) == ["TOPIC:orders"] * 3
    create(runtime, EVE)
    assert entries(runtime) == {"User:eve"}


def test_an_acl_that_several_filters_match_belongs_to_the_first() -> None:
    runtime = broker()
    create(runtime, ANN, BOB, PREFIX)
    found = delete(runtime, AclFilter(operation=READ), AclFilter(name="orders"), AclFilter())
    assert found == [{ANN, PREFIX}, {BOB}, set()]
    assert described(runtime) == set()
    assert delete(runtime, AclFilter(*ANN), AclFilter(name="a/b")) == [set(), set()]


def test_acls_that_another_broker_made_since_are_deleted_and_kept() -> None:
    runtime = broker()
    create(runtime, ANN)
    there = {acl_nodes.AclEntry(*each[3:]) for each in (ANN, BOB, EVE)}
    write(runtime.tree, SetData(NODE, acl_nodes.encode(there)))
    assert delete(runtime, AclFilter(*BOB)) == [{BOB}], "it is not known here yet"
    assert entries(runtime) == {"User:ann", "User:eve"}
    create(runtime, ANN)
    assert described(runtime) == {ANN, EVE}, "what was read for a write holds"


class Meddler:
    """A store in which somebody else writes before each of the first writes of a node."""

    def __init__(self, runtime: Runtime, *writes: list[Operation]) -> None:
        self._submit, self._left = runtime.store.submit, list(writes)
        self._tree = runtime.tree

    def submit(self, operations: Sequence[Operation], token: Any) -> None:
        if self._left and not any(hasattr(each, "watch") for each in operations):
            write(self._tree, *self._left.pop(0))
        self._submit(operations, token)


def test_a_write_that_meets_another_is_made_again_on_what_the_other_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = broker()
    bob, both = ({acl_nodes.AclEntry(*each[3:]) for each in some} for some in ([BOB], [BOB, EVE]))
    meddler = Meddler(
        runtime,
        [Create(NODE, acl_nodes.encode(bob))],
        [SetData(NODE, acl_nodes.encode(both))],
        [Delete(NODE)],
    )
    monkeypatch.setattr(runtime.store, "submit", meddler.submit)
    assert create(runtime, ANN) == [(0, "")]
    assert entries(runtime) == {"User:ann"}, "the others were deleted meanwhile"
    assert described(runtime) == {ANN}


def test_a_write_that_meets_another_each_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = broker()
    create(runtime, BOB)
    same = acl_nodes.encode({acl_nodes.AclEntry(*BOB[3:])})
    again: list[Operation] = [SetData(NODE, same)]
    meddler = Meddler(runtime, *[again] * 99)
    monkeypatch.setattr(runtime.store, "submit", meddler.submit)
    ((code, text),) = create(runtime, ANN)
    assert (code, text) == (NOT_CONTROLLER, f"{NODE}: the node has another version")
    answer = runtime.ask("DeleteAcls", {"filters": [fields(AclFilter(*BOB))]})
    (match,) = answer["filter_results"][0]["matching_acls"]
    assert (match["error_code"], _matched(match)) == (NOT_CONTROLLER, BOB)
    assert described(runtime) == {BOB}


def test_missing_parents_are_made_again() -> None:
    runtime = broker()
    write(runtime.tree, Delete("/kafka-acl/Topic"), Delete("/kafka-acl-changes"))
    assert create(runtime, ANN) == [(0, "")]
    assert entries(runtime) == {"User:ann"}


def test_a_node_that_cannot_be_read_denies_all_is_not_overwritten_and_can_be_deleted() -> None:
    first = broker()
    write(first.tree, Create(NODE, b"{"))
    runtime = next_start(first)
    assert "until it is repaired" in runtime.faults[NODE]
    denies = AclBinding(*ANN[:3], "User:*", "*", acls.ALL, acls.DENY)
    assert set(runtime.state.acl_bindings()) == {denies}
    ((code, text),) = create(runtime, ANN)
    assert (code, "delete its ACLs, and create them again" in text) == (UNKNOWN, True)
    assert delete(runtime, AclFilter(*BOB)) == [set()]
    assert runtime.nodes(NODE)[NODE][0] == "{"
    assert delete(runtime, AclFilter(acls.TOPIC, LITERAL, "orders")) == [{denies}]
    assert create(runtime, ANN) == [(0, "")]
    assert described(runtime) == {ANN}


def test_a_node_that_gets_too_large_is_refused_and_stays() -> None:
    runtime = broker()
    create(runtime, ANN)
    many = [ANN._replace(principal=f"User:{number:01000}") for number in range(1000)]
    answer = create(runtime, *many, PREFIX)
    assert {code for code, _ in answer[:-1]} == {UNKNOWN}
    assert answer[-1] == (0, "")
    assert described(runtime) == {ANN, PREFIX}


def test_long_requests_go_in_slices() -> None:
    runtime = broker()
    many = [ANN._replace(name=f"t{number}") for number in range(120)]
    pauses = runtime.pauses
    create(runtime, *many)
    assert runtime.pauses - pauses >= 120 // 5
    pauses = runtime.pauses
    assert described(runtime) == set(many)
    assert runtime.pauses - pauses >= 1
    pauses = runtime.pauses
    assert delete(runtime, AclFilter(principal="User:ann")) == [set(many)]
    assert runtime.pauses - pauses >= 120


def test_a_request_that_is_refused_as_a_whole_has_an_answer_for_each_item() -> None:
    message: Any = creations([ANN, BOB])
    answer = refusals.acl_creations(message, UNKNOWN, "no")  # type: ignore[arg-type]
    assert [each["error_message"] for each in answer["results"]] == ["no", "no"]


def _random_binding(chance: random.Random) -> AclBinding:
    kind = chance.choice((acls.TOPIC, acls.GROUP))
    pattern = chance.choice((LITERAL, PREFIXED))
    name = chance.choice(("a", "ab", "*", "b"))
    who = chance.choice(("User:a", "User:*"))
    return AclBinding(
        *(kind, pattern, name, who),
        *(chance.choice(("*", "h")), chance.choice((READ, acls.ALL)), chance.choice((2, 3))),
    )


def _random_filter(chance: random.Random) -> AclFilter:
    like: list[Any] = list(_random_binding(chance))
    for index in range(len(like)):
        if chance.random() < 0.4:
            like[index] = None
    if chance.random() < 0.3:
        like[1] = MATCH
    return AclFilter(*like)


@pytest.mark.parametrize("seed", range(5))
def test_any_creations_and_deletions_leave_what_a_set_has(seed: int) -> None:
    chance = random.Random(seed)
    runtime = broker()
    model: set[AclBinding] = set()
    for _ in range(60):
        if chance.random() < 0.6:
            made = [_random_binding(chance) for _ in range(chance.randrange(1, 5))]
            assert create(runtime, *made) == [(0, "")] * len(made)
            model.update(made)
        else:
            filters = [_random_filter(chance) for _ in range(chance.randrange(1, 4))]
            expected: list[set[AclBinding]] = []
            for wanted in filters:
                expected.append({each for each in model if wanted.matches(each)})
                model -= expected[-1]
            assert delete(runtime, *filters) == expected
        assert set(runtime.state.acl_bindings()) == model
    wanted = _random_filter(chance)
    assert described(runtime, wanted) == {each for each in model if wanted.matches(each)}
    assert set(next_start(runtime).state.acl_bindings()) == model, "the next start"
