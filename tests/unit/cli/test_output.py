"""Tables for people: numbers that count have commas, numbers that name things have none."""

from __future__ import annotations

import pytest

from krust.cli import output
from krust.quantities import counted


@pytest.mark.parametrize(
    "column",
    ["node_id", "partition", "port", "leader", "base_offset", "end", "leader_epoch", "kafka_code"],
)
def test_a_number_used_as_a_name_has_no_commas(column: str) -> None:
    assert output.cell(1001, column) == "1001"


@pytest.mark.parametrize("column", ["records", "bytes", "lag", "partitions", "offsets", ""])
def test_a_number_that_counts_has_commas(column: str) -> None:
    assert output.cell(1001, column) == "1,001"


def test_a_count_of_one_is_singular() -> None:
    assert [counted(n, "record") for n in (0, 1, 1001)] == [
        "0 records",
        "1 record",
        "1,001 records",
    ]
    assert counted(2, "batch", "batches") == "2 batches"
