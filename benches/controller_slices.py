"""The controller's longest uninterrupted work while 3,000 partitions change leaders.

    python benches/controller_slices.py [--partitions 3000] [--rounds 5]

Three controllers share a metadata tree in memory. Broker 2 leads every partition and stops. The
bench times each call into the controller of broker 1: groups have their turn between two calls.
Also: the same after the controller stops, when its successor reads all states and sends everything
to the third broker; and the sweep of offline partitions when every replica of broker 3 is on a
failed disk. Times are CPU milliseconds of the thread, medians over the rounds.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from krust.controller import brokers
from krust.controller.controller import Controller
from krust.metadata import znodes
from krust.metadata.contents import TopicAssignment
from krust.metadata.store import Create
from tests.unit.controller.nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = (
    "request",
    "run",
    "resume",
    "on_transaction_done",
    "on_store_event",
    "on_peer_answer",
    "tick",
)


def timed(times: list[float], call: Callable[..., Any]) -> Callable[..., Any]:
    """The method, with the seconds of each call added to `times`."""

    def timed_call(*args: Any, **fields: Any) -> Any:
        begin = time.thread_time()
        try:
            return call(*args, **fields)
        finally:
            times.append(time.thread_time() - begin)

    return timed_call


def cluster(topics: int, partitions: int) -> Nodes:
    """Three brokers; broker 2 leads all partitions of all topics."""
    nodes = Nodes(1, 2, 3)
    replicas = TopicAssignment(((2, 1, 3),) * partitions)
    for each in range(topics):
        nodes.tool.submit([Create(znodes.topic(f"t{each}"), replicas.encode())], "tool")
    nodes.tool.events()
    nodes.rest()
    made = nodes.leader.state.topics.values()
    assert sum(len(topic.partitions) for topic in made) == topics * partitions
    assert all(each.leader == 2 for topic in made for each in topic.partitions)
    return nodes


def broker_stops(topics: int, partitions: int) -> list[float]:
    """Seconds of each call while broker 2 stops and broker 1 elects new leaders."""
    nodes = cluster(topics, partitions)
    controller = nodes.leader.controller
    times: list[float] = []
    for name in CALLS:
        setattr(controller, name, timed(times, getattr(controller, name)))
    gc.collect()
    nodes.members[2].die()
    state = nodes.leader.state
    assert all(each.leader == 1 for topic in state.topics.values() for each in topic.partitions)
    assert isinstance(controller, Controller)
    return times


def controller_stops(topics: int, partitions: int) -> list[float]:
    """Seconds of each call into the successor of a controller that stops."""
    nodes = cluster(topics, partitions)
    times: list[float] = []
    for node_id, member in nodes.members.items():
        if node_id != nodes.leader.state.node_id:
            for name in CALLS:
                setattr(member.controller, name, timed(times, getattr(member.controller, name)))
    gc.collect()
    nodes.leader.die()
    return times


def offline_sweep(topics: int, partitions: int) -> tuple[float, float]:
    """Seconds of a sweep when every replica of broker 3 is on a failed disk, and of the next one.

    The first one writes all partitions without broker 3; the next one finds nothing to change.
    """
    nodes = cluster(topics, partitions)
    state = nodes.leader.state
    names = [(name, index) for name in state.topics for index in range(partitions)]
    state.offline.replace(3, names)
    taken = []
    for _ in range(2):
        begin = time.thread_time()
        nodes.leader.run(brokers.elect_missing_leaders(state, list(state.topics)))
        taken.append(time.thread_time() - begin)
    return taken[0], taken[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for topics in (args.partitions // 10, 1):
        each = args.partitions // topics
        rounds = [broker_stops(topics, each) for _ in range(args.rounds)]
        longest = statistics.median(max(times) for times in rounds) * 1e3
        total = statistics.median(sum(times) for times in rounds) * 1e3
        pieces = len(rounds[0])
        sweeps = [offline_sweep(topics, each) for _ in range(args.rounds)]
        writing, finding = (statistics.median(times) * 1e3 for times in zip(*sweeps, strict=True))
        elected = [controller_stops(topics, each) for _ in range(args.rounds)]
        taken_over = statistics.median(max(times) for times in elected) * 1e3
        print(
            f"{topics} topics of {each} partitions: longest piece {longest:.1f} ms, "
            f"{pieces} pieces in {total:.0f} ms; "
            f"new controller's longest piece {taken_over:.1f} ms; "
            f"offline sweep {finding:.1f} ms, {writing:.1f} with {args.partitions} writes"
        )


if __name__ == "__main__":
    main()
