"""Offsets of the oldest consumers lie in the znode tree, where their own tools look for them."""

from typing import Any

import pytest

from tests.unit.controller.shell import Shell


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    assert shell.create("a", 2)["error_code"] == 0
    return shell


def commit(
    shell: Shell, group: str, topic: str, partition: int, offset: int, note: str = ""
) -> int:
    one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": note}
    message = {"group_id": group, "topics": [{"name": topic, "partitions": [one]}]}
    answer = shell.ask("OffsetCommit", message, 0)
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def fetch(shell: Shell, group: str, topic: str, partition: int) -> Any:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}
    (found,) = shell.ask("OffsetFetch", asked, 0)["topics"][0]["partitions"]
    return found["committed_offset"], found["error_code"]


def test_the_last_commit_is_read_back_and_lies_where_zookeeper_has_it(shell: Shell) -> None:
    assert commit(shell, "g", "a", 1, 5) == 0
    assert commit(shell, "g", "a", 1, 7) == 0
    assert fetch(shell, "g", "a", 1) == (7, 0)
    assert shell.nodes("/consumers")["/consumers/g/offsets/a/1"] == ("7", False)


def test_what_was_never_committed_is_unknown(shell: Shell) -> None:
    assert fetch(shell, "g", "a", 0) == (-1, 3)
    assert commit(shell, "g", "a", 2, 1) == 3
    assert commit(shell, "g", "nothing", 0, 1) == 3


@pytest.mark.parametrize("group", ["", "a/b", "..", "."])
def test_a_group_that_cannot_be_a_node_is_refused(shell: Shell, group: str) -> None:
    assert commit(shell, group, "a", 0, 1) == 24
    assert fetch(shell, group, "a", 0) == (-1, 24)


def test_metadata_beyond_the_limit_is_refused(shell: Shell) -> None:
    assert commit(shell, "g", "a", 0, 1, "x" * 4097) == 12
