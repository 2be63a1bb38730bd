"""What `krust serve` shows of the logs it opens: a line on a terminal, lines of the log elsewhere,
nothing of what takes a moment."""

from __future__ import annotations

import io
import logging
import os
import pty

import pytest

from krust.cli.recovering import LINE_S, QUIET_S, RecoveryProgress, StoppedEarly
from krust.server import Recovery

HALF = Recovery(12, 64, 340_000_000, 2_048_000_000)
ALL = Recovery(64, 64, 2_048_000_000, 2_048_000_000)


class Hand:
    """A clock that is moved by hand, and a reason to stop that comes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reason: str | None = None

    def watch(self, *, quiet: bool = False) -> RecoveryProgress:
        return RecoveryProgress(lambda: self.reason, quiet=quiet, clock=lambda: self.now)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Stderr is no terminal."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    caplog.set_level(logging.INFO, "krust")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_progress_on_a_terminal_rewrites_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, "w") as terminal:
            monkeypatch.setattr("sys.stderr", terminal)
            hand = Hand()
            watch = hand.watch()
            watch(HALF)
            hand.now += QUIET_S + 1
            watch(HALF)
            hand.now += 1
            watch(ALL)
            watch.end()
            text = ""
            while not text.endswith("\n"):  # a terminal hands out what it has, and has it in pieces
                text += os.read(master, 10_000).decode()
    finally:
        os.close(master)
    first = "\r\x1b[Krecovering  12 of 64 logs  340 of 2,048 MB checked  2 s"
    assert text == first + "\r\x1b[Krecovering  64 of 64 logs  2,048 of 2,048 MB checked  3 s\r\n"


@pytest.mark.usefixtures("elsewhere")
def test_progress_without_a_terminal_is_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hand = Hand()
    watch = hand.watch()
    for _ in range(30):
        watch(HALF)
        hand.now += LINE_S / 10
    assert len(logged(caplog)) == 3
    watch(ALL)
    watch.end()
    assert logged(caplog)[0].startswith("recovering  12 of 64 logs")
    assert logged(caplog)[3:] == ["recovering  64 of 64 logs  2,048 of 2,048 MB checked  15 s"]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("quiet", [False, True])
def test_progress_of_a_short_or_quiet_recovery_is_not_shown(
    caplog: pytest.LogCaptureFixture, *, quiet: bool
) -> None:
    hand = Hand()
    watch = hand.watch(quiet=quiet)
    watch(Recovery())
    hand.now += 100
    watch(HALF)
    hand.now += 100 if quiet else QUIET_S / 2
    watch(ALL)
    watch.end()
    assert not logged(caplog)


@pytest.mark.usefixtures("elsewhere")
def test_clean_logs_are_opened_without_progress(caplog: pytest.LogCaptureFixture) -> None:
    hand = Hand()
    watch = hand.watch()
    watch(Recovery(1, 10_000))
    hand.now += 2
    watch(Recovery(4_211, 10_000))
    assert logged(caplog) == ["opening  4,211 of 10,000 logs  2 s"]


def test_a_stop_request_ends_the_start() -> None:
    hand = Hand()
    watch = hand.watch()
    watch(HALF)
    hand.reason = "SIGINT"
    with pytest.raises(StoppedEarly, match="SIGINT"):
        watch(HALF)
