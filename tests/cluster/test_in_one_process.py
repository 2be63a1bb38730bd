"""`krust.Cluster` on a real ZooKeeper: a broker that hangs for too long loses its session."""

from __future__ import annotations

import krust
from tests.cluster.brokers import Cluster
from tests.waiting import until


def test_a_hanging_broker_loses_its_leaderships_and_leads_again_afterwards(
    shared: Cluster,
) -> None:
    with krust.Cluster(2, zookeeper=f"{shared.connect}/apart") as cluster:
        cluster.create_topic("t", 2)
        first = cluster.controller
        [mine] = [partition for partition in (0, 1) if cluster.leader("t", partition) == first]
        cluster.pause(first)
        until(lambda: cluster.controller not in (-1, first))
        until(lambda: cluster.leader("t", mine) == -1)
        cluster.resume(first)
        until(lambda: cluster.leader("t", mine) == first)
        until(lambda: cluster.controller not in (-1, first))
