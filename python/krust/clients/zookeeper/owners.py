"""The owned partitions: each has an ephemeral node `/consumers/G/owners/T/P` with its thread.

A node is ours if our session created it. A node that could not be deleted (no connection) is
remembered, and deleted before a partition is claimed again. Nodes of other members stay.
Threads: the connector's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.metadata import znodes
from krust.metadata.store import Create, Delete, Exists, Refusal, SetData, Stat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.clients.zookeeper.tree import GroupTree
    from krust.coordinator.consumer_protocol import TopicPartition


class PartitionOwners:
    """The owner nodes of one member; see the module."""

    def __init__(self, group: str, tree: GroupTree) -> None:
        self._group = group
        self._tree = tree
        self._leaving: set[TopicPartition] = set()

    def claim(self, wanted: Mapping[TopicPartition, str]) -> set[TopicPartition]:
        """Claim partitions. Returns those that are ours now; the nodes of the others are watched.

        wanted  partition -> the name of the thread that will read it
        raises  AwayError: no answer; nothing is claimed
        """
        try:
            return self._claim(wanted)
        except BaseException:
            self._leaving |= wanted.keys()
            raise

    def leave(self, places: Iterable[TopicPartition]) -> None:
        """Note partitions that have to be released."""
        self._leaving |= {*places}

    def let_go(self) -> None:
        """Release the noted partitions. AwayError: not possible now."""
        ours = self._ours(self._leaving)
        self._tree.each([Delete(self._path(place))] for place in ours)
        self._leaving.clear()

    def forget(self) -> None:
        """The session has ended, and all nodes are deleted."""
        self._leaving.clear()

    def _claim(self, wanted: Mapping[TopicPartition, str]) -> set[TopicPartition]:
        tree, claimed, taken = self._tree, set(), list(wanted)
        tree.make({self._path(place).rpartition("/")[0] for place in wanted})
        while taken:
            made = tree.each(
                [Create(self._path(place), wanted[place].encode(), ephemeral=True)]
                for place in taken
            )
            answers = {place: answer for place, [answer] in zip(taken, made, strict=True)}
            claimed |= {place for place in taken if not isinstance(answers[place], Refusal)}
            taken = [place for place in taken if answers[place] is Refusal.NODE_EXISTS]
            watched = tree.each([Exists(self._path(place), watch=True)] for place in taken)
            found = {place: stat for place, [stat] in zip(taken, watched, strict=True)}
            for place, stat in found.items():
                if isinstance(stat, Stat) and stat.owner == tree.store.session:
                    tree.ask(SetData(self._path(place), wanted[place].encode()))
                    claimed.add(place)
            taken = [place for place in taken if found[place] is Refusal.NO_NODE]  # now free
        return claimed

    def _ours(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        listed = list(places)
        stats = self._tree.each([Exists(self._path(place))] for place in listed)
        session = self._tree.store.session
        return [
            place
            for place, [stat] in zip(listed, stats, strict=True)
            if isinstance(stat, Stat) and stat.owner == session
        ]

    def _path(self, place: TopicPartition) -> str:
        return znodes.consumer_owner(self._group, *place)
