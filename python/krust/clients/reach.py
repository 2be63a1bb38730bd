"""What a client says in the log of brokers that it cannot reach: a line when that begins, and one
when it is over; nothing for the attempts in between.

Logger: `krust.clients` (so `logging.getLogger("krust")` has it). Threads: any.
Limit: MOST lines' subjects are remembered; a client that is gone leaves its own there until then.
"""

from __future__ import annotations

import logging
import threading

MOST = 1024

_log = logging.getLogger("krust.clients")
_lock = threading.Lock()
_away: dict[tuple[int, str], None] = {}


def tell(client: int, address: str, reason: str | None) -> None:
    """Log that a client cannot reach a broker, or (no reason) that it answers again.

    A client has several connections; each of them tells, and one line is written.
    """
    key = (client, address)
    with _lock:
        was_away = key in _away
        if reason is None:
            _away.pop(key, None)
        else:
            _away[key] = None
            if len(_away) > MOST:
                del _away[next(iter(_away))]
    if reason is not None and not was_away:
        _log.warning("cannot reach broker %s: %s; trying again", address, reason)
    elif reason is None and was_away:
        _log.info("broker %s answers again", address)
