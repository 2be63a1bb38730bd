//! DeleteRecords is answered once the log start of all live replicas has passed the offset.

use krust::protocol::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use krust::wire::Reader;

use crate::double::{Frame, TestBroker, frame};
use crate::records::{TOPIC, batch, put};
use crate::replicas::{FollowerFetch, PartitionAssignment, alive, answer, leader, marks};

fn deletion(offset: i64) -> Frame {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let topic = DeleteRecordsTopic { name: TOPIC, partitions: vec![partition] };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1000 };
    frame(21, 2, |writer, version| request.encode(writer, version))
}

fn deleted(reply: &[u8]) -> (i16, i64) {
    let response = DeleteRecordsResponse::decode(&mut Reader::new(reply), 2).unwrap();
    let partition = &response.topics[0].partitions[0];
    (partition.error_code, partition.low_watermark)
}

/// A leader whose three records all replicas have.
fn fixture() -> TestBroker {
    let mut fixture = leader(&PartitionAssignment::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a", "b", "c"]))), (0, 0));
    for replica in [1, 2] {
        FollowerFetch::at(replica, 3).ask(&mut fixture, &mut conn);
    }
    assert_eq!(marks(&fixture), (3, 3));
    fixture
}

#[test]
fn a_deletion_waits_until_all_live_replicas_have_deleted() {
    let mut fixture = fixture();
    let (mut client, mut follower) = (fixture.connect(), fixture.connect());
    let begin = FollowerFetch { session: (0, 0), ..FollowerFetch::at(1, 3) };
    let session = begin.ask(&mut fixture, &mut follower).session;
    let next = FollowerFetch { session: (session, 1), max_wait_ms: 60_000, names: false, ..begin };
    let poll = next.frame();
    fixture.event(&mut follower, std::slice::from_ref(&poll.bytes));
    assert!(follower.is_waiting());
    let request = deletion(2);
    fixture.event(&mut client, std::slice::from_ref(&request.bytes));
    fixture.turn(&mut [&mut client, &mut follower]);
    assert!(client.is_waiting());
    assert_eq!(answer(17, &follower.reply(&poll)).log_start, 2, "the follower learns it");
    let has_deleted = |replica| FollowerFetch { log_start: 2, ..FollowerFetch::at(replica, 3) };
    has_deleted(1).ask(&mut fixture, &mut follower);
    fixture.turn(&mut [&mut client]);
    assert!(client.is_waiting(), "the other follower has not");
    has_deleted(2).ask(&mut fixture, &mut follower);
    fixture.turn(&mut [&mut client]);
    assert_eq!(deleted(&client.reply(&request)), (0, 2));
    assert_eq!(deleted(&fixture.ask(&mut client, &deletion(1))), (0, 2), "it is long gone");
}

#[test]
fn a_deletion_does_not_wait_for_a_dead_broker() {
    let mut fixture = fixture();
    let (mut client, mut follower) = (fixture.connect(), fixture.connect());
    let request = deletion(-1);
    fixture.event(&mut client, std::slice::from_ref(&request.bytes));
    FollowerFetch { log_start: 3, ..FollowerFetch::at(1, 3) }.ask(&mut fixture, &mut follower);
    alive(&mut fixture, &[0, 1]);
    fixture.turn(&mut [&mut client]);
    assert_eq!(deleted(&client.reply(&request)), (0, 3));
}

#[test]
fn a_deletion_waits_no_longer_than_its_timeout() {
    let mut fixture = fixture();
    let mut client = fixture.connect();
    let request = deletion(2);
    fixture.event(&mut client, std::slice::from_ref(&request.bytes));
    fixture.clock.advance(999);
    fixture.turn(&mut [&mut client]);
    assert!(client.is_waiting());
    fixture.clock.advance(1);
    fixture.turn(&mut [&mut client]);
    assert_eq!(deleted(&client.reply(&request)), (7, 0));
}
