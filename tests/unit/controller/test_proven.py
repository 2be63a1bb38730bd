"""What logs prove bounds what the tree hands out."""

from krust.controller import proven
from krust.metadata import znodes
from tests.unit.controller.nodes import Nodes
from tests.unit.controller.shell import Shell


def allocated(shell: Shell) -> int:
    answer = shell.ask("AllocateProducerIds", {"broker_id": 0})
    assert answer["error_code"] == 0
    first: int = answer["producer_id_start"]
    return first


def test_the_next_block_begins_above_every_id_that_a_log_names() -> None:
    shell = Shell()
    shell.run(proven.bring(shell.state, 5001, []))
    assert allocated(shell) == 5001
    shell.run(proven.bring(shell.state, 5001, []))
    assert allocated(shell) == 6001


def test_few_ids_in_the_logs_are_enough() -> None:
    shell = Shell()
    shell.run(proven.bring(shell.state, 1, []))
    assert allocated(shell) == 1


def test_where_no_log_names_an_id_the_first_is_0() -> None:
    shell = Shell()
    shell.run(proven.bring(shell.state, 0, []))
    assert allocated(shell) == 0


def test_any_broker_of_a_cluster_raises_the_next_block() -> None:
    nodes = Nodes(0, 1)
    other = next(each for each in nodes.members.values() if each is not nodes.leader)
    other.run(proven.bring(other.state, 3000, []))
    assert any("new ones go on at 3000" in line for line in other.lines)
    block = nodes.node(znodes.PRODUCER_IDS)
    assert block == '{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    answer = nodes.leader.ask("AllocateProducerIds", {"broker_id": nodes.leader.id})
    assert answer["producer_id_start"] == 3000


def test_a_leader_epoch_is_raised_above_that_of_its_log() -> None:
    shell = Shell()
    shell.create("a", 3)
    shell.run(proven.bring(shell.state, 0, [("a", 1, 7), ("a", 9, 7), ("gone", 0, 7)]))
    assert [each.leader_epoch for each in shell.state.topics["a"].partitions] == [0, 8, 0]
    shell.store.close()
    again = Shell(tree=shell.tree)
    assert again.state.topics["a"].partitions[1].leader_epoch >= 8


def test_who_is_not_the_controller_says_that_its_log_is_ahead() -> None:
    nodes = Nodes(0, 1)
    leader = nodes.leader
    assert leader.create("a", 2)["error_code"] == 0
    other = next(each for each in nodes.members.values() if each is not leader)
    other.state.put(leader.state.topics["a"])
    other.run(proven.bring(other.state, 0, [("a", 0, 7)]))
    said = "the log of a-0 has leader epoch 7, the controller says 0; records get 7"
    assert said in other.lines
    assert other.state.topics["a"].partitions[0].leader_epoch == 0
