//! A follower that lags leaves the in-sync set, and one that caught up joins it, after the
//! controller has confirmed it.

use crate::records::{batch, put};
use crate::replicas::{
    FollowerFetch, LAG_MS, PartitionAssignment, alive, leader, marks, partition, proposal,
    proposals,
};

const INELIGIBLE_REPLICA: i64 = 107;
const INVALID_UPDATE_VERSION: i64 = 95;

#[test]
fn a_lagging_follower_leaves() {
    let mut fixture = leader(&PartitionAssignment::default());
    let (mut client, mut one) = (fixture.connect(), fixture.connect());
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    fixture.clock.advance(LAG_MS);
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut one);
    fixture.broker.tick_replication();
    assert!(proposals(&fixture).is_empty(), "it may lag for so long");
    fixture.clock.advance(1);
    fixture.broker.tick_replication();
    let proposed = proposal(&fixture);
    assert_eq!(proposed.ids(), [0, 1]);
    assert_eq!(marks(&fixture), (1, 0), "it counts until the controller has taken it out");
    fixture.broker.tick_replication();
    assert!(proposals(&fixture).is_empty(), "one proposal at a time");
    proposed.commit(&fixture, 8);
    assert_eq!(marks(&fixture), (1, 1));
}

#[test]
fn a_follower_that_caught_up_joins_under_its_registration() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let (mut client, mut one, mut two) = (fixture.connect(), fixture.connect(), fixture.connect());
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut one);
    FollowerFetch { broker_epoch: 41, ..FollowerFetch::at(2, 0) }.ask(&mut fixture, &mut two);
    assert!(proposals(&fixture).is_empty(), "it has nothing yet");
    FollowerFetch { broker_epoch: 42, ..FollowerFetch::at(2, 1) }.ask(&mut fixture, &mut two);
    let proposed = proposal(&fixture);
    assert_eq!(proposed.members, [(0, -1), (1, -1), (2, 42)]);
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["b"]))), (0, 1));
    FollowerFetch::at(1, 2).ask(&mut fixture, &mut one);
    assert_eq!(marks(&fixture), (2, 1), "who may have joined already counts");
    proposed.commit(&fixture, 8);
    assert!(proposals(&fixture).is_empty());
    FollowerFetch { broker_epoch: 42, ..FollowerFetch::at(2, 2) }.ask(&mut fixture, &mut two);
    assert_eq!(marks(&fixture), (2, 2));
}

#[test]
fn a_stale_registration_is_not_heard() {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    let ask = |fixture: &mut _, conn: &mut _, broker_epoch| {
        FollowerFetch { broker_epoch, ..FollowerFetch::at(1, 0) }.ask(fixture, conn).error
    };
    assert_eq!(ask(&mut fixture, &mut conn, 42), 0);
    assert_eq!(ask(&mut fixture, &mut conn, 41), 6, "NOT_LEADER_OR_FOLLOWER");
    assert_eq!(ask(&mut fixture, &mut conn, 42), 0);
    let stranger = FollowerFetch::at(9, 0).ask(&mut fixture, &mut conn);
    assert_eq!(stranger.error, 6, "it has no replica");
}

#[test]
fn a_proposal_whose_outcome_is_unknown_is_repeated() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let mut conn = fixture.connect();
    FollowerFetch::at(2, 0).ask(&mut fixture, &mut conn);
    proposal(&fixture).lose(&fixture);
    FollowerFetch::at(2, 0).ask(&mut fixture, &mut conn);
    crate::double::until("it is not repeated", || {
        let repeated = proposals(&fixture);
        repeated.iter().for_each(|each| each.refuse(&fixture, INVALID_UPDATE_VERSION));
        !repeated.is_empty()
    });
    crate::double::until("it is not repeated", || {
        let repeated = proposals(&fixture);
        repeated.iter().for_each(|each| each.commit(&fixture, 8));
        !repeated.is_empty()
    });
    fixture.broker.tick_replication();
    assert!(proposals(&fixture).is_empty());
}

#[test]
fn an_ineligible_replica_may_be_proposed_again_later() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let mut conn = fixture.connect();
    FollowerFetch { broker_epoch: 41, ..FollowerFetch::at(2, 0) }.ask(&mut fixture, &mut conn);
    proposal(&fixture).refuse(&fixture, INELIGIBLE_REPLICA);
    fixture.clock.advance(LAG_MS / 10);
    FollowerFetch { broker_epoch: 42, ..FollowerFetch::at(2, 0) }.ask(&mut fixture, &mut conn);
    assert_eq!(proposal(&fixture).members[2], (2, 42));
}

#[test]
fn proposals_wait_for_the_answer_to_those_before_them() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let mut conn = fixture.connect();
    FollowerFetch::at(2, 0).ask(&mut fixture, &mut conn);
    let first = proposal(&fixture);
    first.commit(&fixture, 8);
    first.commit(&fixture, 9);
    fixture.clock.advance(LAG_MS + 1);
    let mut client = fixture.connect();
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    fixture.broker.tick_replication();
    assert_eq!(proposal(&fixture).ids(), [0]);
}

#[test]
fn the_watermark_does_not_wait_for_a_dead_broker_outside_the_in_sync_set() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let (mut client, mut one, mut two) = (fixture.connect(), fixture.connect(), fixture.connect());
    FollowerFetch::at(1, 0).ask(&mut fixture, &mut one);
    FollowerFetch::at(2, 0).ask(&mut fixture, &mut two);
    proposal(&fixture).refuse(&fixture, INELIGIBLE_REPLICA);
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut one);
    assert_eq!(marks(&fixture), (1, 0), "it is caught up, and about to join");
    alive(&mut fixture, &[0, 1]);
    assert_eq!(marks(&fixture), (1, 1));
}

#[test]
fn the_controllers_newer_word_replaces_a_proposal() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let mut conn = fixture.connect();
    FollowerFetch::at(2, 0).ask(&mut fixture, &mut conn);
    let proposed = proposal(&fixture);
    PartitionAssignment { partition_epoch: 8, isr: vec![0], ..PartitionAssignment::default() }
        .to(&mut fixture);
    proposed.lose(&fixture);
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    assert!(!partition(&fixture).is_led_elsewhere());
    fixture.broker.tick_replication();
    assert!(proposals(&fixture).is_empty());
}
