"""The other end of `runners.Process`: a process that calls one assignor, and nothing else.

Talk: frames over its standard input and output, each a length (4 bytes, big-endian) and a body.
In: the parameters of assignors as JSON, then calls, pickled by krust itself. Out: JSON, because
whoever runs in here is not trusted with more:
    {"ready": name} | {"shares": [[member id, [[topic, partition], ...]], ...]} | {"error": text}
A call that takes longer than it may ends the process: a timer that needs no interpreter writes
where the code stands to the descriptor `trace` and exits. What user code prints goes to stderr.
The process ends with its standard input.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import struct
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO

from krust.coordinator.assignors.find import ASSIGNORS
from krust.coordinator.assignors.spec import GroupSpec, Topics, validate
from krust.plugins import FindError

if TYPE_CHECKING:
    from krust.coordinator.assignors.spec import Assignor

LENGTH = struct.Struct(">I")
LOAD_S = 10.0
"""so long may it take until the assignor's module is loaded"""


def main(place: str, trace: int) -> None:
    """Serve calls of the assignor at `place` until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    faulthandler.dump_traceback_later(LOAD_S, exit=True, file=trace)
    try:
        assignor = ASSIGNORS.find(place, json.loads(_read(requests) or b"{}"))
    except FindError as error:
        say(answers, {"error": error.whole()})
        return
    faulthandler.cancel_dump_traceback_later()
    say(answers, {"ready": assignor.name})
    while body := _read(requests):
        group, topics, seconds = pickle.loads(body)  # noqa: S301 (the broker made it)
        faulthandler.dump_traceback_later(seconds, exit=True, file=trace)
        answer = _called(assignor, group, topics)
        faulthandler.cancel_dump_traceback_later()
        say(answers, answer)


def _called(assignor: Assignor, group: GroupSpec, topics: Topics) -> dict[str, Any]:
    try:
        shares = assignor.assign(group, topics)
        validate(group, topics, shares)
        return {"shares": [[who, [list(one) for one in ours]] for who, ours in shares.items()]}
    except Exception:
        return {"error": traceback.format_exc()}


def say(answers: BinaryIO, answer: dict[str, Any]) -> None:
    """Write a frame."""
    body = json.dumps(answer).encode()
    answers.write(LENGTH.pack(len(body)) + body)
    answers.flush()


def _read(requests: BinaryIO) -> bytes:
    """The next frame; none: the broker is gone."""
    head = requests.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return b""
    return requests.read(LENGTH.unpack(head)[0])
