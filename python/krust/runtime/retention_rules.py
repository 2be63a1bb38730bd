"""Which topics have a retention policy; what runs policies is loaded where one has.

Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.config import RETENTION, rules
from krust.plugins import parameters

if TYPE_CHECKING:
    from krust._krust import Server
    from krust.config import Config
    from krust.runtime.retaining import Retaining


class Retention:
    """The policies of one broker, by its settings and its topics'."""

    def __init__(self, config: Config, server: Server) -> None:
        self._config = config
        self._server = server
        self._rules = rules(RETENTION, config.text(RETENTION) or "")
        self._rounds: Retaining | None = None
        self._closed = False

    def shown(self, topic: str, values: dict[str, Any]) -> dict[str, Any]:
        """A topic's settings as the core is to have them."""
        if self._rounds is None:
            if not (self._rules or values[RETENTION]) or self._closed:
                return values
            self._rounds = self._made()
        return self._rounds.shown(topic, values)

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        if self._rounds is not None:
            self._rounds.forget(topic)

    def close(self) -> None:
        """End the rounds, and whatever policy is asked."""
        self._closed = True
        if self._rounds is not None:
            self._rounds.close()

    def _made(self) -> Retaining:
        from krust.runtime.retaining import Retaining, Settings

        config = self._config
        interval_s = max(config.whole("log.retention.check.interval.ms"), 1) / 1000
        timeout_s = config.whole("krust.retention.timeout.ms") / 1000
        given = {name: setup.text for name, setup in config.given().items()}
        settings = Settings(self._rules, interval_s, timeout_s, parameters(given, RETENTION))
        return Retaining(settings, self._server)
