"""Where the znodes are, as Kafka 3.9 has them; what stands in them is in `contents.py`."""

from __future__ import annotations

from urllib.parse import quote, unquote

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
BROKERS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG = "/config"
GROUP_CONFIGS = "/config/groups"
"""krust's own: made with the first setting of a group"""
CONFIG_CHANGES = "/config/changes"
CHANGES = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"
LOG_DIR_EVENTS = "/log_dir_event_notification"
ISR_CHANGES = "/isr_change_notification"
PRODUCER_IDS = "/latest_producer_id_block"
CONSUMERS = "/consumers"
DEFAULT_ENTITY = "<default>"

PERSISTENT = (
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    BROKER_SEQUENCE,
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
    ISR_CHANGES,
    "/latest_producer_id_block",
    "/log_dir_event_notification",
)
"""The nodes that stand before anything else, parents first."""


def consumer_offsets(group: str) -> str:
    """Where a group of before Kafka 0.9 keeps its offsets, by topic."""
    return f"/consumers/{group}/offsets"


def consumer_offset(group: str, topic: str, partition: int) -> str:
    """Where a group of before Kafka 0.9 keeps how far it has read."""
    return f"/consumers/{group}/offsets/{topic}/{partition}"


def consumer_members(group: str) -> str:
    """Where the members of such a group are."""
    return f"/consumers/{group}/ids"


def consumer_member(group: str, member: str) -> str:
    """Where one of them says what it reads."""
    return f"/consumers/{group}/ids/{member}"


def consumer_owners(group: str) -> str:
    """Where it stands who reads what, by topic."""
    return f"/consumers/{group}/owners"


def consumer_owner(group: str, topic: str, partition: int) -> str:
    """Where the reader of a partition has its name."""
    return f"{consumer_owners(group)}/{topic}/{partition}"


def topic(name: str) -> str:
    """Where a topic's assignment stands."""
    return f"{TOPICS}/{name}"


def topic_config(name: str) -> str:
    """Where a topic's settings stand."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(entity: str) -> str:
    """Where a broker's dynamic settings stand; DEFAULT_ENTITY: those of all."""
    return f"{BROKER_CONFIGS}/{entity}"


def group_config(group: str) -> str:
    """Where a group's settings stand."""
    return f"{GROUP_CONFIGS}/{group_part(group)}"


def group_part(group: str) -> str:
    """A group's name as a part of a path, which `.` and `..` alone cannot be."""
    return sanitised(group) if group.strip(".") else "%2E" * len(group)


def state(name: str, partition: int) -> str:
    """Where the leader and ISR of a partition stand."""
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def entity(kind: str, name: str) -> str:
    """An entity as notifications name it: `topics/orders`; `<default>` is not sanitised."""
    return f"{kind}/{name if name == DEFAULT_ENTITY else sanitised(name)}"


def sanitised(name: str) -> str:
    """An entity's name as a part of a path, as Java writes it in URLs."""
    return quote(name, safe="-_.").replace("~", "%7E")


def unsanitised(part: str) -> str:
    """The entity's name in a part of a path."""
    return unquote(part)
