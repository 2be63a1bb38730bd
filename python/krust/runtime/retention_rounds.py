"""Calls retention policies and drops the segments that they name.

A topic may name a policy, or a rule may name one for the topic. The core's own retention (time and
size) does not apply to such a topic. Each `log.retention.check.interval.ms` a thread calls the
policies, for one log directory at a time. Built-in policies run on that thread; any other policy
runs in a separate process that ends at its deadline. If a policy raises, hangs or breaks a rule,
krust logs an error, and `time_and_size` decides this round.
Threads: the policy thread calls `values_for_core`; the rounds have a thread.
Not promised: that the partitions are unchanged when the policy has answered. The core always keeps
the active segment and everything above the high watermark.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from krust.config import RETENTION
from krust.named_tuple import NamedTuple
from krust.plugin_process import OnceCaller, PluginFailedError
from krust.plugins import FindError, Parameters
from krust.retention.policies import BUILT_IN, POLICIES
from krust.retention.policy import Disk, Expired, PartitionLog, Segment, validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust._krust import Server
    from krust.settings import Value, Values

DEFAULT = "time_and_size"
_CLOSE_S = 5.0

_log = logging.getLogger("krust.retention")


class RetentionSettings(NamedTuple):
    """The settings of the rounds.

    rules   (pattern of topic names, policy's name or import path); the first rule that fits counts
    """

    rules: Sequence[tuple[str, str]]
    interval_s: float
    timeout_s: float
    parameters: Parameters | None = None
    """of the policies"""


class RetentionLimits(NamedTuple):
    """The settings of a topic's retention."""

    deletes: bool
    retention_ms: int
    retention_bytes: int


def policy_of(
    topic: str, values: Mapping[str, Value], rules: Sequence[tuple[str, str]]
) -> str | None:
    """The policy of a topic: the one that it names, or the one of the first rule that fits. None:
    the core does what `time_and_size` does.
    """
    if own := values.get(RETENTION):
        return str(own)
    return next((name for pattern, name in rules if fnmatchcase(topic, pattern)), None)


def limits_of(values: Mapping[str, Value]) -> RetentionLimits:
    """The limits that a topic's settings set."""
    policies, ms, size = (
        values[name] for name in ("cleanup.policy", "retention.ms", "retention.bytes")
    )
    if not (isinstance(policies, list) and isinstance(ms, int) and isinstance(size, int)):
        raise TypeError(f"settings of retention with other types: {policies}, {ms}, {size}")
    return RetentionLimits("delete" in policies, ms, size)


class RetentionRounds:
    """The rounds of one broker's policies."""

    def __init__(self, settings: RetentionSettings, server: Server) -> None:
        self._settings = settings
        self._server = server
        self._limits: dict[str, tuple[str, RetentionLimits]] = {}
        self._stopping = threading.Event()
        self._caller = OnceCaller("krust.retention.worker")
        self._thread: threading.Thread | None = None

    def values_for_core(self, topic: str, values: Values) -> Values:
        """The values of a topic's settings for the core: no limits where a policy decides."""
        policy = policy_of(topic, values, self._settings.rules)
        if policy is None:
            self._limits.pop(topic, None)
            return values
        self._limits[topic] = (policy, limits_of(values))
        self.start()
        return {**values, "retention.ms": -1, "retention.bytes": -1}

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._limits.pop(topic, None)

    def start(self) -> None:
        """Begin the rounds, once."""
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="krust-retention", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the rounds and the call of a policy."""
        self._stopping.set()
        self._caller.kill()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.interval_s):
            try:
                self.round(time.time_ns() // 1_000_000)
            except Exception:
                _log.exception("a round of retention failed")

    def round(self, now_ms: int) -> None:
        """Call each policy for each directory, and drop the segments that it names."""
        limits = dict(self._limits)
        ruled = [topic for topic, (_, each) in limits.items() if each.deletes]
        asked: dict[tuple[str, str], list[PartitionLog]] = {}
        for directory, topic, number, high, segments in self._server.segments(ruled):
            policy, (_, time_ms, size) = limits[topic]
            sealed = tuple(Segment(*each) for each in segments)
            found = PartitionLog(topic, number, sealed, high, time_ms, size)
            asked.setdefault((policy, directory), []).append(found)
        for (policy, directory), partitions in asked.items():
            if self._stopping.is_set():
                return
            disk = Disk(*self._server.disk_space(directory))
            self._drop(self._expired(policy, disk, partitions, now_ms), partitions)

    def _drop(self, expired: Expired, partitions: Sequence[PartitionLog]) -> None:
        for each in partitions:
            if count := expired.get(each.key, 0):
                below = each.segments[count - 1].next_offset
                self._server.drop_segments(each.topic, each.number, below)

    def _expired(
        self, policy: str, disk: Disk, partitions: Sequence[PartitionLog], now_ms: int
    ) -> Expired:
        """The policy's answer; if the policy fails, the answer of the default."""
        try:
            if policy in BUILT_IN:
                found = POLICIES.find(policy, self._settings.parameters)
                answer = found.expired(disk, partitions, now_ms)
                validate(partitions, answer)
                return answer
            return self._in_process(policy, (disk, partitions, now_ms))
        except Exception as error:
            if self._stopping.is_set():
                return {}
            why = str(error) if isinstance(error, PluginFailedError) else traceback.format_exc()
            if isinstance(error, FindError):
                why = error.whole()
            _log.error("retention policy %s failed, %s decides instead: %s", policy, DEFAULT, why)
            return BUILT_IN[DEFAULT]().expired(disk, partitions, now_ms)

    def _in_process(
        self, policy: str, question: tuple[Disk, Sequence[PartitionLog], int]
    ) -> dict[tuple[str, int], int]:
        """Call a policy in a separate process."""
        settings = self._settings
        answer = self._caller.call(policy, question, settings.timeout_s, settings.parameters)
        expired = {(topic, number): count for topic, number, count in answer["expired"]}
        validate(question[1], expired)
        return expired
