"""krust: a Kafka broker inside a Python package. Rust moves bytes; Python makes decisions.

    with krust.Broker() as broker:       # a temporary directory, a free port
        print(broker.bootstrap)          # "127.0.0.1:40713": any Kafka client connects there
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.produce("orders", b"value", key=b"key")

Importing this module imports no other module. Each public name imports its module on first use, so
the command line and the pytest plugin start without the native core.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from krust._krust import Record
    from krust.clients.acls import Acl
    from krust.clients.admin import Admin
    from krust.clients.aio import AsyncConsumer, AsyncProducer
    from krust.clients.aio_admin import AsyncAdmin
    from krust.clients.consumer import Consumer
    from krust.clients.coordinator_client import GroupMetadata
    from krust.clients.producer import Producer
    from krust.cluster import Cluster
    from krust.controller.authorizers import AclClient, Authorizer, ClientAcl
    from krust.coordinator.assignors.assignor import Assignor, GroupSpec
    from krust.coordinator.assignors.simulation import simulate
    from krust.coordinator.consumer_protocol import TopicPartition
    from krust.errors import (
        AbortableTransactionError,
        ConfigError,
        FatalTransactionError,
        ForkedError,
        KafkaError,
        KrustError,
        ProducerFencedError,
        ServerError,
        TransactionError,
        UnreachableError,
    )
    from krust.frames import Scan, append, scan
    from krust.replica_selectors.selector import ReplicaSelector
    from krust.retention.policy import RetentionPolicy
    from krust.security.security import Security
    from krust.server import Broker

__version__ = "0.1.0"
__all__ = [
    "AbortableTransactionError",
    "Acl",
    "AclClient",
    "Admin",
    "Assignor",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Authorizer",
    "Broker",
    "ClientAcl",
    "Cluster",
    "ConfigError",
    "Consumer",
    "FatalTransactionError",
    "ForkedError",
    "GroupMetadata",
    "GroupSpec",
    "KafkaError",
    "KrustError",
    "Producer",
    "ProducerFencedError",
    "Record",
    "ReplicaSelector",
    "RetentionPolicy",
    "Scan",
    "Security",
    "ServerError",
    "TopicPartition",
    "TransactionError",
    "UnreachableError",
    "__version__",
    "append",
    "scan",
    "simulate",
]

_HOME = {
    "AbortableTransactionError": "krust.errors",
    "Acl": "krust.clients.acls",
    "AclClient": "krust.controller.authorizers",
    "Admin": "krust.clients.admin",
    "Assignor": "krust.coordinator.assignors.assignor",
    "AsyncAdmin": "krust.clients.aio_admin",
    "AsyncConsumer": "krust.clients.aio",
    "AsyncProducer": "krust.clients.aio",
    "Authorizer": "krust.controller.authorizers",
    "Broker": "krust.server",
    "ClientAcl": "krust.controller.authorizers",
    "Cluster": "krust.cluster",
    "ConfigError": "krust.errors",
    "Consumer": "krust.clients.consumer",
    "FatalTransactionError": "krust.errors",
    "ForkedError": "krust.errors",
    "GroupMetadata": "krust.clients.coordinator_client",
    "GroupSpec": "krust.coordinator.assignors.assignor",
    "KafkaError": "krust.errors",
    "KrustError": "krust.errors",
    "Producer": "krust.clients.producer",
    "ProducerFencedError": "krust.errors",
    "Record": "krust._krust",
    "ReplicaSelector": "krust.replica_selectors.selector",
    "RetentionPolicy": "krust.retention.policy",
    "Scan": "krust.frames",
    "Security": "krust.security.security",
    "ServerError": "krust.errors",
    "TopicPartition": "krust.coordinator.consumer_protocol",
    "TransactionError": "krust.errors",
    "UnreachableError": "krust.errors",
    "append": "krust.frames",
    "scan": "krust.frames",
    "simulate": "krust.coordinator.assignors.simulation",
}


def __getattr__(name: str) -> object:
    """Import a public name's module on first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'krust' has no attribute {name!r}")
    value: object = getattr(import_quickly(home), name)
    globals()[name] = value
    return value


def import_quickly(module: str) -> ModuleType:
    """Import a module with the garbage collector off, for krust itself. An import creates many
    objects and no garbage, so collections would take a fifth of its time.
    """
    if not gc.isenabled():
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
