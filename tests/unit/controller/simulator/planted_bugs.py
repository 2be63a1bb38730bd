"""Bugs to plant into the controller: the checks have to find each of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from krust.controller import (
    brokers,
    change_notifications,
    config_changes,
    control_request_handlers,
    control_requests,
    controller_election,
    deletion,
    jobs,
    leader_requests,
    leaders,
    reassignment,
    registration,
)
from krust.controller.entities import LiveBroker, Partition
from krust.controller.returned_brokers import ReturnedBrokers
from krust.controller.state import NO_NODE_VERSION, ControllerState
from krust.metadata import znodes
from krust.metadata.contents import ControllerRegistration
from krust.metadata.store import (
    ANY,
    Check,
    Children,
    Exists,
    Node,
    Read,
    SessionState,
    SetData,
)


def no_epoch_check() -> Any:
    """The controller's writes match any epoch."""
    return patch.object(ControllerState, "fence", lambda _: Check(znodes.CONTROLLER_EPOCH, ANY))


def watch_on_brokers_not_set_again() -> Any:
    """The live brokers are read without a watch."""
    return patch.object(brokers, "Children", lambda path, watch: Children(path, watch and not path))


def watch_on_the_controller_node_not_set_again() -> Any:
    """`/controller` is read without a watch."""
    return patch.object(
        controller_election, "Exists", lambda path, watch: Exists(path, watch and not path)
    )


def stale_ephemeral_taken_for_mine() -> Any:
    """A node that names this broker counts as its own, whichever session made it."""

    def elect(state: ControllerState, now_ms: int) -> Generator[Any, Any, bool]:
        (read,) = yield [[Read(znodes.CONTROLLER), Read(znodes.CONTROLLER_EPOCH)]]
        holder, node = read.results
        if (
            isinstance(holder, Node)
            and ControllerRegistration.decode(holder.data).broker == state.node_id
        ):
            if state.epoch_version == NO_NODE_VERSION:
                state.become_controller(int(node.data), node.stat.version)
            return True
        return (yield from honest(state, now_ms))

    honest = controller_election.elect
    return _both(
        patch.object(controller_election, "elect", elect),
        patch.object(registration, "_check_own", lambda *_: None),
    )


def controller_does_not_resign_at_the_deadline() -> Any:
    """The controller does not resign at OVERDUE."""
    real = jobs.ControllerJobs.on_store_event

    def heard(self: Any, event: Any) -> None:
        if getattr(event, "state", None) is not SessionState.OVERDUE:
            real(self, event)

    return patch.object(jobs.ControllerJobs, "on_store_event", heard)


def abandoned_connections_are_served() -> Any:
    """A late request on an abandoned connection is carried out."""
    real = control_request_handlers._accept_controller

    def spoke(state: ControllerState, request: Any) -> None:
        real(state, request)
        state.last_control_connection = (-1, 0)

    return patch.object(control_request_handlers, "_accept_controller", spoke)


def restarted_brokers_get_no_full_metadata() -> Any:
    """A broker that registered again counts as the old one."""
    real = control_requests.ControlRequests.for_changes

    def after(self: Any, state: ControllerState, changes: Any) -> Any:
        for broker in self._full_epochs.keys() & state.brokers.keys():
            self._full_epochs[broker] = state.brokers[broker].epoch
        return real(self, state, changes)

    return patch.object(control_requests.ControlRequests, "for_changes", after)


def restarted_brokers_keep_their_leader_epoch() -> Any:
    """A leader that registered again gets no new epoch."""

    def read_live(state: ControllerState) -> Generator[Any, Any, ReturnedBrokers]:
        yield from real(state)
        state.returned.clear()
        return ReturnedBrokers()

    real = brokers.read_live_brokers
    return patch.object(brokers, "read_live_brokers", read_live)


def dead_brokers_keep_their_replicas() -> Any:
    """A deletion does not wait for dead brokers."""
    real = deletion.begin

    def begin(state: ControllerState, name: str) -> None:
        real(state, name)
        if name in state.deletions:
            state.deletions[name].waiting.intersection_update(state.brokers)

    return patch.object(deletion, "begin", begin)


def marks_of_others_are_not_read() -> Any:
    """A new controller does not read the marks of deletion."""

    def read_marks(_: ControllerState) -> Generator[Any, Any, None]:
        yield [[Children(znodes.DELETE_TOPICS)]]

    return patch.object(deletion, "read_marks", read_marks)


def notifications_are_seen_once() -> Any:
    """The watch on setting changes is not set again."""
    real = config_changes.ConfigChangeNotifications.read_new

    def look(self: Any, state: ControllerState, now_ms: int) -> Generator[Any, Any, None]:
        with patch.object(
            change_notifications, "Children", lambda path, watch: Children(path, not watch)
        ):
            steps = real(self, state, now_ms)
            first = next(steps)
        answers = yield first
        yield from _rest(steps, answers)

    return patch.object(config_changes.ConfigChangeNotifications, "read_new", look)


def _rest(steps: Any, answers: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            answers = yield steps.send(answers)
        except StopIteration:
            return


def topics_marked_for_deletion_come_back() -> Any:
    """A topic that is marked for deletion counts as a topic when it is read again."""
    real = ControllerState.merge_topic

    def read(self: ControllerState, topic: Any) -> None:
        real(self, topic)

    def begin(state: ControllerState, name: str) -> None:
        state.drop(name)

    return _both(
        patch.object(deletion, "begin", begin), patch.object(ControllerState, "merge_topic", read)
    )


def states_are_written_over_any_version() -> Any:
    """A partition's state is written without a check of its version."""
    real = ControllerState.write_of

    def write_of(self: ControllerState, name: str, index: int, partition: Partition) -> Any:
        write = real(self, name, index, partition)
        return write._replace(version=ANY) if isinstance(write, SetData) else write

    return patch.object(ControllerState, "write_of", write_of)


def any_live_replica_leads() -> Any:
    """Unclean elections happen without permission."""
    real = brokers.leader_rules

    def rules(state: ControllerState, topic: Any) -> leaders.Rules:
        return real(state, topic)._replace(unclean=True)

    return patch.object(brokers, "leader_rules", rules)


def brokers_after_a_power_cut_count_as_whole() -> Any:
    """What a registration says of lost records is not looked at."""
    return patch.object(LiveBroker, "has_all_records_since", lambda *_: True)


def everybody_who_was_in_the_isr_stays_in_the_elr() -> Any:
    """The ELR does not end when the ISR is large enough."""

    def elr_after(partition: Partition, _: int, isr: Any, live: Any, __: Any) -> tuple[int, ...]:
        before = {*partition.isr, *partition.elr}.difference(
            isr, leaders._lossy_members(partition, live)
        )
        return tuple(each for each in partition.replicas if each in before)

    return _both(
        patch.object(leaders, "_is_below", lambda *_: True),
        _both(
            patch.object(leaders, "elr_after", elr_after),
            patch.object(leader_requests, "elr_after", elr_after),
        ),
    )


def reassignments_end_before_all_have_the_data() -> Any:
    """One new replica in the ISR ends a reassignment."""
    real = reassignment._ended

    def ended(state: ControllerState, topic: Any, index: int) -> Partition | None:
        partition = topic.partitions[index]
        target = set(partition.target)
        if not target & set(partition.isr):
            return None
        whole = partition._replace(isr=(*partition.isr, *target.difference(partition.isr)))
        done = real(state, _with(topic, index, whole), index)
        return done and done._replace(isr=tuple(e for e in done.isr if e in partition.isr))

    return patch.object(reassignment, "_ended", ended)


def _with(topic: Any, index: int, partition: Partition) -> Any:
    parts = topic.partitions
    return topic._replace(partitions=(*parts[:index], partition, *parts[index + 1 :]))


def cancels_leave_any_isr() -> Any:
    """A cancel does not look at how many replicas stay in sync."""
    real = reassignment._without

    def without(state: ControllerState, topic: Any, index: int, dropped: set[int]) -> Partition:
        with patch.object(brokers, "leader_rules", lambda *_: leaders.Rules(min_isr=1)):
            return real(state, topic, index, dropped)

    return patch.object(reassignment, "_without", without)


def new_controllers_do_not_continue_reassignments() -> Any:
    """Only the controller that began a reassignment ends it."""
    real = jobs.ControllerJobs._topics

    def topics(self: Any) -> Generator[Any, Any, None]:
        yield from real(self)
        self._wanted.discard(reassignment.JOB)

    return patch.object(jobs.ControllerJobs, "_topics", topics)


def controllers_elected_again_send_changes_alone() -> Any:
    """A controller whose first reads in a term are interrupted does not begin the term again."""

    def serves(self: Any) -> bool:
        return bool(self._state.is_controller and self._initialized_term is not None)

    return patch.object(jobs.ControllerJobs, "_serves", property(serves))


@contextmanager
def _both(first: Any, second: Any) -> Generator[None, None, None]:
    with first, second:
        yield


PLANTED_BUGS: tuple[tuple[str, Callable[[], Any], str], ...] = (
    ("C1", no_epoch_check, "_sleep"),
    ("C5", watch_on_brokers_not_set_again, ""),
    ("C5", watch_on_the_controller_node_not_set_again, "_delete_controller_node"),
    ("C3", stale_ephemeral_taken_for_mine, "_restart"),
    ("C2", controller_does_not_resign_at_the_deadline, ""),
    ("C5", abandoned_connections_are_served, "_delete"),
    ("C5", restarted_brokers_get_no_full_metadata, "_create"),
    ("C4", restarted_brokers_keep_their_leader_epoch, "_restart_unnoticed"),
    ("C5", dead_brokers_keep_their_replicas, ""),
    ("C5", marks_of_others_are_not_read, ""),
    ("C5", notifications_are_seen_once, "_configure"),
    ("C5", topics_marked_for_deletion_come_back, ""),
    ("R3", states_are_written_over_any_version, "_restart"),
    ("R9", any_live_replica_leads, "_cut_power"),
    ("D1", brokers_after_a_power_cut_count_as_whole, "_cut_power"),
    ("D1", everybody_who_was_in_the_isr_stays_in_the_elr, "_kill"),
    ("R10", reassignments_end_before_all_have_the_data, "_reassign"),
    ("R10", cancels_leave_any_isr, "_reassign"),
    ("C5", new_controllers_do_not_continue_reassignments, "_reassign"),
    ("C5", controllers_elected_again_send_changes_alone, "_delete_controller_node"),
)
"""A bug, the check that is for it, and what happens most in the runs that are to show it."""
