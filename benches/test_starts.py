"""Time from the start to the first answer: a broker in this process, and `krust serve`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import krust
from krust import _krust
from tests.serving import ServedBroker

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(autouse=True)
def ours(request: pytest.FixtureRequest) -> None:
    if request.config.option.bootstrap:
        pytest.skip("a broker that runs already is not started")


def test_start_embedded(benchmark: BenchmarkFixture) -> None:
    def run() -> None:
        with krust.Broker() as broker:
            assert _krust.Client(broker.bootstrap).versions()

    benchmark.pedantic(run, rounds=20, warmup_rounds=1)


def test_start_serve(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    numbers = itertools.count()

    def run() -> None:
        with ServedBroker(tmp_path / str(next(numbers))) as broker:
            assert _krust.Client(broker.bootstrap).versions()

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
