"""Throttles of replication while partitions move (KIP-73), for `krust cluster reassign`.

A throttle has two parts: the rates of a broker in bytes a second, one for what it sends as a leader
and one for what it fetches as a follower; and the replicas of each topic that these rates limit.
Here they limit the replicas that send and those that are added. Followers in sync are not slowed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from krust.cli import session
from krust.cli.topic import DELETE, SET, TOPIC, alter_configs
from krust.errors import KrustError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from krust import _krust

BROKER = 4
"""Kafka's number of a broker among what has settings."""
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


class MovingPartition(NamedTuple):
    """A partition and the brokers between which it moves."""

    topic: str
    partition: int
    sources: Sequence[int]
    added: Sequence[int]


def throttle(asked: _krust.Client, moving: Sequence[MovingPartition], rate: int) -> None:
    """Limit what each broker sends and receives for these moves to `rate` bytes a second.

    raises  KafkaError: a broker refuses; then nothing is throttled
    """
    topics = list(dict.fromkeys(each.topic for each in moving))
    brokers = {broker for each in moving for broker in (*each.sources, *each.added)}
    try:
        for broker in _live(asked, brokers):
            changes = [(name, SET, str(rate)) for name in RATES]
            alter_configs(asked, (BROKER, str(broker)), changes, broker=broker)
        for topic in topics:
            of_topic = [each for each in moving if each.topic == topic]
            senders = [f"{each.partition}:{b}" for each in of_topic for b in each.sources]
            takers = [f"{each.partition}:{b}" for each in of_topic for b in each.added]
            changes = [(LEADERS, SET, ",".join(senders)), (FOLLOWERS, SET, ",".join(takers))]
            alter_configs(asked, (TOPIC, topic), changes)
    except KrustError:
        with suppress(KrustError):
            unthrottle(asked, topics, brokers)
        raise


def unthrottle(asked: _krust.Client, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Remove the throttles of topics and brokers, where there are any.

    raises  KafkaError: a broker refuses
    """
    for topic in topics:
        alter_configs(asked, (TOPIC, topic), [(LEADERS, DELETE, None), (FOLLOWERS, DELETE, None)])
    for broker in _live(asked, brokers):
        changes = [(name, DELETE, None) for name in RATES]
        alter_configs(asked, (BROKER, str(broker)), changes, broker=broker)


def _live(asked: _krust.Client, brokers: Iterable[int]) -> list[int]:
    """The brokers that are alive, and so can change their settings."""
    live = {int(broker["node_id"]) for broker in session.metadata(asked, [])["brokers"]}
    return sorted(live & set(brokers))
