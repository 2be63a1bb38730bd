"""Logs brokers that a client cannot reach: one line when that begins, one line when it ends.

Logger: `krust.clients` (`logging.getLogger("krust")` has it too). Threads: any.
Limit: MOST brokers are remembered, including those of clients that have ended.
"""

from __future__ import annotations

import logging
import threading

MOST = 1024

_log = logging.getLogger("krust.clients")
_lock = threading.Lock()
_away: dict[tuple[int, str], None] = {}


def tell(client: int, address: str, reason: str | None) -> None:
    """Log that a client cannot reach a broker, or (reason None) that the broker answers again.

    Each connection of a client reports it, and one line is written.
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
