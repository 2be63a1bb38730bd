"""`krust cluster replace-plan`: the checked steps from a Kafka cluster on a ZooKeeper to krust, and
back.

The command reads the cluster: brokers of the wanted kind are done, the others come next, the
controller last. Run it before each step; it shows the steps that are left. It changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.cluster_description import KAFKA, KRUST, read_cluster
from krust.cli.exits import Exit
from krust.cli.replacement_checks import PROBLEM, findings, may_go_on
from krust.named_tuple import NamedTuple
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.cli.cluster_description import BrokerDescription, ClusterDescription
    from krust.cli.options import Options
    from krust.cli.replacement_checks import Finding

_HEALTH = "krust cluster health -b {bootstrap} --wait 30m"
_ELECT = "krust cluster elect -b {bootstrap}"
_PLAN = "krust cluster replace-plan -b {bootstrap} --zookeeper {zookeeper} --next{back}"


class BrokerReplacement(NamedTuple):
    """The replacement of one broker."""

    node: int
    address: str
    current: str
    becomes: str
    directories: Sequence[str]
    actions: Sequence[tuple[str, str]]
    """what to do, and what must be true before the next"""


@click.command("replace-plan", short_help="Plan to replace Kafka brokers by krust, or back.")
@click.option(
    "--zookeeper", metavar="HOSTS[/CHROOT]", help="The cluster's ZooKeeper. [as a broker says]"
)
@click.option("--back", "is_back", is_flag=True, help="From krust to Kafka.")
@click.option("--next", "is_next", is_flag=True, help="Only the next broker.")
@shared.client
@click.pass_obj
def replace_plan(options: Options, zookeeper: str | None, is_back: bool, is_next: bool) -> None:
    """Check a cluster of Kafka 3.9 and ZooKeeper, and print the steps to replace its brokers.

    Each step stops a broker and starts it as krust (--back: as Kafka) on the same data directories.
    Run the command again before each broker. Exit 9: a problem has to be fixed first. It changes
    nothing.
    """
    known = read_cluster(options, zookeeper)
    found = findings(known)
    steps = _steps(known, KAFKA if is_back else KRUST)
    if is_next:
        steps = steps[:1]
    if options.output in ("table", "wide"):
        _print(known, found, steps, whole=options.output == "wide")
        if not steps:
            session.note(options, f"every broker is {KAFKA if is_back else KRUST}")
    else:
        output.one(options, _document(known, found, steps))
    if not may_go_on(found):
        session.sys_exit(Exit.PROBLEMS)


def _steps(known: ClusterDescription, wanted: str) -> list[BrokerReplacement]:
    """A step for each broker of the other kind, the controller's last."""
    left = [each for each in known.brokers if each.kind != wanted]
    left.sort(key=lambda each: (each.node == known.controller, each.node))
    return [_step(known, each, wanted) for each in left]


def _step(known: ClusterDescription, broker: BrokerDescription, wanted: str) -> BrokerReplacement:
    words = {
        "bootstrap": ",".join(f"{each.host}:{each.port}" for each in known.brokers),
        "zookeeper": known.zookeeper,
        "back": "" if wanted == KRUST else " --back",
    }
    directories = [each.path for each in broker.directories]
    where = " and ".join(directories) or "its log directory"
    start = _start_krust(known, broker) if wanted == KRUST else "kafka-server-start.sh FILE"
    actions = [
        (_PLAN.format(**words), "exit 0"),
        (
            f"stop {broker.kind or 'the broker'} on {broker.host} with SIGTERM",
            f"its process has ended, and .kafka_cleanshutdown lies in {where}",
        ),
        (start, f"its log says that it is registered as broker {broker.node}"),
        (_HEALTH.format(**words), "exit 0: every replica is in sync again"),
        (_ELECT.format(**words), "its preferred partitions are led by it again"),
    ]
    address = f"{broker.host}:{broker.port}"
    return BrokerReplacement(broker.node, address, broker.kind, wanted, directories, actions)


def _start_krust(known: ClusterDescription, broker: BrokerDescription) -> str:
    """The command that serves a Kafka's directories; FILE is its server.properties."""
    parts = ["krust serve --prod --config FILE"]
    if broker.settings.get("zookeeper.connect") != known.zookeeper:
        parts.append(f"--zookeeper {known.zookeeper}")
    return " ".join(parts)


def _print(
    known: ClusterDescription,
    found: Sequence[Finding],
    steps: Sequence[BrokerReplacement],
    *,
    whole: bool,
) -> None:
    """Print the checks, the first step, and the other steps, in a line each or in full."""
    kinds = [each.kind for each in known.brokers]
    click.echo(
        f"cluster {known.cluster_id}  ZooKeeper {known.zookeeper}  "
        f"{counted(len(kinds), 'broker')}: {kinds.count(KAFKA)} Kafka, {kinds.count(KRUST)} krust  "
        f"controller {known.controller}\n"
    )
    output.table(("check", "status", "detail"), [each._asdict() for each in found])
    problems = sum(each.status == PROBLEM for each in found)
    if problems and steps:
        click.echo(f"\nMend the {counted(problems, 'problem')} above before step 1.")
    for number, step in enumerate(steps, 1):
        kind = f"{step.current or 'silent'} -> {step.becomes}"
        click.echo(
            f"\nstep {number}  broker {step.node} at {step.address}  {kind}  "
            f"data {', '.join(step.directories)}"
        )
        if number > 1 and not whole:
            click.echo("  as step 1 (--output wide: in full)")
            continue
        for action, condition in step.actions:
            click.echo(f"  {action}\n      then: {condition}")


def _document(
    known: ClusterDescription, found: Sequence[Finding], steps: Sequence[BrokerReplacement]
) -> dict[str, Any]:
    return {
        "cluster_id": known.cluster_id,
        "zookeeper": known.zookeeper,
        "controller": known.controller,
        "may_go_on": may_go_on(found),
        "brokers": [
            {
                "node_id": each.node,
                "host": each.host,
                "port": each.port,
                "kind": each.kind or None,
                "log_dirs": [directory.path for directory in each.directories],
                "error": each.error,
            }
            for each in known.brokers
        ],
        "checks": [each._asdict() for each in found],
        "steps": [
            {
                **step._asdict(),
                "actions": [{"do": do, "then": then} for do, then in step.actions],
            }
            for step in steps
        ],
    }
