"""Offsets of the oldest consumers are znodes, where their own tools read them."""

from typing import Any

import pytest

from tests.unit.controller.runtime import Runtime


@pytest.fixture
def runtime() -> Runtime:
    runtime = Runtime()
    assert runtime.create("a", 2)["error_code"] == 0
    return runtime


def commit(
    runtime: Runtime, group: str, topic: str, partition: int, offset: int, note: str = ""
) -> int:
    one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": note}
    message = {"group_id": group, "topics": [{"name": topic, "partitions": [one]}]}
    answer = runtime.ask("OffsetCommit", message, 0)
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def fetch(runtime: Runtime, group: str, topic: str, partition: int) -> Any:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}
    (found,) = runtime.ask("OffsetFetch", asked, 0)["topics"][0]["partitions"]
    return found["committed_offset"], found["error_code"]


def test_the_last_commit_is_read_back_from_its_znode(runtime: Runtime) -> None:
    assert commit(runtime, "g", "a", 1, 5) == 0
    assert commit(runtime, "g", "a", 1, 7) == 0
    assert fetch(runtime, "g", "a", 1) == (7, 0)
    assert runtime.nodes("/consumers")["/consumers/g/offsets/a/1"] == ("7", False)


def test_a_partition_without_a_commit_has_no_offset(runtime: Runtime) -> None:
    assert fetch(runtime, "g", "a", 0) == (-1, 3)
    assert commit(runtime, "g", "a", 2, 1) == 3
    assert commit(runtime, "g", "nothing", 0, 1) == 3


@pytest.mark.parametrize("group", ["", "a/b", "..", "."])
def test_a_group_name_that_cannot_be_a_node_is_refused(runtime: Runtime, group: str) -> None:
    assert commit(runtime, group, "a", 0, 1) == 24
    assert fetch(runtime, group, "a", 0) == (-1, 24)


def test_metadata_beyond_the_limit_is_refused(runtime: Runtime) -> None:
    assert commit(runtime, "g", "a", 0, 1, "x" * 4097) == 12
