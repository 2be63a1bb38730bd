"""The bytes of replicas on their brokers, as DescribeLogDirs has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust import _krust

Replica = tuple[str, int, int]
"""A topic, a partition and a broker."""


def replica_sizes(
    asked: _krust.Client, brokers: Iterable[int], places: Iterable[tuple[str, int]] | None = None
) -> dict[Replica, int]:
    """The bytes of replicas on brokers, of these partitions or of all.

    A broker that does not answer, or is too old to say, has none. A replica that moves to another
    log directory counts as it is in the first.
    """
    topics: list[dict[str, Any]] | None = None
    if places is not None:
        numbers: dict[str, list[int]] = {}
        for topic, partition in places:
            numbers.setdefault(topic, []).append(partition)
        topics = [{"topic": name, "partitions": chosen} for name, chosen in numbers.items()]
    sizes: dict[Replica, int] = {}
    for broker in brokers:
        try:
            answer = asked.request("DescribeLogDirs", {"topics": topics}, broker=broker)
        except KrustError:
            continue
        for topic in (topic for each in answer["results"] for topic in each["topics"]):
            for each in topic["partitions"]:
                if not each.get("is_future_key"):
                    place = (topic["name"], each["partition_index"], broker)
                    sizes[place] = sizes.get(place, 0) + each["partition_size"]
    return sizes
