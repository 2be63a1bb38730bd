"""Runs an assignor: on the calling thread, in a worker process, or on a thread that can be
abandoned.

    OnCallingThread  a built-in assignor
    WorkerProcess    an assignor with a name or a `module:Class`; see `krust.plugin_worker`
    OnOwnThread      an assignor object of this process; see `krust.runtime.own_thread`
`run` returns an assignment that was validated, or raises PluginFailedError with a text for the log.
Threads: the owner's. Any thread may call `kill`; then `warm` and `run` fail.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Protocol

from krust.coordinator.assignors.assignor import validate
from krust.coordinator.consumer_protocol import TopicPartition
from krust.plugin_process import PluginFailedError
from krust.plugin_worker import PluginWorker
from krust.runtime import own_thread

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import Assignor, GroupAssignment, GroupSpec, Topics
    from krust.plugins import Parameters


class AssignorRunner(Protocol):
    """Runs one assignor."""

    def warm(self) -> None:
        """Load the assignor, if that takes time. PluginFailedError: it cannot be loaded."""

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor. PluginFailedError: it raised, broke a rule or was late."""

    def kill(self) -> None:
        """Make the current call and all later ones fail soon."""

    def close(self) -> None:
        """End all threads and processes."""


class OnCallingThread:
    """Runs a built-in assignor, whose time is bounded."""

    def __init__(self, assignor: Assignor) -> None:
        self._assignor = assignor

    def warm(self) -> None:
        """Nothing has to be loaded."""

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor, without a deadline."""
        return _checked(self._assignor, group, topics)

    def kill(self) -> None:
        """It ends by itself."""

    def close(self) -> None:
        """There is nothing to close."""


def _checked(assignor: Assignor, group: GroupSpec, topics: Topics) -> GroupAssignment:
    try:
        shares = assignor.assign(group, topics)
        validate(group, topics, shares)
    except Exception as error:
        raise PluginFailedError(traceback.format_exc()) from error
    return shares


class WorkerProcess:
    """Runs an assignor that a worker process loads by its name or import path."""

    def __init__(self, import_path: str, parameters: Parameters | None = None) -> None:
        self._worker = PluginWorker("krust.runtime.worker", import_path, parameters)

    @property
    def name(self) -> str:
        """The name of the assignor, known once it is loaded."""
        return self._worker.name

    def warm(self) -> None:
        """Start the process and have it load the assignor."""
        self._worker.warm()

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor in the worker process."""
        answer = self._worker.call((group, topics), seconds)
        try:
            shares = {
                who: [TopicPartition(topic, number) for topic, number in ours]
                for who, ours in answer["shares"]
            }
            validate(group, topics, shares)
        except Exception as error:
            raise PluginFailedError(traceback.format_exc()) from error
        return shares

    def kill(self) -> None:
        """End the process. A call that waits for its answer fails."""
        self._worker.kill()

    def close(self) -> None:
        """End the process and its pipes."""
        self._worker.close()


def name_of(import_path: str, parameters: Parameters | None = None) -> str:
    """The name of the assignor at an import path. PluginFailedError: it cannot be loaded."""
    one = WorkerProcess(import_path, parameters)
    try:
        one.warm()
    finally:
        one.close()
    return one.name


class OnOwnThread:
    """Runs an assignor object of this process."""

    def __init__(self, assignor: Assignor) -> None:
        self._assignor = assignor

    def warm(self) -> None:
        """Nothing has to be loaded."""

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor on a new thread, which is abandoned if it is late."""
        return own_thread.call("assignor", lambda: _checked(self._assignor, group, topics), seconds)

    def kill(self) -> None:
        """Nothing: a thread cannot be ended. A call ends at its deadline."""

    def close(self) -> None:
        """Nothing: abandoned threads go on."""
