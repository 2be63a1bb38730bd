//! acks=all needs min(`min.insync.replicas`, replicas) replicas in sync: before the append, else
//! NOT_ENOUGH_REPLICAS (19), and until it is committed, else NOT_ENOUGH_REPLICAS_AFTER_APPEND (20).

use crate::double::until;
use crate::records::{batch, produce, produced, put};
use crate::replicas::{FollowerFetch, PartitionAssignment, leader, marks};

#[test]
fn nothing_is_appended_where_too_few_are_in_sync() {
    let mut assigned = PartitionAssignment {
        isr: vec![0, 1],
        min_insync_replicas: 3,
        ..PartitionAssignment::default()
    };
    let mut fixture = leader(&assigned);
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &batch(&["a"]))), (19, -1));
    assert_eq!(marks(&fixture), (0, 0));
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    for replica in [1, 2] {
        FollowerFetch::at(replica, 1).ask(&mut fixture, &mut conn);
    }
    assert_eq!(marks(&fixture), (1, 0), "nothing is committed by fewer than that");
    assigned.min_insync_replicas = 2;
    assigned.to(&mut fixture);
    assert_eq!(marks(&fixture), (1, 1));
}

#[test]
fn a_partition_needs_no_more_than_its_replicas() {
    let assigned = PartitionAssignment {
        isr: vec![0, 1],
        replicas: vec![0, 1],
        min_insync_replicas: 9,
        ..PartitionAssignment::default()
    };
    let mut fixture = leader(&assigned);
    let (mut client, mut follower) = (fixture.connect(), fixture.connect());
    let request = produce(9, -1, &batch(&["a"]));
    fixture.event(&mut client, std::slice::from_ref(&request.bytes));
    until("nothing is stored", || marks(&fixture).0 == 1);
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut follower);
    fixture.turn_until_sent(&mut client);
    assert_eq!(produced(9, &client.reply(&request)), (0, 0));
    PartitionAssignment { isr: vec![0], replicas: vec![0], partition_epoch: 9, ..assigned }
        .to(&mut fixture);
    assert_eq!(put(&mut fixture, &mut client, (9, -1, &batch(&["a"]))), (0, 1));
}

#[test]
fn a_request_that_waits_fails_when_the_in_sync_set_shrinks_under_it() {
    let assigned = PartitionAssignment {
        isr: vec![0, 1],
        min_insync_replicas: 2,
        ..PartitionAssignment::default()
    };
    let mut fixture = leader(&assigned);
    let mut conn = fixture.connect();
    let request = produce(9, -1, &batch(&["a"]));
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    until("nothing is stored", || marks(&fixture).0 == 1);
    assert!(conn.is_waiting());
    PartitionAssignment { isr: vec![0], partition_epoch: 8, ..assigned.clone() }.to(&mut fixture);
    fixture.turn_until_sent(&mut conn);
    assert_eq!(produced(9, &conn.reply(&request)), (20, -1));
    assert_eq!(marks(&fixture), (1, 0), "it stays in the log");
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &batch(&["a"]))), (19, -1));
}

#[test]
fn a_request_does_not_outlive_the_term_of_its_leader() {
    let assigned = PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() };
    let mut fixture = leader(&assigned);
    let (mut client, mut follower) = (fixture.connect(), fixture.connect());
    let request = produce(9, -1, &batch(&["a"]));
    fixture.event(&mut client, std::slice::from_ref(&request.bytes));
    until("nothing is stored", || marks(&fixture).0 == 1);
    let next = PartitionAssignment { leader_epoch: 6, partition_epoch: 8, ..assigned };
    PartitionAssignment { leader: 1, ..next.clone() }.to(&mut fixture);
    PartitionAssignment { leader_epoch: 7, partition_epoch: 9, ..next }.to(&mut fixture);
    FollowerFetch { leader_epoch: 7, ..FollowerFetch::at(1, 1) }.ask(&mut fixture, &mut follower);
    assert_eq!(marks(&fixture), (1, 1), "in the next term it is committed");
    fixture.turn_until_sent(&mut client);
    assert_eq!(produced(9, &client.reply(&request)), (6, -1), "but others may have been instead");
}
