"""The process that calls one retention policy once.

Input: ((disk, partitions, now_ms), parameters) on standard input, pickled by krust.
Output: a line of JSON, because krust does not unpickle what user code can write:
    {"expired": [[topic, number, count], ...]} | {"error": text}
A call that exceeds its deadline ends the process, which writes its stack to standard error. The
output of user code goes there too.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import sys
import traceback
from typing import Any

from krust.plugins import FindError
from krust.retention.policies import POLICIES
from krust.retention.spec import validate

LOAD_S = 10.0
"""how long the loading of the policy's module may take"""


def main(place: str, seconds: float) -> None:
    """Call the policy at `place` once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    question, parameters = pickle.load(sys.stdin.buffer)  # noqa: S301 (the broker made it)
    faulthandler.dump_traceback_later(LOAD_S, exit=True)
    answer = _asked(place, parameters, seconds, question)
    faulthandler.cancel_dump_traceback_later()
    with answers:
        answers.write(json.dumps(answer))


def _asked(place: str, parameters: Any, seconds: float, question: Any) -> dict[str, Any]:
    try:
        policy = POLICIES.find(place, parameters)
    except FindError as error:
        return {"error": error.whole()}
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        expired = policy.expired(*question)
        validate(question[1], expired)
    except Exception:
        return {"error": traceback.format_exc()}
    return {"expired": [[topic, number, count] for (topic, number), count in expired.items()]}
