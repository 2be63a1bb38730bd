"""Brokers are moved from plain text to TLS with logins, one restart at a time, under load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import krust
from krust import Admin, jaas
from tests.certificates import Authority
from tests.cluster.brokers import Cluster
from tests.cluster.test_sasl import add_user
from tests.peers.zookeeper import LONG_MS
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

WAIT_MS = 60_000
NODES = (1, 2, 3)
PARTITIONS = 6
BROKER = f'{jaas.SCRAM} required username="broker" password="broker-secret";'
OPEN, SECURED = "OPEN", "SECURED"
STEPS = {
    "plain": ((OPEN,), OPEN),
    "both": ((OPEN, SECURED), OPEN),
    "between brokers": ((OPEN, SECURED), SECURED),
    "secured": ((SECURED,), SECURED),
}
"""The listeners of each step, and the one between brokers: as docs/security.md says."""


class Brokers:
    """Three brokers that are restarted one by one with other listeners."""

    def __init__(self, folder: Path, connect: str, authority: Authority) -> None:
        self._folder, self._connect, self.authority = folder, connect, authority
        self._pem = str(authority.certify("broker", "IP:127.0.0.1"))
        ports = free_ports(2 * len(NODES))
        self.ports = {
            name: dict(zip(NODES, ports[start::2], strict=True))
            for start, name in enumerate((OPEN, SECURED))
        }
        self.running = {node: self._served(node, "plain") for node in NODES}

    def at(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports[listener].values())

    def client(self, listener: str) -> dict[str, object]:
        settings: dict[str, object] = {"bootstrap.servers": self.at(listener)}
        if listener == SECURED:
            settings |= {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.location": str(self.authority.certificate),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "broker",
                "sasl.password": "broker-secret",
            }
        return settings

    def roll(self, step: str) -> None:
        """Restart the brokers with the listeners of a step, each when the last one is in sync."""
        for node in NODES:
            assert self.running[node].stop() == 0
            self.running[node] = self._served(node, step)
            until(partial(self._in_sync, STEPS[step][0][-1]))

    def _in_sync(self, listener: str) -> bool:
        with Admin(self.client(listener)) as admin:
            [topic] = admin.request("Metadata", {"topics": [{"name": "t"}]})["topics"]
        return all(len(each["isr_nodes"]) == len(NODES) for each in topic["partitions"])

    def _served(self, node: int, step: str) -> ServedBroker:
        names, between = STEPS[step]
        listeners = ",".join(f"{name}://127.0.0.1:{self.ports[name][node]}" for name in names)
        options: dict[str, object] = {
            "broker.id": node,
            "listeners": listeners,
            "listener.security.protocol.map": "OPEN:PLAINTEXT,SECURED:SASL_SSL",
            "inter.broker.listener.name": between,
            "krust.inter.broker.listeners": ",".join(names),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": BROKER,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "zookeeper.connect": self._connect,
            "zookeeper.session.timeout.ms": LONG_MS,
            "min.insync.replicas": 2,
        }
        return ServedBroker(self._folder / str(node), port=None, options=options)


class Load:
    """Writes numbered records with acks=all, from a thread, until it ends."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._settings = settings
        self._ends = threading.Event()
        self.acknowledged: list[bytes] = []
        self.failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        with krust.Producer(self._settings, acks="all") as producer:
            while not self._ends.wait(0.002):
                value = str(number).encode()
                try:
                    producer.send("t", value, partition=number % PARTITIONS).result(WAIT_MS)
                except krust.KrustError as error:
                    self.failed.append(error)
                    return
                self.acknowledged.append(value)
                number += 1

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@contextmanager
def loaded(settings: dict[str, object]) -> Iterator[Load]:
    load = Load(settings)
    try:
        yield load
    finally:
        load.end()


def test_no_acknowledged_record_is_lost_on_the_way_from_plain_text_to_logins_over_tls(
    shared: Cluster, tmp_path: Path
) -> None:
    connect = f"{shared.connect}/rolling"
    add_user(tmp_path, "broker", connect)
    brokers = Brokers(tmp_path, connect, Authority(tmp_path / "authority"))
    try:
        made = Admin(brokers.client(OPEN))
        made.create_topic("t", partitions=PARTITIONS, replication_factor=len(NODES))
        with loaded(brokers.client(OPEN)) as first:
            brokers.roll("both")
            brokers.roll("between brokers")
        with loaded(brokers.client(SECURED)) as second:
            brokers.roll("secured")
        assert (first.failed, second.failed) == ([], [])
        found: list[bytes] = []
        written = sorted(first.acknowledged + second.acknowledged)
        with krust.Consumer(brokers.client(SECURED)) as consumer:
            consumer.assign([("t", number, 0) for number in range(PARTITIONS)])
            while len(found) < len(written):
                found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
        assert sorted(found) == written
    finally:
        for each in brokers.running.values():
            each.stop()
