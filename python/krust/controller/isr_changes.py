"""`/isr_change_notification`: ISRs that a broker of before Kafka 2.7 wrote into the tree by itself.

Such a leader writes the state of a partition with a version check, and leaves a node here that
names the partition. The controller reads these topics again, tells the other brokers, and deletes
the node. Newer brokers, Kafka's and krust's, send AlterPartition instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.metadata import znodes
from krust.metadata.contents import BadZnodeError, Partitions
from krust.metadata.store import Children, Delete, Node, Read

if TYPE_CHECKING:
    from krust.controller.state import ControllerState, Steps


def look(state: ControllerState) -> Steps:
    """Have the topics that are named read again, and delete the notifications."""
    (read,) = yield [[Children(znodes.ISR_CHANGES, watch=True)]]
    names = store_reads.children(znodes.ISR_CHANGES, read.results[0])
    paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
    results = yield from store_reads.pieces(map(Read, paths))
    for path, node in zip(paths, results, strict=True):
        if isinstance(node, Node):
            try:
                named = Partitions.decode(node.data).partitions
                state.for_jobs.outdated |= {topic for topic, _ in named}
            except BadZnodeError as error:
                state.fault(path, error)
    if paths:
        yield [[state.fence(), Delete(path)] for path in paths]
