"""The promises of a group, checked on the outputs of its members (member.py), dead ones included.

Each check takes the members' outputs, a list a member, and returns a line for each violation. All
times are of one clock. A commit is sent after its record was printed, and holds when it is printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Told = Sequence[Sequence[dict[str, Any]]]


class Commit(NamedTuple):
    """An acknowledged commit: who, where to, when it was sent at the earliest and told."""

    member: int
    partition: int
    offset: int
    sent: float
    told: float


class Ownership(NamedTuple):
    """A partition in a member's hands, from its assignment until it gave it up (or never did)."""

    member: int
    partition: int
    generation: int
    begin: float
    end: float


def two_owners(told: Told) -> list[str]:
    """Partitions that two members owned in the same generation."""
    claims: dict[tuple[int, int], int] = {}
    wrong = []
    for member, facts in enumerate(told):
        owned: set[int] = set()
        for fact in facts:
            owned -= set(fact.get("revoked", ()))
            owned |= set(fact.get("assigned", ()))
            if "assigned" not in fact:
                continue
            for partition in owned:
                place = (fact["generation"], partition)
                if claims.setdefault(place, member) != member:
                    wrong.append(
                        f"generation {place[0]}: partition {partition} "
                        f"belongs to members {claims[place]} and {member}"
                    )
    return wrong


def went_back(told: Told) -> list[str]:
    """Commits that were sent after a later offset of their partition had been acknowledged."""
    wrong = []
    for partition, commits in _by_partition(told).items():
        by_told = sorted(commits, key=lambda each: each.told)
        newest, waiting = 0, iter(by_told)
        coming = next(waiting, None)
        for commit in sorted(commits, key=lambda each: each.sent):
            while coming and coming.told < commit.sent:
                newest = max(newest, coming.offset)
                coming = next(waiting, None)
            if commit.offset < newest:
                wrong.append(f"partition {partition}: {newest}, then {commit}")
    return wrong


def by_an_old_owner(told: Told) -> list[str]:
    """Acknowledged commits of a member after another owned the partition in a later generation."""
    owned = defaultdict(list)
    for each in _ownerships(told):
        owned[each.partition].append(each)
    wrong = []
    for commit in _commits(told):
        held = [
            each
            for each in owned[commit.partition]
            if each.member == commit.member and each.begin <= commit.sent
        ]
        newest = max((each.generation for each in held), default=-1)
        wrong += [
            f"{commit} although member {other.member} has it since {other}"
            for other in owned[commit.partition]
            if other.member != commit.member
            and other.generation > newest
            and other.begin < commit.sent
            and commit.told < other.end
        ]
    return wrong


def skipped(told: Told, ends: Mapping[int, int]) -> list[str]:
    """Records below the ends of the log that no member saw."""
    seen = defaultdict(set)
    for facts in told:
        for fact in facts:
            if "record" in fact:
                seen[fact["record"][0]].add(fact["record"][1])
    missing = {p: sorted(set(range(end)) - seen[p]) for p, end in ends.items()}
    return [f"partition {p}: nobody saw {offsets}" for p, offsets in missing.items() if offsets]


def acknowledged(told: Told) -> dict[int, int]:
    """The largest offset committed to each partition."""
    largest: dict[int, int] = {}
    for commit in _commits(told):
        largest[commit.partition] = max(largest.get(commit.partition, 0), commit.offset)
    return largest


def _by_partition(told: Told) -> dict[int, list[Commit]]:
    found = defaultdict(list)
    for commit in _commits(told):
        found[commit.partition].append(commit)
    return found


def _commits(told: Told) -> Iterator[Commit]:
    for member, facts in enumerate(told):
        sent = 0.0
        for fact in facts:
            if "record" in fact:
                sent = fact["at"]
            if "committed" in fact:
                partition, offset = fact["committed"]
                yield Commit(member, partition, offset, sent, fact["at"])


def _ownerships(told: Told) -> Iterator[Ownership]:
    for member, facts in enumerate(told):
        open_ones: dict[int, Ownership] = {}
        last = facts[-1]["at"] if facts else 0.0
        for fact in facts:
            for partition in fact.get("revoked", ()):
                if partition in open_ones:
                    yield open_ones.pop(partition)._replace(end=fact["at"])
            for partition in fact.get("assigned", ()):
                one = Ownership(member, partition, fact["generation"], fact["at"], last)
                open_ones[partition] = one
        yield from open_ones.values()
