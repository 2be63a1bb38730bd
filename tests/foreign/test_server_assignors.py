"""Real clients in groups for which krust assigns with a user's assignors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.foreign import group_checks
from tests.foreign.members import (
    JAVA_KINDS,
    PARTITIONS,
    PYTHON_KINDS,
    Member,
    fill,
    make,
    members,
    wait_until,
)
from tests.serving import AT_ONCE, ServedBroker

HERE = "tests.foreign.server_assignors"
RULES = {"dealt-*": "Dealt", "raises-*": "Raises", "hangs-*": "Hangs", "lies-*": "Lies"}
EVERYTHING = set(range(PARTITIONS))
MOST_MS = 5000  # a busy machine is no proof of a bad assignor
KINDS = (*PYTHON_KINDS, *(pytest.param(kind, marks=pytest.mark.java) for kind in JAVA_KINDS))


def serving(folder: Path, most_ms: int) -> ServedBroker:
    rules = ",".join(f"{pattern}={HERE}:{kind}" for pattern, kind in RULES.items())
    options: dict[str, object] = {
        **AT_ONCE,
        "krust.group.server.assignor": f"{rules},*=uniform",
        "group.consumer.assignors": f"uniform,{HERE}:Dealt,{HERE}:Raises",
        "krust.group.assignor.timeout.ms": most_ms,
    }
    return ServedBroker(folder / "data", options=options)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with serving(tmp_path_factory.mktemp("assignors"), MOST_MS) as served:
        yield served


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """One that gives up what hangs before the next call has waited too long for its turn."""
    with serving(tmp_path_factory.mktemp("hasty"), 2000) as served:
        yield served


def described(broker: ServedBroker, group: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "krust", "-b", broker.bootstrap, "group", "describe", group]
    run = subprocess.run([*command, "--json"], capture_output=True, check=True)
    [found] = json.loads(run.stdout)
    return dict(found)


def outputs(*all_of_them: Member) -> list[list[dict[str, Any]]]:
    return [list(each.reports) for each in all_of_them]


@pytest.mark.parametrize("kind", KINDS)
def test_clients_take_the_partitions_that_krust_assigns(broker: ServedBroker, kind: str) -> None:
    group = f"dealt-{kind}-{os.getpid()}"
    make(broker.bootstrap, group)
    one, two = (Member(kind, broker.bootstrap, group, group) for _ in range(2))
    with members(one, two):
        wait_until("each has what was dealt", lambda: dealt(one, two))
        two.leave()
        wait_until("one has all", lambda: one.owned() == EVERYTHING)
        one.leave()
    assert described(broker, group)["history"][-1]["trouble"] is None


def dealt(*group: Member) -> bool:
    """Whether each has every n-th partition."""
    found = sorted(sorted(each.owned()) for each in group)
    return found == [list(range(n, PARTITIONS, len(group))) for n in range(len(group))]


@pytest.mark.java
def test_clients_of_every_age_are_in_one_group(broker: ServedBroker) -> None:
    group = f"dealt-mixed-{os.getpid()}"
    make(broker.bootstrap, group)
    fill(broker.bootstrap, group, 0, 5)
    kinds = ("kafka-python-0.9", "confluent-range", "java-4.3.0")
    mixed = [Member(kind, broker.bootstrap, group, group) for kind in kinds]
    with members(*mixed):
        wait_until("each has what was dealt", lambda: dealt(*mixed))
        fill(broker.bootstrap, group, 5, 5)
        wait_until(
            "all is read",
            lambda: (
                {place for each in mixed for place in each.places("record")}
                == {(p, o) for p in range(PARTITIONS) for o in range(10)}
            ),
        )
        mixed[0].leave()
        wait_until("two have what was dealt", lambda: dealt(*mixed[1:]))
        mixed[1].kill()
        wait_until("one has all", lambda: mixed[2].owned() == EVERYTHING)
    assert not group_checks.two_owners(outputs(*mixed))
    assert not group_checks.went_back(outputs(*mixed))


def overlaps(everybody: list[list[dict[str, Any]]]) -> list[str]:
    """Partitions that a member took before another had reported giving them up."""
    reports = sorted(
        (report["at"], who, report) for who, reports in enumerate(everybody) for report in reports
    )
    owner: dict[int, int] = {}
    wrong = []
    for _, who, report in reports:
        for partition in report.get("revoked", ()):
            if owner.get(partition) == who:
                del owner[partition]
        for partition in report.get("assigned", ()):
            if owner.setdefault(partition, who) != who:
                wrong.append(f"{who} took {partition}, {owner[partition]} still had it")
                owner[partition] = who
        if "left" in report:
            owner = {partition: one for partition, one in owner.items() if one != who}
    return wrong


COOPERATIVE = ["confluent-cooperative"] * 2


@pytest.mark.parametrize(
    "kinds",
    [
        (*COOPERATIVE, "confluent-cooperative"),
        pytest.param((*COOPERATIVE, "java-4.3.0-cooperative"), marks=pytest.mark.java),
        # An eager member that votes for the cooperative protocol, as in a rolling upgrade.
        pytest.param(
            ("java-4.3.0-migrating", "java-4.3.0-cooperative", "confluent-cooperative"),
            marks=pytest.mark.java,
        ),
    ],
    ids=["librdkafka", "librdkafka and Java", "eager and cooperative"],
)
def test_a_partition_is_given_up_before_another_member_takes_it(
    broker: ServedBroker, kinds: tuple[str, ...]
) -> None:
    group = f"dealt-letting-go-{kinds[0]}-{kinds[-1]}-{os.getpid()}"
    make(broker.bootstrap, group)
    started: list[Member] = []
    with ExitStack() as stack:
        for kind in kinds:
            started.append(Member(kind, broker.bootstrap, group, group))
            stack.enter_context(members(started[-1]))
            wait_until(f"{len(started)} have what was dealt", lambda: dealt(*started))
        started[0].leave()
        wait_until("two have what was dealt", lambda: dealt(*started[1:]))
    assert not overlaps(outputs(*started))
    assert not group_checks.two_owners(outputs(*started))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("raises", "LookupError: planted"),
        ("hangs", "in assign"),
        ("lies", "dealt-one:0 goes to"),
    ],
)
def test_a_failing_assignor_costs_its_group_only_a_log_line(
    request: pytest.FixtureRequest, rule: str, why: str
) -> None:
    broker = request.getfixturevalue("hasty" if rule == "hangs" else "broker")
    group = f"{rule}-{os.getpid()}"
    make(broker.bootstrap, group)
    one, two = (Member("confluent-range", broker.bootstrap, group, group) for _ in range(2))
    with members(one, two):
        wait_until(
            "each has half",
            lambda: (
                len(one.owned()) == len(two.owned()) == 3
                and one.owned() | two.owned() == EVERYTHING
            ),
        )
        trouble = described(broker, group)["history"][-1]["trouble"]
        assert "failed, uniform assigned instead" in trouble
        assert why.replace("dealt-one", group) in trouble
        assert trouble.splitlines()[0] in broker.stderr()


def newer(bootstrap: str, group: str, assignor: str) -> Any:
    """A member that speaks KIP-848."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "group.remote.assignor": assignor,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([group])
    return consumer


def shares(*consumers: Any) -> list[list[int]]:
    for each in consumers:
        each.poll(0.05)
    return sorted(sorted(place.partition for place in each.assignment()) for each in consumers)


@pytest.mark.parametrize(
    ("assignor", "expected"), [("dealt", [[0, 2, 4], [1, 3, 5]]), ("raises", [3, 3])]
)
def test_members_of_the_newer_protocol_name_their_assignor(
    broker: ServedBroker, assignor: str, expected: list[Any]
) -> None:
    group = f"newer-{assignor}-{os.getpid()}"
    make(broker.bootstrap, group)
    both = [newer(broker.bootstrap, group, assignor) for _ in range(2)]

    def holds() -> bool:
        found = shares(*both)
        return expected in (found, [len(each) for each in found])

    wait_until("each has its share", holds)
    trouble = [each["trouble"] for each in described(broker, group)["history"]]
    for each in both:
        each.close()
    assert ("LookupError: planted" in str(trouble[-1])) == (assignor == "raises")


def test_an_embedded_broker_takes_assignors_as_objects() -> None:
    import krust
    from tests.foreign.server_assignors import Dealt

    config = {**AT_ONCE, "krust.group.assignor.timeout.ms": MOST_MS}
    with krust.Broker(assignors={"red-*": Dealt}, config=config) as embedded:
        embedded.create_topic("red-1", PARTITIONS)
        embedded.create_topic("blue", PARTITIONS)
        one, two = (Member("kafka-python", embedded.bootstrap, "red-1", "red-1") for _ in range(2))
        with members(one, two):
            wait_until("each has what was dealt", lambda: dealt(one, two))
        both = [newer(embedded.bootstrap, "blue", "dealt") for _ in range(2)]
        wait_until("they too", lambda: shares(*both) == [[0, 2, 4], [1, 3, 5]])
        for each in both:
            each.close()
