"""Which topics have a retention policy. The code that runs policies is loaded for the first one.

Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.config import RETENTION, rules
from krust.plugins import parameters

if TYPE_CHECKING:
    from krust._krust import Server
    from krust.config import Config
    from krust.runtime.retention_rounds import RetentionRounds
    from krust.settings import Values


class RetentionRules:
    """The policies that a broker's settings and its topics' settings name."""

    def __init__(self, config: Config, server: Server) -> None:
        self._config = config
        self._server = server
        self._rules = rules(RETENTION, config.text(RETENTION) or "")
        self._rounds: RetentionRounds | None = None
        self._closed = False

    def values_for_core(self, topic: str, values: Values) -> Values:
        """The values of a topic's settings that the core gets."""
        if self._rounds is None:
            if not (self._rules or values[RETENTION]) or self._closed:
                return values
            self._rounds = self._start()
        return self._rounds.values_for_core(topic, values)

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        if self._rounds is not None:
            self._rounds.forget(topic)

    def close(self) -> None:
        """End the rounds and the call of a policy."""
        self._closed = True
        if self._rounds is not None:
            self._rounds.close()

    def _start(self) -> RetentionRounds:
        from krust.runtime.retention_rounds import RetentionRounds, RetentionSettings

        config = self._config
        interval_s = max(config.whole("log.retention.check.interval.ms"), 1) / 1000
        timeout_s = config.whole("krust.retention.timeout.ms") / 1000
        given = {name: setup.text for name, setup in config.given().items()}
        settings = RetentionSettings(
            self._rules, interval_s, timeout_s, parameters(given, RETENTION)
        )
        return RetentionRounds(settings, self._server)
