"""When a broker recovers its session with the metadata store."""

from math import inf

from krust.controller.session_recovery import RETRY_S, SessionRecovery
from krust.metadata.store import SessionState

NOW_S = 100.0


def test_a_recovery_is_due_when_the_store_is_connected_again() -> None:
    recovery = SessionRecovery()
    assert recovery.wait_s(NOW_S) == inf
    recovery.session_changed(SessionState.SUSPENDED)
    assert recovery.wait_s(NOW_S) == inf
    recovery.session_changed(SessionState.CONNECTED)
    assert recovery.wait_s(NOW_S) == 0


def test_a_recovery_is_due_after_a_write_whose_outcome_is_unknown() -> None:
    recovery = SessionRecovery()
    recovery.outcome_unknown()
    assert recovery.wait_s(NOW_S) == 0
    assert recovery.begin(-1)
    assert recovery.is_running
    recovery.end(NOW_S, failed=False)
    assert recovery.wait_s(NOW_S) == inf


def test_without_a_connection_no_recovery_begins() -> None:
    recovery = SessionRecovery()
    recovery.session_changed(SessionState.EXPIRED)
    recovery.outcome_unknown()
    assert not recovery.begin(-1)
    assert not recovery.is_running


def test_a_failed_recovery_is_repeated_after_a_pause() -> None:
    recovery = SessionRecovery()
    recovery.outcome_unknown()
    assert recovery.begin(-1)
    recovery.end(NOW_S, failed=True)
    assert recovery.wait_s(NOW_S) == RETRY_S
    assert recovery.wait_s(NOW_S + RETRY_S) == 0


def test_a_reason_that_comes_up_during_a_recovery_makes_another_one_due() -> None:
    recovery = SessionRecovery()
    recovery.outcome_unknown()
    assert recovery.begin(-1)
    recovery.outcome_unknown()
    assert recovery.wait_s(NOW_S) == inf
    recovery.end(NOW_S, failed=False)
    assert recovery.wait_s(NOW_S) == 0
