"""Three brokers on one ZooKeeper, each of them a Kafka 3.9.1 or a krust on the same directory.

A broker keeps its number, its port and its log directory when it changes its kind, so that clients
and other brokers see one broker that restarts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import NoNodeError

from krust._krust import Client
from krust.errors import KrustError
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.peers.zookeeper import reading_client
from tests.ports import free_ports
from tests.serving import NotReadyError, ServedBroker
from tests.waiting import WAIT_S, until

BROKERS = (1, 2, 3)
KAFKA, KRUST = "kafka", "krust"


class MixedCluster:
    """Brokers 1 to 3, each in a rack of its own, `rack-1` to `rack-3`. None runs at first.

    connect   their ZooKeeper
    settings  of all of them, by Kafka's keys
    """

    def __init__(self, folder: Path, connect: str, settings: dict[str, object]) -> None:
        self._folder, self._connect, self._settings = folder, connect, settings
        self._ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.kinds: dict[int, str] = {}
        """the kind of each broker that runs"""
        self._served: dict[int, ServedBroker] = {}
        hosts, _, root = connect.partition("/")
        self._tree = reading_client(hosts)
        self._tree.start(WAIT_S)
        self._tree.ensure_path(f"/{root}")
        self._tree.chroot = f"/{root}"

    @property
    def bootstrap(self) -> str:
        """The addresses of all three, whether they run or not."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def address(self, number: int) -> str:
        """The address of a broker."""
        return f"127.0.0.1:{self._ports[number]}"

    def log_dir(self, number: int) -> Path:
        """The log directory of a broker, of either kind."""
        return self._folder / str(number) / "data"

    # -- their lives

    def start(self, number: int, kind: str) -> None:
        """Start a broker; if it finds its old registration, or no ZooKeeper, again."""
        assert number not in self.kinds
        until(lambda: self._started(number, kind))
        self.kinds[number] = kind

    def _started(self, number: int, kind: str) -> bool:
        try:
            if kind == KAFKA:
                self._start_kafka(number)
            else:
                self._start_krust(number)
        except (AbsentError, NotReadyError):
            return False
        return True

    def _start_kafka(self, number: int) -> None:
        extra = "\n".join(f"{key}={value}" for key, value in self._settings_of(number).items())
        arguments = [str(self._folder / str(number)), str(self._ports[number]), self._connect]
        run = subprocess.run(
            [kafka.SCRIPT, "start", "3.9.1", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "EXTRA": f"{extra}\nbroker.id={number}"},
        )
        if run.returncode:
            raise AbsentError(run.stderr[-300:])

    def _start_krust(self, number: int) -> None:
        self.log_dir(number).parent.mkdir(exist_ok=True)
        flags = ("--zookeeper", self._connect, "--node-id", str(number), "--prod")
        self._served[number] = ServedBroker(
            self.log_dir(number),
            *flags,
            options=self._settings_of(number),
            port=self._ports[number],
        )

    def _settings_of(self, number: int) -> dict[str, object]:
        return {**self._settings, "broker.rack": f"rack-{number}"}

    def stop(self, number: int) -> None:
        """Stop a broker in order."""
        kind = self.kinds.pop(number)
        if kind == KRUST:
            assert self._served.pop(number).stop() == 0
        else:
            subprocess.run([kafka.SCRIPT, "stop", str(self._folder / str(number))], check=True)

    def kill(self, number: int) -> None:
        """Kill a broker without warning."""
        kind = self.kinds.pop(number)
        if kind == KRUST:
            self._served.pop(number).kill()
        else:
            process = kafka.pid(self._folder / str(number))
            os.kill(process, signal.SIGKILL)
            until(lambda: not Path(f"/proc/{process}/cmdline").read_bytes())

    # -- what they say

    @property
    def controller(self) -> int:
        """The controller by the tree; -1: there is none."""
        try:
            return int(json.loads(self._tree.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return -1

    def move_controller(self) -> None:
        """End the term of the controller; one of the brokers is elected."""
        epoch = self._tree.get("/controller_epoch")[0]
        with contextlib.suppress(NoNodeError):
            self._tree.delete("/controller")
        until(lambda: self._tree.get("/controller_epoch")[0] != epoch)

    def partitions(self, topic: str, through: int) -> list[dict[str, Any]]:
        """The partitions of a topic as one broker describes them; empty: it does not."""
        try:
            client = Client(f"127.0.0.1:{self._ports[through]}", {"request.timeout.ms": 10_000})
            view = client.request("Metadata", {"topics": [{"name": topic}]})
        except KrustError:
            return []
        described: list[dict[str, Any]] = view["topics"][0]["partitions"]
        return sorted(described, key=lambda each: int(each["partition_index"]))

    def leaders(self, topic: str) -> list[int]:
        """The leader of each partition."""
        return [each["leader_id"] for each in self.partitions(topic, next(iter(self.kinds)))]

    def wait_in_sync(self, topic: str, count: int) -> None:
        """Wait until each broker that runs names every replica of a topic in sync."""

        def all_in_sync() -> bool:
            views = [self.partitions(topic, number) for number in self.kinds]
            whole = [sorted(self.kinds)] * count
            return all([sorted(one["isr_nodes"]) for one in view] == whole for view in views)

        until(all_in_sync)

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """Create a topic with a replica on each broker."""
        deadline = time.monotonic() + WAIT_S
        while True:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            made = NewTopic(topic, partitions, len(BROKERS), config=config)
            try:
                admin.create_topics([made])[topic].result(WAIT_S)
                return
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in list(self.kinds):
            if kind is None:
                self.stop(number)
            else:
                self.kill(number)
        self._tree.stop()
        self._tree.close()
