"""Who may do what: every API under every kind of ACL, on krust and on Kafka.

A reference of 80 lines, answers of real Kafkas (recorded, and with KRUST_KAFKA_CLUSTER=1 asked
again) and krust have to agree in each cell. krust is asked as every fifth user; `make acl-matrix`
asks as all of them. `python -m tests.acl_matrix` records anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acl_matrix import recorded
from tests.acl_matrix.brokers import OF_BROKERS, kafka_answers, krust_answers
from tests.acl_matrix.matrix import WORLDS, World, expected
from tests.peers import zookeeper

by_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
CELLS = 50_000
EVERY = int(os.environ.get("KRUST_ACL_EVERY", "5"))


def test_the_matrix_has_every_cell() -> None:
    assert sum(recorded.count(recorded.load(world)) for world in WORLDS) > CELLS


@by_world
def test_kafka_answered_as_the_reference_says(world: World) -> None:
    assert recorded.differences(recorded.load(world), expected(world)) == []


@by_world
@pytest.mark.timeout(900)
def test_krust_answers_as_kafka_did(world: World, tmp_path: Path) -> None:
    if world.name == OF_BROKERS and (reason := zookeeper.missing()):
        pytest.skip(reason)
    some = world._replace(scenarios=world.scenarios[::EVERY])
    wanted = {**expected(some), **expected(some, of_krust=True)}
    assert recorded.differences(krust_answers(tmp_path, some), wanted) == []


@pytest.mark.java
@by_world
@pytest.mark.timeout(1800)
@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
def test_kafka_answers_as_it_did(world: World, tmp_path: Path) -> None:
    assert recorded.differences(kafka_answers(tmp_path, world), recorded.load(world)) == []
