"""Writes with exactlyOnce: a transaction for each task, one decision for a micro-batch.

    task     begins its transaction, writes, leaves it open, and returns it to the driver
    commit   the driver writes the decision, then ends the transactions that it names
    abort    the driver ends the transactions of a micro-batch without a decision
The decision is the commit. A repeated micro-batch finds it: its tasks write nothing, and its commit
ends what an earlier driver left open. Without a decision, the tasks of the repeated micro-batch
have the same transactional ids, so they abort what is left and write again.
A transaction of a decision can be aborted before its EndTxn: its time was up, or another attempt of
the task has fenced it. Its rows are still in the log. They are written again, and in the same
transaction the decision is replaced by one without that transaction; so this happens once, too.
Promised: readers with read_committed see each row of a micro-batch once, whichever process ends
and when. A repeated micro-batch may have other rows, and more or fewer tasks.
Not promised: that the rows of two tasks become visible at one moment; or that rows which were
aborted can be written again if the topic's retention or compaction has removed them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from krust.errors import Code, KrustError
from krust.spark.commit_log import CommitLog
from krust.spark.decisions import Decision, RowRange, TaskTransaction, task_transactional_id
from krust.spark.errors import LOG, DataLossError, PlanError
from krust.spark.transaction_client import TransactionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from krust.clients.producer import Producer
    from krust.spark.options import SinkOptions

TIMEOUT_MS = 900_000
"""transaction.timeout.ms: the most that brokers accept by default"""
_UNSURE = frozenset(
    {Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED}
)
"""The coordinator has another producer by now, so it does not know how this one ended."""


@dataclass(frozen=True)
class TaskName:
    """A task: its query, the run of that, the micro-batch, and the number of its partition."""

    query: str
    run: str
    batch: int
    task: int


@dataclass
class TaskResult(WriterCommitMessage):
    """The result of a task.

    transaction  None: it wrote nothing, because it has no rows or the micro-batch is committed
    """

    name: TaskName
    rows: int
    transaction: TaskTransaction | None


def stream_task() -> TaskName:
    """The running task of a stream."""
    context = _context()
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if not query or batch is None:
        raise PlanError(
            "KRUST_NO_QUERY",
            "Spark does not say which query and micro-batch this task belongs to, so it cannot be "
            "written exactly once. Leave 'exactlyOnce' out.",
        )
    run = context.getLocalProperty("spark.jobGroup.id") or ""
    return TaskName(query, run, int(batch), context.partitionId())


def batch_task(job: str, run: str) -> TaskName:
    """The running task of a batch write."""
    return TaskName(job, run, 0, _context().partitionId())


def _context() -> Any:
    from pyspark import TaskContext

    return TaskContext.get()


def write_task(
    sink: SinkOptions,
    name: TaskName,
    rows: Iterator[Any],
    write: Callable[[Producer, Iterator[Any]], int],
) -> TaskResult:
    """Write the rows of a task in its transaction, and leave that open."""
    first = next(rows, None)
    if first is None:
        return TaskResult(name, 0, None)
    with CommitLog(sink, name.query) as log:
        last = log.last()
    if _is_decided(last, name.query, name.batch):
        for _ in rows:  # operators before the sink keep their state when their rows are read
            pass
        return TaskResult(name, 0, None)
    transactional_id = task_transactional_id(name.query, name.task)
    with _producer(sink, transactional_id) as producer:
        producer.begin_transaction()
        count = write(producer, chain((first,), rows))
        prepared = producer.prepare_transaction()
    ranges = tuple(RowRange(*one) for one in prepared.written)
    identity = (prepared.producer_id, prepared.epoch, prepared.is_v2)
    transaction = TaskTransaction(transactional_id, *identity, ranges) if ranges else None
    return TaskResult(name, count, transaction)


def _producer(sink: SinkOptions, transactional_id: str) -> Producer:
    from krust.clients.producer import Producer

    given: dict[str, object] = {"transaction.timeout.ms": TIMEOUT_MS, **sink.client}
    given |= {"bootstrap.servers": sink.bootstrap, "transactional.id": transactional_id}
    return Producer(given)


def _is_decided(last: Decision | None, query: str, batch: int) -> bool:
    """Whether a micro-batch is committed. PlanError: a later one is."""
    if last is not None and last.batch > batch:
        raise PlanError(
            "KRUST_OLD_CHECKPOINT",
            f"Micro-batch {batch} of query {query} cannot be written: {last.batch} is committed "
            "already. Either another driver of the query runs, or its checkpoint was replaced by "
            "an older one. Start the query with its newest checkpoint, or with a new one.",
        )
    return last is not None and last.batch == batch


def commit(sink: SinkOptions, results: Sequence[TaskResult], batch: int) -> None:
    """Decide that a micro-batch is committed, unless that is decided, and end its transactions."""
    if not results:
        return
    name = results[0].name
    mine = [one.transaction for one in results if one.transaction is not None]
    with CommitLog(sink, name.query) as log, TransactionClient(sink) as client:
        if not mine and not _is_decided(log.last(), name.query, batch):
            return
        last = log.claim()
        is_new_run = last is None or last.run != name.run
        if last is not None and is_new_run and last.batch < batch:
            last = _finish(sink, log, client, last)  # the repeated micro-batch may have had no rows
        if last is not None and last.batch >= batch:
            for one in mine:
                if not last.names(one):
                    client.end(one, commit=False)
        if last is not None and _is_decided(last, name.query, batch):
            LOG.warning("Micro-batch %d of %s is committed already.", batch, name.query)
        else:
            if is_new_run:
                _fence_others(client, name.query, mine)
            last = Decision(name.query, batch, name.run, tuple(mine))
            log.decide(last)
        _finish(sink, log, client, last)


def abort(sink: SinkOptions, results: Sequence[TaskResult | None], batch: int) -> None:
    """Abort the transactions of a micro-batch, unless it is decided. Never raises.

    What is left open is aborted by the next attempt, or when its time is up.
    """
    known = [one for one in results if one is not None]
    if not known:
        return
    query = known[0].name.query
    try:
        with CommitLog(sink, query) as log, TransactionClient(sink) as client:
            last = log.claim()
            if last is None or last.batch < batch:
                _fence_others(client, query, [])
    except KrustError as error:
        LOG.warning("Transactions of micro-batch %d of %s stay open: %s", batch, query, error)


def _fence_others(client: TransactionClient, query: str, mine: Sequence[TaskTransaction]) -> None:
    """Abort what other attempts have left open, so that readers do not wait for it. Never raises.

    Brokers abort what stays open when its time is up.
    """
    kept = {one.transactional_id for one in mine}
    try:
        for transactional_id in client.open_of(query):
            if transactional_id not in kept:
                client.fence(transactional_id)
    except KrustError as error:
        LOG.warning("Transactions of earlier attempts of %s stay open: %s", query, error)


def _finish(
    sink: SinkOptions, log: CommitLog, client: TransactionClient, decision: Decision
) -> Decision:
    """End the transactions of a decision, and write the rows again of those that were aborted.

    returns  the last decision now
    """
    while True:
        lost = [one for one in decision.transactions if not _is_committed(client, one)]
        if not lost:
            return decision
        LOG.warning(
            "Brokers have aborted %d transactions of micro-batch %d of %s; their rows are written "
            "again from the log.",
            *(len(lost), decision.batch, decision.query),
        )
        present = log.claim(int(sink.client.get("transaction.timeout.ms", TIMEOUT_MS)))
        if present is not None and present != decision:  # another driver has replaced it since
            decision = present
            continue
        rest = decision.without({one.transactional_id for one in lost})
        log.decide(rest, partial(_write_again, client, lost))
        return rest


def _is_committed(client: TransactionClient, one: TaskTransaction) -> bool:
    """Commit a transaction. False: it was aborted."""
    code = client.end(one, commit=True)
    if code == Code.NONE:
        return True
    if code == Code.INVALID_TXN_STATE:
        return False
    if code in _UNSURE:
        return not client.was_aborted(one)
    from krust.clients.coordinator_client import refused

    raise refused(code, f"commit of {one.transactional_id!r}")


def _write_again(
    client: TransactionClient, lost: Sequence[TaskTransaction], producer: Producer
) -> None:
    for one in lost:
        for span in one.ranges:
            count = 0
            for row in client.rows(one, span):
                when, headers = row.timestamp_ms, row.headers
                producer.produce(
                    *(span.topic, row.value, row.key, span.partition, None, when, headers)
                )
                count += 1
            if count < span.rows:
                _report_loss(client, one, span, span.rows - count)


def _report_loss(
    client: TransactionClient, one: TaskTransaction, span: RowRange, missing: int
) -> None:
    """Rows are not in the log any more. DataLossError: readers would still have them otherwise."""
    text = (
        f"{missing} rows of {one.transactional_id!r} in {span.topic}:{span.partition} were aborted "
        "by a broker, and are deleted since."
    )
    if client.log_start(span) <= span.first:
        raise DataLossError(
            "KAFKA_DATA_LOSS.ABORTED_ROWS",
            f"{text} Compaction has removed them. To go on without them, start the query with a "
            "new checkpoint.",
        )
    LOG.warning("%s They are older than the topic's retention.", text)
