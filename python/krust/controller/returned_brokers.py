"""Brokers that were registered again, until all partition states say so.

Every election asks here, also one that a request wants while the states are not written yet. What a
term has found ends with it: the next controller compares registrations with states itself.
Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set


class ReturnedBrokers:
    """Brokers that were registered again, until all partition states say so."""

    def __init__(self) -> None:
        self.restarted: set[int] = set()
        """brokers whose registration is another one than the controller knew"""
        self.lossy: set[int] = set()
        """brokers that may have lost records that were not synced"""
        self.lossy_in: dict[tuple[str, int], set[int]] = {}
        """the same for single partitions: topic and number -> brokers"""

    def __bool__(self) -> bool:
        return bool(self.restarted or self.lossy or self.lossy_in)

    def add(self, later: ReturnedBrokers) -> None:
        """Add brokers that returned later."""
        self.restarted |= later.restarted
        self.lossy |= later.lossy
        for partition, lossy in later.lossy_in.items():
            self.lossy_in.setdefault(partition, set()).update(lossy)

    def clear(self) -> None:
        """Forget all: the partition states say so now."""
        self.restarted.clear()
        self.lossy.clear()
        self.lossy_in.clear()

    def lossy_of(self, partition: tuple[str, int]) -> Set[int]:
        """The brokers that may have lost records of a partition."""
        own = self.lossy_in.get(partition)
        return self.lossy if own is None else self.lossy | own
