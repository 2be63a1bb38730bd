"""The broker's log names everything that a recovery cuts off a partition, in one line."""

from __future__ import annotations

import re
from pathlib import Path

import krust
from tests.serving import ServedBroker

RECORDS = 60
VALUE = b"v" * 1000


def test_one_log_line_names_everything_that_a_bad_byte_costs(tmp_path: Path) -> None:
    options: dict[str, object] = {"log.segment.bytes": 20_000}
    with ServedBroker(tmp_path / "data", options=options) as broker:
        for _ in range(RECORDS):
            with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.produce("t", VALUE, partition=0)
        broker.kill()
    segments = sorted((tmp_path / "data/t-0").glob("*.log"))
    assert len(segments) > 2
    content = bytearray(segments[1].read_bytes())
    content[5000] ^= 1
    segments[1].write_bytes(content)
    sizes = [segment.stat().st_size for segment in segments]

    with ServedBroker(tmp_path / "data", options=options) as broker:
        log = broker.stderr()
    line = re.search(
        r"recovery cuts t-0 at offset (\d+): wrong checksum; lost: offsets (\d+) to (\d+) "
        r"\(at most (\d+) records\), (\d+) bytes in (\d+) segments",
        log,
    )
    assert line is not None, log
    first, again, last, count, lost, of_segments = map(int, line.groups())
    assert (first, last, count) == (again, RECORDS - 1, RECORDS - first)
    assert of_segments == len(segments) - 1
    left = (tmp_path / "data/t-0" / segments[1].name).stat().st_size
    assert lost == sum(sizes[1:]) - left
    assert f"recovery has cut 1 logs, {lost} bytes and at most {count} records in all" in log
