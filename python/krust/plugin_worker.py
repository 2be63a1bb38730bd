"""Calls a user's plug-in again and again, in a process that stays: `PluginWorker` and `serve`.

Format: frames on standard input and output, each a length (4 bytes, big-endian) and a body.
Input: the parameters of plug-ins as JSON, then calls, pickled by krust. Output: answers as JSON,
because krust does not unpickle what user code can write: `{"ready": name}` or `{"error": text}`
once the plug-in is loaded or cannot be, then an answer to each call.
A call that exceeds its deadline ends the process: a timer that needs no interpreter writes the
stack to the descriptor `trace` and exits. The output of user code goes to stderr. The process ends
when its standard input ends.
Threads: the owner's. Any thread may call `kill`; then `warm` and `call` fail.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from krust.plugin_process import LOAD_S, PluginFailedError
from krust.plugins import FindError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krust.plugins import Parameters

    Plugin = TypeVar("Plugin")

LENGTH = struct.Struct(">I")
GRACE_S = 2.0
"""A process that hangs ends itself and writes its stack. After this time krust kills it."""
START_S = LOAD_S + 10
RETRY_S, PAUSE_S = 5.0, 0.25
"""The pause after a plug-in that cannot be loaded or hangs each time: the longest, the first."""
_ANSWER_MAX = 64 << 20


class PluginLostError(PluginFailedError):
    """The process gave no answer, and has ended."""


class PluginWorker:
    """A plug-in in a process of its own. The first call, or `warm`, starts the process. If a call
    is late, the process is ended, and the next call starts another one: at once after the first
    late call, later after a pause that doubles, up to RETRY_S. Until then calls fail.

    worker   the module whose `main(import_path, trace)` is the process
    pause_s  the first pause; 0: there is none
    """

    def __init__(
        self,
        worker: str,
        import_path: str,
        parameters: Parameters | None = None,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            f"from {worker} import main; main(sys.argv[2], int(sys.argv[3]))"
        )
        self._import_path = import_path
        self._parameters = json.dumps(parameters or {}).encode()
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._trace = -1
        self._closed = False
        self.name = ""
        """the name of the plug-in, known once it is loaded"""
        self._not_before = 0.0
        self._why = ""
        self._lost = 0
        """how many processes in a row gave no answer"""

    def warm(self) -> None:
        """Start the process and have it load the plug-in. PluginFailedError: it cannot."""
        if self._child is not None:
            if self._child.poll() is None:
                return
            self._end()
        if time.monotonic() < self._not_before:
            raise PluginFailedError(self._why)
        child = self._started()
        try:
            self._send(child, self._parameters)
            self.name = str(self._read_answer(child, START_S).get("ready"))
        except PluginFailedError as error:
            self._end()
            self._rest(RETRY_S, str(error))
            raise PluginFailedError(str(error)) from None

    def call(self, question: object, seconds: float) -> dict[str, Any]:
        """The answer to a question. PluginFailedError: the plug-in raised; PluginLostError: it was
        late, or ended its process.
        """
        self.warm()
        child = self._child
        if child is None or child.stdin is None:
            raise PluginFailedError("the broker stops")
        self._send(child, pickle.dumps((question, seconds), pickle.HIGHEST_PROTOCOL))
        try:
            answer = self._read_answer(child, seconds + GRACE_S)
        except PluginLostError as error:
            self._lost += 1
            pause = min(self._pause_s * 2 ** (self._lost - 1), RETRY_S) if self._lost > 1 else 0.0
            self._rest(pause, f"{self._lost} times in a row it did not answer; last:\n{error}")
            raise
        except PluginFailedError:
            self._lost = 0
            raise
        self._lost = 0
        return answer

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
                child.stdin.write(LENGTH.pack(len(body)) + body)
                child.stdin.flush()
        except OSError:
            raise PluginLostError(f"the worker process ended: {self._end()}") from None

    def _rest(self, seconds: float, why: str) -> None:
        self._not_before, self._why = time.monotonic() + seconds, why

    def _started(self) -> subprocess.Popen[bytes]:
        path = [*sys.path, os.getcwd()]  # noqa: PTH109 (text, for another process)
        trace, theirs = os.pipe()
        try:
            with self._lock:
                if self._closed:
                    raise PluginFailedError("the broker stops")
                command = [sys.executable, "-c", self._code, json.dumps(path)]
                self._child = subprocess.Popen(
                    [*command, self._import_path, str(theirs)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=[theirs],
                    start_new_session=True,
                )
                self._trace, trace = trace, -1
                return self._child
        except OSError as error:
            raise PluginFailedError(f"no worker process: {error}") from error
        finally:
            os.close(theirs)
            if trace >= 0:
                os.close(trace)

    def _read_answer(self, child: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        """The process's next answer. If there is none, the process is ended."""
        if child.stdout is None:
            raise PluginLostError("no pipe")
        until = time.monotonic() + seconds
        ours, received = child.stdout.fileno(), bytearray()
        wanted = LENGTH.size
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        while len(received) < wanted:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise PluginLostError(f"no answer within {seconds:.2f} s\n{self._end()}")
            some = os.read(ours, 1 << 20)
            if not some:
                raise PluginLostError(self._end())
            received += some
            if wanted == LENGTH.size <= len(received):
                wanted += min(LENGTH.unpack_from(received)[0], _ANSWER_MAX)
        try:
            answer: dict[str, Any] = json.loads(received[LENGTH.size :])
            error = answer.get("error")
        except (ValueError, AttributeError):
            text = f"the worker process wrote no answer\n{self._end()}"
            raise PluginLostError(text) from None
        if error is not None:
            raise PluginFailedError(str(error))
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


def serve(
    import_path: str,
    trace: int,
    find: Callable[[str, Parameters | None], Plugin],
    ask: Callable[[Plugin, Any], Mapping[str, Any]],
) -> None:
    """The work of the process: answer calls of a plug-in with what `ask` returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    faulthandler.dump_traceback_later(LOAD_S, exit=True, file=trace)
    try:
        plugin = find(import_path, json.loads(_read(requests) or b"{}"))
    except FindError as error:
        _write(answers, {"error": error.whole()})
        return
    faulthandler.cancel_dump_traceback_later()
    _write(answers, {"ready": getattr(plugin, "name", import_path)})
    while body := _read(requests):
        question, seconds = pickle.loads(body)  # noqa: S301 (the broker made it)
        faulthandler.dump_traceback_later(seconds, exit=True, file=trace)
        try:
            answer: Mapping[str, Any] = ask(plugin, question)
        except Exception:
            answer = {"error": traceback.format_exc()}
        faulthandler.cancel_dump_traceback_later()
        _write(answers, answer)


def _write(answers: BinaryIO, answer: Mapping[str, Any]) -> None:
    """Write a frame."""
    body = json.dumps(answer).encode()
    answers.write(LENGTH.pack(len(body)) + body)
    answers.flush()


def _read(requests: BinaryIO) -> bytes:
    """The next frame; empty: the broker has ended."""
    head = requests.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return b""
    return requests.read(LENGTH.unpack(head)[0])


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))
