"""A tree may hold anything: an invalid node is logged and affects only what it describes."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.controller import adoption, loading, registration
from krust.errors import ServerError
from krust.metadata import znodes
from krust.metadata.local import Tree
from krust.metadata.store import (
    LARGEST,
    Create,
    Delete,
    Query,
    Refusal,
    Result,
    SetData,
)
from tests.unit.controller.nodes import Nodes
from tests.unit.controller.runtime import NOW_MS, Runtime, write

ONE_QUOTA = b'{"version":1,"config":{"producer_byte_rate":"8"}}'
OWN = registration.Registration([("PLAINTEXT", "127.0.0.1", 19092)], None, NOW_MS)


@pytest.fixture
def tree() -> Iterator[Tree]:
    """A tree with two topics, whose broker is gone."""
    tree = Tree()
    runtime = Runtime(tree=tree)
    runtime.create("good", 2)
    runtime.create("bad", 2, retention_ms="1000")
    runtime.store.close()
    yield tree
    tree.close()


def test_a_topic_without_an_assignment_is_not_served_and_is_logged(tree: Tree) -> None:
    write(tree, SetData(znodes.topic("bad"), b'{"version":3,"partitions":{"99999999":[0]}}'))
    runtime = Runtime(tree=tree)
    assert set(runtime.state.topics) == {"good"}
    assert "not numbered from 0" in runtime.faults["/brokers/topics/bad"]
    assert runtime.create("bad")["error_message"] == "Topic 'bad' already exists."


def test_files_of_an_unreadable_topic_are_kept(tree: Tree) -> None:
    write(tree, SetData(znodes.topic("bad"), b"{"))
    runtime = Runtime(tree=tree, found=(adoption.LogOnDisk("bad", 0, "A" * 22, 3, clean=True),))
    assert set(runtime.state.topics) == {"good"}


def test_a_partition_with_an_unreadable_state_gets_a_new_one(tree: Tree) -> None:
    write(tree, SetData(znodes.state("bad", 1), b'{"version":1,"leader":"me"}'))
    found = adoption.LogOnDisk("bad", 1, "A" * 22, 7, clean=True)
    runtime = Runtime(tree=tree, found=(found,))
    assert "/brokers/topics/bad/partitions/1/state" in runtime.faults
    assert runtime.state.topics["bad"].partitions[0].leader_epoch == 0
    partition = runtime.state.topics["bad"].partitions[1]
    assert (partition.leader, partition.isr) == (0, (0,))
    assert partition.leader_epoch >= 7


def test_a_partition_that_never_got_a_state_gets_one(tree: Tree) -> None:
    write(
        tree,
        *(Delete(znodes.state("bad", index)) for index in (0, 1)),
        Delete("/brokers/topics/bad/partitions/0"),
        Delete("/brokers/topics/bad/partitions/1"),
        Delete("/brokers/topics/bad/partitions"),
    )
    runtime = Runtime(tree=tree)
    assert [each.leader for each in runtime.state.topics["bad"].partitions] == [0, 0]
    assert '"leader":0' in runtime.nodes("/brokers/topics/bad")[znodes.state("bad", 1)][0]


@pytest.mark.parametrize(
    "data", [b"{", b'{"version":9,"config":{}}', b'{"version":1,"config":{"retention.ms":"x"}}']
)
def test_unreadable_settings_delete_nothing(tree: Tree, data: bytes) -> None:
    write(tree, SetData(znodes.topic_config("bad"), data))
    runtime = Runtime(tree=tree)
    assert "/config/topics/bad" in runtime.faults
    values = runtime.state.topic_values(runtime.state.topics["bad"])
    assert (values["retention.ms"], values["retention.bytes"]) == (-1, -1)
    assert values["cleanup.policy"] == ["delete"]


def test_settings_that_are_unknown_here_are_kept(tree: Tree) -> None:
    write(tree, SetData(znodes.topic_config("bad"), b'{"version":1,"config":{"of.tomorrow":"1"}}'))
    runtime = Runtime(tree=tree)
    assert runtime.faults == {}
    pairs = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    resource = {"resource_type": 2, "resource_name": "good", "configs": pairs}
    runtime.ask("IncrementalAlterConfigs", {"resources": [resource], "validate_only": False})
    assert "of.tomorrow" not in runtime.state.topic_values(runtime.state.topics["bad"])
    assert '"of.tomorrow":"1"' in runtime.nodes("/config/topics/bad")["/config/topics/bad"][0]


def test_invalid_dynamic_broker_settings_are_ignored(tree: Tree) -> None:
    path = znodes.broker_config(znodes.DEFAULT_ENTITY)
    data = b'{"version":1,"config":{"log.retention.ms":"soon","message.max.bytes":"2000"}}'
    write(tree, Create(path, data))
    runtime = Runtime(tree=tree)
    assert path in runtime.faults
    assert runtime.state.broker_text("message.max.bytes") == "2000"
    assert runtime.state.broker_text("log.retention.ms") is None


def test_broker_settings_change_beside_one_that_is_unknown_here(tree: Tree) -> None:
    path = znodes.broker_config(znodes.DEFAULT_ENTITY)
    write(tree, Create(path, b'{"version":1,"config":{"of.tomorrow":"1"}}'))
    runtime = Runtime(tree=tree)
    pairs = [{"name": "message.max.bytes", "config_operation": 0, "value": "2000"}]
    resource = {"resource_type": 4, "resource_name": "", "configs": pairs}
    runtime.ask("IncrementalAlterConfigs", {"resources": [resource], "validate_only": False})
    assert runtime.state.broker_text("message.max.bytes") == "2000"
    assert '"of.tomorrow":"1"' in runtime.nodes(path)[path][0]


def test_an_invalid_topic_name_is_logged(tree: Tree) -> None:
    write(tree, Create("/brokers/topics/a b", b'{"version":1,"partitions":{"0":[0]}}'))
    runtime = Runtime(tree=tree)
    assert "/brokers/topics/a b" in runtime.faults
    assert set(runtime.state.topics) == {"good", "bad"}


def test_an_invalid_cluster_id_is_one_clear_error(tree: Tree) -> None:
    write(tree, SetData(znodes.CLUSTER_ID, b'{"version":"1"}'))
    with pytest.raises(ServerError, match="/cluster/id holds no cluster id: it has no id"):
        Runtime(tree=tree)


def test_topics_missing_from_the_tree_are_still_served(tree: Tree) -> None:
    runtime = Runtime(tree=tree)
    write(
        tree,
        *(Delete(znodes.state("bad", index)) for index in (0, 1)),
        *(Delete(f"/brokers/topics/bad/partitions/{index}") for index in (0, 1)),
        Delete("/brokers/topics/bad/partitions"),
        Delete("/brokers/topics/bad"),
    )
    runtime.run(loading.load(runtime.state))
    assert set(runtime.state.topics) == {"good", "bad"}
    assert "/brokers/topics/bad" in runtime.faults


def test_an_unreadable_tree_changes_nothing(tree: Tree) -> None:
    runtime = Runtime(tree=tree)
    runtime.store.close()
    with pytest.raises(ServerError, match="cannot be read"):
        runtime.run(loading.load(runtime.state))
    assert set(runtime.state.topics) == {"good", "bad"}


def test_topics_deleted_during_an_absence_are_not_restored(tree: Tree) -> None:
    runtime = Runtime(tree=tree)
    found = [adoption.LogOnDisk("gone", 0, "B" * 22, 1, clean=True)]
    runtime.run(adoption.adopt(runtime.state, found, unknown_too=False))
    assert "gone" not in runtime.state.topics


@given(st.binary(max_size=30), st.sampled_from(["topic", "config", "state", "brokers"]))
def test_no_content_of_a_node_prevents_the_start(data: bytes, kind: str) -> None:
    tree = Tree()
    runtime = Runtime(tree=tree)
    runtime.create("good")
    runtime.create("bad")
    runtime.store.close()
    path = {
        "topic": znodes.topic("bad"),
        "config": znodes.topic_config("bad"),
        "state": znodes.state("bad", 0),
        "brokers": znodes.broker_config("0"),
    }[kind]
    write(tree, Create(path, data) if kind == "brokers" else SetData(path, data))
    again = Runtime(tree=tree)
    assert "good" in again.state.topics
    assert again.state.topic_values(again.state.topics["good"])


LONGEST = "l" * 249


def test_a_topic_that_is_larger_than_one_list_is_read_and_deleted_in_pieces() -> None:
    count = LARGEST // 249
    runtime = Runtime()
    assert runtime.create(LONGEST, count)["error_code"] == 0
    assert len(runtime.state.topics[LONGEST].partitions) == count
    again = Runtime(tree=_left(runtime))
    assert [each.leader for each in again.state.topics[LONGEST].partitions] == [0] * count
    topics = [{"name": LONGEST, "topic_id": "A" * 22}]
    assert again.ask("DeleteTopics", {"topics": topics})["responses"][0]["error_code"] == 0
    assert again.nodes("/brokers/topics") == {"/brokers/topics": ("", False)}


def test_a_large_topic_is_made_and_deleted_where_others_use_the_tree() -> None:
    nodes = Nodes(0)
    member = nodes.leader
    count = LARGEST // 249
    assert member.create(LONGEST, count)["error_code"] == 0
    assert [each.leader for each in member.state.topics[LONGEST].partitions] == [0] * count
    member.ask("DeleteTopics", {"topics": [{"name": LONGEST, "topic_id": "A" * 22}]})
    assert nodes.children("/brokers/topics") == []


class _Withholding(Tree):
    """A tree that does not give one of its nodes."""

    withheld = ""

    def query(self, operation: Query) -> Result:
        if operation.path == self.withheld:
            return Refusal.NOT_ALLOWED
        return super().query(operation)


@pytest.mark.parametrize("path", [znodes.topic("bad"), znodes.state("bad", 1)])
def test_an_unreadable_topic_node_affects_only_its_topic(path: str) -> None:
    tree = _Withholding()
    runtime = Runtime(tree=tree)
    runtime.create("good")
    runtime.create("bad", 2)
    tree = _left(runtime)
    tree.withheld = path
    again = Runtime(tree=tree)
    assert set(again.state.topics) == {"good"}
    assert "the node's access list does not allow it" in again.faults[path]
    assert again.create("bad")["error_message"] == "Topic 'bad' already exists."


def test_settings_that_the_store_cannot_return_delete_nothing() -> None:
    tree = _Withholding()
    runtime = Runtime(tree=tree)
    runtime.create("good", retention_ms="1000")
    tree = _left(runtime)
    tree.withheld = znodes.topic_config("good")
    again = Runtime(tree=tree)
    assert again.state.topic_values(again.state.topics["good"])["retention.ms"] == -1


def test_a_partly_created_topic_is_completed_at_the_next_start() -> None:
    runtime = Runtime()
    outcome = runtime.controller.request(
        1,
        _create("half", 6000),
    )
    ((token, operations),) = outcome.submits
    runtime.store.submit(operations, token)
    runtime.store.close()
    again = Runtime(tree=runtime.tree)
    partitions = again.state.topics["half"].partitions
    assert [each.leader for each in partitions] == [0] * 6000


def _left(runtime: Runtime) -> Any:
    runtime.store.close()
    return runtime.tree


def _create(name: str, partitions: int) -> Any:
    from krust.controller.state import Request

    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return Request("CreateTopics", 7, {"topics": [topic], "validate_only": False}, {}, NOW_MS)


def test_another_session_with_the_same_broker_id_prevents_the_start(tree: Tree) -> None:
    first = Runtime(tree=tree)
    other = tree.session()
    state = first.state
    state.session = other.session
    with pytest.raises(ServerError, match="broker 0 is the controller of this cluster"):
        first.run(registration.claim(state, NOW_MS))
    with pytest.raises(ServerError, match=r"broker id 0 is taken .* by the one at 127\.0\.0\.1:19"):
        first.run(registration.announce(state, OWN))


def test_a_broker_takes_over_its_own_registration(tree: Tree) -> None:
    runtime = Runtime(tree=tree, shared=True)
    before = (
        runtime.state.controller_epoch,
        runtime.state.epoch_version,
        runtime.state.broker_epoch,
    )
    runtime.run(runtime.controller.recover(OWN))
    assert before == (
        runtime.state.controller_epoch,
        runtime.state.epoch_version,
        runtime.state.broker_epoch,
    )


def test_quotas_set_by_others_meanwhile_are_read_again(tree: Tree) -> None:
    runtime = Runtime(tree=tree)
    write(tree, Create(f"{znodes.CONFIG}/clients/app", ONE_QUOTA))
    assert not runtime.state.quotas
    runtime.run(runtime.controller.recover(OWN))
    assert runtime.state.quotas == {(("client-id", "app"),): {"producer_byte_rate": 8.0}}


def test_a_new_session_registers_with_a_new_epoch(tree: Tree) -> None:
    runtime = Runtime(tree=tree, shared=True)
    state = runtime.state
    before = (state.controller_epoch, state.broker_epoch)
    runtime.store.close()
    runtime.store = tree.session()
    state.session = runtime.store.session
    runtime.run(runtime.controller.recover(OWN))
    assert (state.controller_epoch, state.broker_epoch) > before
    assert state.broker_epoch > before[1]
    assert runtime.nodes("/brokers/ids")["/brokers/ids/0"][1]
    assert runtime.create("after")["error_code"] == 0


def test_without_a_connection_clients_get_a_retriable_error(tree: Tree) -> None:
    runtime = Runtime(tree=tree)
    runtime.store.close()
    result = runtime.create("late")
    assert result["error_code"] == 41
    assert Refusal.NOT_APPLIED.value in result["error_message"]
