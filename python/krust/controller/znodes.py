"""Paths and JSON of the znodes, exactly as Kafka 3.9 writes them (`tests/data/znodes-3.9.1.json`).

Format: compact JSON, keys in Kafka's order; numbers that Kafka writes as strings are strings here
too. Reading takes any order of keys and leaves unknown ones alone.
Not promised: that a value read makes sense; callers treat a missing key as its default.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CHANGES = "/config/changes/config_change_"
PRODUCER_IDS = "/latest_producer_id_block"
DEFAULT_ENTITY = "<default>"

PERSISTENT = (
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/cluster",
    "/config",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
)
"""The nodes that stand before anything else, parents first."""


def consumer_offset(group: str, topic: str, partition: int) -> str:
    """Where a group of before Kafka 0.9 keeps how far it has read."""
    return f"/consumers/{group}/offsets/{topic}/{partition}"


def encode(value: Mapping[str, Any]) -> bytes:
    """Compact JSON, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The object in a znode; {} where there is none."""
    try:
        value = json.loads(data) if data else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def topic(name: str) -> str:
    """Where a topic's assignment stands."""
    return f"{TOPICS}/{name}"


def topic_config(name: str) -> str:
    """Where a topic's settings stand."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(entity: str) -> str:
    """Where a broker's dynamic settings stand; DEFAULT_ENTITY: those of all."""
    return f"{BROKER_CONFIGS}/{entity}"


def state(name: str, partition: int) -> str:
    """Where the leader and ISR of a partition stand."""
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def cluster_id_data(cluster_id: str) -> bytes:
    """`/cluster/id`."""
    return encode({"version": "1", "id": cluster_id})


def controller_data(node_id: int, now_ms: int) -> bytes:
    """`/controller`."""
    facts = {"version": 2, "brokerid": node_id, "timestamp": str(now_ms)}
    return encode({**facts, "kraftControllerEpoch": -1})


def feature_data() -> bytes:
    """`/feature`."""
    return encode({"features": {}, "version": 2, "status": 1})


def broker_data(endpoints: Sequence[tuple[str, str, int]], rack: str | None, now_ms: int) -> bytes:
    """`/brokers/ids/N`, version 5.

    endpoints   (listener, host, port), the first one also told to readers of version 1
    """
    _, host, port = endpoints[0]
    facts: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {name: "PLAINTEXT" for name, _, _ in endpoints},
        "endpoints": [f"{name}://{_bracketed(at)}:{number}" for name, at, number in endpoints],
        "jmx_port": -1,
        "port": port,
        "host": host,
        "version": 5,
        "timestamp": str(now_ms),
    }
    return encode({**({"rack": rack} if rack else {}), **facts})


def topic_data(topic_id: str, replicas: Sequence[Sequence[int]]) -> bytes:
    """`/brokers/topics/T`, version 3; `replicas` by partition."""
    partitions = {str(index): list(each) for index, each in enumerate(replicas)}
    facts = {"partitions": partitions, "topic_id": topic_id}
    return encode({**facts, "adding_replicas": {}, "removing_replicas": {}, "version": 3})


def state_data(controller_epoch: int, leader: int, leader_epoch: int, isr: Sequence[int]) -> bytes:
    """`/brokers/topics/T/partitions/P/state`."""
    head = {"controller_epoch": controller_epoch, "leader": leader, "version": 1}
    return encode({**head, "leader_epoch": leader_epoch, "isr": list(isr)})


def config_data(config: Mapping[str, str]) -> bytes:
    """`/config/...`: the settings of one entity."""
    return encode({"version": 1, "config": dict(config)})


def change_data(kind: str, entity: str) -> bytes:
    """A notification: `topics/orders`; names are sanitised as in URLs, `<default>` is not."""
    name = entity if entity == DEFAULT_ENTITY else sanitised(entity)
    return encode({"version": 2, "entity_path": f"{kind}/{name}"})


def producer_ids_data(broker: int, first: int, last: int) -> bytes:
    """`/latest_producer_id_block`: the block `first..=last` belongs to `broker`."""
    block = {"block_start": str(first), "block_end": str(last)}
    return encode({"version": 1, "broker": broker, **block})


def sanitised(name: str) -> str:
    """An entity's name as a part of a path."""
    return quote(name, safe="-_.~")


def unsanitised(part: str) -> str:
    """The entity's name in a part of a path."""
    return unquote(part)


def _bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host
