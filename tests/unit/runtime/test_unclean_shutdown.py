"""What a broker knows at its start about the records that it had before."""

from __future__ import annotations

from pathlib import Path

import pytest

from krust.config import load
from krust.runtime import unclean_shutdown
from krust.runtime.unclean_shutdown import (
    CLEAN,
    MAY_HAVE_LOST,
    UncleanShutdownCheck,
    are_synced,
    kept_epoch,
    write_served,
)


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


def test_a_broker_whose_records_were_synced_has_lost_none_that_counted_in_a_power_cut(
    tmp_path: Path,
) -> None:
    assert are_synced([tmp_path])
    write_served([tmp_path], 120, 90, "boot", synced=True)
    assert kept_epoch([tmp_path], "another") == 90
    assert are_synced([tmp_path])


def started(folder: Path, flush_mode: str = "async") -> UncleanShutdownCheck:
    boot = folder / "boot"
    boot.write_text("another")
    given = {"krust.boot.id.path": str(boot), "krust.flush.mode": flush_mode}
    return UncleanShutdownCheck(load(options=given), [folder / "data"])


def test_a_broker_notes_what_is_synced_until_it_stops_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    started(tmp_path, "ack").note([data], 120, 90)
    assert kept_epoch([data], "yet another") == 90
    killed = started(tmp_path, "ack")
    assert killed.kept_epoch == 90
    killed.note([data], 130, 90)
    killed.note([data], 130, 90, stops=True)
    assert kept_epoch([data], "yet another") == MAY_HAVE_LOST
    marker(data, 130)
    assert kept_epoch([data], "yet another") == 90


def test_a_broker_that_does_not_flush_notes_nothing_as_synced(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    started(tmp_path, "ack").note([data], 120, 90)
    started(tmp_path).note([data], 130, 90)
    started(tmp_path, "ack").note([data], 140, 90)
    assert kept_epoch([data], "yet another") == MAY_HAVE_LOST


def test_what_a_killed_broker_had_not_synced_is_not_synced_by_its_next_start(
    tmp_path: Path,
) -> None:
    write_served([tmp_path], 120, 90, "boot")
    assert not are_synced([tmp_path])
    marker(tmp_path, 120)
    assert are_synced([tmp_path])


def test_a_directory_of_a_killed_kafka_is_not_synced(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    assert not are_synced([tmp_path])
    marker(tmp_path, -1)
    assert are_synced([tmp_path])


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
    (tmp_path / unclean_shutdown.FILE).write_bytes(data.encode(errors="surrogateescape"))
    assert kept_epoch([tmp_path], "boot") == MAY_HAVE_LOST


def test_a_machine_without_a_boot_id_has_none(tmp_path: Path) -> None:
    assert unclean_shutdown.boot_id(str(tmp_path / "none")) == ""
    (tmp_path / "id").write_text("abc\n")
    assert unclean_shutdown.boot_id(str(tmp_path / "id")) == "abc"
