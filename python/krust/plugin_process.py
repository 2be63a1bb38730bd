"""Calls a user's plug-in once, in a process of its own that ends at its deadline.

Input of the process: (question, parameters) on standard input, pickled by krust. Output: a line of
JSON, because krust does not unpickle what user code can write. A call that exceeds its deadline
ends the process, which writes its stack to standard error. The output of user code goes there too.
Threads: `OnceCaller.call` blocks, one call at a time. Any thread may call `kill`; then all later
calls fail.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from krust.plugins import FindError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.plugins import Parameters

    Plugin = TypeVar("Plugin")

LOAD_S = 10.0
"""how long the loading of the plug-in's module may take"""


class PluginFailedError(Exception):
    """A plug-in gave no answer; the text is for the log."""


class OnceCaller:
    """Starts a process for each call.

    worker  the module whose `main(import_path, seconds)` is the process
    """

    def __init__(self, worker: str) -> None:
        self._code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            f"from {worker} import main; main(sys.argv[2], float(sys.argv[3]))"
        )
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._killed = False

    def call(
        self,
        import_path: str,
        question: object,
        seconds: float,
        parameters: Parameters | None = None,
    ) -> dict[str, Any]:
        """What the process of a plug-in answers. PluginFailedError: nothing, or an error."""
        path = [*sys.path, os.getcwd()]  # noqa: PTH109 (text, for another process)
        command = [sys.executable, "-c", self._code, json.dumps(path), import_path, str(seconds)]
        with self._lock:
            if self._killed:
                raise PluginFailedError("the broker stops")
            pipe = subprocess.PIPE
            self._child = child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        try:
            body = pickle.dumps((question, parameters), pickle.HIGHEST_PROTOCOL)
            output, trace = child.communicate(body, LOAD_S + seconds + 1)
        except subprocess.TimeoutExpired:
            child.kill()
            output, trace = child.communicate()
        finally:
            with self._lock:
                self._child = None
        answer: dict[str, Any] = {}
        with suppress(ValueError):
            answer = json.loads(output)
        if not answer or "error" in answer:
            shown = trace.decode(errors="replace")[-4000:]
            raise PluginFailedError(
                answer.get("error") or f"no answer within {seconds:g} s\n{shown}"
            )
        return answer

    def kill(self) -> None:
        """End the current call; it fails."""
        with self._lock:
            self._killed = True
            if self._child is not None:
                self._child.kill()


def serve_once(
    import_path: str,
    seconds: float,
    find: Callable[[str, Parameters | None], Plugin],
    ask: Callable[[Plugin, Any], dict[str, Any]],
) -> None:
    """The work of the process: find the plug-in, ask it, and write what `ask` returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    question, parameters = pickle.load(sys.stdin.buffer)  # noqa: S301 (the broker made it)
    faulthandler.dump_traceback_later(LOAD_S, exit=True)
    try:
        plugin = find(import_path, parameters)
        faulthandler.dump_traceback_later(seconds, exit=True)
        found = ask(plugin, question)
    except FindError as error:
        found = {"error": error.whole()}
    except Exception:
        found = {"error": traceback.format_exc()}
    faulthandler.cancel_dump_traceback_later()
    with answers:
        answers.write(json.dumps(found))
