"""The cost of groups: members that join together, and sequential offset commits."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import krust

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

ROUNDS, COMMITS, PATIENCE_S = 5, 200, 60


@pytest.mark.parametrize("clients", [1, 4])
def test_joins(
    clients: int, bootstrap: str, make_topic: Callable[[int], str], benchmark: BenchmarkFixture
) -> None:
    """From the members' subscription until each partition has its reader."""
    topic = make_topic(4)

    def run() -> int:
        group, until = uuid.uuid4().hex, time.monotonic() + PATIENCE_S
        members = [
            krust.Consumer(bootstrap_servers=bootstrap, group_id=group) for _ in range(clients)
        ]
        for member in members:
            member.subscribe([topic])

        def even(pool: ThreadPoolExecutor) -> bool:
            list(pool.map(lambda member: member.poll(20), members))
            return [len(member.assignment()) for member in members] == [4 // clients] * clients

        with ThreadPoolExecutor(clients) as pool:
            while not even(pool):
                assert time.monotonic() < until, "the group is not even"
            list(pool.map(lambda member: member.close(), members))
        return clients

    assert benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1) == clients
    benchmark.extra_info.update({"clients": clients, "records": clients})


@pytest.mark.parametrize("clients", [1, 4])
def test_commits(
    clients: int, bootstrap: str, make_topic: Callable[[int], str], benchmark: BenchmarkFixture
) -> None:
    """Each client commits for a group of its own, and waits for each answer."""
    topic = make_topic(1)
    consumers = [
        krust.Consumer(bootstrap_servers=bootstrap, group_id=uuid.uuid4().hex)
        for _ in range(clients)
    ]
    for consumer in consumers:
        consumer.assign([(topic, 0, 0)])

    def commit(consumer: krust.Consumer) -> int:
        for offset in range(COMMITS):
            consumer.commit({(topic, 0): offset})
        return COMMITS

    with ThreadPoolExecutor(clients) as pool:
        run = lambda: sum(pool.map(commit, consumers))  # noqa: E731
        done = benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
        list(pool.map(lambda consumer: consumer.close(), consumers))
    assert done == COMMITS * clients
    benchmark.extra_info.update({"clients": clients, "records": done})
