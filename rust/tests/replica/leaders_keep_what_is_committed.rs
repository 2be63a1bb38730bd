//! What a leader proposes, when its high watermark rises, and when it must not.

use krust::broker::replica::leader::{
    FollowerFetch, IsrMember, LeaderReplica, Leadership, Moment, ProposalOutcome,
    ReplicationSettings,
};
use krust::ids::{Epoch, Offset};
use krust::protocol::ErrorCode;

const LAG_MS: i64 = 1_000;

fn members(replicas: &[i32]) -> Vec<IsrMember> {
    replicas.iter().map(|replica| IsrMember { replica: *replica, broker_epoch: 10 }).collect()
}

fn leadership(partition_epoch: i32, isr: &[i32]) -> Leadership {
    Leadership {
        leader_epoch: Epoch(5),
        partition_epoch,
        isr: members(isr),
        replicas: vec![0, 1, 2],
    }
}

fn at(log_end: i64, now_ms: i64) -> Moment {
    Moment { log_end: Offset(log_end), now_ms }
}

/// Broker 0 leads a log of 100 records, of which 90 are committed.
fn leader(isr: &[i32]) -> LeaderReplica {
    let settings = ReplicationSettings { lag_time_max_ms: LAG_MS, min_insync_replicas: 2 };
    LeaderReplica::new(0, leadership(1, isr), settings, Offset(90), at(100, 0)).0
}

fn fetch(replica: i32, offset: i64) -> FollowerFetch {
    FollowerFetch { replica, broker_epoch: 10, fetch_offset: Offset(offset), log_start: Offset(0) }
}

#[test]
fn the_high_watermark_is_the_lowest_end_of_the_in_sync_replicas() {
    let mut leader = leader(&[0, 1, 2]);
    let one = leader.follower_fetched(&fetch(1, 100), at(100, 1)).unwrap();
    assert_eq!(one.high_watermark, None, "replica 2 has not fetched");
    let two = leader.follower_fetched(&fetch(2, 95), at(100, 1)).unwrap();
    assert_eq!(two.high_watermark, Some(Offset(95)));
}

#[test]
fn a_leader_knows_its_high_watermark_once_it_covers_the_start_of_its_epoch() {
    let mut leader = leader(&[0, 1]);
    assert!(!leader.knows_high_watermark());
    leader.brokers_changed(&[0, 1], at(100, 0));
    leader.follower_fetched(&fetch(1, 100), at(110, 1)).unwrap();
    assert!(leader.knows_high_watermark());
}

#[test]
fn a_follower_joins_only_from_the_start_of_the_epoch_on() {
    let mut leader = leader(&[0, 1]);
    let behind = leader.follower_fetched(&fetch(2, 99), at(100, 1)).unwrap();
    assert_eq!(behind.propose, None);
    let level = leader.follower_fetched(&fetch(2, 100), at(100, 2)).unwrap();
    assert_eq!(level.propose.unwrap().isr, members(&[0, 1, 2]));
    assert_eq!(leader.maximal_isr(), [0, 1, 2]);
}

#[test]
fn a_silent_follower_counts_until_the_controller_confirms_its_removal() {
    let mut leader = leader(&[0, 1, 2]);
    leader.follower_fetched(&fetch(1, 100), at(100, LAG_MS)).unwrap();
    let proposed = leader.tick(at(100, LAG_MS + 1)).propose.unwrap();
    assert_eq!(proposed.isr, members(&[0, 1]));
    assert_eq!(leader.high_watermark(), Offset(90));
    let outcome = ProposalOutcome::Committed(leadership(2, &[0, 1]));
    let effects = leader.proposal_ended(&proposed, outcome, at(100, LAG_MS + 2));
    assert_eq!(effects.high_watermark, Some(Offset(100)));
}

#[test]
fn an_unknown_outcome_keeps_the_maximal_set_and_repeats_the_same_proposal() {
    let mut leader = leader(&[0, 1]);
    let joins = leader.follower_fetched(&fetch(2, 100), at(100, 1)).unwrap().propose.unwrap();
    leader.proposal_ended(&joins, ProposalOutcome::Unknown, at(100, 2));
    assert_eq!(leader.maximal_isr(), [0, 1, 2]);
    assert_eq!(leader.tick(at(100, 3)).propose, Some(joins));
}

#[test]
fn a_refusal_of_the_only_copy_ends_the_proposal_in_the_words_of_any_version() {
    for error in [ErrorCode::IneligibleReplica, ErrorCode::OperationNotAttempted] {
        let mut leader = leader(&[0, 1]);
        let joins = leader.follower_fetched(&fetch(2, 100), at(100, 1)).unwrap().propose.unwrap();
        leader.proposal_ended(&joins, ProposalOutcome::Refused(error), at(100, 2));
        assert_eq!(leader.maximal_isr(), [0, 1]);
        let again = FollowerFetch { broker_epoch: 11, ..fetch(2, 100) };
        let soon = leader.follower_fetched(&again, at(100, 3)).unwrap();
        assert_eq!(soon.propose, None, "the controller would be asked at each Fetch");
        let later = leader.follower_fetched(&again, at(100, 2 + LAG_MS / 10)).unwrap();
        let joins = later.propose.unwrap();
        assert!(joins.isr.contains(&IsrMember { replica: 2, broker_epoch: 11 }));
    }
}

/// Brokers 0 and 1 are in sync. The addition of 2 was sent twice, and one copy was refused.
fn leader_with_a_copy_on_its_way() -> LeaderReplica {
    let mut leader = leader(&[0, 1]);
    let joins = leader.follower_fetched(&fetch(2, 100), at(100, 1)).unwrap().propose.unwrap();
    leader.proposal_ended(&joins, ProposalOutcome::Unknown, at(100, 2));
    leader.tick(at(100, 3)).propose.unwrap();
    let refused = ProposalOutcome::Refused(ErrorCode::IneligibleReplica);
    leader.proposal_ended(&joins, refused, at(100, 4));
    leader
}

#[test]
fn a_refused_replica_counts_while_a_copy_of_its_addition_may_be_on_its_way() {
    let mut leader = leader_with_a_copy_on_its_way();
    assert_eq!(leader.maximal_isr(), [0, 1, 2]);
    leader.brokers_changed(&[0, 1], at(110, 5));
    let effects = leader.follower_fetched(&fetch(1, 110), at(110, 5 + LAG_MS)).unwrap();
    assert_eq!(effects.high_watermark, Some(Offset(100)), "replica 2 ends there");
}

#[test]
fn the_state_is_written_anew_so_that_no_copy_of_a_refused_addition_can_be() {
    let mut leader = leader_with_a_copy_on_its_way();
    let proposed = leader.tick(at(100, 5)).propose.unwrap();
    assert_eq!(
        (proposed.partition_epoch, &proposed.isr),
        (1, &members(&[1, 0])),
        "another order: Kafka"
    );
    let committed = ProposalOutcome::Committed(leadership(2, &[1, 0]));
    leader.proposal_ended(&proposed, committed, at(100, 6));
    assert_eq!(leader.maximal_isr(), [0, 1]);
    assert_eq!(leader.tick(at(100, 7)).propose, None);
}

#[test]
fn a_controller_that_writes_no_state_anew_does_not_keep_a_follower_out() {
    let mut leader = leader_with_a_copy_on_its_way();
    let proposed = leader.tick(at(100, 5)).propose.unwrap();
    let unchanged = ProposalOutcome::Committed(leadership(1, &[0, 1]));
    leader.proposal_ended(&proposed, unchanged, at(100, 6));
    assert_eq!(leader.maximal_isr(), [0, 1, 2]);
    let later = leader.follower_fetched(&fetch(2, 100), at(100, LAG_MS)).unwrap();
    assert_eq!(later.propose.unwrap().isr, members(&[0, 1, 2]));
}

#[test]
fn a_member_whose_broker_registered_again_leaves_and_may_join_again() {
    let mut leader = leader(&[0, 1, 2]);
    leader.follower_fetched(&fetch(1, 100), at(100, 1)).unwrap();
    leader.follower_fetched(&fetch(2, 100), at(100, 1)).unwrap();
    let again = FollowerFetch { broker_epoch: 11, ..fetch(2, 100) };
    leader.follower_fetched(&again, at(100, 2)).unwrap();
    let leaves = leader.tick(at(100, 3)).propose.unwrap();
    assert_eq!(leaves.isr, members(&[0, 1]));
    let committed = ProposalOutcome::Committed(leadership(2, &[0, 1]));
    leader.proposal_ended(&leaves, committed, at(100, 4));
    let joins = leader.follower_fetched(&again, at(100, 5)).unwrap().propose.unwrap();
    assert!(joins.isr.contains(&IsrMember { replica: 2, broker_epoch: 11 }));
}

#[test]
fn the_high_watermark_stands_still_below_the_minimum_of_in_sync_replicas() {
    let mut leader = leader(&[0]);
    assert_eq!(leader.tick(at(200, 1)).high_watermark, None);
    assert!(!leader.has_enough_in_sync());
}

#[test]
fn the_minimum_is_never_more_than_there_are_replicas() {
    let settings = ReplicationSettings { lag_time_max_ms: LAG_MS, min_insync_replicas: 2 };
    let alone = Leadership { replicas: vec![0], ..leadership(1, &[0]) };
    let (leader, effects) = LeaderReplica::new(0, alone, settings, Offset(90), at(100, 0));
    assert!(leader.has_enough_in_sync());
    assert_eq!(effects.high_watermark, Some(Offset(100)));
}

#[test]
fn an_earlier_registration_of_a_follower_is_refused() {
    let mut leader = leader(&[0, 1]);
    leader.follower_fetched(&fetch(1, 100), at(100, 1)).unwrap();
    let stale = FollowerFetch { broker_epoch: 9, ..fetch(1, 100) };
    let refused = leader.follower_fetched(&stale, at(100, 2));
    assert_eq!(refused, Err(ErrorCode::NotLeaderOrFollower));
}

#[test]
fn progress_of_a_new_registration_does_not_count_for_the_membership_of_the_old_one() {
    let mut leader = leader(&[0, 1]);
    let again = FollowerFetch { broker_epoch: 11, ..fetch(1, 100) };
    let effects = leader.follower_fetched(&again, at(100, 1)).unwrap();
    assert_eq!(effects.high_watermark, None);
}

#[test]
fn a_member_of_unknown_registration_is_named_by_its_first_fetch() {
    let unnamed = |replica| IsrMember { replica, broker_epoch: -1 };
    let chosen = Leadership { isr: vec![unnamed(0), unnamed(1)], ..leadership(1, &[]) };
    let settings = ReplicationSettings { lag_time_max_ms: LAG_MS, min_insync_replicas: 2 };
    let (mut leader, _) = LeaderReplica::new(0, chosen, settings, Offset(0), at(100, 0));
    let first = leader.follower_fetched(&fetch(1, 90), at(100, 1)).unwrap();
    assert_eq!(first.high_watermark, Some(Offset(90)));
    let again = FollowerFetch { broker_epoch: 11, ..fetch(1, 100) };
    let effects = leader.follower_fetched(&again, at(100, 2)).unwrap();
    assert_eq!(effects.high_watermark, None, "records that it lost are copied again, not kept");
    assert_eq!(leader.tick(at(100, 3)).propose.unwrap().isr, [unnamed(0)]);
}

#[test]
fn an_older_state_of_the_partition_changes_nothing() {
    let mut leader = leader(&[0, 1, 2]);
    leader.assigned(leadership(7, &[0, 1]), at(100, 1));
    leader.assigned(leadership(6, &[0, 1, 2]), at(100, 2));
    assert_eq!(leader.leadership(), &leadership(7, &[0, 1]));
}

#[test]
fn a_follower_under_steady_load_is_caught_up_though_never_at_the_end() {
    let mut leader = leader(&[0, 1]);
    for step in 1..50_i64 {
        let now_ms = step * LAG_MS / 5;
        let fetched = fetch(1, 100 + (step - 1) * 10);
        leader.follower_fetched(&fetched, at(100 + step * 10, now_ms)).unwrap();
        assert_eq!(leader.tick(at(100 + step * 10, now_ms)).propose, None, "step {step}");
    }
}

#[test]
fn deleted_records_are_gone_when_the_slowest_live_replica_has_dropped_them() {
    let mut leader = leader(&[0, 1, 2]);
    let start =
        |replica, log_start| FollowerFetch { log_start: Offset(log_start), ..fetch(replica, 100) };
    leader.follower_fetched(&start(1, 40), at(100, 1)).unwrap();
    leader.follower_fetched(&start(2, 20), at(100, 1)).unwrap();
    assert_eq!(leader.low_watermark(Offset(50)), Offset(20));
    leader.brokers_changed(&[0, 1], at(100, 2));
    assert_eq!(leader.low_watermark(Offset(50)), Offset(40));
}
