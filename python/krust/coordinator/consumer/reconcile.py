"""Reconciliation: the steps from a member's partitions to its target (KIP-848).

    STABLE ──new target──> UNREVOKED   it has partitions to give up, and keeps its epoch
    STABLE, UNREVOKED ──none (left) to give up──> UNRELEASED   other members have its partitions
    all ──none to give up, all free──> STABLE

Rules (the simulator checks them):
- A member gets the target's epoch only when it has given up all partitions outside the target.
- A member gets a partition only when no other member has it, assigned or to be revoked.
- A partition that a member may still read stays in its `assigned` or `revoking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.consumer.member import NO_PARTITIONS, STABLE, UNRELEASED, UNREVOKED
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from krust.coordinator.consumer.member import ConsumerMember, Partitions


class MemberTarget(NamedTuple):
    """The partitions that a member is to have."""

    epoch: int
    partitions: Partitions
    topics: Set[str]
    """ids of the topics it subscribes to now, which may be fewer than the target knows"""
    is_free: Callable[[tuple[str, int]], bool]
    """whether no other member has a partition"""


def reconcile(
    member: ConsumerMember, member_target: MemberTarget, owned: Partitions | None, *, changed: bool
) -> bool:
    """Bring a member as close to its target as is possible now.

    owned     the partitions that it reports; None: it reports none, so it has all
    changed   its subscription changed: it loses unsubscribed partitions at once
    returns   whether the member changed
    """
    if member.state == UNREVOKED and (owned is None or owned & member.revoking):
        return changed and _drop_unsubscribed(member, member_target, owned)
    if member.state == STABLE and member.epoch == member_target.epoch:
        return changed and _drop_unsubscribed(member, member_target, owned)
    return _advance(member, member_target, owned)


def has_free_partition(member: ConsumerMember, member_target: MemberTarget) -> bool:
    """Whether a partition that it waits for is free."""
    missing = wanted(member_target) - member.assigned
    return any(member_target.is_free(each) for each in missing)


def wanted(member_target: MemberTarget) -> Partitions:
    """The target without partitions that it no longer subscribes to."""
    return frozenset(each for each in member_target.partitions if each[0] in member_target.topics)


def _advance(member: ConsumerMember, member_target: MemberTarget, owned: Partitions | None) -> bool:
    target = wanted(member_target)
    kept = member.assigned & target
    given_up = member.assigned - kept
    if given_up and (owned is None or owned & given_up):
        return _move_to(member, UNREVOKED, member.epoch, kept, given_up)
    missing = target - kept
    free = frozenset(each for each in missing if member_target.is_free(each))
    state = UNRELEASED if free != missing else STABLE
    return _move_to(member, state, member_target.epoch, kept | free, NO_PARTITIONS)


def _drop_unsubscribed(
    member: ConsumerMember, member_target: MemberTarget, owned: Partitions | None
) -> bool:
    """Give up only the partitions that it no longer subscribes to."""
    kept = frozenset(each for each in member.assigned if each[0] in member_target.topics)
    given_up = member.revoking | (member.assigned - kept)
    if kept == member.assigned:
        return False
    if owned is None or owned & given_up:
        return _move_to(member, UNREVOKED, member.epoch, kept, given_up)
    return _move_to(member, member.state, member.epoch, kept, member.revoking)


def _move_to(
    member: ConsumerMember, state: int, epoch: int, assigned: Partitions, revoking: Partitions
) -> bool:
    before = (member.state, member.epoch, member.assigned, member.revoking)
    if before == (state, epoch, assigned, revoking):
        return False
    member.set_epoch(epoch)
    member.state, member.assigned, member.revoking = state, assigned, revoking
    return True
