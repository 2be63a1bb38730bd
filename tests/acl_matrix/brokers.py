"""Brokers that are asked the matrix."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.acl_matrix.matrix import Cells, World, measured, settings
from tests.peers import kafka, zookeeper
from tests.ports import free_ports
from tests.serving import ServedBroker

OF_BROKERS = "brokers"
AMONG_BROKERS = {
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "zookeeper.session.timeout.ms": zookeeper.LONG_MS,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
"""krust serves what brokers ask only where brokers are served, and only among several"""
WITH_CONTROLLER = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
    "CONTROLLER:PLAINTEXT"
}


def krust_answers(folder: Path, world: World) -> Cells:
    """What krust answers. AbsentError: there is no ZooKeeper, which makes it a broker of several"""
    [port] = free_ports(1)
    options = settings(world, port)
    options["listeners"] = str(options["listeners"]).replace("{bootstrap}", "127.0.0.1:0")
    with ExitStack() as stack:
        if world.name == OF_BROKERS:
            ensemble = stack.enter_context(zookeeper.running(folder))
            options |= AMONG_BROKERS
            options |= {"zookeeper.connect": ensemble.connect, "broker.id": 1}
        stack.enter_context(ServedBroker(folder / "data", port=None, options=options))
        return measured(f"127.0.0.1:{port}", world)


def kafka_answers(folder: Path, world: World) -> Cells:
    """What the world's Kafka answers. AbsentError: it cannot be had"""
    [port] = free_ports(1)
    options = settings(world, port)
    if world.kafka != "3.9.1":
        options |= WITH_CONTROLLER
        options["listeners"] = f"{options['listeners']},CONTROLLER://{{controller}}"
    with kafka.running(world.kafka, folder, options):
        return measured(f"127.0.0.1:{port}", world)
