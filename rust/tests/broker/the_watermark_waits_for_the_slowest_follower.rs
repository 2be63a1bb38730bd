//! The high watermark is the lowest log end of the in-sync replicas, and acks=all waits for it.

use crate::records::{Fetch, TOPIC, batch, fetched, get, produce, produced, put};
use crate::replicas::{FollowerFetch, PartitionAssignment, leader, marks};

#[test]
fn records_are_committed_once_the_slowest_in_sync_follower_has_them() {
    let mut fixture = leader(&PartitionAssignment::default());
    let (mut client, mut one, mut two) = (fixture.connect(), fixture.connect(), fixture.connect());
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    let all = produce(9, -1, &batch(&["b", "c"]));
    fixture.event(&mut client, std::slice::from_ref(&all.bytes));
    assert_eq!(marks(&fixture), (3, 0));

    let answer = FollowerFetch::at(1, 0).ask(&mut fixture, &mut one);
    assert_eq!((answer.error, answer.high_watermark, answer.bytes > 0), (0, 0, true));
    FollowerFetch::at(1, 3).ask(&mut fixture, &mut one);
    FollowerFetch::at(2, 1).ask(&mut fixture, &mut two);
    assert_eq!(marks(&fixture), (3, 1), "the other one has one record");
    fixture.turn(&mut [&mut client]);
    assert!(client.is_waiting());

    let answer = FollowerFetch::at(2, 3).ask(&mut fixture, &mut two);
    assert_eq!((answer.high_watermark, marks(&fixture)), (3, (3, 3)));
    fixture.turn(&mut [&mut client]);
    assert_eq!(produced(9, &client.reply(&all)), (0, 1));
}

#[test]
fn a_consumer_reads_and_wakes_at_the_watermark_only() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let (mut client, mut reader, mut follower) =
        (fixture.connect(), fixture.connect(), fixture.connect());
    crate::replicas::alive(&mut fixture, &[0, 1]);
    let poll = Fetch { min_bytes: 1, max_wait_ms: 60_000, ..Fetch::default() }.of(&[0]);
    fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    fixture.turn(&mut [&mut reader]);
    assert!(reader.is_waiting());
    assert_eq!(get(&mut fixture, &mut client, Fetch::default()).1, 0, "{TOPIC} has no record yet");
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut follower);
    fixture.turn(&mut [&mut reader]);
    assert_eq!(fetched(12, &reader.reply(&poll)).2[0].2, 1);
}

#[test]
fn a_follower_that_waits_is_answered_when_the_leader_appends() {
    let mut fixture = leader(&PartitionAssignment::default());
    let (mut client, mut follower) = (fixture.connect(), fixture.connect());
    let poll = FollowerFetch { max_wait_ms: 60_000, ..FollowerFetch::at(1, 0) }.frame();
    fixture.event(&mut follower, std::slice::from_ref(&poll.bytes));
    assert!(follower.is_waiting());
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    fixture.turn(&mut [&mut follower]);
    assert!(crate::replicas::answer(17, &follower.reply(&poll)).bytes > 0);
}

#[test]
fn a_follower_hears_of_a_new_watermark_without_new_records() {
    let mut fixture = leader(&PartitionAssignment::default());
    let (mut client, mut one, mut two) = (fixture.connect(), fixture.connect(), fixture.connect());
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["a"]))), (0, 0));
    let begin = FollowerFetch { session: (0, 0), ..FollowerFetch::at(1, 0) };
    let session = begin.ask(&mut fixture, &mut one).session;
    let next =
        FollowerFetch { session: (session, 1), max_wait_ms: 60_000, ..FollowerFetch::at(1, 1) };
    let poll = next.frame();
    fixture.event(&mut one, std::slice::from_ref(&poll.bytes));
    assert!(one.is_waiting(), "the other follower has nothing yet");
    FollowerFetch::at(2, 1).ask(&mut fixture, &mut two);
    fixture.turn(&mut [&mut one]);
    let answer = crate::replicas::answer(17, &one.reply(&poll));
    assert_eq!((answer.high_watermark, answer.bytes), (1, 0));
}
