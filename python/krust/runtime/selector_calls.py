"""Asks a user's replica selector, and answers the core's event `SelectReplicas`.

The core asks once for a partition and a rack, keeps the answer, and lets consumers read the leader
until it is there (`rust/src/broker/state/read_replicas.rs`). So no Fetch ever waits for Python. The
selector runs in a process of its own that ends at its deadline. If it raises, hangs or breaks a
rule, krust logs an error, and consumers read the leaders of these partitions until the core asks
again, which is when their in-sync sets or the brokers change.
Threads: the policy thread calls `start` and `close`. The calls have a thread.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from krust.config import KAFKA_SELECTORS, SELECTOR
from krust.named_tuple import NamedTuple
from krust.plugin_process import OnceCaller, PluginFailedError
from krust.plugins import parameters
from krust.replica_selectors.selector import Replica, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust._krust import Server
    from krust.config import Config
    from krust.replica_selectors.selector import Question

_CLOSE_S = 5.0
_log = logging.getLogger("krust.replicas")


class Brokers(NamedTuple):
    """The cluster that a selector sees.

    node_id  this broker, the leader of all partitions that are asked
    racks    broker -> its rack, of live brokers
    """

    node_id: int
    racks: Mapping[int, str | None]


class SelectorCalls:
    """The calls of one broker's selector."""

    def __init__(self, config: Config, server: Server) -> None:
        name = config.text(SELECTOR) or ""
        self._import_path = "" if name in KAFKA_SELECTORS else name
        self._seconds = config.whole("krust.replica.selector.timeout.ms") / 1000
        given = {key: setup.text for key, setup in config.given().items()}
        self._parameters = parameters(given, SELECTOR)
        self._server = server
        self._caller = OnceCaller("krust.replica_selectors.worker")
        self._waiting: queue.SimpleQueue[tuple[int, list[Selection]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, ticket: int, questions: Sequence[Question], brokers: Brokers) -> None:
        """Have the selector asked; the core is answered when it has decided."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="krust-selector", daemon=True)
            self._thread.start()
        self._waiting.put((ticket, [_selection(each, brokers) for each in questions]))

    def close(self) -> None:
        """End the calls."""
        self._waiting.put(None)
        self._caller.kill()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (asked := self._waiting.get()) is not None:
            ticket, selections = asked
            self._server.answer(ticket, {"selections": self._selected(selections)})

    def _selected(self, selections: list[Selection]) -> list[int]:
        """The brokers to read from; -1: the leader."""
        try:
            answer = self._caller.call(
                self._import_path, selections, self._seconds, self._parameters
            )
            brokers = [int(broker) for broker in answer["brokers"]]
        except (PluginFailedError, OSError, KeyError, TypeError, ValueError) as error:
            what = "replica selector %s failed, consumers read the leaders of %d partitions: %s"
            _log.error(what, self._import_path, len(selections), error)
            return []
        else:
            return brokers


def _selection(question: Question, brokers: Brokers) -> Selection:
    replicas = tuple(
        Replica(
            broker, brokers.racks.get(broker), broker == brokers.node_id, broker in question["isr"]
        )
        for broker in question["replicas"]
    )
    return Selection(question["topic"], question["partition"], question["rack"], replicas)
