"""What all tests share: which run beside each other, and the minutes each part takes.

With `-n` each worker gets one part of the tests after another. A part is a file, or a folder if its
files share a costly fixture (Spark's session, a cluster, a Kafka). Most tests wait more than they
compute, so there may be more workers than cores. The longest parts begin first, so that no worker
is still busy long after the others.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import zlib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.three_brokers import krust

__all__ = ["krust"]
pytest_plugins = ["pytester"]

# A suite started in the background ignores SIGINT, and so would the commands whose Ctrl-C it tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A Kafka beside a test lives for moments: it compiles quickly. Benches keep Kafka's own options.
os.environ.setdefault("KAFKA_OPTS", "-XX:TieredStopAtLevel=1")

# How long an example takes says how busy the machine is, and nothing else. KRUST_EXAMPLES: more.
settings.register_profile(
    "krust",
    deadline=None,
    max_examples=int(os.environ.get("KRUST_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("krust")

TOGETHER = ("tests/spark", "tests/cluster")
"""folders with one costly set-up for all their files"""
PEERS = ("tests/cli", "tests/clients")
"""folders whose tests run once for each of `tests.three_brokers`, which they share"""
APART = (
    "tests/cluster/test_chaos.py",
    "tests/cluster/test_mixed_replicas.py",
    "tests/cluster/test_replicated_chaos.py",
    "tests/spark/test_pipeline.py",
)
"""files of TOGETHER with a set-up of their own"""
LONGEST = (  # the first to begin
    "tests/spark",
    "tests/spark/test_pipeline.py",
    "tests/foreign/test_every_client_and_codec.py",
    "commands and clients of kafka43",
    "commands and clients of kafka39",
    "commands and clients of krust",
    "tests/foreign/test_compaction.py",
    "tests/faults/test_attack_matrix.py",
    "tests/foreign/test_groups.py",
    "tests/clients/test_scan_local.py",
    "tests/cluster",
    "tests/foreign/test_turns.py",
    "tests/cluster/test_chaos.py",
    "tests/cluster/test_mixed_replicas.py",
    "tests/cluster/test_replicated_chaos.py",
    "tests/foreign/test_server_assignors.py",
    "tests/unit/coordinator/test_simulator.py",
    "tests/unit/spark/test_tables.py",
    "tests/test_documents.py",
)
_ORDER = {part: number for number, part in enumerate(LONGEST)}
_SECONDS: dict[str, float] = defaultdict(float)
_CPU_SECONDS: dict[str, float] = defaultdict(float)
_USED = sum(os.times()[:4])


def part(nodeid: str) -> str:
    """What is run by one worker, in one go."""
    name, _, test = nodeid.partition("::")
    folder = Path(*Path(name).parts[:2]).as_posix()
    if folder in TOGETHER and name not in APART:
        return folder
    if folder in PEERS and (broker := re.search(r"\[(krust|kafka39|kafka43)\b", test)):
        return f"commands and clients of {broker[1]}"
    return name


def meets_another_kafka(name: str) -> bool:
    """Whether a test of a command or client runs beside the other one of two Kafkas.

    Each test has one of them, always the same; `make test-kafkas` runs it beside both.
    """
    test, _, parameters = name.partition("[")
    met = ("kafka39", "kafka43")[zlib.crc32(test.encode()) % 2]
    kafka = re.search(r"\bkafka(39|43)\b", parameters)
    return kafka is not None and kafka[0] != met


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where workers share the tests, each has one Kafka, and the longest parts come first."""
    if hasattr(config, "workerinput") and "KRUST_KAFKA_CLUSTER" not in os.environ:
        left = [item for item in items if meets_another_kafka(item.name)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _ORDER.get(part(item.nodeid), len(_ORDER)))


def pytest_collection_finish() -> None:
    """Modules have read how long they are to search: to krust these are unknown settings.

    A garbage collection need not look at the tests themselves: it would, thousands of times.
    """
    gc.collect()
    gc.freeze()
    for name in ("KRUST_ACL_EVERY", "KRUST_CLUSTER_SEEDS", "KRUST_EXAMPLES", "KRUST_SIM_SEEDS"):
        os.environ.pop(name, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker takes the next part as soon as it is free."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Parts(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return part(nodeid)

    config.option.loadscopereorder = False
    return Parts(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the CPU time since the last report: of this process, and of children that ended."""
    global _USED
    report = yield
    used = sum(os.times()[:4])
    vars(report)["cpu_seconds"], _USED = used - _USED, used
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = part(report.nodeid)
    _SECONDS[name] += report.duration
    _CPU_SECONDS[name] += getattr(report, "cpu_seconds", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The parts that take long. The CPU of a child counts when it has ended: maybe for the next."""
    terminalreporter.section("minutes by part, those of half a minute and more, and their CPU")
    for part, seconds in sorted(_SECONDS.items(), key=lambda item: -item[1]):
        if seconds >= 30 or _CPU_SECONDS[part] >= 30:
            minutes, cpu_minutes = seconds / 60, _CPU_SECONDS[part] / 60
            terminalreporter.write_line(f"  {part:<48} {minutes:5.1f} min {cpu_minutes:5.1f} CPU")
