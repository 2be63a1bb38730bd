"""Ctrl-C and SIGTERM inside `whole`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from krust.cli.interrupts import Terminated, terminable, whole


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Python's own reaction to SIGINT, whatever a library has put in its place."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def doing(interrupts: int) -> list[str]:
    """What was done in `whole` by someone who was interrupted so many times."""
    done = []

    def do() -> None:
        with whole():
            done.append("written")
            for _ in range(interrupts):
                interrupt()
            done.append("marked")

    with pytest.raises(KeyboardInterrupt):
        do()
    return done


def test_protected_work_finishes_before_an_interrupt_acts() -> None:
    assert doing(1) == ["written", "marked"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_second_interrupt_acts_at_once() -> None:
    assert doing(2) == ["written"]


def test_ignored_interrupts_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with whole():
        interrupt()
    interrupt()


def test_protected_work_finishes_before_a_termination_acts() -> None:
    done = []

    def do() -> None:
        with terminable(), whole():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("marked")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated):
        do()
    assert done == ["marked"]
    assert signal.getsignal(signal.SIGTERM) is before
