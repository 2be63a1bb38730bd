"""As `test_planted_bugs`, for consumer groups and what both protocols do in one group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from krust.coordinator import convert
from krust.coordinator.consumer import group, reconcile
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.consumer.member import NO_PARTITIONS, STABLE, UNREVOKED, ConsumerMember
from krust.coordinator.consumer.members import ConsumerGroupMembers
from krust.coordinator.consumer.mixed_group import MixedGroup
from krust.coordinator.group_coordinator import GroupCoordinator
from tests.unit.coordinator.simulator.mixed import simulate
from tests.unit.coordinator.simulator.planted_bugs import Bug, Patch, PlantedBugs

PLANTED_BUGS = PlantedBugs(simulate)
caught_by = PLANTED_BUGS.caught_by


@caught_by("owners")
def gives_a_partition_before_its_owner_has_let_go(patch: Patch) -> None:
    real = ConsumerGroupMembers.member_target

    def claim_partitions(self: ConsumerGroupMembers, member: ConsumerMember) -> None:
        self.owners |= dict.fromkeys(member.assigned | member.revoking, member.id)

    patch.setattr(
        ConsumerGroupMembers,
        "member_target",
        lambda *args: real(*args)._replace(is_free=lambda _: True),
    )
    patch.setattr(ConsumerGroupMembers, "claim_partitions", claim_partitions)


@caught_by("owners")
def forgets_what_is_still_to_be_revoked(patch: Patch) -> None:
    real = ConsumerGroupMembers.claim_partitions

    def claim_partitions(self: ConsumerGroupMembers, member: ConsumerMember) -> None:
        real(self, member)
        for each in member.revoking:
            self.owners.pop(each, None)

    patch.setattr(ConsumerGroupMembers, "claim_partitions", claim_partitions)


@caught_by("owners")
def takes_silence_for_a_revocation(patch: Patch) -> None:
    real = reconcile._advance

    def advance(member: ConsumerMember, goal: Any, owned: Any) -> bool:
        return real(member, goal, NO_PARTITIONS if owned is None else owned)

    patch.setattr(reconcile, "_advance", advance)


@caught_by("owners")
def forgets_after_a_restart_who_has_what(patch: Patch) -> None:
    real = ConsumerGroup.refresh

    def refresh(self: ConsumerGroup, turn: Any) -> None:
        self.owners.clear()
        real(self, turn)

    patch.setattr(ConsumerGroup, "refresh", refresh)


@caught_by("owners")
def lets_classic_members_keep_nothing_when_a_group_is_converted(patch: Patch) -> None:
    real = convert._member

    def member(*args: Any) -> ConsumerMember:
        found = real(*args)
        found.assigned = NO_PARTITIONS
        return found

    patch.setattr(convert, "_member", member)


@caught_by("owners")
def believes_a_classic_member_to_have_revoked(patch: Patch) -> None:
    real = MixedGroup.delay

    def delay(self: MixedGroup, turn: Any, delayed: Any) -> None:
        real(self, turn, replace(delayed, owned=NO_PARTITIONS) if delayed.join else delayed)

    patch.setattr(MixedGroup, "delay", delay)


@caught_by("epoch")
def gives_out_an_epoch_that_is_not_in_the_log(patch: Patch) -> None:
    def bump(self: ConsumerGroup, turn: Any) -> None:
        self.target_outdated = False
        self.epoch += 1
        turn.dirty[self.id] = None

    patch.setattr(ConsumerGroup, "_increment_epoch", bump)


@caught_by("number")
def counts_anew_when_a_group_is_converted(patch: Patch) -> None:
    real = convert.to_consumer_group

    def upgraded(*args: Any) -> Any:
        new = real(*args)
        new.epoch = new.assignment_epoch = 0
        return new

    patch.setattr(convert, "to_consumer_group", upgraded)


@caught_by("durable")
def tells_what_is_not_in_the_log(patch: Patch) -> None:
    real = ConsumerGroupMembers.write

    def write(self: ConsumerGroupMembers, turn: Any, *written: Any) -> None:
        real(self, turn, *[each for each in written if each[0] != 8 or each[2] is None])

    patch.setattr(ConsumerGroupMembers, "write", write)


@caught_by("pace")
def waits_for_ever_for_a_revocation(patch: Patch) -> None:
    real = ConsumerMember.deadlines

    def deadlines(self: ConsumerMember) -> list[int]:
        self.revoke_due = None
        return real(self)

    patch.setattr(ConsumerMember, "deadlines", deadlines)


@caught_by("pace")
def waits_for_ever_for_a_classic_members_join(patch: Patch) -> None:
    patch.setattr(MixedGroup, "call_to_join", lambda *_: None)


@caught_by("snapshot")
def does_not_wake_who_waits_for_a_partition(patch: Patch) -> None:
    real = MixedGroup.reconcile

    def reconciled(
        self: MixedGroup, turn: Any, member: ConsumerMember, *args: Any, **more: Any
    ) -> None:
        dirty, turn.dirty = turn.dirty, {}
        real(self, turn, member, *args, **more)
        turn.dirty = dirty | (turn.dirty if member.state == UNREVOKED else {})

    patch.setattr(MixedGroup, "reconcile", reconciled)


@caught_by("settled")
def does_not_see_that_topics_changed(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "topics_changed", lambda *_: None)


@caught_by("settled")
def tells_nothing_to_who_has_something_to_fetch(patch: Patch) -> None:
    patch.setattr(ConsumerGroupMembers, "has_current_assignment", lambda *_: True)


@caught_by("settled")
def moves_on_without_what_others_have_to_release(patch: Patch) -> None:
    real = reconcile._move_to

    def become(member: ConsumerMember, state: int, *more: Any) -> bool:
        return real(member, UNREVOKED if state == UNREVOKED else STABLE, *more)

    patch.setattr(reconcile, "_move_to", become)


@caught_by("once")
def leaves_who_waits_without_an_answer_when_a_group_breaks(patch: Patch) -> None:
    patch.setattr(MixedGroup, "pending_replies", lambda _: [])


@caught_by("once")
def waits_for_ever_for_user_code(patch: Patch) -> None:
    patch.setattr(group, "CALL_MS", 10**9)


@caught_by("rest")
def stays_a_consumer_group_for_classic_members_alone(patch: Patch) -> None:
    patch.setattr(GroupCoordinator, "_downgrade_if_due", lambda *_: None)


@caught_by("snapshot")
def does_not_publish_who_is_new(patch: Patch) -> None:
    real = ConsumerGroupMembers.publish

    def publish(self: ConsumerGroupMembers, turn: Any) -> None:
        if self.state != "Reconciling":
            real(self, turn)

    patch.setattr(ConsumerGroupMembers, "publish", publish)


@PLANTED_BUGS.each()
def test_the_check_finds_its_planted_bug(check: str, bug: Bug) -> None:
    PLANTED_BUGS.must_find(check, bug)


def test_enough_bugs_are_planted() -> None:
    assert len(PLANTED_BUGS.bugs) >= 8
