"""exactlyOnce without Spark: tasks and drivers end anywhere, and each row is there once.

A driver is a fork that ends at a named step, as by kill -9.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import krust
from krust import _krust
from krust.spark import options
from tests.clients.conftest import committed_values, create

pytest.importorskip("pyspark", reason="no pyspark here: pip install '.[spark]'")

from krust.spark import exactly_once
from krust.spark.commit_log import CommitLog
from krust.spark.decisions import Decision, task_transactional_id
from krust.spark.errors import DataLossError, PlanError
from krust.spark.exactly_once import TaskName, TaskResult
from krust.spark.transaction_client import TransactionClient

if TYPE_CHECKING:
    from krust.clients.producer import Producer
    from krust.spark.options import SinkOptions

Step = Callable[[pytest.MonkeyPatch], None]
KILLED = 9


class Query:
    """A query with one topic; each of its runs has a number."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "exactlyOnce": "true"}
        self.sink: SinkOptions = options.sink(given)
        self.bootstrap, self.topic, self.run = bootstrap, topic, 1

    def task(self, batch: int, task: int, rows: range) -> TaskResult:
        name = TaskName(self.topic, f"run-{self.run}", batch, task)
        return exactly_once.write_task(self.sink, name, iter(rows), self._write)

    def tasks(self, batch: int, rows: range, count: int) -> list[TaskResult]:
        return [self.task(batch, one, rows[one::count]) for one in range(count)]

    def commit(self, results: list[TaskResult], batch: int) -> None:
        exactly_once.commit(self.sink, results, batch)

    def batch(self, batch: int, rows: range, count: int = 3) -> None:
        """A micro-batch from begin to end."""
        self.commit(self.tasks(batch, rows, count), batch)

    def killed(self, step: Step, work: Callable[[], None]) -> None:
        """Do something in a process that is killed at a step."""
        pid = os.fork()
        if pid == 0:
            try:
                _krust.forked()
                step(pytest.MonkeyPatch())
                work()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == KILLED

    def lose(self, results: list[TaskResult]) -> None:
        """A broker aborts the transactions, as when their time is up."""
        with TransactionClient(self.sink) as client:
            for one in results:
                assert one.transaction is not None
                client.fence(one.transaction.transactional_id)

    def values(self) -> list[int]:
        """The rows that read_committed readers see up to the end of the log, sorted."""
        return sorted(int(one) for one in committed_values(self.bootstrap, self.topic))

    def _write(self, producer: Producer, rows: Iterator[int]) -> int:
        count = 0
        for count, row in enumerate(rows, 1):  # noqa: B007
            producer.produce(self.topic, b"%d" % row, None, row % 3, headers=[("n", b"%d" % row)])
        return count


@pytest.fixture
def query(bootstrap: str, topic: str) -> Query:
    return Query(bootstrap, topic)


def at_call(owner: Any, name: str, number: int = 1) -> Step:
    """The process ends when a function is called for the `number`-th time."""

    def step(patch: pytest.MonkeyPatch) -> None:
        original, calls = getattr(owner, name), []

        def call(*args: Any, **more: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                os._exit(KILLED)
            return original(*args, **more)

        patch.setattr(owner, name, call)

    return step


def after_call(owner: Any, name: str, number: int = 1) -> Step:
    """The process ends when a call has returned for the `number`-th time."""

    def step(patch: pytest.MonkeyPatch) -> None:
        original, calls = getattr(owner, name), []

        def call(*args: Any, **more: Any) -> Any:
            found = original(*args, **more)
            calls.append(1)
            if len(calls) == number:
                os._exit(KILLED)
            return found

        patch.setattr(owner, name, call)

    return step


STEPS = {
    "before the decision": at_call(CommitLog, "decide"),
    "before the end of the decision's transaction": at_call(krust.Producer, "commit_transaction"),
    "after the decision": after_call(CommitLog, "decide"),
    "between two transactions": after_call(TransactionClient, "end"),
    "after all transactions": after_call(exactly_once, "_finish"),
}
REPAIRS = {
    "before the repair": at_call(exactly_once, "_write_again"),
    "before the end of the repair": at_call(krust.Producer, "commit_transaction"),
    "after the repair": after_call(exactly_once, "_finish"),
}


@pytest.mark.parametrize(
    ("at", "lost"),
    [
        *((at, False) for at in STEPS),
        ("after the decision", True),
        ("between two transactions", True),
    ],
)
def test_a_driver_that_ends_at_any_step_leaves_each_row_once(
    query: Query, at: str, lost: bool
) -> None:
    query.batch(0, range(30))
    results = query.tasks(1, range(30, 60), 3)
    query.killed(STEPS[at], lambda: query.commit(results, 1))
    if lost:
        query.lose(results)
    query.run = 2
    query.batch(1, range(30, 60), 2)
    query.batch(2, range(60, 90), 2)
    assert query.values() == list(range(90))


@pytest.mark.parametrize("at", REPAIRS)
def test_a_repair_that_is_interrupted_happens_once(query: Query, at: str) -> None:
    results = query.tasks(1, range(300), 3)
    query.killed(STEPS["between two transactions"], lambda: query.commit(results, 1))
    query.lose(results)
    query.run = 2
    again = query.tasks(1, range(300), 3)
    assert all(one.transaction is None for one in again)
    query.killed(REPAIRS[at], lambda: query.commit(again, 1))
    query.run = 3
    query.batch(1, range(300), 3)
    assert query.values() == list(range(300))


def test_a_repeated_task_replaces_what_its_first_attempt_wrote(query: Query) -> None:
    first = query.task(0, 0, range(10))
    second = query.task(0, 0, range(10))
    query.commit([second], 0)
    assert query.values() == list(range(10))
    assert first.transaction != second.transaction


def test_rows_of_an_attempt_that_another_has_fenced_are_written_again(query: Query) -> None:
    """Spark took the first attempt's answer, but a speculative one had started since."""
    first = query.task(0, 0, range(10))
    query.task(0, 0, range(10))
    query.commit([first], 0)
    query.batch(1, range(10, 20))
    assert query.values() == list(range(20))


def test_a_driver_that_was_replaced_decides_nothing(query: Query) -> None:
    old = query.tasks(1, range(20), 2)
    query.run = 2
    query.batch(1, range(20), 3)
    query.run = 1
    query.commit(old, 1)
    assert query.values() == list(range(20))


def test_a_replaced_driver_that_decides_first_is_finished_by_the_new_one(query: Query) -> None:
    old = query.tasks(1, range(20), 2)
    query.run = 2
    new = query.tasks(1, range(20), 3)
    query.killed(STEPS["after the decision"], lambda: query.commit(old, 1))
    query.commit(new, 1)
    assert query.values() == list(range(20))


@pytest.mark.parametrize("lost", [False, True], ids=["", "transactions lost"])
def test_a_decided_micro_batch_is_finished_also_if_its_repetition_has_no_rows(
    query: Query, lost: bool
) -> None:
    results = query.tasks(0, range(30), 3)
    query.killed(STEPS["after the decision"], lambda: query.commit(results, 0))
    if lost:
        query.lose(results)
    query.run = 2
    query.batch(0, range(0))
    assert query.values() == list(range(30))


def test_a_decided_micro_batch_is_finished_before_a_new_run_decides_the_next(query: Query) -> None:
    results = query.tasks(0, range(30), 3)
    query.killed(STEPS["between two transactions"], lambda: query.commit(results, 0))
    query.run = 2
    query.batch(1, range(30, 60))
    assert query.values() == list(range(60))


def test_an_older_checkpoint_is_an_error_that_leaves_nothing_open(query: Query) -> None:
    """Its micro-batches may have other rows than those that are committed."""
    old = query.tasks(0, range(30), 3)
    query.run = 2
    query.batch(0, range(30), 3)
    query.batch(1, range(30, 60), 3)
    with pytest.raises(PlanError, match=r"KRUST_OLD_CHECKPOINT.*0 of query.*1 is committed"):
        query.commit(old, 0)
    with pytest.raises(PlanError, match="KRUST_OLD_CHECKPOINT"):
        query.task(0, 0, range(10))
    with TransactionClient(query.sink) as client:
        assert client.open_of(query.topic) == []
    assert query.values() == list(range(60))


def test_an_aborted_micro_batch_leaves_nothing_open(query: Query) -> None:
    results = query.tasks(0, range(30), 3)
    exactly_once.abort(query.sink, [results[0], None], 0)
    with TransactionClient(query.sink) as client:
        assert client.open_of(query.topic) == []
    assert query.values() == []


def test_an_abort_after_the_decision_changes_nothing(query: Query) -> None:
    results = query.tasks(0, range(30), 3)
    query.killed(STEPS["between two transactions"], lambda: query.commit(results, 0))
    exactly_once.abort(query.sink, results, 0)
    query.batch(0, range(30))
    assert query.values() == list(range(30))


def test_a_micro_batch_without_rows_needs_no_decision(query: Query) -> None:
    query.batch(0, range(0))
    with CommitLog(query.sink, query.topic) as log:
        assert log.last() is None
    query.batch(1, range(1), 3)
    assert query.values() == [0]


def test_queries_share_the_topic_of_decisions(query: Query, bootstrap: str, name: str) -> None:
    others = []
    for number in range(9):
        create(bootstrap, f"{name}-{number}", 3)
        others.append(Query(bootstrap, f"{name}-{number}"))
        others[-1].batch(number, range(number, number + 3))
    for number, other in enumerate(others):
        with CommitLog(other.sink, other.topic) as log:
            last = log.last()
        assert last is not None
        assert last.batch == number
        assert [one.transactional_id for one in last.transactions] == [
            task_transactional_id(other.topic, task) for task in range(3)
        ]
        assert Decision.of_json(other.topic, last.to_json().encode()) == last


def test_aborted_rows_that_retention_has_deleted_are_left_out(query: Query) -> None:
    results = query.tasks(0, range(30), 1)
    query.killed(STEPS["after the decision"], lambda: query.commit(results, 0))
    query.lose(results)
    assert results[0].transaction is not None
    wanted = [{"partition_index": 0, "offset": results[0].transaction.ranges[0].last}]
    topic = {"name": query.topic, "partitions": wanted}
    client = _krust.Client(query.bootstrap)
    client.request("DeleteRecords", {"topics": [topic], "timeout_ms": 10_000})
    query.commit(results, 0)
    assert query.values() == [row for row in range(30) if row % 3 or row == 27]


def test_aborted_rows_that_compaction_has_removed_are_an_error(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = query.tasks(0, range(30), 1)
    query.killed(STEPS["after the decision"], lambda: query.commit(results, 0))
    query.lose(results)
    monkeypatch.setattr(TransactionClient, "rows", lambda *_: iter(()))
    with pytest.raises(DataLossError, match=r"10 rows.*were aborted by a broker"):
        query.commit(results, 0)
