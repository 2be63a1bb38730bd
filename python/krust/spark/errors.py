"""Errors for Spark users: `[CONDITION] what happened, and what to do`.

Conditions have the names of the official connector, so searches and alerts still find them. Spark
shows the text of the exception, so the text includes the hint.
"""

from __future__ import annotations

import logging

from krust.errors import ConfigError, KrustError

LOG = logging.getLogger("krust.spark")
"""The logger of planner processes and workers. It writes to standard error, which Spark shows."""

LOST = (
    "Records are not there any more: they were too old for the topic's retention, or the topic was "
    'deleted. To go on without them write .option("failOnDataLoss", "false").'
)


class OptionError(ConfigError):
    """An unknown option of a Spark source or sink, or an invalid value."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(f"[{condition}] {text}")
        self.condition = condition


class PlanError(KrustError):
    """The request does not match the topics of the cluster."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(f"[{condition}] {text}")
        self.condition = condition


class DataLossError(PlanError):
    """Records that had to be read were deleted."""


class LossReporter:
    """Reports lost records: an error, or with failOnDataLoss=false a warning."""

    def __init__(self, fail: bool) -> None:
        self.fail = fail

    def report(self, kind: str, text: str) -> None:
        """Report a loss. DataLossError: losses are errors."""
        if self.fail:
            raise DataLossError(f"KAFKA_DATA_LOSS.{kind}", f"{text} {LOST}")
        LOG.warning("[KAFKA_DATA_LOSS.%s] %s", kind, text)
