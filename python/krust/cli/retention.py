"""`krust retention`: lists policies, and shows what would be deleted in a data directory.

It uses the code of a broker: the retention policies, the policy of each topic
(`runtime/retention_rounds.py`) and the settings of topics. `retention/core.py` computes what the
core deletes without a policy. The command writes nothing. In the directory of a running broker the
active segment may look too small.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from krust.cli import log_files, output, plugins, session
from krust.cli import options as shared
from krust.config import RETENTION, rules
from krust.controller.entities import Topic
from krust.controller.state import ControllerState
from krust.metadata import znodes
from krust.metadata.contents import EntityConfig
from krust.metadata.saved import peek
from krust.named_tuple import NamedTuple
from krust.plugins import parameters
from krust.retention.core import dropped
from krust.retention.policies import POLICIES
from krust.retention.policy import Disk, ExpiryError, PartitionLog, Segment, validate
from krust.runtime import identity
from krust.runtime.metadata import FILE
from krust.runtime.retention_rounds import DEFAULT, RetentionLimits, limits_of, policy_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.cli.options import Options
    from krust.config import Config


@click.group(no_args_is_help=True)
def command() -> None:
    """Show what retention policies would delete."""


@command.command()
@shared.client
@click.pass_obj
def policies(options: Options) -> None:
    """List policies: built-in ones, and those of installed packages."""
    plugins.list_plugins(options, POLICIES)


@command.command()
@click.option(
    "--policy", "name", metavar="NAME|MODULE:CLASS",
    help="The policy of all topics. [each topic's setting, the broker's rule, or time_and_size]",
)  # fmt: skip
@click.option("--retention-ms", type=int, help="Of all topics. [as each topic says]")
@click.option("--retention-bytes", type=int, help="Of all topics. [as each topic says]")
@click.option("--free", type=click.IntRange(0), help="Free bytes of the disk. [as it is]")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="The broker's settings, as for `krust serve`.",
)
@click.option(
    *("-o", "--set", "pairs"), multiple=True, type=shared.KeyValue(), help="As for `krust serve`."
)
@click.argument("directory", type=click.Path(path_type=Path))
@shared.client
@click.pass_obj
def check(
    options: Options,
    /,
    name: str | None,
    free: int | None,
    file: Path | None,
    pairs: tuple[tuple[str, str], ...],
    directory: Path,
    **limits: int | None,
) -> None:
    """Show what a broker would delete in the data DIRECTORY now. Exit 9: a policy breaks a rule.

    The settings of topics are read from the directory, those of the broker as by `krust serve`.
    """
    from krust.cli.serve import configure

    config = configure(file=file, pairs=pairs)
    topics = TopicSettings(config, directory, name, limits)
    usage = shutil.disk_usage(directory)
    disk = Disk(usage.free if free is None else free, usage.total)
    now_ms = time.time_ns() // 1_000_000
    found = [topics.partition(path) for path in log_files.partitions(directory)]
    gone: dict[tuple[str, int], int] = {}
    for policy_name in dict.fromkeys(each.policy for each in found if each.ruled):
        ruled = [each.candidate for each in found if each.ruled and each.policy == policy_name]
        policy = plugins.find_plugin(POLICIES, str(policy_name), topics.parameters)
        with plugins.call_plugin(policy.name, ExpiryError):
            answer = policy.expired(disk, ruled, now_ms)
            validate(ruled, answer)
        gone |= answer
    rows = [_row(each, gone.get(each.candidate.key, 0), now_ms) for each in found]
    columns = ("partition", "policy", "segments", "may_go", "would_go", "bytes_freed", "new_start")
    output.rows(options, columns, rows)
    if not topics.known:
        session.note(options, "no settings of topics are here; they have the broker's defaults")
    session.note(options, "nothing is changed")


def _row(found: PartitionPolicy, by_policy: int, now_ms: int) -> dict[str, object]:
    """The row of a partition: what its policy and the core delete."""
    candidate = found.candidate
    by_core = found.limits.deletes and found.policy is None
    count = max(by_policy, dropped(candidate, found.log_start, now_ms, deletes=by_core))
    gone = candidate.segments[:count]
    return {
        "partition": f"{candidate.topic}-{candidate.number}",
        "policy": (found.policy or DEFAULT) if found.limits.deletes else None,
        "segments": len(candidate.segments),
        "may_go": len(candidate.may_go) if found.limits.deletes else 0,
        "would_go": count,
        "bytes_freed": sum(segment.size for segment in gone),
        "new_start": gone[-1].next_offset if gone else None,
    }


class PartitionPolicy(NamedTuple):
    """A partition and its policy."""

    candidate: PartitionLog
    policy: str | None
    """None: the core decides"""
    limits: RetentionLimits
    log_start: int

    @property
    def ruled(self) -> bool:
        """Whether a policy decides about it."""
        return self.policy is not None and self.limits.deletes


class TopicSettings:
    """The settings of topics, read from the metadata of a data directory with the broker's code."""

    def __init__(
        self, config: Config, directory: Path, policy: str | None, limits: Mapping[str, int | None]
    ) -> None:
        self._policy = policy
        self._limits = {key.replace("_", "."): value for key, value in limits.items()}
        self._rules = rules(RETENTION, config.text(RETENTION) or "")
        given = {name: setup.text for name, setup in config.given().items()}
        self.parameters = parameters(given, RETENTION)
        self._state = ControllerState(config, str, max(identity.stored_id(directory) or 0, 0))
        contents = peek(directory / FILE) or peek(directory.absolute().parent / FILE)
        self.known = contents is not None
        self._data = {row.path: row.data for row in contents.rows} if contents else {}
        own = str(self._state.node_id)
        self._state.everywhere.config = self._config(znodes.broker_config(znodes.DEFAULT_ENTITY))
        self._state.own.config = self._config(znodes.broker_config(own))

    def _config(self, path: str) -> dict[str, str]:
        return dict(EntityConfig.decode(self._data.get(path, b"")).config)

    def partition(self, path: Path) -> PartitionPolicy:
        """The partition in `path`, as a broker would describe it to a policy."""
        name, _, number = log_files.owner(path).rpartition("-")
        topic = Topic(name, "", (), self._config(znodes.topic_config(name)))
        values = self._state.topic_values(topic)
        values |= {key: value for key, value in self._limits.items() if value is not None}
        limits = limits_of(values)
        segments = _segments(log_files.segments(path))
        marks = log_files.checkpoints(path)
        high = marks["high_watermark"]
        candidate = PartitionLog(
            name,
            int(number),
            segments,
            segments[-1].next_offset if high is None else high,
            limits.retention_ms,
            limits.retention_bytes,
        )
        policy = self._policy or policy_of(name, values, self._rules)
        log_start = max(marks["log_start"] or 0, segments[0].base_offset)
        return PartitionPolicy(candidate, policy, limits, log_start)


def _segments(files: list[Path]) -> tuple[Segment, ...]:
    """The segments of a partition; each ends where the next one begins."""
    found = [_segment(file) for file in files]
    nexts = [each.base_offset for each in found[1:]] + [found[-1].next_offset]
    return tuple(replace(each, next_offset=end) for each, end in zip(found, nexts, strict=True))


def _segment(file: Path) -> Segment:
    """A segment. A damaged one is as old as its file, as for a broker."""
    end, newest = int(file.stem), -1
    for batch in log_files.batches(file):
        if not log_files.is_good(batch):
            newest = -1
            break
        end, newest = batch["last_offset"] + 1, max(newest, batch["max_timestamp"])
    stat = file.stat()
    if newest < 0:
        newest = stat.st_mtime_ns // 1_000_000
    return Segment(int(file.stem), end, stat.st_size, newest)
