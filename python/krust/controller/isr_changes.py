"""`/isr_change_notification`: ISRs that a broker older than Kafka 2.7 wrote into the tree itself.

Such a leader writes the state of a partition with a version check, and creates a node here that
names the partition. The controller reads these topics again, tells the other brokers, and deletes
the node. Newer brokers, Kafka's and krust's, send AlterPartition instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.metadata import znodes
from krust.metadata.admin_contents import Partitions
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Children, Delete, Node, Read

if TYPE_CHECKING:
    from krust.controller.state import ControllerState, Steps


def read_notifications(state: ControllerState) -> Steps:
    """Mark the topics that notifications name to be read again, and delete the notifications."""
    (read,) = yield [[Children(znodes.ISR_CHANGES, watch=True)]]
    names = store_reads.children(znodes.ISR_CHANGES, read.results[0])
    paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
    results = yield from store_reads.read_many(map(Read, paths))
    for path, node in zip(paths, results, strict=True):
        if isinstance(node, Node):
            try:
                named = Partitions.decode(node.data).partitions
                state.for_jobs.outdated |= {topic for topic, _ in named}
            except BadZnodeError as error:
                state.fault(path, error)
    if paths:
        yield [[state.fence(), Delete(path)] for path in paths]
