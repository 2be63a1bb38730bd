"""Bugs planted in classic groups. Each must be found by its own check (`planted_bugs.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from krust.coordinator import classic_members
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.classic_member import ClassicMember
from krust.coordinator.group_coordinator import GroupCoordinator
from krust.errors import Code
from tests.unit.coordinator.simulator.planted_bugs import Bug, Patch, PlantedBugs
from tests.unit.coordinator.simulator.simulation import simulate

PLANTED_BUGS = PlantedBugs(simulate)
caught_by = PLANTED_BUGS.caught_by


@caught_by("generation")
def counts_from_the_log_after_a_restart(patch: Patch) -> None:
    def number(self: ClassicGroup, turn: Any) -> None:
        self.generation += 1

    patch.setattr(ClassicGroup, "_next_generation", number)


@caught_by("generation")
def writes_the_number_that_was_given_out(patch: Patch) -> None:
    def number(self: ClassicGroup, turn: Any) -> None:
        latest = max(self.generation, self.issued_generation)
        if latest > self.stored_generation:
            self.record(turn, {**(self.stored_value or self.value([])), "generation": latest - 1})
        self.generation = latest + 1

    patch.setattr(ClassicGroup, "_next_generation", number)


@caught_by("snapshot")
def does_not_publish_who_is_new(patch: Patch) -> None:
    real = GroupCoordinator._publish

    def publish(self: GroupCoordinator, turn: Any, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None or group.state != "PreparingRebalance":
            real(self, turn, group_id)

    patch.setattr(GroupCoordinator, "_publish", publish)


@caught_by("snapshot")
def forgets_to_mark_a_static_members_return(patch: Patch) -> None:
    real = ClassicGroup._replace_static

    def replace(self: ClassicGroup, turn: Any, *args: Any) -> None:
        dirty, turn.dirty = turn.dirty, {}
        try:
            real(self, turn, *args)
        finally:
            turn.dirty = dirty

    patch.setattr(ClassicGroup, "_replace_static", replace)


@caught_by("durable")
def answers_without_a_record(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "store", lambda *_: None)


@caught_by("durable")
def records_the_assignment_of_the_time_before(patch: Patch) -> None:
    real = ClassicGroup.apply_assignment

    def apply_assignment(self: ClassicGroup, turn: Any, given: dict[str, bytes]) -> None:
        self.store(turn)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ClassicGroup, "store", lambda *_: None)
            real(self, turn, given)

    patch.setattr(ClassicGroup, "apply_assignment", apply_assignment)


@caught_by("join waits")
def waits_three_times_the_rebalance_timeout(patch: Patch) -> None:
    real = ClassicGroup._prepare_rebalance

    def prepare(self: ClassicGroup, turn: Any, *why: str) -> None:
        real(self, turn, *why)
        if self._join_due is not None:
            self._join_due += 2 * self.rebalance_timeout_ms()

    patch.setattr(ClassicGroup, "_prepare_rebalance", prepare)


@caught_by("join waits")
def extends_the_first_delay_for_ever(patch: Patch) -> None:
    def deadline(self: ClassicGroup, turn: Any) -> None:
        if self._initial and self._member_added_in_delay:
            self._member_added_in_delay = False
            self._join_due = turn.now_ms + 3 * turn.settings.initial_rebalance_delay_ms
        else:
            self._complete_join(turn)

    patch.setattr(ClassicGroup, "_on_join_deadline", deadline)


@caught_by("sync waits")
def waits_for_ever_for_the_leader(patch: Patch) -> None:
    real = ClassicGroup._complete_join

    def complete(self: ClassicGroup, turn: Any) -> None:
        real(self, turn)
        self._sync_due = None

    patch.setattr(ClassicGroup, "_complete_join", complete)


@caught_by("join waits")
def forgets_a_join_that_a_newer_one_replaces(patch: Patch) -> None:
    def park(self: ClassicGroup, turn: Any, member: ClassicMember, request: Any) -> None:
        self.awaiting_join += member.join is None
        member.join = request.ticket

    patch.setattr(ClassicGroup, "_delay_join", park)


@caught_by("join waits")
def forgets_the_join_of_who_is_removed(patch: Patch) -> None:
    def remove(self: ClassicGroup, turn: Any, member: ClassicMember, why: str) -> None:
        self.awaiting_join -= member.join is not None
        self.remove_member(member)
        turn.dirty[self.id] = None

    patch.setattr(ClassicGroup, "_remove", remove)


@caught_by("sync waits")
def forgets_the_sync_of_who_is_removed(patch: Patch) -> None:
    real = ClassicGroup._remove

    def remove(self: ClassicGroup, turn: Any, member: ClassicMember, why: str) -> None:
        member.sync = None
        real(self, turn, member, why)

    patch.setattr(ClassicGroup, "_remove", remove)


@caught_by("once")
def answers_twice(patch: Patch) -> None:
    real = ClassicGroup._end_join

    def end(self: ClassicGroup, turn: Any, member: ClassicMember, reply: Any) -> None:
        if member.instance_id is not None and member.join is not None:
            self.answer(turn, member.join, reply)
        real(self, turn, member, reply)

    patch.setattr(ClassicGroup, "_end_join", end)


@caught_by("leader")
def tells_everybody_who_is_here(patch: Patch) -> None:
    real = ClassicGroup.joined

    def joined(
        self: ClassicGroup, member: ClassicMember, *, with_members: bool, **more: Any
    ) -> Any:
        return real(self, member, with_members=True, **more)

    patch.setattr(ClassicGroup, "joined", joined)


@caught_by("protocol")
def elects_what_the_first_member_likes(patch: Patch) -> None:
    def select_protocol(self: ClassicGroup) -> str:
        return next(iter(self.members.values())).protocols[0][0]

    patch.setattr(classic_members.ClassicGroupMembers, "select_protocol", select_protocol)


@caught_by("sync generation")
def takes_a_sync_of_any_generation(patch: Patch) -> None:
    real = ClassicGroup._refuses_sync

    def refuses(self: ClassicGroup, event: Any) -> Code:
        asked = event.message["generation_id"]
        message = {**event.message, "generation_id": min(asked, self.generation)}
        if asked < self.generation:
            message["generation_id"] = self.generation
        return real(self, event._replace(message=message))

    patch.setattr(ClassicGroup, "_refuses_sync", refuses)


@caught_by("fenced")
def takes_a_fenced_member_for_an_unknown_one(patch: Patch) -> None:
    def fenced(self: ClassicGroup, member_id: str, instance_id: str | None) -> Code:
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    patch.setattr(ClassicGroup, "fenced", fenced)


@caught_by("owners")
def keeps_what_the_leader_did_not_give(patch: Patch) -> None:
    real = ClassicGroup.apply_assignment

    def apply_assignment(self: ClassicGroup, turn: Any, given: dict[str, bytes]) -> None:
        held = (self.stored_value or {"members": []})["members"]
        kept = {each["member_id"]: each["assignment"] for each in held[:1]}
        real(self, turn, {**given, **kept})

    patch.setattr(ClassicGroup, "apply_assignment", apply_assignment)


@caught_by("polite")
def takes_who_waits_for_dead(patch: Patch) -> None:
    patch.setattr(ClassicMember, "is_waiting", property(lambda _: False))


@caught_by("polite")
def does_not_renew_sessions(patch: Patch) -> None:
    real = ClassicGroup.publish

    def publish(self: ClassicGroup, turn: Any) -> None:
        for each in self.members.values():
            each.restart_session = False
        real(self, turn)

    patch.setattr(ClassicGroup, "publish", publish)


@caught_by("rest")
def keeps_pending_members_for_ever(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "_set_timer", lambda *_: None)


@caught_by("settled")
def lets_a_static_member_keep_an_old_assignment(patch: Patch) -> None:
    real = ClassicGroup._replace_static

    def replace(
        self: ClassicGroup, turn: Any, request: Any, old: ClassicMember, member_id: str
    ) -> None:
        old.assignment = b""
        real(self, turn, request, old, member_id)

    patch.setattr(ClassicGroup, "_replace_static", replace)


@caught_by("join waits")
def does_not_answer_those_who_wait_in_a_broken_group(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "pending_replies", lambda _: [])


@caught_by("generation")
def does_not_remember_that_a_group_is_being_read_again(patch: Patch) -> None:
    patch.setattr(GroupCoordinator, "_schedule_reload", lambda *_: None)


@caught_by("sync waits")
def waits_for_ever_for_the_assignor(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "_end_assignor_call", lambda *_: None)


@caught_by("owners")
def hears_an_assignor_of_another_generation(patch: Patch) -> None:
    def assigned(self: ClassicGroup, turn: Any, message: Any) -> None:
        given = message["assignments"]
        if given is not None and self.state in ("CompletingRebalance", "Stable"):
            self.state = "CompletingRebalance"
            self.apply_assignment(turn, given)

    patch.setattr(ClassicGroup, "on_assigned", assigned)


@PLANTED_BUGS.each()
def test_the_check_finds_its_planted_bug(check: str, bug: Bug) -> None:
    PLANTED_BUGS.must_find(check, bug)


def test_enough_bugs_are_planted() -> None:
    assert len(PLANTED_BUGS.bugs) >= 12
