"""`ConsumerConnector`: the consumer of Kafka 0.8, whose group is kept in ZooKeeper.

    with ConsumerConnector(zookeeper_connect="localhost:2181/kafka", group_id="g") as connector:
        [stream] = connector.create_message_streams({"orders": 1})["orders"]
        for record in stream:
            print(record.partition, record.offset, record.value)

It can be in a group with the consumer of Apache Kafka 0.8 (`ZookeeperConsumerConnector`), and moves
the group's offsets to Kafka and back (`offsets.storage`, `dual.commit.enabled`). It needs kazoo:
`pip install '.[cluster]'` in krust's checkout.
"""

from krust.clients.zookeeper.connector import ConsumerConnector, RebalanceFailedError
from krust.clients.zookeeper.sharing import Blacklist, TopicFilter, Whitelist
from krust.clients.zookeeper.stream import ConsumerTimeoutError, KafkaStream

__all__ = [
    "Blacklist",
    "ConsumerConnector",
    "ConsumerTimeoutError",
    "KafkaStream",
    "RebalanceFailedError",
    "TopicFilter",
    "Whitelist",
]
