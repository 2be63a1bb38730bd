"""What all tests share: the minutes each part of them takes, for `.ci/run` to report."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# A suite started in the background ignores SIGINT, and so would the commands whose Ctrl-C it tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

_SECONDS: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = Path(report.nodeid.partition("::")[0])
    folder = path if path.parent == Path("tests") else Path(*path.parts[:2])
    _SECONDS[folder.as_posix()] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("minutes by part")
    for part, seconds in sorted(_SECONDS.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"  {part:<28} {seconds / 60:5.1f} min")
