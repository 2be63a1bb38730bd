"""Connections that break while answers are on their way: nothing is lost, and with --idempotent
nothing comes twice or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.proxy import Cutting, behind

PRODUCE = 0
LINES = [b"line %d" % n for n in range(20_000)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    tmp_path: Path, codec: str
) -> None:
    cutting = Cutting(7, [PRODUCE])
    with behind(tmp_path, cutting, "--prod") as address:
        krust = Command(address)
        krust.ok("topic", "create", "t:1")
        small = ["-X", "batch.size=4000", "-X", "retry.backoff.ms=5", "-z", codec]
        krust.ok("produce", "t", "--idempotent", *small, given=b"\n".join(LINES))
        assert cutting.cuts > 3
        assert krust.ok("consume", "t", "-e").out.splitlines() == LINES


def test_any_other_producer_loses_nothing_and_keeps_the_order_of_what_is_new(
    tmp_path: Path,
) -> None:
    cutting = Cutting(7, [PRODUCE])
    with behind(tmp_path, cutting, "--prod") as address:
        krust = Command(address)
        krust.ok("topic", "create", "t:1")
        small = ["-X", "batch.size=4000", "-X", "retry.backoff.ms=5"]
        krust.ok("produce", "t", *small, given=b"\n".join(LINES))
        assert cutting.cuts > 3
        found = krust.ok("consume", "t", "-e").out.splitlines()
        assert list(dict.fromkeys(found)) == LINES
        assert len(found) > len(LINES), "what was lost on the way back was written twice"
