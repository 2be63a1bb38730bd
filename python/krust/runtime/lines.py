"""The lines of a broker's log at info: topics, refused changes, slow requests for a decision.

`coordinator/history.py` logs the rebalances of groups. The core logs requests that kept a network
thread for long, and each request at debug of `krust.requests`.
Limit: a request is one line. A client's name for itself is cut and shown without control codes.
Threads: the policy thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from krust._krust import log_requests, logs
from krust.errors import Code
from krust.metadata.store import SessionState

if TYPE_CHECKING:
    from krust.controller.entities import Topic
    from krust.controller.state import Request
    from krust.messages import Message, RequestContext
SLOW_MS = 1000
"""A request that took longer is logged at info."""
_CLIENT = 80
_CHANGES = (
    "Alter",
    "Create",
    "Delete",
    "Elect",
    "Expire",
    "Incremental",
    "Renew",
    "Unregister",
    "Update",
)
"""The first words of the APIs whose refusals are logged"""

SESSION_LINES = {
    SessionState.SUSPENDED: (
        logging.WARNING,
        "no connection to ZooKeeper: nothing changes",
    ),
    SessionState.OVERDUE: (logging.ERROR, "ZooKeeper is silent for as long as a session lasts"),
    SessionState.EXPIRED: (
        logging.ERROR,
        "the ZooKeeper session has expired: this broker registers again once it is connected",
    ),
    SessionState.CONNECTED: (logging.INFO, "connected to ZooKeeper again"),
}
"""Level and line for each state of the session with the ZooKeeper."""

_NAMES = {int(code): code.name for code in Code}

_log = logging.getLogger("krust")


class LogLines:
    """The lines of one broker."""

    def __init__(self) -> None:
        self._partitions: dict[str, int] = {}
        self._own_refusals: dict[str, int] = {}
        """the APIs of this broker's own requests whose last answer was a refusal, and its code"""

    def topics(self, changed: Mapping[str, Topic | None], *, says: bool) -> None:
        """Log the topics that changed, if this broker is the controller (`says`)."""
        known = self._partitions
        for name, topic in changed.items():
            before = known.pop(name, 0)
            if topic is None:
                if says and before:
                    _log.info("topic %s is deleted", name)
                continue
            now = known[name] = len(topic.partitions)
            if says and not before:
                replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
                what = "topic %s is created: partitions %d, replication factor %d"
                _log.info(what, name, now, replicas)
            elif says and now > before:
                _log.info("topic %s has %d partitions now, it had %d", name, now, before)

    def answered(self, request: Request[Any], answer: Message, now_ms: int) -> None:
        """Log a request that was slow or that is refused.

        This broker repeats its own requests, such as AlterPartition, until they are done. Their
        refusals are logged when the reason changes.
        """
        took_ms = now_ms - request.now_ms
        if took_ms > SLOW_MS:
            _log.info("%s from %s took %d ms", request.api, whom(request.client), took_ms)
        if not request.api.startswith(_CHANGES):
            return
        refusal = _refusal(answer)
        if not request.client.get("host") and self._is_known(request.api, refusal):
            return
        if refusal:
            code, message = refusal
            name = _NAMES.get(code, f"code {code}")
            text = f": {_plain(message)}" if message else ""
            _log.info("%s from %s is refused: %s%s", request.api, whom(request.client), name, text)

    def _is_known(self, api: str, refusal: tuple[int, str | None] | None) -> bool:
        """Whether this broker's last request of the API was refused for the same reason."""
        if refusal is None:
            self._own_refusals.pop(api, None)
            return False
        known = self._own_refusals.get(api)
        self._own_refusals[api] = refusal[0]
        return known == refusal[0]


def whom(client: RequestContext) -> str:
    """A client as the log shows it: its client id and its host."""
    if not client.get("host"):
        return "this broker"
    return f"{_plain(client.get('id')) or 'a client'} ({client['host']})"


def _plain(text: object) -> str:
    """A client's text as one short line."""
    cut = str(text or "")[:_CLIENT]
    return "".join(each if each.isprintable() else "?" for each in cut)


def _refusal(answer: Message) -> tuple[int, str | None] | None:
    """The first error in an answer, one level deep."""
    entries: list[object] = [answer]
    for value in answer.values():
        if isinstance(value, list):
            entries += value
    for each in entries:
        if isinstance(each, Mapping) and each.get("error_code"):
            return each["error_code"], each.get("error_message")
    return None


def pass_on_core_lines() -> None:
    """Hand the core's log lines to Python's logging, and tell the core whether to log requests."""
    log_requests(logging.getLogger("krust.requests").isEnabledFor(logging.DEBUG))
    for level, name, text in logs():
        logging.getLogger(name).log(level, "%s", text)
