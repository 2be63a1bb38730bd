"""`krust topic describe`: the partitions of topics, their replicas, offsets and settings.

With a filter (`--under-replicated`, ...) it lists the partitions that the filter names, of these
topics or of all; several filters list what any of them names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust import _krust
from krust.cli import completion, output, replica_health, session
from krust.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.cli.options import Options
    from krust.cli.replica_health import PartitionHealth

DYNAMIC_TOPIC_CONFIG = 1
_FILTERS: dict[str, Callable[[PartitionHealth], bool]] = {
    "under_replicated": lambda each: each.is_under_replicated,
    "at_min_isr": lambda each: each.is_at_min_isr,
    "under_min_isr": lambda each: each.is_under_min_isr,
    "unavailable": lambda each: each.is_unavailable,
}
_SOMETIMES = ("adding", "removing", "offline")
"""Columns that a table has only where one of its rows says something there."""


@click.command()
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=completion.topics)
@click.option(
    "-a", "--all", "everything", is_flag=True, help="All settings, not only changed ones."
)
@click.option(
    "--under-replicated", is_flag=True, help="Only partitions that have too few in-sync replicas."
)
@click.option(
    "--at-min-isr", is_flag=True, help="Only partitions whose next loss makes acks=all fail."
)
@click.option("--under-min-isr", is_flag=True, help="Only partitions where acks=all fails now.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@shared.client
@click.pass_obj
def describe(options: Options, /, names: tuple[str, ...], everything: bool, **wanted: bool) -> None:
    """Show partitions, replicas, offsets and settings of topics; or partitions in trouble."""
    filters = [_FILTERS[name] for name, is_wanted in wanted.items() if is_wanted]
    asked = session.client(options)
    if filters:
        _list(options, asked, names, filters)
        return
    if not names:
        raise click.UsageError("which topic? Or a filter, such as --under-replicated")
    many = session.ItemResults(len(names))
    described = []
    for name in names:
        with many.item():
            topic = session.topics(asked, [name], options.bootstrap)[name]
            described.append(_topic_document(asked, topic, everything=everything))
    if options.output in ("table", "wide"):
        for topic in described:
            _print_topic(topic)
    else:
        columns = ("name", "topic_id", "internal", "min_isr", "partitions", "config")
        output.rows(options, columns, described)
    many.raise_failure()


def _list(
    options: Options,
    asked: _krust.Client,
    names: Sequence[str],
    filters: Sequence[Callable[[PartitionHealth], bool]],
) -> None:
    if names:
        topics = list(session.topics(asked, names, options.bootstrap).values())
    else:
        topics = [one for one in session.metadata(asked)["topics"] if not one["error_code"]]
    found = [
        each
        for each in replica_health.partition_health(asked, topics)
        if any(is_wanted(each) for is_wanted in filters)
    ]
    rows = [{"topic": each.topic, **each.row(), "status": each.problem()} for each in found]
    columns = ("topic", "partition", "leader", "replicas", "isr", "min_isr")
    output.rows(options, (*columns, *_count_line(rows), "status"), rows)


def _count_line(rows: Sequence[Mapping[str, Any]], names: Sequence[str] = _SOMETIMES) -> list[str]:
    return [name for name in names if any(row[name] for row in rows)]


def _topic_document(
    asked: _krust.Client, topic: dict[str, Any], *, everything: bool
) -> dict[str, Any]:
    led = [p["partition_index"] for p in topic["partitions"] if p["leader_id"] >= 0]
    offsets = offsets_of(asked, topic["name"], led)
    found = replica_health.partition_health(asked, [topic])
    partitions = [
        {
            **each.row(),
            "start_offset": offsets.get(each.partition, (None, None))[0],
            "end_offset": offsets.get(each.partition, (None, None))[1],
            "status": each.problem(),
        }
        for each in found
    ]
    return {
        "name": topic["name"],
        "topic_id": topic.get("topic_id"),
        "internal": is_internal(topic),
        "min_isr": max((each.min_isr or 0 for each in found), default=0) or None,
        "partitions": partitions,
        "config": _config(asked, topic["name"], everything=everything),
    }


def _print_topic(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    factor = max((len(each["replicas"]) for each in partitions), default=0)
    words = [topic["name"], f"id {topic['topic_id']}"]
    if factor > 1:
        words += [f"replication factor {factor}", f"min ISR {output.cell(topic['min_isr'])}"]
    if topic["internal"]:
        words.append("internal")
    click.echo("  ".join(words))
    columns = ["partition", "leader", "leader_epoch", "replicas", "isr", *_count_line(partitions)]
    columns += ["start_offset", "end_offset", *_count_line(partitions, ["status"])]
    output.table(columns, partitions)
    if topic["config"]:
        settings = [{"setting": key, "value": value} for key, value in topic["config"].items()]
        output.table(("setting", "value"), settings)


def _config(asked: _krust.Client, name: str, *, everything: bool) -> dict[str, str | None]:
    body = {"resources": [{"resource_type": replica_health.TOPIC, "resource_name": name}]}
    [result] = asked.request("DescribeConfigs", body)["results"]
    session.check(result, f'settings of topic "{name}"')
    return {
        entry["name"]: entry["value"]
        for entry in sorted(result["configs"], key=lambda entry: str(entry["name"]))
        if everything or is_own(entry)
    }


def is_own(entry: Mapping[str, Any]) -> bool:
    """Whether a topic has this value of its own."""
    if "config_source" in entry:
        return bool(entry["config_source"] == DYNAMIC_TOPIC_CONFIG)
    return not entry["is_default"]


def offsets_of(
    asked: _krust.Client, name: str, partitions: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """The first and the next offset of partitions that have leaders."""
    if not partitions:
        return {}
    starts = asked.list_offsets([(name, partition, _krust.EARLIEST) for partition in partitions])
    ends = asked.list_offsets([(name, partition, _krust.LATEST) for partition in partitions])
    begin = {partition: offset for _, partition, _, offset, _ in starts}
    return {partition: (begin[partition], offset) for _, partition, _, offset, _ in sorted(ends)}


def is_internal(topic: Mapping[str, Any]) -> bool:
    """Whether a topic is Kafka's own."""
    return bool(topic.get("is_internal")) or str(topic["name"]).startswith("__")
