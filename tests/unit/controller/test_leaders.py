"""Which replica leads a partition, by the reason for the choice."""

from krust.controller.leaders import ElectionMode, LiveBrokers, elect
from krust.controller.state import Partition

LED_BY_TWO = Partition((1, 2, 3), 2, 5, (2, 3, 1), 7)


def test_the_live_replicas_of_a_new_partition_become_its_isr_and_the_first_leads() -> None:
    new = Partition((1, 2, 3), -1, 0, (1, 2, 3), -1)
    assert elect(new, LiveBrokers({2, 3}), ElectionMode.NEW) == Partition(
        (1, 2, 3), 2, 0, (2, 3), 0
    )
    assert elect(new, LiveBrokers({4}), ElectionMode.NEW) is new


def test_a_partition_whose_leader_is_alive_stays_as_it_is() -> None:
    assert elect(LED_BY_TWO, LiveBrokers({2}), ElectionMode.OFFLINE) is LED_BY_TWO


def test_the_first_live_replica_in_the_isr_leads_after_a_dead_leader() -> None:
    led = elect(LED_BY_TWO, LiveBrokers({1, 3}), ElectionMode.OFFLINE)
    assert led == Partition((1, 2, 3), 1, 6, (3, 1), 8)


def test_a_leaving_or_restarted_broker_leads_only_where_no_other_can() -> None:
    live = LiveBrokers({1, 3}, leaving={1})
    assert elect(LED_BY_TWO, live, ElectionMode.OFFLINE).leader == 3
    live = LiveBrokers({1, 3}, restarted={1})
    assert elect(LED_BY_TWO, live, ElectionMode.OFFLINE).leader == 3
    live = LiveBrokers({1}, leaving={1})
    assert elect(LED_BY_TWO, live, ElectionMode.OFFLINE).leader == 1


def test_a_restarted_leader_leads_in_a_new_epoch() -> None:
    alone = Partition((2,), 2, 5, (2,), 7)
    led = elect(alone, LiveBrokers({2}, restarted={2}), ElectionMode.OFFLINE)
    assert led == Partition((2,), 2, 6, (2,), 8)


def test_nobody_leads_and_the_isr_stays_when_all_of_the_isr_are_dead() -> None:
    led = elect(LED_BY_TWO, LiveBrokers(set()), ElectionMode.OFFLINE)
    assert led == Partition((1, 2, 3), -1, 6, (2, 3, 1), 8)
    assert elect(led, LiveBrokers(set()), ElectionMode.OFFLINE) is led


def test_the_preferred_replica_leads_only_if_it_is_in_sync_alive_and_staying() -> None:
    led = elect(LED_BY_TWO, LiveBrokers({1, 2, 3}), ElectionMode.PREFERRED)
    assert led == Partition((1, 2, 3), 1, 6, (2, 3, 1), 8)
    for live in (LiveBrokers({2, 3}), LiveBrokers({1, 2, 3}, leaving={1})):
        assert elect(LED_BY_TWO, live, ElectionMode.PREFERRED) is LED_BY_TWO
    behind = LED_BY_TWO._replace(isr=(2, 3))
    assert elect(behind, LiveBrokers({1, 2, 3}), ElectionMode.PREFERRED) is behind


def test_a_leader_that_shuts_down_leaves_the_isr_if_another_can_lead() -> None:
    led = elect(LED_BY_TWO, LiveBrokers({1, 2, 3}, leaving={2}), ElectionMode.SHUTDOWN)
    assert led == Partition((1, 2, 3), 1, 6, (3, 1), 8)
    assert elect(LED_BY_TWO, LiveBrokers({2}), ElectionMode.SHUTDOWN) is LED_BY_TWO
