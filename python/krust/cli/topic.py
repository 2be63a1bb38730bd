"""`krust topic`: list, create, describe, delete and alter topics, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust import _krust
from krust.cli import completion, delete_records, describe_topic, output, session
from krust.cli import options as shared
from krust.cli.log_sizes import replica_sizes
from krust.cli.options import KeyValue, Options
from krust.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC, SET, DELETE = 2, 0, 1
"""Kafka's numbers: the resource type; the operations of IncrementalAlterConfigs."""
TOPIC_ALREADY_EXISTS = 36


@click.group(no_args_is_help=True)
def command() -> None:
    """List, create, describe, delete and alter topics."""


command.add_command(delete_records.delete_records)
command.add_command(describe_topic.describe)


@command.command("list")
@click.argument("pattern", required=False, shell_complete=completion.topics)
@click.option("-i", "--internal", is_flag=True, help="Internal topics too.")
@shared.client
@click.pass_obj
def list_(options: Options, pattern: str | None, internal: bool) -> None:
    """List topics, all or those that match PATTERN (* and ?). -v: also bytes and end offsets."""
    asked = session.client(options)
    answer = session.metadata(asked)
    found = answer["topics"]
    found = [topic for topic in found if internal or not describe_topic.is_internal(topic)]
    if pattern:
        from fnmatch import fnmatchcase

        found = [topic for topic in found if fnmatchcase(topic["name"], pattern)]
    rows = [
        {
            "name": topic["name"],
            "partitions": len(topic["partitions"]),
            "replicas": max((len(p["replica_nodes"]) for p in topic["partitions"]), default=0),
            "internal": describe_topic.is_internal(topic),
        }
        for topic in sorted(found, key=lambda topic: str(topic["name"]))
    ]
    columns = ["name", "partitions", "replicas"]
    if options.verbose:
        sizes: dict[str, int] = {}
        nodes = [int(broker["node_id"]) for broker in answer["brokers"]]
        for (name, _, _), size in replica_sizes(asked, nodes).items():
            sizes[name] = sizes.get(name, 0) + size
        ends = _end_offsets(asked, found)
        for row in rows:
            row |= {"bytes": sizes.get(row["name"]), "end_offsets": ends[row["name"]]}
        columns += ["bytes", "end_offsets"]
    output.rows(options, [*columns, "internal"] if internal else columns, rows)


def _end_offsets(
    asked: _krust.Client, found: Sequence[dict[str, Any]]
) -> dict[str, list[int | None]]:
    """The end offset of each partition, in order; None: it has no leader."""
    places = [
        (topic["name"], partition["partition_index"], _krust.LATEST)
        for topic in found
        for partition in topic["partitions"]
        if partition["leader_id"] >= 0
    ]
    ends = {(name, number): end for name, number, _, end, _ in asked.list_offsets(places)}
    return {
        topic["name"]: [
            ends.get((topic["name"], p["partition_index"])) for p in topic["partitions"]
        ]
        for topic in found
    }


@command.command()
@click.argument("names", metavar="TOPIC[:PARTITIONS]...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=int, default=-1, help="Default: the broker's.")
@click.option(
    *("-r", "--replication-factor", "--replicas", "replicas"),
    type=int,
    default=-1,
    help="Replicas of each partition. Default: the broker's.",
)
@click.option(
    "--assign",
    metavar="P=BROKER,..",
    multiple=True,
    type=KeyValue(),
    help="The replicas of partition P, the preferred leader first; repeatable.",
)
@click.option("-c", "--config", "configs", multiple=True, type=KeyValue(), help="KEY=VALUE.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is no error.")
@click.option("--dry-run", is_flag=True, help="Only check whether it would work.")
@shared.client
@click.pass_obj
def create(options: Options, /, names: tuple[str, ...], **how: Any) -> None:
    """Create topics. Returns when they have leaders."""
    wanted = [_partitions_named(text, how["partitions"]) for text in names]
    assignments = _assignment_of(names, how)
    configs = [{"name": key, "value": value} for key, value in how["configs"]]
    body = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": how["replicas"],
                "assignments": assignments,
                "configs": configs,
            }
            for name, partitions in wanted
        ],
        "timeout_ms": options.timeout_ms,
        "validate_only": how["dry_run"],
    }
    asked = session.client(options)
    answer = asked.request("CreateTopics", body)
    many = session.ItemResults(len(wanted))
    rows: list[dict[str, Any]] = []
    for topic in answer["topics"]:
        existed = topic["error_code"] == TOPIC_ALREADY_EXISTS
        with many.item():
            if existed and how["if_not_exists"]:
                session.note(options, f'topic "{topic["name"]}" exists already')
                continue
            session.check(topic, f'topic "{topic["name"]}"')
            rows.append(_created_row(topic, dict(wanted)[topic["name"]]))
    if rows:
        output.rows(options, ("name", "partitions", "replicas", "topic_id"), rows)
    if not how["dry_run"]:
        _wait_for_leaders(options, asked, rows)
    many.raise_failure()


def _wait_for_leaders(options: Options, asked: _krust.Client, rows: list[dict[str, Any]]) -> None:
    from krust.clients.leaders import wait_for_leaders

    patience_s = options.timeout_ms / 1000
    for row in rows:
        if not wait_for_leaders(asked, row["name"], row["partitions"] or 1, patience_s):
            session.note(options, f'topic "{row["name"]}" has no leaders yet')


def _partitions_named(text: str, partitions: int) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if colon and not count.isdecimal():
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITIONS")
    return name, int(count) if colon else partitions


def _assignment_of(names: Sequence[str], how: dict[str, Any]) -> list[dict[str, Any]]:
    """The replicas of each partition that the command line names."""
    if not how["assign"]:
        return []
    if len(names) > 1 or ":" in names[0] or max(how["partitions"], how["replicas"]) >= 0:
        raise click.UsageError(
            "--assign says how many partitions and replicas one topic has; "
            "leave out -p, -r, :PARTITIONS and other topics"
        )
    replicas = {text: session.numbers(brokers) for text, brokers in how["assign"]}
    if sorted(replicas) != sorted(map(str, range(len(how["assign"])))):
        raise click.UsageError("--assign numbers partitions from 0, each once: 0=1,2 1=2,3")
    return [
        {"partition_index": int(text), "broker_ids": brokers} for text, brokers in replicas.items()
    ]


def _created_row(topic: dict[str, Any], asked: int) -> dict[str, Any]:
    partitions = topic.get("num_partitions", -1)
    replicas = topic.get("replication_factor", -1)
    return {
        "name": topic["name"],
        "partitions": (partitions if partitions > 0 else asked) or None,
        "replicas": replicas if replicas > 0 else None,
        "topic_id": topic.get("topic_id"),
    }


@command.command()
@click.argument(
    "names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=completion.topics
)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@shared.client
@click.pass_obj
def delete(options: Options, names: tuple[str, ...], if_exists: bool) -> None:
    """Delete topics with all their records. Asks first on a terminal unless --yes."""
    session.confirm(options, f"Delete {', '.join(names)} with all records?")
    asked = session.client(options)
    body = {
        "topics": [{"name": name} for name in names],
        "topic_names": list(names),
        "timeout_ms": options.timeout_ms,
    }
    many = session.ItemResults(len(names))
    gone = []
    for answer in asked.request("DeleteTopics", body)["responses"]:
        with many.item():
            if answer["error_code"] == session.UNKNOWN_TOPIC:
                if if_exists:
                    continue
                name = answer["name"]
                raise session.missing(asked, name, options.bootstrap, wanted=False)
            session.check(answer, f'topic "{answer["name"]}"')
            gone.append({"name": answer["name"], "deleted": True})
    if gone:
        output.rows(options, ("name", "deleted"), gone)
    many.raise_failure()


@command.command()
@click.argument(
    "names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=completion.topics
)
@click.option("-c", "--config", "configs", multiple=True, type=KeyValue(), help="Set KEY=VALUE.")
@click.option("-d", "--delete-config", "unset", multiple=True, help="Back to the default: KEY.")
@click.option("-p", "--partitions", type=int, help="Grow to this many partitions.")
@click.option("--dry-run", is_flag=True, help="Only check whether it would work.")
@shared.client
@click.pass_obj
def alter(options: Options, /, names: tuple[str, ...], **how: Any) -> None:
    """Change settings of topics, or add partitions."""
    changes = [(key, SET, value) for key, value in how["configs"]]
    changes += [(key, DELETE, None) for key in how["unset"]]
    if not changes and how["partitions"] is None:
        raise click.UsageError("nothing to change; give -c KEY=VALUE, -d KEY or -p COUNT")
    asked = session.client(options)
    many = session.ItemResults(len(names))
    done: list[dict[str, object]] = []
    for name in names:
        with many.item():
            session.topics(asked, [name], options.bootstrap)
            if changes:
                alter_configs(asked, (TOPIC, name), changes, dry_run=how["dry_run"])
            if how["partitions"] is not None:
                _add_partitions(
                    asked,
                    name,
                    how["partitions"],
                    timeout_ms=options.timeout_ms,
                    dry_run=how["dry_run"],
                )
            done.append({"name": name, "altered": not how["dry_run"]})
    if done:
        output.rows(options, ("name", "altered"), done)
    many.raise_failure()


def alter_configs(
    asked: _krust.Client,
    resource: tuple[int, str],
    changes: Sequence[tuple[str, int, str | None]],
    *,
    dry_run: bool = False,
    broker: int | None = None,
) -> None:
    """Change settings of one resource, each (key, operation, value). Other settings stay."""
    kind, name = resource
    body = {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": operation, "value": value}
                    for key, operation, value in changes
                ],
            }
        ],
        "validate_only": dry_run,
    }
    [answer] = asked.request("IncrementalAlterConfigs", body, broker=broker)["responses"]
    session.check(answer, f"settings of {name or 'the cluster'}")


def _add_partitions(
    asked: _krust.Client, name: str, count: int, *, timeout_ms: int, dry_run: bool
) -> None:
    body = {
        "topics": [{"name": name, "count": count, "assignments": None}],
        "timeout_ms": timeout_ms,
        "validate_only": dry_run,
    }
    [answer] = asked.request("CreatePartitions", body)["results"]
    session.check(answer, f'partitions of topic "{name}"')


@command.command()
@click.argument(
    "names",
    metavar="TOPIC[:PARTITIONS]...",
    nargs=-1,
    required=True,
    shell_complete=completion.topics,
)
@shared.client
@click.pass_obj
def offsets(options: Options, names: tuple[str, ...]) -> None:
    """Show the first and the end offset of each partition."""
    asked = session.client(options)
    many = session.ItemResults(len(names))
    rows: list[dict[str, object]] = []
    for text in names:
        name, chosen = session.partitions_of(text)
        with many.item():
            topic = session.topics(asked, [name], options.bootstrap)[name]
            known = [p["partition_index"] for p in topic["partitions"]]
            unknown = sorted(set(chosen or ()) - set(known))
            if unknown:
                raise KafkaError(
                    f'topic "{name}" has no partition {unknown[0]}',
                    code=session.UNKNOWN_TOPIC,
                    name="UNKNOWN_TOPIC_OR_PARTITION",
                    hint=f"it has {len(known)}, counted from 0",
                )
            for partition, (start, end) in describe_topic.offsets_of(
                asked, name, chosen or known
            ).items():
                place: dict[str, object] = {"topic": name, "partition": partition}
                span = {"start_offset": start, "end_offset": end, "offsets": end - start}
                rows.append(place | span)
    columns = ("topic", "partition", "start_offset", "end_offset", "offsets")
    output.rows(options, columns, rows)
    many.raise_failure()
