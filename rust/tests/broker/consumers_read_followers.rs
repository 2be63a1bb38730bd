//! A follower serves consumers up to the high watermark that its leader sent it (KIP-392).

use krust::broker::replica::follower::LeaderAnswer;
use krust::broker::{AnsweredRequest, FollowerStep};
use krust::ids::{Epoch, Offset};
use krust::record::batch::{HeaderPatch, iter, patch_header};

use crate::double::TestBroker;
use crate::racks::{ConsumerFetch, PartitionRead};
use crate::records::{abort_marker, batch, transactional, values};
use crate::replicas::{EPOCH, PartitionAssignment, fixture, marks, partition};

/// A follower of broker 1.
fn follower() -> TestBroker {
    let mut fixture = fixture();
    PartitionAssignment { leader: 1, ..PartitionAssignment::default() }.to(&mut fixture);
    fixture
}

/// The leader answers the follower's Fetch with these batches and this high watermark.
fn replicate(fixture: &TestBroker, records: &[u8], high_watermark: i64) {
    let (partition, broker) = (partition(fixture), &*fixture.broker);
    let (mut bytes, mut base_offset) = (Vec::new(), partition.log.log_end_offset().0);
    for batch in iter(records).map(Result::unwrap) {
        let max_timestamp = batch.header().max_timestamp;
        let patch =
            HeaderPatch { base_offset, leader_epoch: EPOCH, max_timestamp, log_append_time: None };
        bytes.extend(patch_header(&batch, &patch));
        bytes.extend(batch.payload());
        base_offset += batch.last_offset() - batch.base_offset() + 1;
    }
    let request = partition.follower_request(Epoch(EPOCH), broker).unwrap().unwrap();
    let answer =
        LeaderAnswer::Fetched { high_watermark: Offset(high_watermark), log_start: Offset(0) };
    let answered = AnsweredRequest { request, answer, records: &bytes };
    assert_eq!(partition.leader_answered(&answered, broker).unwrap(), FollowerStep::Next);
}

const NEXT: ConsumerFetch = ConsumerFetch { rack: "west", ..ConsumerFetch::FIRST };

fn offsets(read: &PartitionRead) -> Vec<i64> {
    assert_eq!((read.error, read.preferred), (0, -1));
    values(&read.bytes).into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn a_follower_answers_consumers_up_to_the_watermark_that_it_knows() {
    let mut fixture = follower();
    let mut conn = fixture.connect();
    let records = [batch(&["a"]), batch(&["b"]), batch(&["c"])].concat();
    replicate(&fixture, &records, 2);
    for version in [11, 12, 17, 18] {
        for rack in ["", "west"] {
            let read = ConsumerFetch { version, rack, ..NEXT }.ask(&mut fixture, &mut conn);
            assert_eq!((offsets(&read), read.high_watermark), (vec![0, 1], 2));
        }
    }
    let old = ConsumerFetch { version: 10, rack: "", ..NEXT };
    assert_eq!(old.ask(&mut fixture, &mut conn).error, 6);
}

#[test]
fn a_consumer_waits_at_a_follower_until_the_watermark_passes_its_offset() {
    let mut fixture = follower();
    let mut conn = fixture.connect();
    replicate(&fixture, &batch(&["a"]), 0);
    for offset in [0, 1] {
        let fetch = ConsumerFetch { offset, max_wait_ms: 60_000, ..NEXT };
        fetch.begin(&mut fixture, &mut conn);
        replicate(&fixture, &batch(&["b"]), offset);
        fixture.turn(&mut [&mut conn]);
        assert!(conn.is_waiting(), "the log grew, and nothing else");
        replicate(&fixture, &[], offset + 1);
        assert_eq!(offsets(&fetch.end(&mut fixture, &mut conn)), [offset]);
    }
}

#[test]
fn a_consumer_that_waits_at_a_follower_is_woken_when_the_leader_changes() {
    for leader in [0, 2] {
        let mut fixture = follower();
        let mut conn = fixture.connect();
        replicate(&fixture, &batch(&["a"]), 1);
        let fetch = ConsumerFetch { offset: 1, max_wait_ms: 60_000, ..NEXT };
        fetch.begin(&mut fixture, &mut conn);
        PartitionAssignment {
            leader,
            leader_epoch: 6,
            partition_epoch: 8,
            ..PartitionAssignment::default()
        }
        .to(&mut fixture);
        let read = fetch.end(&mut fixture, &mut conn);
        assert_eq!((read.error, read.bytes.is_empty()), (74, true), "new leader {leader}");
    }
}

#[test]
fn a_consumer_that_waits_at_a_leader_is_fenced_when_it_becomes_a_follower() {
    let mut fixture = fixture();
    PartitionAssignment::default().to(&mut fixture);
    let mut conn = fixture.connect();
    let fetch = ConsumerFetch { max_wait_ms: 60_000, ..NEXT };
    fetch.begin(&mut fixture, &mut conn);
    PartitionAssignment {
        leader: 1,
        leader_epoch: 6,
        partition_epoch: 8,
        ..PartitionAssignment::default()
    }
    .to(&mut fixture);
    assert_eq!(fetch.end(&mut fixture, &mut conn).error, 74);
}

#[test]
fn a_follower_fences_older_epochs_and_does_not_know_newer_ones() {
    let mut fixture = follower();
    let mut conn = fixture.connect();
    replicate(&fixture, &batch(&["a"]), 1);
    for (leader_epoch, error) in [(EPOCH - 1, 74), (EPOCH, 0), (-1, 0), (EPOCH + 1, 75)] {
        let read = ConsumerFetch { leader_epoch, ..NEXT }.ask(&mut fixture, &mut conn);
        assert_eq!((read.error, read.bytes.is_empty()), (error, error != 0), "{leader_epoch}");
    }
}

#[test]
fn a_committed_offset_that_the_follower_lacks_is_not_available_yet() {
    let mut fixture = follower();
    let mut conn = fixture.connect();
    let at = |offset| ConsumerFetch { offset, ..NEXT };
    assert_eq!(at(5).ask(&mut fixture, &mut conn).error, 78, "the leader did not answer yet");
    replicate(&fixture, &batch(&["a", "b"]), 5);
    for (offset, error) in [(1, 0), (2, 0), (3, 78), (5, 78), (6, 1), (-1, 1)] {
        assert_eq!(at(offset).ask(&mut fixture, &mut conn).error, error, "{offset}");
    }
    partition(&fixture).log.delete_records(Offset(1)).unwrap();
    assert_eq!(at(0).ask(&mut fixture, &mut conn).error, 1, "below the log start");
}

#[test]
fn a_session_at_a_follower_goes_on() {
    let mut fixture = follower();
    let mut conn = fixture.connect();
    replicate(&fixture, &batch(&["a"]), 1);
    let begin = ConsumerFetch { session: (0, 0), offset: 1, ..NEXT };
    let reply = fixture.ask(&mut conn, &begin.frame());
    let (session, _) = begin.read(&reply);
    assert!(session > 0);
    let next = ConsumerFetch { session: (session, 1), max_wait_ms: 60_000, names: false, ..begin };
    next.begin(&mut fixture, &mut conn);
    replicate(&fixture, &batch(&["b"]), 2);
    assert_eq!(offsets(&next.end(&mut fixture, &mut conn)), [1]);
}

#[test]
fn read_committed_consumers_read_a_follower_up_to_its_last_stable_offset() {
    let mut fixture = follower();
    let mut conn = fixture.connect();
    replicate(&fixture, &[batch(&["a"]), transactional(7, &["b", "c"])].concat(), 3);
    let fetch = ConsumerFetch { read_committed: true, ..NEXT };
    assert_eq!(fetch.ask(&mut fixture, &mut conn).bytes, {
        let read = ConsumerFetch { ..NEXT }.ask(&mut fixture, &mut conn);
        read.bytes[..iter(&read.bytes).next().unwrap().unwrap().size()].to_vec()
    });
    let waiting = ConsumerFetch { offset: 1, max_wait_ms: 60_000, ..fetch };
    waiting.begin(&mut fixture, &mut conn);
    replicate(&fixture, &[abort_marker(7), transactional(8, &["d"])].concat(), 3);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting(), "the marker is not committed");
    replicate(&fixture, &[], 5);
    let read = waiting.end(&mut fixture, &mut conn);
    assert_eq!((read.high_watermark, read.aborted), (5, Some(vec![(7, 1)])));
    assert_eq!(iter(&read.bytes).count(), 2, "not the open transaction of producer 8");
    assert_eq!(marks(&fixture), (5, 5));
}
