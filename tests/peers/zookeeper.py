"""A real ZooKeeper beside krust: one server, or an ensemble of them, on free ports of loopback.

The jars come from Maven once, into KAFKA_JARS (~/.cache/krust/kafka), beside Kafka's. Sessions may
be as short as 0.4 s, so that one expires while a test waits. Tests that do not test expiry ask for
LONG_MS, which is longer than any process hangs on a busy machine. A server may be
killed, stopped, paused and started again; what it wrote stays in its folder.
"""

from __future__ import annotations

import functools
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from tests.peers.absent import AbsentError, fetching, kept, need_java_and_maven, why
from tests.ports import free_ports

VERSION = "3.9.4"
TICK_MS = 200
"""sessions last two ticks at least"""
MOST_MS = 600_000
"""and so long at most"""
LONG_MS = 60_000
"""a session that no busy machine ends"""
WAIT_S = 60
ANSWER_S = 5.0
"""how long a server may take for the first answer on a connection"""
_PARTS = (
    ("org.apache.zookeeper", "zookeeper", VERSION),
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JAVA = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")


def jars() -> Path:
    """The folder with ZooKeeper's jars; fetches them if they are missing."""
    return fetched(f"zookeeper-{VERSION}", _PARTS)


def fetched(name: str, parts: Sequence[tuple[str, str, str]]) -> Path:
    """A folder with jars from Maven and all they need; AbsentError: they cannot be had."""
    need_java_and_maven()
    with fetching():
        return _fetched(kept() / name, parts)


def _fetched(folder: Path, parts: Sequence[tuple[str, str, str]]) -> Path:
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
            for group, artifact, version in parts
        )
        (folder / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>krust</groupId><artifactId>peer</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if run.returncode:
            raise AbsentError(f"Maven has no jars for us: {(run.stderr or run.stdout)[-200:]}")
        (folder / "complete").touch()
    return folder / "lib"


@functools.cache
def missing() -> str | None:
    """Why there is no ZooKeeper here; None: there is."""
    return why(jars)


class Server:
    """One server; `start` and `stop` may be called repeatedly."""

    def __init__(self, folder: Path, port: int, lines: list[str], number: int) -> None:
        self.port = port
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._file = folder / "zoo.cfg"
        (folder / "data").mkdir(parents=True)
        (folder / "data/myid").write_text(str(number))
        self._file.write_text("\n".join([f"dataDir={folder / 'data'}", *lines, ""]))

    @property
    def address(self) -> str:
        """host:port for clients"""
        return f"127.0.0.1:{self.port}"

    def launch(self, *options: str) -> None:
        """Start the process; `wait` tells when it serves."""
        command = ["java", *_JAVA, *options, "-cp", f"{jars()}/*", _MAIN, str(self._file)]
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)

    def wait(self) -> None:
        """Return once it serves. AbsentError: it ended, or WAIT_S were not enough."""
        deadline = time.monotonic() + WAIT_S
        while "Mode: " not in self.srvr():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                text = (self._folder / "out").read_text(errors="replace")[-300:]
                raise AbsentError(f"ZooKeeper does not start: {text}")
            time.sleep(0.05)

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.wait()

    def srvr(self) -> str:
        """Its answer to `srvr`, with its mode; empty: no answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as asked:
                asked.sendall(b"srvr")
                return b"".join(iter(lambda: asked.recv(4096), b"")).decode()
        except OSError:
            return ""

    @property
    def leads(self) -> bool:
        """Whether the ensemble follows this one."""
        return "Mode: leader" in self.srvr()

    def pause(self) -> None:
        """Suspend it; connections stay open."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it without warning."""
        self._send(signal.SIGKILL)
        self._ended()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._send(signal.SIGCONT)
            self._send(signal.SIGTERM)
        self._ended()

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _ended(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None


class Ensemble:
    """Servers that are one ZooKeeper."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers

    @property
    def connect(self) -> str:
        """The servers, as `zookeeper.connect` names them."""
        return ",".join(each.address for each in self.servers)

    @property
    def leader(self) -> Server:
        """The one that leads; the only one leads itself."""
        return next((each for each in self.servers if each.leads), self.servers[0])


@contextmanager
def running(
    folder: Path,
    servers: int = 1,
    *more: str,
    tick_ms: int = TICK_MS,
    java: Sequence[str] = (),
) -> Iterator[Ensemble]:
    """A ZooKeeper of this many servers, in `folder`.

    more    lines for its configuration
    java    options of its virtual machine
    raises  AbsentError: there is none, or it does not start
    """
    ports = free_ports(servers * 3)
    common = [
        f"tickTime={tick_ms}",
        f"maxSessionTimeout={MOST_MS}",
        "clientPortAddress=127.0.0.1",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr,mntr",
        "initLimit=50",
        "syncLimit=10",
        "maxClientCnxns=0",
        *more,
    ]
    if servers > 1:
        for number in range(servers):
            peer, election = ports[servers + 2 * number :][:2]
            common.append(f"server.{number + 1}=127.0.0.1:{peer}:{election}")
    made = [
        Server(folder / f"zk{n + 1}", ports[n], [*common, f"clientPort={ports[n]}"], n + 1)
        for n in range(servers)
    ]
    with ExitStack() as stack:
        for each in made:
            stack.callback(each.stop)
            each.launch(*java)
        for each in made:
            each.wait()
        yield Ensemble(made)


def reading_client(connect: str, **options: Any) -> KazooClient:
    """A client with a long session that is not connected. A server that is starting may accept a
    connection and never answer; kazoo would wait as long as a session for it.
    """
    made = KazooClient(connect, LONG_MS / 1000, **options)
    invoking = made._connection._invoke

    def invoke(timeout_s: float, *request: Any, **more: Any) -> Any:
        return invoking(min(timeout_s, ANSWER_S), *request, **more)

    made._connection._invoke = invoke
    return made
