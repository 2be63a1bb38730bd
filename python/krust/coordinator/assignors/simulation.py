"""`krust.simulate`: shows what an assignor does when members join and leave, without a broker.

A simulated group is plain data: members m1, m2, ... subscribe to all topics. The racks of members
and replicas are given out in turn. As in a real group, members join the next generation with the
partitions that they own, and each assignment is checked as a broker checks it.
Threads: each call of the assignor has a thread. A call that is late is abandoned.
"""

from __future__ import annotations

import random
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from krust.coordinator.assignors.assignor import GroupSpec, MemberSpec, Topics, validate
from krust.coordinator.consumer_protocol import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.coordinator.assignors.assignor import Assignor, GroupAssignment

MOST_MEMBERS, MOST_PARTITIONS = 10_000, 200_000
DEADLINE_MS = 5000
"""The longest time that a broker waits, for the largest group."""
STEPS = ("-1", "+1", "+2", "-2")


class ArgumentError(ValueError):
    """Invalid members, topics or steps."""


class LateError(Exception):
    """The assignor did not answer in time."""


@dataclass(frozen=True, slots=True)
class SimulatedRebalance:
    """One rebalance of a simulated group.

    step        `start`, or the step before it: `-1` member, `+2`, topic `a:24`
    least       the lowest count of partitions of a member; `most`: the highest
    moved       partitions taken from a member that is still in the group
    orphaned    partitions of members that left: they had to move
    unassigned  partitions that no member has
    local       partitions of members in the rack of a replica; None: there are no racks
    most_lag    the highest lag of a member, `least_lag` the lowest; None: there is no lag
    assignment  member -> topic -> partitions
    """

    step: str
    members: int
    partitions: int
    least: int
    most: int
    moved: int
    orphaned: int
    unassigned: int
    took_ms: float
    assignment: Mapping[str, Mapping[str, Sequence[int]]]
    local: int | None = None
    most_lag: int | None = None
    least_lag: int | None = None


def simulate(
    assignor: Assignor,
    *,
    members: int = 3,
    topics: Mapping[str, int] | None = None,
    steps: Sequence[str] = STEPS,
    racks: Sequence[str] = (),
    weights: Sequence[int] = (),
    lag_seed: int | None = None,
    deadline_ms: int = DEADLINE_MS,
) -> list[SimulatedRebalance]:
    """Call an assignor at the start and after each step.

    members      how many members begin
    topics       name -> partitions; None: {"a": 12}
    steps        `-1`: the oldest member leaves; `+2`: two join; `a:24`: a topic grows or is created
    racks        of members, and of replicas, in turn
    weights      of members, in turn, as user data `weight=N`
    lag_seed     gives partitions random lag; the same seed gives the same lag
    deadline_ms  the longest time for a call
    raises       ArgumentError: invalid members, topics or steps;
                 AssignmentError: an assignment that breaks a rule; LateError; the assignor's errors
    """
    group = _Group(dict(topics or {"a": 12}), racks, weights, deadline_ms)
    if lag_seed is not None:
        group.lags = random.Random(lag_seed)  # noqa: S311, a simulation is repeatable
    if not 1 <= sum(group.counts.values()) <= MOST_PARTITIONS:
        raise ArgumentError(f"topics {group.counts!r}: 1 to {MOST_PARTITIONS:,} partitions in all")
    if not 1 <= members <= MOST_MEMBERS:
        raise ArgumentError(f"members = {members} must be 1 to {MOST_MEMBERS:,}")
    group.join(members)
    made = [group.rebalance("start", assignor)]
    for step in steps:
        group.take(step)
        made.append(group.rebalance(step, assignor))
    return made


@dataclass
class _Group:
    """The group of a simulation."""

    counts: dict[str, int]
    racks: Sequence[str]
    weights: Sequence[int]
    deadline_ms: int
    lags: random.Random | None = None
    members: dict[str, MemberSpec] = field(default_factory=dict)
    shares: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    joined: int = 0
    generation: int = 0

    def take(self, step: str) -> None:
        """Take a step."""
        found = re.fullmatch(r"([+-])(\d+)", step)
        if found is None:
            topic, colon, count = step.rpartition(":")
            if not (topic and colon and count.isdecimal()):
                raise ArgumentError(f"{step!r} is no step: -1, +2 or TOPIC:PARTITIONS")
            self.counts[topic] = int(count)
            if not 1 <= sum(self.counts.values()) <= MOST_PARTITIONS:
                raise ArgumentError(f"{step!r}: 1 to {MOST_PARTITIONS:,} partitions in all")
            names = frozenset(self.counts)
            self.members = {who: replace(one, topics=names) for who, one in self.members.items()}
            return
        count_ = int(found[2])
        left = len(self.members) + (count_ if found[1] == "+" else -count_)
        if not 1 <= left <= MOST_MEMBERS:
            raise ArgumentError(f"{step!r} leaves {left} members; 1 to {MOST_MEMBERS:,}")
        if found[1] == "+":
            self.join(count_)
        else:
            for member_id in list(self.members)[:count_]:
                del self.members[member_id]

    def join(self, count: int) -> None:
        """Add new members."""
        for number in range(self.joined, self.joined + count):
            weight = self.weights[number % len(self.weights)] if self.weights else None
            self.members[f"m{number + 1}"] = MemberSpec(
                frozenset(self.counts),
                rack=self.racks[number % len(self.racks)] if self.racks else None,
                user_data=None if weight is None else b"weight=%d" % weight,
            )
        self.joined += count

    def rebalance(self, step: str, assignor: Assignor) -> SimulatedRebalance:
        """Assign the partitions, and report what moved."""
        before = {one: member for member, ours in self.shares.items() for one in ours}
        topics = self._topics()
        begun = time.perf_counter()
        answer = self._assigned(assignor, topics)
        took_ms = (time.perf_counter() - begun) * 1000
        self._keep(answer)
        after = {one: member for member, ours in self.shares.items() for one in ours}
        sizes = [len(ours) for ours in self.shares.values()]
        left = {one for one, member in before.items() if member not in self.members}
        local = most_lag = least_lag = None
        if self.racks:
            local = sum(self.members[who].rack in topics.racks(*one) for one, who in after.items())
        if self.lags:
            lags = [sum(topics.lags[one] for one in ours) for ours in self.shares.values()]
            most_lag, least_lag = max(lags), min(lags)
        moved = sum(after.get(one) != was for one, was in before.items() if one not in left)
        partitions = sum(self.counts.values())
        return SimulatedRebalance(
            step,
            members=len(self.members),
            partitions=partitions,
            least=min(sizes),
            most=max(sizes),
            moved=moved,
            orphaned=len(left),
            unassigned=partitions - len(after),
            took_ms=round(took_ms, 1),
            assignment=_plain(self.shares),
            local=local,
            most_lag=most_lag,
            least_lag=least_lag,
        )

    def _topics(self) -> Topics:
        """The topics for the assignor, with new lags each time."""
        places = [(topic, n) for topic, count in self.counts.items() for n in range(count)]
        near = self.racks and {
            place: frozenset({self.racks[n % len(self.racks)]}) for n, place in enumerate(places)
        }
        lags = self.lags and {place: self.lags.randrange(10_000) for place in places}
        return Topics(self.counts, near or {}, lags or {})

    def _assigned(self, assignor: Assignor, topics: Topics) -> GroupAssignment:
        """Call the assignor and check its answer."""
        spec = GroupSpec(self.members, "simulated")
        answer: list[GroupAssignment] = []
        ended: list[BaseException] = []

        def work() -> None:
            try:
                answer.append(assignor.assign(spec, topics))
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=work, name="krust-assignor", daemon=True)
        thread.start()
        thread.join(self.deadline_ms / 1000)
        if thread.is_alive():
            raise LateError(f"{assignor.name} gave no answer within {self.deadline_ms} ms")
        if ended:
            raise ended[0]
        validate(spec, topics, answer[0])
        return answer[0]

    def _keep(self, answer: GroupAssignment) -> None:
        """The members own their new partitions, and name them at the next rebalance."""
        self.generation += 1
        for member_id, spec in self.members.items():
            mine = tuple(TopicPartition(*one) for one in answer.get(member_id, ()))
            self.members[member_id] = replace(spec, owned=mine, generation=self.generation)
        self.shares = {member_id: spec.owned for member_id, spec in self.members.items()}


def _plain(shares: Mapping[str, Sequence[TopicPartition]]) -> dict[str, dict[str, list[int]]]:
    plain: dict[str, dict[str, list[int]]] = {}
    for member_id, ours in shares.items():
        plain[member_id] = {}
        for topic, number in ours:
            plain[member_id].setdefault(topic, []).append(number)
    return plain
