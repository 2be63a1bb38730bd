//! A follower's Fetch is served on the listener of brokers, and only if its log agrees with the
//! leader's.

use krust::broker::Settings;
use krust::broker::quotas::{EntityName, QuotaEntity, QuotaLimits};
use krust::broker::{MetadataDelta, ReplicaRole};

use crate::double::TestBroker;
use crate::records::{batch, produce, produced, put};
use crate::replicas::{
    ALL, EPOCH, FollowerAnswer, FollowerFetch, PartitionAssignment, alive, leader, marks, partition,
};

const TOPIC_AUTHORIZATION_FAILED: i16 = 29;

#[test]
fn a_client_cannot_pass_for_a_follower() {
    let mut fixture = TestBroker::with(Settings {
        inter_broker_listener: Some("INTERNAL".into()),
        ..Settings::default()
    });
    alive(&mut fixture, &ALL);
    PartitionAssignment::default().to(&mut fixture);
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    for version in [4, 11, 14, 15, 17] {
        for replica in [1, 2] {
            let fetch = FollowerFetch { version, ..FollowerFetch::at(replica, 1) };
            let answer = fetch.ask(&mut fixture, &mut conn);
            assert_eq!((answer.error, answer.bytes), (TOPIC_AUTHORIZATION_FAILED, 0));
        }
    }
    assert_eq!(marks(&fixture), (1, 0));
}

#[test]
fn other_leader_epochs_are_fenced_or_unknown() {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    for (leader_epoch, error) in [(EPOCH - 1, 74), (EPOCH + 1, 75)] {
        for replica in [1, 2] {
            let fetch = FollowerFetch { leader_epoch, ..FollowerFetch::at(replica, 1) };
            assert_eq!(fetch.ask(&mut fixture, &mut conn).error, error);
        }
    }
    assert_eq!(marks(&fixture), (1, 0), "what they have does not count");
}

#[test]
fn a_follower_whose_log_diverges_is_told_where_and_counts_for_nothing() {
    let mut fixture =
        leader(&PartitionAssignment { leader_epoch: 3, ..PartitionAssignment::default() });
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a", "b"]))), (0, 0));
    PartitionAssignment { partition_epoch: 8, ..PartitionAssignment::default() }.to(&mut fixture);
    let ask = |fixture: &mut _, conn: &mut _, (offset, last_epoch)| {
        FollowerFetch { last_epoch, ..FollowerFetch::at(1, offset) }.ask(fixture, conn)
    };
    let answer = ask(&mut fixture, &mut conn, (3, 4));
    assert_eq!((answer.error, answer.bytes, answer.diverging), (0, 0, (3, 2)));
    let answer = ask(&mut fixture, &mut conn, (3, 3));
    assert_eq!((answer.error, answer.bytes, answer.diverging), (0, 0, (3, 2)));
    FollowerFetch { last_epoch: 3, ..FollowerFetch::at(2, 2) }.ask(&mut fixture, &mut conn);
    assert_eq!(marks(&fixture), (2, 0));
    let answer = ask(&mut fixture, &mut conn, (2, 3));
    assert_eq!((answer.error, answer.diverging), (0, (-1, -1)));
    assert_eq!(marks(&fixture), (2, 2));
}

#[test]
fn offsets_beyond_the_log_are_out_of_range_and_count_for_nothing() {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    for (replica, offset) in [(1, 2), (2, 9), (2, -1)] {
        let fetch = FollowerFetch { last_epoch: -1, ..FollowerFetch::at(replica, offset) };
        assert_eq!(fetch.ask(&mut fixture, &mut conn).error, 1);
    }
    assert_eq!(marks(&fixture), (1, 0));
}

#[test]
fn a_follower_in_a_session_counts_for_the_partitions_that_it_does_not_name() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let mut conn = fixture.connect();
    let begin = FollowerFetch { session: (0, 0), ..FollowerFetch::at(1, 0) };
    let session = begin.ask(&mut fixture, &mut conn).session;
    let next = FollowerFetch { session: (session, 1), names: false, ..begin };
    fixture.clock.advance(crate::replicas::LAG_MS);
    assert_eq!(
        next.ask(&mut fixture, &mut conn),
        FollowerAnswer { session, ..FollowerAnswer::default() }
    );
    fixture.clock.advance(crate::replicas::LAG_MS);
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    fixture.broker.tick_replication();
    let proposed = crate::replicas::proposals(&fixture);
    assert!(proposed.is_empty(), "it had everything until now: {proposed:?}");
}

#[test]
fn no_quota_of_clients_holds_a_follower_up() {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    let records = batch(&[&"a".repeat(100_000)]);
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &records)), (0, 0));
    let limits = QuotaLimits { consumer_byte_rate: Some(1.0), ..QuotaLimits::default() };
    let clients = QuotaEntity { client_id: Some(EntityName::Default), ..QuotaEntity::default() };
    let quotas = Some(vec![(clients, limits)]);
    fixture.apply(MetadataDelta { quotas, ..MetadataDelta::default() });
    for _ in 0..3 {
        let answer = FollowerFetch::at(1, 0).ask(&mut fixture, &mut conn);
        assert!(answer.bytes > 100_000);
        assert_eq!(conn.muted_ms, 0);
    }
}

#[test]
fn a_broker_that_follows_takes_no_records() {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    let old = fixture.broker.image();
    PartitionAssignment {
        leader: 1,
        leader_epoch: 6,
        partition_epoch: 8,
        ..PartitionAssignment::default()
    }
    .to(&mut fixture);
    assert_eq!(partition(&fixture).role(), ReplicaRole::Follower);
    let request = produce(9, 1, &batch(&["a"]));
    let reply = fixture.ask(&mut conn, &request);
    assert_eq!(produced(9, &reply), (6, -1));
    let log = &old.topics().next().unwrap().partition(0).unwrap().local.as_ref().unwrap().log;
    let refused = log.append_as_leader(&batch(&["a"])).unwrap_err();
    assert_eq!(refused.to_string(), "another broker leads the partition");
    assert_eq!(FollowerFetch::at(2, 0).ask(&mut fixture, &mut conn).error, 6);
}

#[test]
fn a_tool_that_compares_replicas_reads_any_of_them_to_its_end() {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    let tool = FollowerFetch { leader_epoch: -1, ..FollowerFetch::at(-2, 0) };
    assert!(tool.ask(&mut fixture, &mut conn).bytes > 0);
    PartitionAssignment {
        leader: 1,
        leader_epoch: 6,
        partition_epoch: 8,
        ..PartitionAssignment::default()
    }
    .to(&mut fixture);
    for version in [11, 17] {
        let answer = FollowerFetch { version, ..tool }.ask(&mut fixture, &mut conn);
        assert_eq!((answer.error, answer.bytes > 0), (0, true));
    }
    let consumer = FollowerFetch { replica: -1, ..tool };
    let answer = consumer.ask(&mut fixture, &mut conn);
    assert_eq!((answer.error, answer.bytes), (0, 0), "nothing is committed");
    let consumer = FollowerFetch { version: 10, ..consumer };
    assert_eq!(consumer.ask(&mut fixture, &mut conn).error, 6);
}
