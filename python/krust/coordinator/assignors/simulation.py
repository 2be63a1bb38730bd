"""`krust.simulate`: what an assignor does as members come and go, without a broker.

A simulated group is plain data: members m1, m2, ... that all subscribe to all topics; member and
replica racks go round. The members come back with what they had, one generation later, as real
ones do, and each answer is checked as a broker would check it.
Threads: each call of the assignor has a thread; one that is late is left behind.
"""

from __future__ import annotations

import random
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from krust.coordinator.assignors.spec import GroupSpec, MemberSpec, Topics, validate
from krust.coordinator.consumer_protocol import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.coordinator.assignors.spec import Assignor, GroupAssignment

MOST_MEMBERS, MOST_PARTITIONS = 10_000, 200_000
DEADLINE_MS = 5000
"""A broker waits no longer than that, for the largest of groups."""
STEPS = ("-1", "+1", "+2", "-2")


class ArgumentError(ValueError):
    """Members, topics or steps that cannot be."""


class LateError(Exception):
    """The assignor gave no answer in time."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance of a simulated group.

    step        `start`, or what happened before it: `-1` member, `+2`, topic `a:24`
    least       partitions of the member that has the fewest; `most`: of the one with the most
    moved       partitions taken from a member that is still there
    orphaned    partitions of members that left: they had to move
    unassigned  partitions that nobody has
    local       partitions at a member in the rack of a replica; None: there are no racks
    most_lag    lag of the member that has the most, `least_lag`; None: there is no lag
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
) -> list[Rebalance]:
    """Have an assignor share partitions at the start and after each step.

    members      how many begin
    topics       name -> partitions; None: {"a": 12}
    steps        `-1`: the oldest member leaves; `+2`: two join; `a:24`: a topic grows, or is new
    racks        of members, and of replicas, in turn
    weights      of members, in turn, as user data `weight=N`
    lag_seed     gives partitions random lag, the same for the same seed
    deadline_ms  longest time for an answer
    raises       ArgumentError: members, topics or a step that cannot be;
                 AssignmentError: an answer that breaks a rule; LateError; what the assignor raises
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
    """A group that lives in a simulation."""

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
        """Let happen what a step says."""
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
        """Let new members in."""
        for number in range(self.joined, self.joined + count):
            weight = self.weights[number % len(self.weights)] if self.weights else None
            self.members[f"m{number + 1}"] = MemberSpec(
                frozenset(self.counts),
                rack=self.racks[number % len(self.racks)] if self.racks else None,
                user_data=None if weight is None else b"weight=%d" % weight,
            )
        self.joined += count

    def rebalance(self, step: str, assignor: Assignor) -> Rebalance:
        """Have the partitions shared, and say what moved."""
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
        return Rebalance(
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
        """What is known of the topics now; lags are new each time."""
        places = [(topic, n) for topic, count in self.counts.items() for n in range(count)]
        near = self.racks and {
            place: frozenset({self.racks[n % len(self.racks)]}) for n, place in enumerate(places)
        }
        lags = self.lags and {place: self.lags.randrange(10_000) for place in places}
        return Topics(self.counts, near or {}, lags or {})

    def _assigned(self, assignor: Assignor, topics: Topics) -> GroupAssignment:
        """One call; the answer is checked."""
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
        """The members take what they were given, and will say so at the next rebalance."""
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
