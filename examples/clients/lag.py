"""How far a group has read: committed offset, first and last offset, lag of each partition.

    python -m examples.clients.lag HOST:PORT GROUP TOPIC..

The flow is `list_offsets.py` of confluent-kafka's examples. Different on krust: `committed` is a
dict without the partitions that have no commit, in place of negative offsets; both ends are asked
for all partitions at once (`beginning_offsets`, `end_offsets`) in place of watermarks one by one.
"""

from __future__ import annotations

import sys

import krust


def main(bootstrap: str, group: str, *topics: str) -> None:
    """Print a row a partition."""
    print(f"{'Topic [Partition]':<40}  {'Committed':>9}  {'Lag':>9}")
    with krust.Consumer({"bootstrap.servers": bootstrap, "group.id": group}) as consumer:
        there = consumer.topics()
        for topic in topics:
            if topic not in there:
                sys.exit(f"Topic {topic} does not exist")
            places = [krust.TopicPartition(topic, number) for number in range(there[topic])]
            committed = consumer.committed(places)
            first, last = consumer.beginning_offsets(places), consumer.end_offsets(places)
            for place in places:
                if last[place] == 0:
                    lag = "no hwmark"
                else:
                    lag = str(last[place] - committed.get(place, first[place]))
                at = str(committed.get(place, "-"))
                print(f"{f'{place.topic} [{place.partition}]':<40}  {at:>9}  {lag:>9}")


if __name__ == "__main__":
    main(*sys.argv[1:])
