"""Runs an assignor: on the calling thread, in a worker process, or on a thread that can be
abandoned.

    OnCallingThread  a built-in assignor
    WorkerProcess    an assignor with a name or a `module:Class`. The first call, or `warm`, starts
                     the process. If a call is late, the process is ended. A new process is started
                     at once after the first late call, later after a pause that doubles, up to
                     RETRY_S
    OnOwnThread      an assignor object of this process. If a call is late, its thread is abandoned
`run` returns an assignment that was validated, or raises RunFailedError with a text for the log.
Threads: the owner's. Any thread may call `kill`; then `warm` and `run` fail.
Not promised: that an abandoned thread ever ends. There are at most ABANDONED_MAX of them.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from krust.coordinator.assignors.assignor import validate
from krust.coordinator.consumer_protocol import TopicPartition
from krust.runtime import worker

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import Assignor, GroupAssignment, GroupSpec, Topics
    from krust.plugins import Parameters
    from krust.runtime.worker import WorkerAnswer

GRACE_S = 2.0
"""A worker that hangs ends itself and writes its stack. After this time krust kills it."""
START_S = worker.LOAD_S + 10
RETRY_S, PAUSE_S = 5.0, 0.25
"""The pause after an assignor that cannot be loaded or hangs each time: the longest, the first."""
ABANDONED_MAX = 8
_ANSWER_MAX = 64 << 20
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from krust.runtime.worker import main; main(sys.argv[2], int(sys.argv[3]))"
)


class RunFailedError(Exception):
    """An assignor made no assignment. The text is for the log: the reason and a traceback."""


class AssignorRunner(Protocol):
    """Runs one assignor."""

    def warm(self) -> None:
        """Load the assignor, if that takes time. RunFailedError: it cannot be loaded."""

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor. RunFailedError: it raised, broke a rule or was late."""

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
        raise RunFailedError(traceback.format_exc()) from error
    return shares


class WorkerProcess:
    """Runs an assignor that a worker process loads by its name or import path."""

    def __init__(self, import_path: str, parameters: Parameters | None = None) -> None:
        self._import_path = import_path
        self._parameters = json.dumps(parameters or {}).encode()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._trace = -1
        self._closed = False
        self.name = ""
        """the name of the assignor, known once it is loaded"""
        self._not_before = 0.0
        self._why = ""
        self._lost = 0
        """how many processes in a row gave no answer"""

    def warm(self) -> None:
        """Start the process and have it load the assignor."""
        if self._child is not None:
            return
        if time.monotonic() < self._not_before:
            raise RunFailedError(self._why)
        child = self._started()
        try:
            self._send(child, self._parameters)
            self.name = str(self._read_answer(child, START_S).get("ready"))
        except RunFailedError as error:
            self._end()
            self._rest(RETRY_S, str(error))
            raise

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor in the worker process."""
        self.warm()
        child = self._child
        if child is None or child.stdin is None:
            raise RunFailedError("the broker stops")
        self._send(child, pickle.dumps((group, topics, seconds), pickle.HIGHEST_PROTOCOL))
        try:
            answer = self._read_answer(child, seconds + GRACE_S)
        except RunFailedError as error:
            if self._child is None:
                self._lost += 1
                pause = min(PAUSE_S * 2 ** (self._lost - 1), RETRY_S) if self._lost > 1 else 0.0
                self._rest(pause, f"{self._lost} times in a row it did not answer; last:\n{error}")
            else:
                self._lost = 0
            raise
        self._lost = 0
        try:
            shares = {
                who: [TopicPartition(topic, number) for topic, number in ours]
                for who, ours in answer["shares"]
            }
            validate(group, topics, shares)
        except Exception as error:
            raise RunFailedError(traceback.format_exc()) from error
        return shares

    def kill(self) -> None:
        """End the process. A call that waits for its answer fails."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """End the process and its pipes."""
        self._end()

    def _send(self, child: subprocess.Popen[bytes], body: bytes) -> None:
        try:
            if child.stdin is not None:
                child.stdin.write(worker.LENGTH.pack(len(body)) + body)
                child.stdin.flush()
        except OSError:
            raise RunFailedError(f"the worker process ended: {self._end()}") from None

    def _rest(self, seconds: float, why: str) -> None:
        self._not_before, self._why = time.monotonic() + seconds, why

    def _started(self) -> subprocess.Popen[bytes]:
        path = [*sys.path, os.getcwd()]  # noqa: PTH109 (text, for another process)
        trace, theirs = os.pipe()
        try:
            with self._lock:
                if self._closed:
                    raise RunFailedError("the broker stops")
                command = [
                    sys.executable,
                    "-c",
                    _CODE,
                    json.dumps(path),
                    self._import_path,
                    str(theirs),
                ]
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=[theirs],
                    start_new_session=True,
                )
                self._trace, trace = trace, -1
                return self._child
        except OSError as error:
            raise RunFailedError(f"no worker process: {error}") from error
        finally:
            os.close(theirs)
            if trace >= 0:
                os.close(trace)

    def _read_answer(self, child: subprocess.Popen[bytes], seconds: float) -> WorkerAnswer:
        """The worker's next answer. If there is none, the process is ended."""
        if child.stdout is None:
            raise RunFailedError("no pipe")
        until = time.monotonic() + seconds
        ours, received = child.stdout.fileno(), bytearray()
        wanted = worker.LENGTH.size
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        while len(received) < wanted:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise RunFailedError(f"no answer within {seconds:.2f} s\n{self._end()}")
            some = os.read(ours, 1 << 20)
            if not some:
                raise RunFailedError(self._end())
            received += some
            if wanted == worker.LENGTH.size <= len(received):
                wanted += min(worker.LENGTH.unpack_from(received)[0], _ANSWER_MAX)
        try:
            answer: WorkerAnswer = json.loads(received[worker.LENGTH.size :])
            error = answer.get("error")
        except (ValueError, AttributeError):
            raise RunFailedError(f"the worker process wrote no answer\n{self._end()}") from None
        if error is not None:
            raise RunFailedError(str(error))
        return answer

    def _end(self) -> str:
        """End the process. Returns its stack, or how it ended."""
        with self._lock:
            child, self._child = self._child, None
            if child is None:
                return "the broker stops"
            with suppress(OSError):
                child.kill()
        code = child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        stood = os.read(self._trace, 1 << 16) if _readable(self._trace) else b""
        os.close(self._trace)
        if self._closed:
            return "the broker stops"
        text = stood.decode(errors="replace").strip()
        return text or f"the worker process ended (exit code {code})"


def name_of(import_path: str, parameters: Parameters | None = None) -> str:
    """The name of the assignor at an import path. RunFailedError: it cannot be loaded."""
    one = WorkerProcess(import_path, parameters)
    try:
        one.warm()
    finally:
        one.close()
    return one.name


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


class OnOwnThread:
    """Runs an assignor object of this process."""

    may_abandon = threading.BoundedSemaphore(ABANDONED_MAX)
    """how many more threads may be abandoned, over all brokers of this process"""

    def __init__(self, assignor: Assignor) -> None:
        self._assignor = assignor

    def warm(self) -> None:
        """Nothing has to be loaded."""

    def run(self, group: GroupSpec, topics: Topics, seconds: float) -> GroupAssignment:
        """Call the assignor on a new thread, which is abandoned if it is late."""
        may_abandon = self.may_abandon
        if not may_abandon.acquire(blocking=False):
            raise RunFailedError(f"{ABANDONED_MAX} threads hang in assignors already")
        done: list[GroupAssignment | RunFailedError] = []

        def work() -> None:
            try:
                done.append(_checked(self._assignor, group, topics))
            except RunFailedError as error:
                done.append(error)
            finally:
                may_abandon.release()

        thread = threading.Thread(target=work, name="krust-assignor", daemon=True)
        thread.start()
        thread.join(seconds)
        if not done:
            raise RunFailedError(f"no answer within {seconds:.2f} s\n{_stack_of(thread)}")
        thread.join()
        if isinstance(done[0], RunFailedError):
            raise done[0]
        return done[0]

    def kill(self) -> None:
        """Nothing: a thread cannot be ended. A call ends at its deadline."""

    def close(self) -> None:
        """Nothing: abandoned threads go on."""


def _stack_of(thread: threading.Thread) -> str:
    """The stack of a thread, from the assignor's code on."""
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame) if frame is not None else []
    ours = [index for index, at in enumerate(stack) if at.filename == __file__]
    return "".join(traceback.format_list(stack[ours[-1] + 1 if ours else 0 :]))
