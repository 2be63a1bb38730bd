"""The copy of docs/clients.md, killed again and again: each record is in the copy once."""

from __future__ import annotations

import subprocess
import sys

import krust

RECORDS, KILLS = 300, 2
PROGRAM = """
import sys
import krust

bootstrap, source, target, count = sys.argv[1:]
where = {"bootstrap.servers": bootstrap}
reading = {
    "group.id": source,
    "group.instance.id": "copy-1",  # a member that is started again gets its partitions at once
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "max.poll.records": 20,
}
with (
    krust.Consumer(source, where | reading) as consumer,
    krust.Producer(where | {"transactional.id": source}) as producer,
):
    while sum(consumer.positions().values()) < int(count):
        with producer.transaction():
            for record in consumer.poll(timeout_ms=1000):
                producer.send(target, record.value).result()
                print(record.offset, flush=True)
            producer.send_offsets(consumer)
"""


def test_a_copy_that_is_killed_in_its_transactions_has_each_record_once() -> None:
    with krust.Broker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.create_topic("copy")
        with krust.Producer(bootstrap_servers=broker.bootstrap) as writer:
            for number in range(RECORDS):
                writer.produce("orders", b"%d" % number, partition=number % 3)
        argv = [sys.executable, "-c", PROGRAM, broker.bootstrap, "orders", "copy", str(RECORDS)]
        for kill in range(KILLS):
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as copy:
                assert copy.stdout is not None
                for _ in range(25 + 7 * kill):  # in the middle of a transaction
                    assert copy.stdout.readline()
                copy.kill()
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, timeout=100)
        copied = broker.records("copy", isolation_level="read_committed")
    assert sorted(int(record.value or b"") for record in copied) == list(range(RECORDS))
