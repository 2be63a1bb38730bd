"""How a member comes from what it has to what it is to have (KIP-848, reconciliation).

    STABLE ──another target──> UNREVOKED   it has something to give up, and keeps its epoch
    STABLE, UNREVOKED ──nothing (left) to give up──> UNRELEASED   others have what it waits for
    all ──nothing to give up, all free──> STABLE

Rules (the simulator checks them):
- A member takes the target's epoch only when it has given up what is not in the target.
- A partition is given to a member only when no other has it, be it to be revoked or not.
- What a member may still read stays its own: `assigned` or `revoking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krust.coordinator.consumer.member import NOTHING, STABLE, UNRELEASED, UNREVOKED

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from krust.coordinator.consumer.member import Member, Partitions


class MemberTarget(NamedTuple):
    """What a member is to have."""

    epoch: int
    partitions: Partitions
    topics: Set[str]
    """ids of the topics it subscribes to now, which may be fewer than the target knows"""
    is_free: Callable[[tuple[str, int]], bool]
    """whether no other member has a partition"""


def reconcile(
    member: Member, member_target: MemberTarget, owned: Partitions | None, *, changed: bool
) -> bool:
    """Bring a member as near to its goal as it can come now.

    owned     what it says it still has; None: it does not say, so all
    changed   its subscription is another one: what it does not subscribe to goes at once
    returns   whether anything is different
    """
    if member.state == UNREVOKED and (owned is None or owned & member.revoking):
        return changed and _drop_unsubscribed(member, member_target, owned)
    if member.state == STABLE and member.epoch == member_target.epoch:
        return changed and _drop_unsubscribed(member, member_target, owned)
    return _advance(member, member_target, owned)


def has_free_partition(member: Member, member_target: MemberTarget) -> bool:
    """Whether something it waits for is free by now."""
    missing = wanted(member_target) - member.assigned
    return any(member_target.is_free(each) for each in missing)


def wanted(member_target: MemberTarget) -> Partitions:
    """The part of the target that it still subscribes to."""
    return frozenset(each for each in member_target.partitions if each[0] in member_target.topics)


def _advance(member: Member, member_target: MemberTarget, owned: Partitions | None) -> bool:
    target = wanted(member_target)
    kept = member.assigned & target
    given_up = member.assigned - kept
    if given_up and (owned is None or owned & given_up):
        return _move_to(member, UNREVOKED, member.epoch, kept, given_up)
    missing = target - kept
    free = frozenset(each for each in missing if member_target.is_free(each))
    state = UNRELEASED if free != missing else STABLE
    return _move_to(member, state, member_target.epoch, kept | free, NOTHING)


def _drop_unsubscribed(
    member: Member, member_target: MemberTarget, owned: Partitions | None
) -> bool:
    """Give up what it does not subscribe to any more, and nothing else."""
    kept = frozenset(each for each in member.assigned if each[0] in member_target.topics)
    given_up = member.revoking | (member.assigned - kept)
    if kept == member.assigned:
        return False
    if owned is None or owned & given_up:
        return _move_to(member, UNREVOKED, member.epoch, kept, given_up)
    return _move_to(member, member.state, member.epoch, kept, member.revoking)


def _move_to(
    member: Member, state: int, epoch: int, assigned: Partitions, revoking: Partitions
) -> bool:
    before = (member.state, member.epoch, member.assigned, member.revoking)
    if before == (state, epoch, assigned, revoking):
        return False
    member.set_epoch(epoch)
    member.state, member.assigned, member.revoking = state, assigned, revoking
    return True
