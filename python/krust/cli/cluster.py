"""`krust cluster`: which brokers there are, and what they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from krust.cli import options as shared
from krust.cli import output, session

if TYPE_CHECKING:
    from krust.cli.options import Options


@click.group(no_args_is_help=True)
def command() -> None:
    """Show a cluster's brokers and what they serve."""


@command.command()
@shared.client
@click.pass_obj
def info(options: Options) -> None:
    """Show the cluster's id, its brokers, topics and partitions."""
    found = session.metadata(session.client(options))
    topics = [topic for topic in found["topics"] if not topic["error_code"]]
    partitions = [partition for topic in topics for partition in topic["partitions"]]
    led: dict[int, int] = {}
    for partition in partitions:
        led[partition["leader_id"]] = led.get(partition["leader_id"], 0) + 1
    brokers = [
        {
            "node_id": broker["node_id"],
            "host": broker["host"],
            "port": broker["port"],
            "rack": broker.get("rack"),
            "leads": led.get(broker["node_id"], 0),
            "controller": broker["node_id"] == found.get("controller_id"),
        }
        for broker in sorted(found["brokers"], key=lambda broker: int(broker["node_id"]))
    ]
    facts: dict[str, object] = {
        "cluster_id": found.get("cluster_id"),
        "controller": found.get("controller_id"),
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": led.get(-1, 0),
        "under_replicated": sum(len(p["isr_nodes"]) < len(p["replica_nodes"]) for p in partitions),
    }
    if options.output in ("table", "wide"):
        output.one(options, facts)
        columns = ("node_id", "host", "port", "rack", "leads", "controller")
        output.table(columns, [{**broker, "port": str(broker["port"])} for broker in brokers])
    elif options.output == "csv":
        output.rows(options, list(brokers[0]) if brokers else [], brokers)
    else:
        output.one(options, {**facts, "brokers": brokers})


@command.command()
@click.option("--broker", type=int, metavar="N", help="Ask this broker.")
@shared.client
@click.pass_obj
def versions(options: Options, broker: int | None) -> None:
    """List the APIs a broker serves, with their versions."""
    rows: list[dict[str, object]] = [
        {"key": key, "api": name or f"(unknown {key})", "first": first, "last": last}
        for key, name, first, last in sorted(session.client(options).versions(broker))
    ]
    output.rows(options, ("key", "api", "first", "last"), rows)
