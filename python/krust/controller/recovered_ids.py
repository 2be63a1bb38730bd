"""Producer ids and leader epochs in this broker's logs: the controller must not assign them again.

The tree may know less than the disk, because it was lost or another broker wrote the directory.
After each opening of logs the core reports what they contain (`Server.recovered_ids`).
- Producer ids: the next block begins above every id in a log, whichever broker allocates it.
- Leader epochs: a partition's epoch is at least the newest epoch of its log. `adoption.py` reads
  `leader-epoch-checkpoint`. Batches may contain a newer one after a crash or without that file.
Nothing else on disk needs this. Topic ids are in `partition.metadata` (`adoption.py` checks
them), the cluster id and the broker id in `meta.properties`. Offsets, committed offsets and group
generations are read from the logs. Broker and controller epochs are not on disk.
If another broker is the controller, only that one raises epochs. This broker then logs a warning
and appends with the newest epoch of its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers, producer_ids
from krust.controller.leaders import in_new_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.controller.entities import Partition, Topic
    from krust.controller.state import ControllerState, Steps


def raise_in_tree(
    state: ControllerState, first_free_id: int, newer: Iterable[tuple[str, int, int]]
) -> Steps:
    """Raise the producer ids and leader epochs in the tree above those in the logs.

    first_free_id  no log names this producer id or one above
    newer          topic, partition and newest epoch of logs that are ahead of the tree
    """
    yield from producer_ids.reserve_below(state, first_free_id)
    wanted: dict[str, tuple[Topic, dict[int, Partition]]] = {}
    for name, index, epoch in newer:
        topic = state.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            continue
        partition = topic.partitions[index]
        if partition.leader_epoch > epoch:
            continue
        if not state.is_controller:
            consequence = f"the controller says {partition.leader_epoch}; records get {epoch}"
            state.warn(f"the log of {name}-{index} has leader epoch {epoch}, {consequence}")
            continue
        raised = in_new_epoch(partition)
        _, partitions = wanted.setdefault(name, (topic, {}))
        partitions[index] = raised._replace(leader_epoch=epoch + 1)
    if wanted:
        try:
            outdated = yield from brokers.write_states(state, list(wanted.values()))
        except brokers.BrokersChangedError:
            outdated = set(wanted)
        for name in outdated:
            state.warn(f"the leader epochs of {name} are below those of its logs for now")
