"""krust's source and the official one give the same rows: a hash over all columns, headers too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.adopted import unpack
from tests.serving import ServedBroker
from tests.spark.conftest import create, fill, fingerprint, others, reading, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STAYS_OPEN: dict[str, object] = {  # no transaction is aborted for its age
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 3_600_000
}
Prints = dict[tuple[str, int], tuple[object, ...]]


def same(
    session: SparkSession, official: str, bootstrap: str, topic: str | None, **more: str
) -> Prints:
    """Both sources' fingerprints, once they were found to be equal."""
    more = {"includeHeaders": "true", **more}
    ours = fingerprint(reading(session, "krust", bootstrap, topic, **more))
    theirs = fingerprint(reading(session, official, bootstrap, topic, **more))
    assert ours == theirs
    return ours


def test_both_sources_read_every_kind_of_record_alike(
    spark: SparkSession, official: str, bootstrap: str, name: str
) -> None:
    """Codecs, nulls, headers, times out of order, empty partitions, a start that was deleted."""
    import krust

    create(bootstrap, name, 8, retention_ms=-1)
    for number, codec in enumerate(CODECS):
        with krust.Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            for n in range(500):
                producer.produce(
                    name,
                    None if n % 11 == 0 else b"v" * (n % 300),
                    None if n % 5 == 0 else b"" if n % 7 == 0 else b"k%d" % n,
                    number,
                    headers=[("h", b"%d" % n), ("", None), ("h", b"")] if n % 3 == 0 else None,
                    timestamp_ms=1_700_000_000_000 + (n * 7919) % 100_000,
                )
    fill(bootstrap, name, 700, partitions=7)
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records(name, 6, 60)
    found = same(spark, official, bootstrap, name)
    assert found[name, 0][0] == 600
    assert found[name, 6][0] == 40
    assert len(found) == 7


def is_clean(data: Path, topic: str) -> bool:
    """Whether partition 0 is clean up to its active segment: the cleaner leaves it alone then."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return False
    rows = dict(line.rsplit(" ", 1) for line in lines)
    active = max(int(log.stem) for log in (data / f"{topic}-0").glob("*.log"))
    return int(rows.get(f"{topic} 0", -1)) == active


def test_both_sources_read_a_compacted_topic_alike(
    spark: SparkSession, official: str, bootstrap: str, name: str, log_dir: str
) -> None:
    import krust

    create(
        bootstrap,
        name,
        1,
        cleanup_policy="compact",
        segment_bytes=16384,
        min_cleanable_dirty_ratio=0.001,
        delete_retention_ms=0,
    )
    with krust.Producer(bootstrap_servers=bootstrap, linger_ms=0, batch_size=2000) as producer:
        for n in range(5000):
            producer.produce(name, None if n % 50 == 7 else b"v%d" % n, b"k%d" % (n % 100))
    until(lambda: is_clean(Path(log_dir), name))
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_config(name, {"cleanup.policy": "delete"})
    found = same(spark, official, bootstrap, name)
    assert found[name, 0][4] == 4999
    assert int(str(found[name, 0][0])) < 3000


@pytest.mark.parametrize("folder", ["kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-clean"])
def test_both_sources_read_kafkas_logs_alike(
    spark: SparkSession, official: str, folder: str, tmp_path: Path
) -> None:
    """Magic 0 and 1, old codecs' framing, transactions that were committed, aborted, left open.

    Their files give the same rows when no broker is there.
    """
    levels = ["read_uncommitted", "read_committed"][: 1 + (folder == "kafka-3.9.1-clean")]
    data, more, prints = unpack(folder, tmp_path), {"subscribePattern": "."}, {}
    with ServedBroker(data, options=STAYS_OPEN) as broker:
        for level in levels:
            chosen = {**more, "kafka__isolation__level": level}
            prints[level] = same(spark, official, broker.bootstrap, None, **chosen)
            assert len(prints[level]) > 3
    more |= {"includeHeaders": "true", "logDir": str(data)}
    for level in levels:
        chosen = {**more, "kafka__isolation__level": level}
        assert fingerprint(reading(spark, "krust", "", None, **chosen)) == prints[level]


@pytest.mark.parametrize(
    "ends",
    [
        {"startingOffsets": "earliest", "endingOffsets": "latest"},
        {
            "startingOffsets": '{"T":{"0":10,"1":-2,"2":30}}',
            "endingOffsets": '{"T":{"0":11,"1":-1,"2":31}}',
        },
        {"startingTimestamp": "1700000050000", "endingTimestamp": "1700000120000"},
        {
            "startingOffsetsByTimestamp": '{"T":{"0":1700000050000,"1":0,"2":1700000195000}}',
            "endingOffsetsByTimestamp": '{"T":{"0":1700000051000,"1":0,"2":1900000000000}}',
        },
        {"minPartitions": "10"},
        *others(
            {
                "startingTimestamp": "1700000099999000",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {"maxRecordsPerPartition": "7"},
            {"maxRecordsPerPartition": "30", "minPartitions": "9"},
        ),
    ],
)
def test_both_sources_plan_the_same_starts_ends_and_tasks(
    spark: SparkSession, official: str, timed: str, bootstrap: str, ends: dict[str, str]
) -> None:
    more = {key: value.replace("T", timed) for key, value in ends.items()}
    found = same(spark, official, bootstrap, timed, **more)
    ours = reading(spark, "krust", bootstrap, timed, **more)
    theirs = reading(spark, official, bootstrap, timed, **more)
    if "minPartitions" in ends:  # alone, maxRecordsPerPartition does nothing in their batches
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()
    assert bool(found) != ("startingOffsetsByTimestampStrategy" in ends)


@pytest.fixture(scope="module")
def timed(bootstrap: str) -> str:
    """A topic of three partitions whose times go up, with jitter: 1,700,000,000,000 and on."""
    import krust

    create(bootstrap, "spark-timed", 3, retention_ms=-1)
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(200):
            moment = 1_700_000_000_000 + n * 1000 + (n * 37) % 5000
            producer.produce("spark-timed", b"v%d" % n, partition=n % 3, timestamp_ms=moment)
    return "spark-timed"
