"""Calls user code of this process on a thread of its own, which is abandoned if the call is late.

Threads: any. A call blocks.
Not promised: that an abandoned thread ever ends. There are at most ABANDONED_MAX of them.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING, TypeVar

from krust.plugin_process import PluginFailedError
from krust.plugin_worker import PluginLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

ABANDONED_MAX = 8
may_abandon = threading.BoundedSemaphore(ABANDONED_MAX)
"""how many more threads may be abandoned, over all brokers of this process"""


def call(noun: str, work: Callable[[], T], seconds: float) -> T:
    """What `work` returns. PluginFailedError: it raised; PluginLostError: it is late.

    noun  what kind of plug-in it calls, for messages
    """
    room = may_abandon
    if not room.acquire(blocking=False):
        raise PluginFailedError(f"{ABANDONED_MAX} threads hang in plug-ins already")
    done: list[T | PluginFailedError] = []

    def run() -> None:
        try:
            done.append(work())
        except PluginFailedError as error:
            done.append(error)
        except Exception:
            done.append(PluginFailedError(traceback.format_exc()))
        finally:
            room.release()

    thread = threading.Thread(target=run, name=f"krust-{noun}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise PluginLostError(f"no answer within {seconds:.2f} s\n{_stack_of(thread)}")
    thread.join()
    answer = done[0]
    if isinstance(answer, PluginFailedError):
        raise answer
    return answer


def _stack_of(thread: threading.Thread) -> str:
    """The stack of a thread, from the user's code on."""
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame) if frame is not None else []
    ours = [index for index, at in enumerate(stack) if at.filename.startswith(_HERE)]
    return "".join(traceback.format_list(stack[ours[-1] + 1 if ours else 0 :]))


_HERE = __file__.rpartition("/")[0]
