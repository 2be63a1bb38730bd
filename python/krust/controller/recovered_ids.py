"""What the logs of this broker prove, brought into the tree, so that it hands out nothing below.

The tree may know less than the disk: it was lost, or another broker wrote the directory. The core
says after each opening of logs what they prove (`Server.proven`).
- Producer ids: the next block begins above every id that a log names, whoever allocates it.
- Leader epochs: a partition's epoch is never below the newest of its log. `adoption.py` reads
  `leader-epoch-checkpoint`; batches may tell a newer one, after a crash or where the file is gone.
What else a directory proves needs nothing here: topic ids stand in `partition.metadata` and are
kept or refused (`adoption.py`), the cluster's id and the broker's number in `meta.properties`;
offsets, committed offsets and generations of groups are read from the logs themselves. Broker and
controller epochs are on no disk: who remembered them was told by a tree that is gone.
Where another broker is the controller it alone raises epochs; the log appends with none below its
newest all the same, which is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers, producer_ids
from krust.controller.leaders import with_leader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.controller.state import ControllerState, Partition, Steps, Topic


def bring(
    state: ControllerState, first_free_id: int, newer: Iterable[tuple[str, int, int]]
) -> Steps:
    """Raise what the tree would hand out.

    first_free_id  no log names this producer id or one above
    newer          topic, partition and newest epoch of logs that are ahead of the tree
    """
    yield from producer_ids.go_on_at(state, first_free_id)
    wanted: dict[str, tuple[Topic, dict[int, Partition]]] = {}
    for name, index, epoch in newer:
        topic = state.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            continue
        partition = topic.partitions[index]
        if partition.leader_epoch > epoch:
            continue
        if not state.leading:
            said = f"the controller says {partition.leader_epoch}; records get {epoch}"
            state.warn(f"the log of {name}-{index} has leader epoch {epoch}, {said}")
            continue
        raised = with_leader(partition, partition.leader, partition.isr)
        _, partitions = wanted.setdefault(name, (topic, {}))
        partitions[index] = raised._replace(leader_epoch=epoch + 1)
    if wanted:
        for name in (yield from brokers.write(state, list(wanted.values()))):
            state.warn(f"the leader epochs of {name} are below those of its logs for now")
