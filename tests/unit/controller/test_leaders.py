"""Which replica leads a partition, by the reason for the choice."""

from itertools import product

from krust.controller.entities import Partition
from krust.controller.leaders import ElectionMode, LiveBrokers, Risk, Rules, elect, risk

LED_BY_TWO = Partition((1, 2, 3), 2, 5, (2, 3, 1), 7)


def test_the_live_replicas_of_a_new_partition_become_its_isr_and_the_first_leads() -> None:
    new = Partition((1, 2, 3), -1, 0, (1, 2, 3), -1)
    assert elect(new, LiveBrokers({2, 3}), ElectionMode.NEW) == Partition(
        (1, 2, 3), 2, 0, (2, 3), 0
    )
    assert elect(new, LiveBrokers({4}), ElectionMode.NEW) is new


def test_a_partition_whose_leader_is_alive_stays_as_it_is() -> None:
    assert elect(LED_BY_TWO, LiveBrokers({1, 2, 3}), ElectionMode.OFFLINE) is LED_BY_TWO


def test_dead_followers_leave_the_isr_in_a_new_epoch() -> None:
    led = elect(LED_BY_TWO, LiveBrokers({2, 3}), ElectionMode.OFFLINE)
    assert led == Partition((1, 2, 3), 2, 6, (2, 3), 8)


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


def test_the_first_replica_does_not_lead_while_it_may_have_lost_records() -> None:
    waits = Partition((1, 2), -1, 5, (1, 2), 7, lossy=(1,))
    assert elect(waits, LiveBrokers({1, 3}), ElectionMode.PREFERRED) is waits
    led = Partition((1, 2), 2, 5, (1, 2), 7)
    assert elect(led, LiveBrokers({1, 2}, lossy={1}), ElectionMode.PREFERRED) is led


def test_members_that_may_have_lost_records_leave_the_isr_under_a_preferred_leader() -> None:
    led = elect(LED_BY_TWO, LiveBrokers({1, 2, 3}, lossy={3}), ElectionMode.PREFERRED)
    assert led == Partition((1, 2, 3), 1, 6, (2, 1), 8)
    led = elect(LED_BY_TWO, LiveBrokers({1, 2, 3}, {2}, lossy={3}), ElectionMode.SHUTDOWN)
    assert led == Partition((1, 2, 3), 1, 6, (1,), 8)
    moving = LED_BY_TWO._replace(removing=(2,))
    led = elect(moving, LiveBrokers({1, 2, 3}, lossy={1}), ElectionMode.REASSIGNED)
    assert (led.leader, led.isr) == (3, (2, 3))


def test_a_leader_that_may_have_lost_records_is_left_to_the_election_for_its_return() -> None:
    live = LiveBrokers({1, 2, 3}, {3}, lossy={2})
    assert elect(LED_BY_TWO, live, ElectionMode.SHUTDOWN) is LED_BY_TWO


def test_a_leader_that_shuts_down_leaves_the_isr_if_another_can_lead() -> None:
    led = elect(LED_BY_TWO, LiveBrokers({1, 2, 3}, leaving={2}), ElectionMode.SHUTDOWN)
    assert led == Partition((1, 2, 3), 1, 6, (3, 1), 8)
    assert elect(LED_BY_TWO, LiveBrokers({2}), ElectionMode.SHUTDOWN) is LED_BY_TWO


THREE = LiveBrokers({1, 2, 3}, keeping_elr={1, 2, 3})
TWO_NEEDED = Rules(min_isr=2)
ALONE = Partition((1, 2, 3), 1, 5, (1,), 7, elr=(2,))


def offline(
    partition: Partition, *alive: int, rules: Rules = TWO_NEEDED, **more: set[int]
) -> Partition:
    live = LiveBrokers(set(alive), keeping_elr={1, 2, 3}, **more)
    return elect(partition, live, ElectionMode.OFFLINE, rules)


def test_a_follower_that_was_registered_again_leaves_the_isr() -> None:
    led = offline(LED_BY_TWO, 1, 2, 3, restarted={3})
    assert (led.leader, led.isr, led.leader_epoch) == (2, (2, 1), 6)


def test_a_replica_that_leaves_a_too_small_isr_is_in_the_elr() -> None:
    led = offline(Partition((1, 2, 3), 1, 5, (1, 2), 7), 1, 3)
    assert (led.leader, led.isr, led.elr) == (1, (1,), (2,))
    wide = offline(Partition((1, 2, 3), 1, 5, (1, 2, 3), 7), 1, 2)
    assert (wide.isr, wide.elr) == ((1, 2), ())


def test_a_leader_that_does_not_hold_the_watermark_has_no_elr() -> None:
    live = LiveBrokers({1, 3}, keeping_elr={3})
    led = elect(Partition((1, 2, 3), 1, 5, (1, 2), 7), live, ElectionMode.OFFLINE, TWO_NEEDED)
    assert (led.leader, led.isr, led.elr) == (1, (1,), ())


def test_a_replica_of_the_elr_leads_where_none_of_the_isr_can() -> None:
    led = offline(ALONE, 2, 3)
    assert (led.leader, led.isr, led.elr) == (2, (2,), (1,))
    assert risk(ALONE, led, ()) is None


def test_an_elr_counts_only_while_the_isr_is_too_small() -> None:
    assert offline(ALONE, 2, 3, rules=Rules(min_isr=1)).leader == -1
    cleared = offline(ALONE, 1, 2, 3, rules=Rules(min_isr=1))
    assert (cleared.leader, cleared.elr) == (1, ())


def test_a_member_that_may_have_lost_records_leads_only_when_all_members_are_back() -> None:
    gone = offline(ALONE, 3)
    assert (gone.leader, gone.isr, gone.elr, gone.lossy) == (-1, (1,), (2,), ())
    marked = offline(gone, 1, 3, lossy={1})
    assert (marked.leader, marked.lossy) == (-1, (1,))
    assert offline(marked, 1, 3) is marked
    assert offline(marked, 2, 3).leader == 2
    led = offline(marked, 1, 2, 3, lossy={2})
    assert (led.leader, led.isr, led.elr, led.lossy) == (1, (1,), (), ())
    assert risk(marked, led, {2}) is Risk.LOSSY


def test_a_lossy_member_leaves_the_isr_and_the_elr_while_others_lead() -> None:
    led = offline(LED_BY_TWO, 1, 2, 3, lossy={3}, restarted={3})
    assert (led.leader, led.isr, led.lossy) == (2, (2, 1), ())
    led = offline(ALONE, 1, 2, 3, lossy={2})
    assert (led.leader, led.isr, led.elr) == (1, (1,), ())


def test_a_lone_replica_leads_again_after_an_unclean_stop_and_brokers_are_notified() -> None:
    alone = Partition((1,), 1, 5, (1,), 7)
    led = offline(alone, 1, restarted={1}, lossy={1})
    assert (led.leader, led.leader_epoch) == (1, 6)
    assert risk(alone, led, {1}) is Risk.LOSSY


def test_an_unclean_election_takes_any_live_replica_if_it_is_asked_for() -> None:
    gone = Partition((1, 2, 3), -1, 6, (1,), 8)
    assert offline(gone, 2, 3, rules=Rules(2)) is gone
    led = offline(gone, 2, 3, rules=Rules(2, unclean=True))
    assert (led.leader, led.isr, led.elr) == (2, (2,), ())
    assert risk(gone, led, ()) is Risk.UNCLEAN


def test_an_unclean_election_prefers_members_of_the_isr_that_may_have_lost_records() -> None:
    gone = Partition((1, 2, 3), -1, 6, (3, 2), 8, lossy=(3,))
    assert offline(gone, 1, 3, rules=Rules(2, unclean=True)).leader == 3


def test_brokers_that_leave_are_out_of_the_isr_of_partitions_that_they_follow() -> None:
    live = THREE._replace(leaving={3})
    led = elect(LED_BY_TWO, live, ElectionMode.SHUTDOWN, TWO_NEEDED)
    assert (led.leader, led.isr, led.elr) == (2, (2, 1), ())
    alone = Partition((3,), 3, 6, (3,), 8)
    assert elect(alone, live, ElectionMode.SHUTDOWN, TWO_NEEDED) is alone


def test_a_leader_that_is_to_be_removed_is_followed_by_a_replica_that_stays() -> None:
    moving = Partition((4, 3, 1), 1, 5, (1, 3, 4), 7, adding=(4,), removing=(1,))
    led = elect(moving, LiveBrokers({1, 3, 4}), ElectionMode.REASSIGNED)
    assert (led.leader, led.isr, led.leader_epoch) == (4, (1, 3, 4), 6)
    assert elect(led, LiveBrokers({1, 3, 4}), ElectionMode.REASSIGNED) is led


def test_a_leader_is_elected_from_what_is_left_for_any_members_and_any_faults() -> None:
    for alive, lossy, restarted in _FAULTS:
        before = Partition((1, 2, 3), 1, 5, (1, 2), 7, elr=(3,))
        rules = Rules(min_isr=3)
        led = offline(before, *alive, lossy=lossy & alive, restarted=restarted & alive, rules=rules)
        sound = alive - lossy
        if sound:
            assert led.leader in sound
            assert not lossy & set(led.isr)
        elif led.leader != -1:
            assert alive == {1, 2, 3}
        assert led.leader == -1 or led.leader in led.isr


_SUBSETS = [{n for n in (1, 2, 3) if bits >> n & 1} for bits in range(0, 16, 2)]
_FAULTS = list(product(_SUBSETS, _SUBSETS, _SUBSETS))
