"""The check for two controllers finds them in histories that contain some."""

from __future__ import annotations

import json

from tests.cluster.history import CHECK, CREATE, SET, LoggedChange, LoggedWrite, two_controllers

FIRST, SECOND = 11, 22
FENCE = LoggedWrite(CHECK, "/k/controller_epoch")
STATE = "/k/brokers/topics/t/partitions/0/state"


def elected(zxid: int, session: int, epoch: int) -> LoggedChange:
    made = LoggedWrite(CREATE, "/k/controller", b"{}")
    return LoggedChange(
        zxid, session, (made, LoggedWrite(SET, "/k/controller_epoch", b"%d" % epoch))
    )


def led(
    zxid: int, session: int, epoch: int, leader_epoch: int, *before: LoggedWrite
) -> LoggedChange:
    state = {"controller_epoch": epoch, "leader_epoch": leader_epoch}
    return LoggedChange(
        zxid, session, (*before, LoggedWrite(SET, STATE, json.dumps(state).encode()))
    )


FOUNDED = LoggedChange(1, FIRST, (LoggedWrite(CREATE, "/k/controller_epoch", b"0"),))


def test_consecutive_controller_terms_pass() -> None:
    changes = [FOUNDED, elected(2, FIRST, 1), led(3, FIRST, 1, 0, FENCE)]
    changes += [elected(4, SECOND, 2), led(5, SECOND, 2, 1, FENCE)]
    changes += [LoggedChange(6, 0, (LoggedWrite(SET, "/other/brokers/topics/t", b""),))]
    assert two_controllers(changes, "/k") == []


def test_a_write_of_a_superseded_controller_is_found() -> None:
    changes = [FOUNDED, elected(2, FIRST, 1), elected(3, SECOND, 2), led(4, FIRST, 1, 0, FENCE)]
    (wrong,) = two_controllers(changes, "/k")
    assert "is not the controller" in wrong


def test_a_write_of_an_older_epoch_or_of_none_is_found() -> None:
    changes = [FOUNDED, elected(2, FIRST, 1), elected(3, FIRST, 2), led(4, FIRST, 1, 0, FENCE)]
    changes += [led(5, FIRST, 2, 0)]
    bears, bare = two_controllers(changes, "/k")
    assert "bears epoch 1, not 2" in bears
    assert "without a look" in bare


def test_a_repeated_epoch_and_a_falling_leader_epoch_are_found() -> None:
    changes = [FOUNDED, elected(2, FIRST, 1), elected(3, SECOND, 1)]
    changes += [led(4, SECOND, 1, 5, FENCE), led(5, SECOND, 1, 4, FENCE)]
    twice, falls = two_controllers(changes, "/k")
    assert "goes from 1 to b'1'" in twice
    assert "leader epoch 5 to 4" in falls
