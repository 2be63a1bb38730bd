"""Bugs to plant into the controller: the checks have to find each of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from krust.controller import (
    brokers,
    config_changes,
    control_request_handlers,
    control_requests,
    controller_election,
    deletion,
    jobs,
    registration,
)
from krust.controller.state import NEVER, ControllerState
from krust.metadata import znodes
from krust.metadata.contents import Controller
from krust.metadata.store import ANY, Check, Children, Exists, Node, Read, SessionState


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
        if isinstance(holder, Node) and Controller.decode(holder.data).broker == state.node_id:
            if state.epoch_version == NEVER:
                state.become_controller(int(node.data), node.stat.version)
            return True
        return (yield from honest(state, now_ms))

    honest = controller_election.elect
    return _both(
        patch.object(controller_election, "elect", elect),
        patch.object(registration, "_ours", lambda *_: None),
    )


def controller_does_not_resign_at_the_deadline() -> Any:
    """The controller does not resign at OVERDUE."""
    real = jobs.ControllerJobs.heard

    def heard(self: Any, event: Any) -> None:
        if getattr(event, "state", None) is not SessionState.OVERDUE:
            real(self, event)

    return patch.object(jobs.ControllerJobs, "heard", heard)


def abandoned_connections_are_served() -> Any:
    """A late request on an abandoned connection is carried out."""
    real = control_request_handlers._accept_controller

    def spoke(state: ControllerState, request: Any) -> None:
        real(state, request)
        state.last_control_connection = (-1, 0)

    return patch.object(control_request_handlers, "_accept_controller", spoke)


def restarted_brokers_get_no_full_metadata() -> Any:
    """A broker that registered again counts as the old one."""
    real = control_requests.ControlRequests.after

    def after(self: Any, state: ControllerState, changes: Any) -> Any:
        for broker in self._full_epochs.keys() & state.brokers.keys():
            self._full_epochs[broker] = state.brokers[broker].epoch
        return real(self, state, changes)

    return patch.object(control_requests.ControlRequests, "after", after)


def restarted_brokers_keep_their_leader_epoch() -> Any:
    """A leader that registered again gets no new epoch."""

    def read_live(state: ControllerState) -> Generator[Any, Any, brokers.Returned]:
        yield from real(state)
        return brokers.Returned()

    real = brokers.read_live
    return patch.object(brokers, "read_live", read_live)


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
    real = config_changes.ConfigChangeNotifications.look

    def look(self: Any, state: ControllerState, now_ms: int) -> Generator[Any, Any, None]:
        with patch.object(
            config_changes, "Children", lambda path, watch: Children(path, not watch)
        ):
            steps = real(self, state, now_ms)
            first = next(steps)
        answers = yield first
        yield from _rest(steps, answers)

    return patch.object(config_changes.ConfigChangeNotifications, "look", look)


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
    ("C5", restarted_brokers_get_no_full_metadata, "_restart_unnoticed"),
    ("C4", restarted_brokers_keep_their_leader_epoch, "_restart_unnoticed"),
    ("C5", dead_brokers_keep_their_replicas, ""),
    ("C5", marks_of_others_are_not_read, ""),
    ("C5", notifications_are_seen_once, "_configure"),
    ("C5", topics_marked_for_deletion_come_back, ""),
)
"""A bug, the check that is for it, and what happens most in the runs that are to show it."""
