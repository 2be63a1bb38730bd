"""What Spark users read when something is wrong: `[CONDITION] what happened, and what to write`.

A condition that the official connector has too bears its name, so that what people search for and
alert on stays found. Spark shows the text of the exception, so the hint is part of it.
"""

from __future__ import annotations

import logging

from krust.errors import ConfigError, KrustError

LOG = logging.getLogger("krust.spark")
"""Where warnings of planner processes and workers go: their standard error, which Spark shows."""

LOST = (
    "Records are not there any more: they were too old for the topic's retention, or the topic was "
    'deleted. To go on without them write .option("failOnDataLoss", "false").'
)


class OptionError(ConfigError):
    """An option of a Spark source or sink that does not exist, or whose value cannot be."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(f"[{condition}] {text}")
        self.condition = condition


class PlanError(KrustError):
    """What was asked for does not fit what the cluster has."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(f"[{condition}] {text}")
        self.condition = condition


class DataLossError(PlanError):
    """Records that had to be read are gone."""


class Losses:
    """What becomes of lost records: an error, or with failOnDataLoss=false a warning."""

    def __init__(self, fail: bool) -> None:
        self.fail = fail

    def report(self, kind: str, text: str) -> None:
        """Tell of a loss. DataLossError: losses are errors."""
        if self.fail:
            raise DataLossError(f"KAFKA_DATA_LOSS.{kind}", f"{text} {LOST}")
        LOG.warning("[KAFKA_DATA_LOSS.%s] %s", kind, text)
