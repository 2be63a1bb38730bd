"""Transactions as Apache's own tools of 3.9 and 4.3 see them: `kafka-transactions.sh`, the console
formatter and DumpLogSegments of `__transaction_state`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import krust
from krust.clients.admin_transactions import STATES
from tests.foreign.conftest import create, jars
from tests.foreign.test_transactions import librdkafka, read, transactional_id, values
from tests.hanging import leave_hanging
from tests.peers import kafka
from tests.peers.tools import Tools, tools
from tests.serving import ServedBroker
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

WAIT_S = 60
STATE = "__transaction_state"
FORMATTERS = (
    ("3.9.1", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
    ("3.9.1", "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"),
    ("4.3.0", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
)


@pytest.fixture(scope="module", params=kafka.VERSIONS)
def run(request: pytest.FixtureRequest) -> Iterator[Tools]:
    """The tools of a version."""
    with tools(request.param) as running:
        yield running


@pytest.fixture
def transactions(run: Tools, bootstrap: str) -> Callable[..., list[dict[str, str]]]:
    """`kafka-transactions.sh`: the rows that it prints."""

    def ask(*words: str) -> list[dict[str, str]]:
        code, text = run("kafka-transactions", "--bootstrap-server", bootstrap, *words)
        assert code == 0, text
        lines = [line for line in text.splitlines() if "\t" in line]
        if not lines:
            return []
        head, *rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
        return [dict(zip(head, row, strict=True)) for row in rows]

    return ask


def test_an_open_transaction_is_listed_and_described(
    transactions: Callable[..., list[dict[str, str]]], bootstrap: str, topic: str
) -> None:
    name = transactional_id()
    producer = librdkafka(bootstrap, **{"transactional.id": name})
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(WAIT_S)
    [listed] = [row for row in transactions("list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    [described] = transactions("describe", "--transactional-id", name)
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] == f"{topic}-0"
    assert described["ProducerId"] == listed["ProducerId"]
    assert int(described["TransactionDurationMs"]) >= 0
    place = ("--topic", topic, "--partition", "0")
    [open_producer] = transactions("describe-producers", *place)
    assert open_producer["ProducerId"] == listed["ProducerId"]
    assert open_producer["CurrentTransactionStartOffset"] == "0"
    assert transactions("find-hanging", *place, "--max-transaction-timeout", "0") == []
    producer.commit_transaction(WAIT_S)

    def is_complete() -> bool:
        [described] = transactions("describe", "--transactional-id", name)
        return described["TransactionState"] == "CompleteCommit"

    until(is_complete)
    [ended] = transactions("describe-producers", *place)
    assert ended["CurrentTransactionStartOffset"] == "None"


def test_a_hanging_transaction_is_found_and_aborted(
    transactions: Callable[..., list[dict[str, str]]], bootstrap: str, topic: str
) -> None:
    producer_id, epoch = leave_hanging(bootstrap, topic, transactional_id())
    place = ("--topic", topic, "--partition", "0")
    [hanging] = transactions("find-hanging", "--topic", topic)
    assert (hanging["ProducerId"], hanging["ProducerEpoch"]) == (str(producer_id), str(epoch))
    assert (hanging["StartOffset"], hanging["Duration(min)"]) == ("0", "60")
    assert hanging in transactions("find-hanging", "--broker-id", "0")
    assert transactions("abort", *place, "--start-offset", "0") == []
    assert transactions("find-hanging", "--topic", topic) == []
    [ended] = transactions("describe-producers", *place)
    assert ended["CurrentTransactionStartOffset"] == "None"
    producer = librdkafka(bootstrap)
    producer.begin_transaction()
    producer.produce(topic, b"next")
    producer.commit_transaction(WAIT_S)
    assert read(bootstrap, topic, "read_committed", 1) == [b"next"]


def test_abort_takes_the_ids_of_a_producer_too(
    transactions: Callable[..., list[dict[str, str]]], bootstrap: str, topic: str
) -> None:
    producer_id, epoch = leave_hanging(bootstrap, topic, transactional_id())
    words = ["abort", "--topic", topic, "--partition", "0", "--producer-id", str(producer_id)]
    assert transactions(*words, "--producer-epoch", str(epoch), "--coordinator-epoch", "0") == []
    assert transactions("find-hanging", "--topic", topic) == []


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedBroker, Path, int]]:
    """A broker with one partition of STATE, where three transactions of `shop` ended; its data
    directory, and how many records of STATE there are.
    """
    data = tmp_path_factory.mktemp("transactions") / "data"
    options: dict[str, object] = {"transaction.state.log.num.partitions": 1}
    with ServedBroker(data, "--prod", options=options) as broker:
        topic = create(broker.bootstrap)
        producer = librdkafka(broker.bootstrap, **{"transactional.id": "shop"})
        for number, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            for value in values(number):
                producer.produce(topic, value)
            producer.flush(WAIT_S)
            end = producer.commit_transaction if commit else producer.abort_transaction
            end(WAIT_S)
        yield broker, data, log_end(broker.bootstrap)


def log_end(bootstrap: str) -> int:
    """The end of STATE's only partition, after the last transaction is complete."""
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        until(lambda: admin.describe_transactions(["shop"])["shop"].state == "CompleteCommit")
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return int(reader.get_watermark_offsets(TopicPartition(STATE, 0), WAIT_S)[1])
    finally:
        reader.close()


def java(*words: str) -> str:
    """What a program of Java prints."""
    run = subprocess.run(["java", *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


ENDS = ["Empty"] + [
    state
    for end in ("Commit", "Abort", "Commit")
    for state in ("Ongoing", f"Prepare{end}", f"Complete{end}")
]


@pytest.mark.parametrize(("version", "formatter"), FORMATTERS)
def test_the_formatter_prints_every_state_of_a_transaction(
    written: tuple[ServedBroker, Path, int], version: str, formatter: str
) -> None:
    broker, _, count = written
    words = ["--bootstrap-server", broker.bootstrap, "--topic", STATE, "--formatter", formatter]
    words += ["--partition", "0", "--offset", "earliest", "--max-messages", str(count)]
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    printed = java("-cp", f"{jars(version)}/*", main, *words, "--timeout-ms", "120000")
    assert states(printed) == ENDS


@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_dump_log_segments_decodes_every_state_of_a_transaction(
    written: tuple[ServedBroker, Path, int], version: str
) -> None:
    _, data, count = written
    package = "kafka.tools" if version == "3.9.1" else "org.apache.kafka.tools"
    words = ["--transaction-log-decoder", "--files", str(data / f"{STATE}-0" / f"{0:020}.log")]
    printed = java("-cp", f"{jars(version)}/*", f"{package}.DumpLogSegments", *words)
    offsets = re.findall(r"^\| offset: (\d+)", printed, re.M)
    assert [int(offset) for offset in offsets] == list(range(count))
    assert states(printed) == ENDS


def states(printed: str) -> list[str]:
    """The states that a tool prints, by name or by number."""
    found = re.findall(r"\bstate=(\w+)|\"transactionStatus\":(\d)", printed)
    return [name or STATES[int(number)] for name, number in found]
