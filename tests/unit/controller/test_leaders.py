"""Elections, reassignments, producer ids, and what a start takes over from the disk."""

import pytest

from krust.controller.adoption import KEEP, Found
from krust.controller.state import NO_TOPIC_ID
from krust.errors import ServerError
from krust.metadata.local import Tree
from tests.unit.controller.runtime import Runtime

ID = "PctXnh4jScWzv_Ab2ih1zQ"


def test_an_election_that_nobody_needs_is_refused() -> None:
    runtime = Runtime()
    runtime.create("a", 2)
    asked = [{"topic": "a", "partitions": [0, 5]}, {"topic": "nowhere", "partitions": [0]}]
    for kind in (0, 1):
        answer = runtime.ask("ElectLeaders", {"election_type": kind, "topic_partitions": asked})
        codes = [
            [each["error_code"] for each in result["partition_result"]]
            for result in answer["replica_election_results"]
        ]
        assert codes == [[84, 3], [3]]


def test_an_election_of_everything_tells_only_what_happened() -> None:
    runtime = Runtime()
    runtime.create("a", 2)
    answer = runtime.ask("ElectLeaders", {"election_type": 0, "topic_partitions": None})
    assert (answer["error_code"], answer["replica_election_results"]) == (0, [])


def test_a_kind_of_election_that_does_not_exist_is_refused() -> None:
    message = {"election_type": 7, "topic_partitions": None}
    assert Runtime().ask("ElectLeaders", message)["error_code"] == 42


def test_a_partition_without_a_leader_gets_its_preferred_one() -> None:
    runtime = Runtime()
    runtime.create("a")
    topic = runtime.state.topics["a"]
    partition = topic.partitions[0]._replace(leader=-1)
    runtime.state.put(topic._replace(partitions=(partition,)))
    asked = [{"topic": "a", "partitions": [0]}]
    runtime.ask("ElectLeaders", {"election_type": 0, "topic_partitions": asked})
    elected = runtime.state.topics["a"].partitions[0]
    assert (elected.leader, elected.leader_epoch, elected.version) == (0, 1, 1)
    assert '"leader_epoch":1' in runtime.nodes()["/brokers/topics/a/partitions/0/state"][0]


def test_replicas_stay_where_they_are_and_say_why() -> None:
    runtime = Runtime()
    runtime.create("a", 2)
    asked = [(0, [0]), (1, [1]), (1, [0, 1]), (0, []), (0, [0, 0]), (0, [-1]), (0, None), (2, [0])]
    body = [{"partition_index": index, "replicas": replicas} for index, replicas in asked]
    message = {"topics": [{"name": "a", "partitions": body}, {"name": "b", "partitions": body[:1]}]}
    answer = runtime.ask("AlterPartitionReassignments", message)
    assert answer["error_code"] == 0
    codes = [[each["error_code"] for each in one["partitions"]] for one in answer["responses"]]
    assert codes == [[0, 39, 39, 39, 39, 39, 85, 3], [3]]
    assert "not there yet" in answer["responses"][0]["partitions"][1]["error_message"]
    assert [each.replicas for each in runtime.state.topics["a"].partitions] == [(0,), (0,)]


def test_nothing_is_on_its_way() -> None:
    answer = Runtime().ask("ListPartitionReassignments", {"topics": None})
    assert (answer["error_code"], answer["topics"]) == (0, [])


def test_a_block_of_producer_ids_is_given_once() -> None:
    runtime = Runtime()
    firsts = []
    for _ in range(3):
        answer = runtime.ask("AllocateProducerIds", {"broker_id": 0, "broker_epoch": -1})
        assert (answer["error_code"], answer["producer_id_len"]) == (0, 1000)
        firsts.append(answer["producer_id_start"])
    assert firsts == [0, 1000, 2000]


def test_a_topic_on_disk_is_adopted_and_nothing_of_it_goes() -> None:
    found = (Found("old", 0, ID, 4, True), Found("old", 2, ID, -1, True))
    runtime = Runtime(found=found)
    topic = runtime.state.topics["old"]
    assert topic.id == ID
    assert [each.leader_epoch for each in topic.partitions] == [5, 0, 0]
    assert topic.config == KEEP
    values = runtime.state.topic_values(topic)
    assert (values["retention.ms"], values["retention.bytes"]) == (-1, -1)
    assert values["cleanup.policy"] == ["delete"]


def test_a_directory_without_an_id_gets_one() -> None:
    runtime = Runtime(found=(Found("old", 0, NO_TOPIC_ID, 0, True),))
    assert len(runtime.state.topics["old"].id) == 22


def test_kafkas_offsets_are_adopted_as_kafka_keeps_them() -> None:
    runtime = Runtime(found=(Found("__consumer_offsets", 0, ID, 0, True),))
    assert runtime.state.topics["__consumer_offsets"].config["cleanup.policy"] == "compact"


def test_directories_of_two_topics_of_one_name_stop_the_start() -> None:
    other = "oDA6zobiQ46rUASYVkbFrQ"
    with pytest.raises(ServerError, match="2 topics"):
        Runtime(found=(Found("a", 0, ID, 0, True), Found("a", 1, other, 0, True)))


@pytest.mark.parametrize(
    ("on_disk", "clean", "epoch"),
    [(0, True, 0), (0, False, 1), (3, True, 3), (3, False, 4), (-1, False, 1)],
)
def test_a_known_partition_is_led_in_an_epoch_the_disk_has_not_passed(
    on_disk: int, clean: bool, epoch: int
) -> None:
    tree = Tree()
    runtime = Runtime(tree=tree)
    topic_id = runtime.create("a")["topic_id"]
    runtime.store.close()
    again = Runtime(tree=tree, found=(Found("a", 0, topic_id, on_disk, clean),))
    assert again.state.topics["a"].partitions[0].leader_epoch == epoch
    stored = again.nodes()["/brokers/topics/a/partitions/0/state"][0]
    assert f'"leader_epoch":{epoch},' in stored


def test_a_directory_of_another_topic_of_that_name_stops_the_start() -> None:
    tree = Tree()
    runtime = Runtime(tree=tree)
    runtime.create("a")
    runtime.store.close()
    with pytest.raises(ServerError, match="on disk"):
        Runtime(tree=tree, found=(Found("a", 0, ID, 0, True),))


def test_each_start_is_a_new_term_of_the_controller() -> None:
    tree = Tree()
    first = Runtime(tree=tree)
    first.store.close()
    second = Runtime(tree=tree)
    assert (first.state.controller_epoch, second.state.controller_epoch) == (1, 2)
    assert first.state.cluster_id == second.state.cluster_id
