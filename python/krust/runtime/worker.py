"""The worker process of `runners.WorkerProcess`: it calls one assignor.

Format: frames on standard input and output, each a length (4 bytes, big-endian) and a body.
Input: the parameters of assignors as JSON, then calls, pickled by krust. Output: `WorkerAnswer` as
JSON, because krust does not unpickle what user code can write.
A call that exceeds its deadline ends the process: a timer that needs no interpreter writes the
stack to the descriptor `trace` and exits. The output of user code goes to stderr. The process ends
when its standard input ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import struct
import traceback
from typing import TYPE_CHECKING, BinaryIO, TypedDict

from krust.coordinator.assignors.assignor import GroupSpec, Topics, validate
from krust.coordinator.assignors.find import ASSIGNORS
from krust.plugins import FindError

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import Assignor

LENGTH = struct.Struct(">I")
LOAD_S = 10.0
"""how long the loading of the assignor's module may take"""


class WorkerAnswer(TypedDict, total=False):
    """What the process writes: one of these."""

    ready: str
    """the name of the assignor, which is loaded"""
    shares: list[tuple[str, list[tuple[str, int]]]]
    """member id, [(topic, partition)]"""
    error: str


def main(import_path: str, trace: int) -> None:
    """Serve calls of the assignor at `import_path` until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    faulthandler.dump_traceback_later(LOAD_S, exit=True, file=trace)
    try:
        assignor = ASSIGNORS.find(import_path, json.loads(_read(requests) or b"{}"))
    except FindError as error:
        write(answers, {"error": error.whole()})
        return
    faulthandler.cancel_dump_traceback_later()
    write(answers, {"ready": assignor.name})
    while body := _read(requests):
        group, topics, seconds = pickle.loads(body)  # noqa: S301 (the broker made it)
        faulthandler.dump_traceback_later(seconds, exit=True, file=trace)
        answer = _call(assignor, group, topics)
        faulthandler.cancel_dump_traceback_later()
        write(answers, answer)


def _call(assignor: Assignor, group: GroupSpec, topics: Topics) -> WorkerAnswer:
    try:
        shares = assignor.assign(group, topics)
        validate(group, topics, shares)
        return {
            "shares": [
                (member_id, [(topic, partition) for topic, partition in share])
                for member_id, share in shares.items()
            ]
        }
    except Exception:
        return {"error": traceback.format_exc()}


def write(answers: BinaryIO, answer: WorkerAnswer) -> None:
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
