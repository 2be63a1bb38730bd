"""What all tests share: which run beside each other, and the minutes each part takes."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

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


def part(nodeid: str) -> str:
    """The folder of tests, or the file beside the folders."""
    path = Path(nodeid.partition("::")[0])
    folder = path if path.parent == Path("tests") else Path(*path.parts[:2])
    return folder.as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2` two parts run beside each other; all tests of a part share its brokers."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Parts(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return part(nodeid)

    return Parts(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS[part(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("minutes by part")
    for part, seconds in sorted(_SECONDS.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"  {part:<28} {seconds / 60:5.1f} min")
