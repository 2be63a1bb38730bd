"""The promises of a group, checked on the outputs of its members (member.py), dead ones included.

Each check takes the members' outputs, a list a member, and returns a line for each violation. All
times are of one clock. A commit is sent after its record was printed, and holds when it is printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Outputs = Sequence[Sequence[dict[str, Any]]]


class Commit(NamedTuple):
    """An acknowledged commit: who, where to, when it was sent at the earliest and acknowledged."""

    member: int
    partition: int
    offset: int
    sent: float
    acknowledged: float


class Ownership(NamedTuple):
    """A partition in a member's hands, from its assignment until it gave it up (or never did)."""

    member: int
    partition: int
    generation: int
    begin: float
    end: float


def two_owners(outputs: Outputs) -> list[str]:
    """Partitions that two members owned in the same generation."""
    claims: dict[tuple[int, int], int] = {}
    wrong = []
    for member, reports in enumerate(outputs):
        owned: set[int] = set()
        for report in reports:
            owned -= set(report.get("revoked", ()))
            owned |= set(report.get("assigned", ()))
            if "assigned" not in report:
                continue
            for partition in owned:
                place = (report["generation"], partition)
                if claims.setdefault(place, member) != member:
                    wrong.append(
                        f"generation {place[0]}: partition {partition} "
                        f"belongs to members {claims[place]} and {member}"
                    )
    return wrong


def went_back(outputs: Outputs) -> list[str]:
    """Commits that were sent after a later offset of their partition had been acknowledged."""
    wrong = []
    for partition, commits in _by_partition(outputs).items():
        by_acknowledgement = sorted(commits, key=lambda each: each.acknowledged)
        newest, waiting = 0, iter(by_acknowledgement)
        coming = next(waiting, None)
        for commit in sorted(commits, key=lambda each: each.sent):
            while coming and coming.acknowledged < commit.sent:
                newest = max(newest, coming.offset)
                coming = next(waiting, None)
            if commit.offset < newest:
                wrong.append(f"partition {partition}: {newest}, then {commit}")
    return wrong


def by_an_old_owner(outputs: Outputs) -> list[str]:
    """Acknowledged commits of a member after another owned the partition in a later generation."""
    owned = defaultdict(list)
    for each in _ownerships(outputs):
        owned[each.partition].append(each)
    wrong = []
    for commit in _commits(outputs):
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
            and commit.acknowledged < other.end
        ]
    return wrong


def skipped(outputs: Outputs, ends: Mapping[int, int]) -> list[str]:
    """Records below the ends of the log that no member saw."""
    seen = defaultdict(set)
    for reports in outputs:
        for report in reports:
            if "record" in report:
                seen[report["record"][0]].add(report["record"][1])
    missing = {p: sorted(set(range(end)) - seen[p]) for p, end in ends.items()}
    return [f"partition {p}: nobody saw {offsets}" for p, offsets in missing.items() if offsets]


def acknowledged(outputs: Outputs) -> dict[int, int]:
    """The largest offset committed to each partition."""
    largest: dict[int, int] = {}
    for commit in _commits(outputs):
        largest[commit.partition] = max(largest.get(commit.partition, 0), commit.offset)
    return largest


def _by_partition(outputs: Outputs) -> dict[int, list[Commit]]:
    found = defaultdict(list)
    for commit in _commits(outputs):
        found[commit.partition].append(commit)
    return found


def _commits(outputs: Outputs) -> Iterator[Commit]:
    for member, reports in enumerate(outputs):
        sent = 0.0
        for report in reports:
            if "record" in report:
                sent = report["at"]
            if "committed" in report:
                partition, offset = report["committed"]
                yield Commit(member, partition, offset, sent, report["at"])


def _ownerships(outputs: Outputs) -> Iterator[Ownership]:
    for member, reports in enumerate(outputs):
        open_ones: dict[int, Ownership] = {}
        last = reports[-1]["at"] if reports else 0.0
        for report in reports:
            for partition in report.get("revoked", ()):
                if partition in open_ones:
                    yield open_ones.pop(partition)._replace(end=report["at"])
            for partition in report.get("assigned", ()):
                one = Ownership(member, partition, report["generation"], report["at"], last)
                open_ones[partition] = one
        yield from open_ones.values()
