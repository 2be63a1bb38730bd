"""Several `krust serve` on one ZooKeeper, for tests that kill, stop and inspect them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from krust._krust import Client
from krust.errors import KrustError
from krust.metadata.ensemble import Credentials, Ensemble
from krust.metadata.zookeeper import end_session
from tests.cluster.disks import Disks
from tests.cluster.network import Network
from tests.peers.zookeeper import LONG_MS, reading_client
from tests.ports import free_ports
from tests.serving import NotReadyError, ServedBroker
from tests.waiting import WAIT_S, until


class Cluster:
    """Brokers 1 to `count`; the first one is the controller at first.

    connect  their ZooKeeper, as the test itself reaches it
    through  as the brokers reach it, if that differs
    replicas  the replication factor of the topics that `create` makes
    network   the namespaces that the brokers run in, if they do
    disks     the disks that are mounted at their log directories, if there are some
    """

    def __init__(
        self,
        folder: Path,
        connect: str,
        count: int = 3,
        *,
        through: str = "",
        replicas: int = 1,
        network: Network | None = None,
        disks: Disks | None = None,
        **settings: Any,
    ) -> None:
        self.connect = through or connect
        self.count = count
        self._folder = folder
        self._settings = settings
        self._replicas = replicas
        self._network, self._disks = network, disks
        self._ports = dict(enumerate(free_ports(count), 1))
        self.brokers: dict[int, ServedBroker] = {}
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)
        again = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=WAIT_S)
        self.tree = reading_client(connect, connection_retry=retry, command_retry=again)
        self.tree.start_async().wait(WAIT_S)
        try:
            for number in range(1, count + 1):
                self.start(number)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def start(self, number: int) -> ServedBroker:
        """Start a broker, or start it again on its port and directory."""
        options = {
            "zookeeper.session.timeout.ms": LONG_MS,
            "offsets.topic.replication.factor": 1,
            **self._settings,
        }
        flags = ("--zookeeper", self.connect, "--node-id", str(number))
        port: int | None = self._ports[number]
        within: list[str] = []
        if self._network is not None:
            options |= self._network.settings(number)
            port, within = None, self._network.command(number)
        if self._disks is not None:
            options |= self._disks.settings(number)
        folder = self._folder / str(number)
        served = ServedBroker(folder, *flags, options=options, port=port, within=within)
        self.brokers[number] = served
        return served

    def start_again(self, number: int) -> None:
        """Start a broker as a supervisor does: again, if it finds no ZooKeeper."""
        until(lambda: self._started(number))

    def _started(self, number: int) -> bool:
        try:
            self.start(number)
        except NotReadyError:
            return False
        return True

    def repair(self) -> None:
        """Start what is down; wait until all brokers know each other and the controller."""
        for number in range(1, self.count + 1):
            if number in self.brokers:
                self.resume(number)
            else:
                self.start(number)
        everybody = list(range(1, self.count + 1))
        until(lambda: all(self._sees(each) == everybody for each in everybody))
        until(lambda: self.known_controllers() == {self.controller})

    def _sees(self, number: int) -> list[int]:
        return sorted(each["node_id"] for each in self.view(number).get("brokers", ()))

    def kill(self, number: int) -> None:
        self.brokers.pop(number).kill()

    def missed(self, number: int) -> None:
        """Wait until the session of a killed or suspended broker has ended."""
        session = json.loads((self.folder(number) / "krust-session.json").read_text())
        credentials = Credentials(session["session"], bytes.fromhex(session["password"]))
        assert end_session(Ensemble(self.connect), credentials)

    def stop(self, number: int) -> None:
        assert self.brokers[number].stop() == 0  # one that hangs stays, so that it is killed
        del self.brokers[number]

    def pause(self, number: int) -> None:
        """Suspend the process; its connections stay open."""
        self.brokers[number].process.send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.brokers[number].process.send_signal(signal.SIGCONT)

    def folder(self, number: int) -> Path:
        """Its log directory."""
        return self._folder / str(number)

    def bootstrap(self, *numbers: int) -> str:
        """The addresses of these brokers; without arguments, of all that run."""
        chosen = numbers or tuple(self.brokers)
        return ",".join(self.brokers[each].bootstrap for each in chosen)

    # -- what it is like

    @property
    def controller(self) -> int:
        """The controller by the tree; -1: there is none."""
        try:
            data, _ = self.tree.retry(self.tree.get, "/controller")
        except NoNodeError:
            return -1
        return int(json.loads(data)["brokerid"])

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return int(self.tree.retry(self.tree.get, "/controller_epoch")[0])

    def ids(self) -> list[int]:
        """The registered brokers."""
        return sorted(map(int, self.tree.retry(self.tree.get_children, "/brokers/ids")))

    def view(self, number: int) -> dict[str, Any]:
        """The answer to Metadata of one broker; empty: there is none."""
        try:
            client = Client(self.brokers[number].bootstrap, {"request.timeout.ms": 20_000})
            return client.request("Metadata", {"topics": None})
        except KrustError:
            return {}

    def known_controllers(self) -> set[int]:
        """The controller as each running broker names it; -1: a broker names none."""
        return {int(self.view(each).get("controller_id", -1)) for each in self.brokers}

    def leaders(self, topic: str, number: int) -> list[int]:
        """The leader of each partition, as a broker names it."""
        for each in self.view(number).get("topics", ()):
            if each["name"] == topic:
                parts = sorted(each["partitions"], key=lambda one: one["partition_index"])
                return [one["leader_id"] for one in parts]
        return []

    def in_sync(self, topic: str, number: int) -> list[list[int]]:
        """The in-sync replicas of each partition, as a broker names them."""
        for each in self.view(number).get("topics", ()):
            if each["name"] == topic:
                parts = sorted(each["partitions"], key=lambda one: one["partition_index"])
                return [sorted(one["isr_nodes"]) for one in parts]
        return []

    def agree(self, topic: str, true: Callable[[list[int]], bool]) -> list[int]:
        """Wait until all running brokers name the same leaders, and `true` holds for them."""

        def found() -> list[int] | None:
            seen = [self.leaders(topic, each) for each in self.brokers]
            return seen[0] if all(each == seen[0] for each in seen) and true(seen[0]) else None

        leaders = until(found)
        assert isinstance(leaders, list)
        return leaders

    def diagnosis(self) -> dict[str, Any]:
        """The controller as the tree and each broker name it."""
        controllers = {each: self.view(each).get("controller_id") for each in self.brokers}
        asked = {"name": "diagnosis", "num_partitions": 1, "replication_factor": 1}
        answers = {}
        for number, each in self.brokers.items():
            client = Client(each.bootstrap, {"request.timeout.ms": 5000})
            try:
                done = client.request("CreateTopics", {"topics": [asked]}, broker=number)
                answers[number] = done["topics"][0]["error_code"]
            except KrustError as error:
                answers[number] = str(error)
        controller = {"controller": self.controller, "epoch": self.epoch, "ids": self.ids()}
        return {**controller, "controllers": controllers, "answers": answers}

    # -- what clients do

    def create(self, name: str, partitions: int = 1, through: str = "", **config: str) -> None:
        """Create a topic; retry while another broker becomes the controller."""
        deadline = time.monotonic() + WAIT_S
        while True:
            # One that has been refused by a former controller would go on asking it.
            admin = AdminClient({"bootstrap.servers": through or self.bootstrap()})
            made = admin.create_topics([NewTopic(name, partitions, self._replicas, config=config)])[
                name
            ]
            try:
                made.result(WAIT_S)
                return
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return  # an answer was lost
                if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                    raise
                assert time.monotonic() < deadline, self.diagnosis()
                time.sleep(0.05)

    def produce(
        self, topic: str, values: Iterable[str], partition: int = -1, **config: Any
    ) -> None:
        """Produce, and check that all records are acknowledged."""
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": self.bootstrap(), **config})
        for value in values:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(WAIT_S) == 0
        assert {str(error) for error in errors} == {"None"}

    def consume(self, topic: str, count: int, group: str = "readers", **config: Any) -> list[str]:
        """Consume this many values as a member of a group, and commit."""
        settings = {
            "bootstrap.servers": self.bootstrap(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_S
        values: list[str] = []
        try:
            while len(values) < count:
                assert time.monotonic() < deadline, values
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    values.append(value.decode())
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return values

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, each in self.brokers.items():
            self.resume(number)
            if kind is not None:
                each.kill()
        for each in self.brokers.values():
            each.__exit__(kind, error, trace)
        self.tree.stop()
        self.tree.close()
