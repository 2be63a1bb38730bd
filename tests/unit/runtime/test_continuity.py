"""What a broker knows at its start about the records that it had before."""

from __future__ import annotations

from pathlib import Path

import pytest

from krust.runtime import continuity
from krust.runtime.continuity import CLEAN, MAY_HAVE_LOST, kept_epoch, write_served


def marker(folder: Path, epoch: int) -> None:
    (folder / CLEAN).write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')


def test_a_new_directory_proves_nothing(tmp_path: Path) -> None:
    assert kept_epoch([tmp_path], "boot") == MAY_HAVE_LOST


def test_a_killed_process_has_lost_nothing_while_the_machine_runs(tmp_path: Path) -> None:
    write_served([tmp_path], 120, 90, "boot")
    assert kept_epoch([tmp_path], "boot") == 90
    assert kept_epoch([tmp_path], "another") == MAY_HAVE_LOST
    assert kept_epoch([tmp_path], "") == MAY_HAVE_LOST


@pytest.mark.parametrize(("epoch", "kept"), [(120, 90), (-1, 90), (119, MAY_HAVE_LOST)])
def test_a_clean_stop_of_that_registration_has_lost_nothing(
    tmp_path: Path, epoch: int, kept: int
) -> None:
    write_served([tmp_path], 120, 90, "boot")
    marker(tmp_path, epoch)
    assert kept_epoch([tmp_path], "another") == kept


def test_a_directory_that_a_kafka_closed_in_order_has_lost_nothing(tmp_path: Path) -> None:
    marker(tmp_path, -1)
    assert kept_epoch([tmp_path], "boot") == 0


def test_one_directory_that_is_new_or_of_another_time_may_have_lost_records(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for each in (one, two):
        each.mkdir()
    write_served([one], 120, 90, "boot")
    assert kept_epoch([one, two], "boot") == MAY_HAVE_LOST
    write_served([two], 110, 90, "boot")
    assert kept_epoch([one, two], "boot") == MAY_HAVE_LOST
    write_served([two], 120, 90, "boot")
    assert kept_epoch([one, two], "boot") == 90


@pytest.mark.parametrize("data", ["", "[]", "{}", '{"broker_epoch":"x"}', "\udcff"])
def test_a_damaged_file_proves_nothing(tmp_path: Path, data: str) -> None:
    (tmp_path / continuity.FILE).write_bytes(data.encode(errors="surrogateescape"))
    assert kept_epoch([tmp_path], "boot") == MAY_HAVE_LOST


def test_a_machine_without_a_boot_id_has_none(tmp_path: Path) -> None:
    assert continuity.boot_id(str(tmp_path / "none")) == ""
    (tmp_path / "id").write_text("abc\n")
    assert continuity.boot_id(str(tmp_path / "id")) == "abc"
