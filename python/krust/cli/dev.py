"""`krust dev`: runs a cluster on this machine until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from krust.cli import dev_security, serve
from krust.cli import options as shared
from krust.quantities import counted

if TYPE_CHECKING:
    from krust.cli.options import Options
    from krust.cluster import Cluster


@click.command(short_help="Run several brokers.")
@click.option("-n", "--brokers", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--port",
    default=9092,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of broker 0; the others have the next ports. 0: free ports.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 100),
    help="Replicas of topics that are created without a number.  [default: 1]",
)
@click.option("--data-dir", metavar="DIR", help="Directory of the cluster. [a temporary directory]")
@click.option("--zookeeper", metavar="HOSTS[/CHROOT]", help="Metadata in this ZooKeeper.")
@click.option(
    *("-o", "--set", "pairs"),
    multiple=True,
    type=shared.KeyValue(),
    help="A setting of all brokers by Kafka's name; repeatable.",
)
@dev_security.options
@click.option(
    "--adopt",
    is_flag=True,
    help="Start although the metadata is damaged or missing, with what the directories show.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="Write one JSON object when all brokers are ready.",
)
@click.option(
    "--log-level", type=click.Choice(serve.LEVELS), default="warning", show_default=True,
    help="Lowest level of log lines to write.",
)  # fmt: skip
@shared.general
@click.pass_obj
def command(
    talk: Options,
    /,
    *,
    brokers: int,
    port: int,
    replication_factor: int | None,
    data_dir: str | None,
    zookeeper: str | None,
    pairs: tuple[tuple[str, str], ...],
    secure: bool,
    users: tuple[tuple[str, str | None], ...],
    acls_for_users: bool,
    adopt: bool,
    ready_file: Path | None,
    log_level: str,
) -> None:
    """Run several brokers in this process, as one cluster. Ctrl-C stops them cleanly."""
    from krust.cluster import Cluster

    serve.log_to_stderr(log_level)
    asked = dev_security.asked(secure=secure, users=users, acls_for_users=acls_for_users)
    config = dict(pairs)
    if replication_factor is not None:
        if replication_factor > brokers:
            raise click.UsageError(
                f"--replication-factor {replication_factor} needs as many brokers; "
                f"there are {brokers} (-n)"
            )
        config["default.replication.factor"] = str(replication_factor)
    ready = serve.ReadyReport(ready_file, None)
    with (
        ready,
        serve.stops() as stop,
        Cluster(
            brokers,
            port=port,
            data_dir=data_dir,
            zookeeper=zookeeper,
            config=config,
            adopt=adopt,
            secure=asked or False,
        ) as cluster,
    ):
        details = {"bootstrap": cluster.bootstrap, "brokers": brokers}
        ready.tell(details | dev_security.details(cluster))
        if not talk.quiet:
            _banner(cluster, data_dir, zookeeper)
        running = list(cluster.brokers.values())
        for broker in running:
            broker.on_failure = stop.end
        if not any(broker.failure for broker in running):
            stop()
    for broker in running:
        if broker.failure is not None:
            raise broker.failure


def _banner(cluster: Cluster, data_dir: str | None, zookeeper: str | None) -> None:
    """Write the listeners, the directory, how to connect and how to stop."""
    from krust import __version__

    running = cluster.brokers
    kept = data_dir or "temporary directories, which go when this ends"
    rows = [f"  broker {number}  {broker.bootstrap}" for number, broker in running.items()]
    click.echo(
        f"krust {__version__} is ready: {counted(len(running), 'broker')} in one process\n"
        + "\n".join(rows)
        + f"\n  data      {kept}\n"
        + (f"  metadata  the ZooKeeper {zookeeper}\n" if zookeeper else "")
        + (dev_security.shown(cluster) or _how_to_connect(cluster.bootstrap))
        + "  stop      Ctrl-C; twice: at once",
        err=True,
    )


def _how_to_connect(bootstrap: str) -> str:
    return (
        f"  connect   bootstrap.servers={bootstrap}\n"
        f"            krust produce -b {bootstrap} hello\n"
    )
