"""Producer ids and leader epochs in the logs are lower bounds for those in the tree."""

from krust.controller import recovered_ids
from krust.metadata import znodes
from tests.unit.controller.nodes import Nodes
from tests.unit.controller.runtime import Runtime


def allocated(runtime: Runtime) -> int:
    answer = runtime.ask("AllocateProducerIds", {"broker_id": 0})
    assert answer["error_code"] == 0
    first: int = answer["producer_id_start"]
    return first


def test_the_next_block_begins_above_every_id_that_a_log_names() -> None:
    runtime = Runtime()
    runtime.run(recovered_ids.raise_in_tree(runtime.state, 5001, []))
    assert allocated(runtime) == 5001
    runtime.run(recovered_ids.raise_in_tree(runtime.state, 5001, []))
    assert allocated(runtime) == 6001


def test_a_few_producer_ids_in_the_logs_raise_the_next_block() -> None:
    runtime = Runtime()
    runtime.run(recovered_ids.raise_in_tree(runtime.state, 1, []))
    assert allocated(runtime) == 1


def test_where_no_log_names_an_id_the_first_is_0() -> None:
    runtime = Runtime()
    runtime.run(recovered_ids.raise_in_tree(runtime.state, 0, []))
    assert allocated(runtime) == 0


def test_any_broker_of_a_cluster_raises_the_next_block() -> None:
    nodes = Nodes(0, 1)
    other = next(each for each in nodes.members.values() if each is not nodes.leader)
    other.run(recovered_ids.raise_in_tree(other.state, 3000, []))
    assert any("new ones go on at 3000" in line for line in other.lines)
    block = nodes.node(znodes.PRODUCER_IDS)
    assert block == '{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    answer = nodes.leader.ask("AllocateProducerIds", {"broker_id": nodes.leader.id})
    assert answer["producer_id_start"] == 3000


def test_a_leader_epoch_is_raised_above_that_of_its_log() -> None:
    runtime = Runtime()
    runtime.create("a", 3)
    runtime.run(
        recovered_ids.raise_in_tree(runtime.state, 0, [("a", 1, 7), ("a", 9, 7), ("gone", 0, 7)])
    )
    assert [each.leader_epoch for each in runtime.state.topics["a"].partitions] == [0, 8, 0]
    runtime.store.close()
    again = Runtime(tree=runtime.tree)
    assert again.state.topics["a"].partitions[1].leader_epoch >= 8


def test_a_broker_reports_to_the_controller_that_its_log_is_ahead() -> None:
    nodes = Nodes(0, 1)
    leader = nodes.leader
    assert leader.create("a", 2)["error_code"] == 0
    other = next(each for each in nodes.members.values() if each is not leader)
    other.state.put(leader.state.topics["a"])
    other.run(recovered_ids.raise_in_tree(other.state, 0, [("a", 0, 7)]))
    said = "the log of a-0 has leader epoch 7, the controller says 0; records get 7"
    assert said in other.lines
    assert other.state.topics["a"].partitions[0].leader_epoch == 0
