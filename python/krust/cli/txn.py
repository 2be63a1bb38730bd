"""`krust txn`: transactional ids, their transactions, and transactions that hang (KIP-664).

A transaction hangs when a partition holds it open and no coordinator will end it. Readers of
committed records wait at its first record until an abort marker is written. The command works with
any Kafka since 3.0.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.exits import Exit
from krust.cli.options import Duration
from krust.cli.plans import confirm_plan
from krust.clients.admin_transactions import (
    HANGING_AFTER_MS,
    STATES,
    OpenTransaction,
    ProducerState,
    TransactionFilter,
    TransactionsClient,
)
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import KafkaError, KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.cli.options import Options

_LISTED = ("transactional_id", "state", "producer_id", "coordinator")
_PRODUCER = (
    *("producer_id", "producer_epoch", "coordinator_epoch", "last_sequence"),
    *("last_timestamp_ms", "start_offset"),
)
_UNSUPPORTED_VERSION = 35


@click.group(no_args_is_help=True)
def command() -> None:
    """Show transactions; find and abort those that hang."""


@command.command("list")
@click.argument("pattern", required=False)
@click.option("--state", "states", multiple=True, metavar="S", help="Ongoing, ..; repeatable.")
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Repeatable.")
@click.option(
    "--open-longer",
    type=Duration(),
    metavar="DURATION",
    help="Only transactions that began before.",
)
@shared.client
@click.pass_obj
def list_(
    options: Options,
    pattern: str | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    open_longer: int | None,
) -> None:
    """List transactional ids, all or those that match PATTERN (* and ?)."""
    from fnmatch import fnmatchcase

    chosen = TransactionFilter(tuple(map(_state, states)), producer_ids, open_longer)
    rows = [
        vars(each)
        for each in _client(options).listings(chosen)
        if pattern is None or fnmatchcase(each.transactional_id, pattern)
    ]
    output.rows(options, _LISTED, rows)


def _state(given: str) -> str:
    """A state in Kafka's spelling, from any case."""
    found = [state for state in STATES if state.lower() == given.lower()]
    if not found:
        raise click.BadParameter(f"there is no state {given!r}: {', '.join(STATES)}")
    return found[0]


@command.command()
@click.argument("transactional_ids", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@shared.client
@click.pass_obj
def describe(options: Options, transactional_ids: tuple[str, ...]) -> None:
    """Show the state of transactional ids and the partitions of their transactions."""
    asked = _client(options)
    many = session.ItemResults(len(transactional_ids))
    rows = []
    for transactional_id in transactional_ids:
        with many.item():
            described = asked.describe(transactional_id)
            row = vars(described) | {"open_ms": _age_ms(described.start_ms)}
            row["partitions"] = [f"{topic}:{number}" for topic, number in described.partitions]
            rows.append(row)
    if options.output in ("table", "wide"):
        for number, row in enumerate(rows):
            if number:
                click.echo()
            output.one(options, row)
    elif rows:
        output.rows(options, list(rows[0]), rows)
    many.raise_failure()


@command.command("describe-producers")
@click.argument("place", metavar="TOPIC:PARTITION", shell_complete=completion.topics)
@click.option("--broker", type=int, metavar="ID", help="Ask this replica, not the leader.")
@shared.client
@click.pass_obj
def describe_producers(options: Options, place: str, broker: int | None) -> None:
    """Show the producers of a partition, and where their open transactions begin."""
    [producers] = _client(options).producers([_place(place)], broker).values()
    rows = [vars(each) for each in sorted(producers, key=lambda each: each.producer_id)]
    output.rows(options, _PRODUCER, rows)


@command.command("find-hanging")
@click.argument(
    "topics", metavar="[TOPIC[:PARTITIONS]...]", nargs=-1, shell_complete=completion.topics
)
@click.option(
    "--broker", type=int, metavar="ID", help="Only partitions that this broker has, as it has them."
)
@click.option(
    "--older-than",
    type=Duration(),
    default=HANGING_AFTER_MS,
    metavar="DURATION",
    help="Only transactions whose last record is older; at least transaction.max.timeout.ms. [15m]",
)
@shared.client
@click.pass_obj
def find_hanging(
    options: Options, topics: tuple[str, ...], broker: int | None, older_than: int
) -> None:
    """Find open transactions that no coordinator will end, in all topics or in these.

    Exit 9: there are some. Abort each with krust txn abort.
    """
    asked = _client(options)
    places = _places(options, asked, topics, broker)
    rows = [
        {"topic": each.topic, "partition": each.partition}
        | vars(each.producer)
        | {"idle_ms": _age_ms(each.producer.last_timestamp_ms)}
        for each in asked.hanging(places, broker, older_than)
    ]
    columns = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "idle_ms")
    if not rows:
        session.note(options, f"no transaction hangs in {counted(len(places), 'partition')}")
    if rows or options.output not in ("table", "wide"):
        output.rows(options, columns, rows)
    if rows:
        session.sys_exit(Exit.PROBLEMS)


@command.command()
@click.argument("place", metavar="TOPIC:PARTITION", shell_complete=completion.topics)
@click.option("--start-offset", type=int, metavar="N", help="Where the transaction begins.")
@click.option("--producer-id", type=int, metavar="N", help="For brokers before Kafka 3.0.")
@click.option("--producer-epoch", type=int, metavar="N", help="Of that producer.")
@click.option("--coordinator-epoch", type=int, metavar="N", help="Of its last marker. [0]")
@click.option("--force", is_flag=True, help="Also if its coordinator has the transaction.")
@click.option("--dry-run", is_flag=True, help="Only show what would be aborted.")
@shared.client
@click.pass_obj
def abort(options: Options, /, place: str, *, force: bool, dry_run: bool, **which: Any) -> None:
    """Abort a transaction in one partition, where it hangs. Shows the plan; --yes does it.

    With --force it aborts a transaction that its coordinator has: only in this partition. The
    coordinator may commit it in the others.
    """
    asked = _client(options)
    opened = _opened(asked, _place(place), which)
    row = {"topic": opened.place.topic, "partition": opened.place.partition}
    row |= {name: getattr(opened.producer, name) for name in _PRODUCER[:3]}
    row["start_offset"] = opened.producer.start_offset
    if not force and not asked.forgotten([opened]):
        raise KrustError(
            f"the coordinator of producer {opened.producer.producer_id} has this transaction",
            hint="it will end it: see krust txn list; --force aborts it in this partition alone",
        )
    done = confirm_plan(options, [row], dry_run, f"Abort this transaction in {place}?")
    if done:
        _abort(asked, opened)
    if done or options.output not in ("table", "wide"):
        output.rows(options, list(row), [{**row, "aborted": done}])


def _opened(
    asked: TransactionsClient, place: TopicPartition, which: dict[str, Any]
) -> OpenTransaction:
    start, ids = which["start_offset"], (which["producer_id"], which["producer_epoch"])
    if start is not None and not any(each is not None for each in ids):
        try:
            return asked.beginning_at(place, start)
        except KafkaError:
            raise
        except KrustError as error:
            error.exit = int(Exit.NOT_FOUND)
            raise
    if start is None and None not in ids:
        coordinator_epoch = which["coordinator_epoch"]
        epoch = -1 if coordinator_epoch is None else coordinator_epoch
        return OpenTransaction(place, ProducerState(*ids, epoch, -1, -1, None))
    raise click.UsageError("give --start-offset, or both --producer-id and --producer-epoch")


def _abort(asked: TransactionsClient, opened: OpenTransaction) -> None:
    try:
        asked.abort(opened)
    except KafkaError as error:
        if error.code == _UNSUPPORTED_VERSION:
            error.hint = "brokers take markers on the listener between brokers: -b HOST:PORT of it"
        raise


def _client(options: Options) -> TransactionsClient:
    return TransactionsClient(session.client(options), options.timeout_ms / 1000)


def _place(text: str) -> TopicPartition:
    topic, partitions = session.partitions_of(text)
    if partitions is None or len(partitions) != 1:
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION; write orders:0")
    return TopicPartition(topic, partitions[0])


def _places(
    options: Options, asked: TransactionsClient, topics: Sequence[str], broker: int | None
) -> list[TopicPartition]:
    """The partitions that arguments name; without arguments, those of all topics."""
    if not topics:
        return asked.partitions(None, broker)
    chosen: list[TopicPartition] = []
    for text in topics:
        name, numbers = session.partitions_of(text)
        session.topics(session.client(options), [name], options.bootstrap)
        there = asked.partitions([name], broker)
        wanted = [TopicPartition(name, number) for number in numbers or ()]
        if gone := set(wanted) - set(there):
            text = f'topic "{name}" has no partition {min(gone).partition}'
            where = "" if broker is None else f" on broker {broker}"
            raise session.refused(session.UNKNOWN_TOPIC, text + where)
        chosen += there if numbers is None else wanted
    return chosen


def _age_ms(since_ms: int | None) -> int | None:
    return None if since_ms is None or since_ms < 0 else max(0, int(time.time() * 1000) - since_ms)
