"""Orders to a cluster: create, grow, configure, list, delete.

    python -m examples.clients.admin HOST:PORT create_topics A B
    python -m examples.clients.admin HOST:PORT create_partitions A 3 B 4
    python -m examples.clients.admin HOST:PORT describe_configs A
    python -m examples.clients.admin HOST:PORT alter_configs A retention.ms=3600000,cleanup.policy=
    python -m examples.clients.admin HOST:PORT list
    python -m examples.clients.admin HOST:PORT delete_topics A B

The flow is `adminapi.py` of confluent-kafka's examples. Different on krust: a call returns when it
is done and raises what is refused, so there are no futures to ask one by one; settings are changed
one by one (the incremental API), an empty one goes back to its default.
"""

from __future__ import annotations

import sys

import krust
from krust.errors import KafkaError


def create_topics(admin: krust.Admin, *topics: str) -> None:
    """Three partitions each."""
    for topic in topics:
        try:
            admin.create_topic(topic, 3, replication_factor=1)
            print(f"Topic {topic} created")
        except KafkaError as error:
            print(f"Failed to create topic {topic}: {error}")


def create_partitions(admin: krust.Admin, *pairs: str) -> None:
    """TOPIC TOTAL ..."""
    for topic, total in zip(pairs[::2], pairs[1::2], strict=True):
        admin.create_partitions(topic, int(total))
        print(f"Topic {topic} has {total} partitions")


def describe_configs(admin: krust.Admin, *topics: str) -> None:
    """Every setting of each topic."""
    for topic in topics:
        for name, value in sorted(admin.config(topic).items()):
            print(f"{topic}: {name} = {value}")


def alter_configs(admin: krust.Admin, *pairs: str) -> None:
    """TOPIC NAME=VALUE,NAME= ..."""
    for topic, text in zip(pairs[::2], pairs[1::2], strict=True):
        changes = dict(one.split("=", 1) for one in text.split(","))
        admin.alter_config(topic, {name: value or None for name, value in changes.items()})
        print(f"{topic} has other settings now")


def list_all(admin: krust.Admin) -> None:
    """Brokers, topics and groups."""
    for broker in admin.request("DescribeCluster", {})["brokers"]:
        print(f"  broker {broker['broker_id']} at {broker['host']}:{broker['port']}")
    for topic, partitions in admin.topics().items():
        print(f'  "{topic}" with {partitions} partition(s)')
    for group, state in admin.groups().items():
        print(f'  group "{group}" is {state}')


def delete_topics(admin: krust.Admin, *topics: str) -> None:
    """With all their records."""
    for topic in topics:
        admin.delete_topic(topic)
        print(f"Topic {topic} deleted")


ORDERS = {
    "create_topics": create_topics,
    "create_partitions": create_partitions,
    "describe_configs": describe_configs,
    "alter_configs": alter_configs,
    "list": list_all,
    "delete_topics": delete_topics,
}


def main(bootstrap: str, order: str, *arguments: str) -> None:
    """Carry out one order."""
    with krust.Admin({"bootstrap.servers": bootstrap}) as admin:
        ORDERS[order](admin, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
