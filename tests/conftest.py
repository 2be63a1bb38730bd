"""What all tests share: the minutes each part of them takes, for `.ci/run` to report."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# A suite started in the background ignores SIGINT, and so would the commands whose Ctrl-C it tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is, and nothing else. KRUST_EXAMPLES: more.
settings.register_profile(
    "krust",
    deadline=None,
    max_examples=int(os.environ.get("KRUST_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("krust")

_SECONDS: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = Path(report.nodeid.partition("::")[0])
    folder = path if path.parent == Path("tests") else Path(*path.parts[:2])
    _SECONDS[folder.as_posix()] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("minutes by part")
    for part, seconds in sorted(_SECONDS.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"  {part:<28} {seconds / 60:5.1f} min")
