"""The assignment of a group in ZooKeeper: a pure function of the nodes there.

Each member computes the assignment and takes its own part, so all must get the same result. Threads
are sorted as Java sorts strings (`c-10` before `c-2`), partitions by number. Each thread gets a
range of a topic's partitions; the first threads get one more if the division has a remainder.
Source: the range assignor of Apache Kafka 0.8.2. Not done: `roundrobin`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from krust.metadata.contents import ConsumerRegistration

STATIC, WHITE, BLACK = "static", "white_list", "black_list"
"""The kinds of names in a subscription: topics, or a pattern of topics to read or not to read."""
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True)
class TopicFilter:
    """A pattern of whole topic names: `Whitelist`, or `Blacklist` for all other topics.

    expression  Python's `re`; a comma counts as `|`, blanks and quotes around it are dropped
    raises      ConfigError: an invalid pattern
    """

    expression: str
    pattern = WHITE

    def __post_init__(self) -> None:
        try:
            re.compile(self.regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"{self.expression!r} is not a pattern of topics: {error}") from None

    @property
    def regex(self) -> str:
        """The pattern, as it is used and stored in ZooKeeper."""
        return self.expression.replace(",", "|").replace(" ", "").strip("\"'")

    def allows(self, topic: str, *, internal: bool = False) -> bool:
        """Whether a topic is read; an internal topic only with `internal`."""
        if topic in INTERNAL and not internal:
            return False
        return (re.fullmatch(self.regex, topic) is not None) == (self.pattern == WHITE)


class Whitelist(TopicFilter):
    """Topics whose name matches."""


class Blacklist(TopicFilter):
    """Topics whose name does not match."""

    pattern = BLACK


def threads(
    member_id: str, member: ConsumerRegistration, topics: Collection[str], *, internal: bool = False
) -> dict[str, list[str]]:
    """Topic -> the threads of a member that read it.

    topics    all topics, for patterns
    internal  whether patterns match internal topics too
    raises    ConfigError: an invalid pattern
    """
    wanted = dict(member.subscription)
    if member.pattern != STATIC:
        kind = Whitelist if member.pattern == WHITE else Blacklist
        [(expression, count)] = [*wanted.items()][:1] or [("", 0)]
        chosen = kind(expression)
        wanted = {name: count for name in topics if chosen.allows(name, internal=internal)}
    return {
        topic: [f"{member_id}-{number}" for number in range(count)]
        for topic, count in wanted.items()
        if count > 0
    }


def share(
    readers: Iterable[Mapping[str, Iterable[str]]], topics: Mapping[str, Collection[int]]
) -> dict[TopicPartition, str]:
    """Partition -> the thread that reads it. Partitions without a reader are left out.

    readers  for each member: its threads by topic, as `threads` returns them
    topics   topic -> its partitions
    """
    asked: dict[str, set[str]] = {}
    for each in readers:
        for topic, names in each.items():
            asked.setdefault(topic, set()).update(names)
    shares: dict[TopicPartition, str] = {}
    for topic, partitions in topics.items():
        takers = sorted(asked.get(topic, ()), key=_java)
        if not takers:
            continue
        numbers, (size, rest) = sorted(partitions), divmod(len(partitions), len(takers))
        begin = 0
        for place, taker in enumerate(takers):
            end = begin + size + (place < rest)
            shares |= {TopicPartition(topic, number): taker for number in numbers[begin:end]}
            begin = end
    return shares


def _java(text: str) -> bytes:
    """The sort key of Java's strings: UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")
