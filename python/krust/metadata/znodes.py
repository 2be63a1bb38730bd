"""The paths of znodes, as Kafka 3.9 has them. `contents.py` has the contents of the nodes."""

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
"""krust's own node: it is created with the first setting of a group"""
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
"""The nodes that are created before all others, parents first."""


def consumer_offsets(group: str) -> str:
    """The parent of the offsets of a group from before Kafka 0.9, one node a topic."""
    return f"/consumers/{group}/offsets"


def consumer_offset(group: str, topic: str, partition: int) -> str:
    """The node with a committed offset of a group from before Kafka 0.9."""
    return f"/consumers/{group}/offsets/{topic}/{partition}"


def consumer_members(group: str) -> str:
    """The parent of the members of such a group."""
    return f"/consumers/{group}/ids"


def consumer_member(group: str, member: str) -> str:
    """The node of one member, with its subscription."""
    return f"/consumers/{group}/ids/{member}"


def consumer_owners(group: str) -> str:
    """The parent of the owners of a group's partitions, one node a topic."""
    return f"/consumers/{group}/owners"


def consumer_owner(group: str, topic: str, partition: int) -> str:
    """The node with the member that owns a partition."""
    return f"{consumer_owners(group)}/{topic}/{partition}"


def topic(name: str) -> str:
    """The node with a topic's assignment."""
    return f"{TOPICS}/{name}"


def topic_config(name: str) -> str:
    """The node with a topic's settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(entity: str) -> str:
    """The node with a broker's dynamic settings; DEFAULT_ENTITY: those of all brokers."""
    return f"{BROKER_CONFIGS}/{entity}"


def group_config(group: str) -> str:
    """The node with a group's settings."""
    return f"{GROUP_CONFIGS}/{group_part(group)}"


def group_part(group: str) -> str:
    """A group's name as a part of a path, which `.` and `..` alone cannot be."""
    return sanitised(group) if group.strip(".") else "%2E" * len(group)


def state(name: str, partition: int) -> str:
    """The node with the leader and ISR of a partition."""
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
