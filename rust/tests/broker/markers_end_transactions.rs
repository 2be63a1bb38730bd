//! WriteTxnMarkers ends transactions in the partitions of this broker.

use krust::broker::{Flow, Settings};
use krust::ids::Offset;
use krust::protocol::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use krust::protocol::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, TestBroker, frame, until};
use crate::records::{TOPIC, batch, transactional};
use crate::replicas::{FollowerFetch, PartitionAssignment, leader, marks, partition};

const FENCED: i16 = 52;

fn fixture() -> TestBroker {
    let inter_broker_listener = Some("PLAINTEXT".into());
    let mut fixture = TestBroker::with(Settings { inter_broker_listener, ..Settings::default() });
    fixture.topic(TOPIC, Made { partitions: 2, ..Made::default() });
    fixture
}

fn append(fixture: &TestBroker, bytes: &[u8]) {
    let partition = fixture.broker.partitions().into_iter().find(|it| it.name.partition == 0);
    let partition = partition.unwrap();
    partition.log.append_as_leader(bytes).unwrap();
    partition.log.raise_high_watermark(partition.log.log_end_offset());
}

/// A marker of producer 7, epoch 0, for partitions of a topic.
fn marker(version: i16, coordinator_epoch: i32, to: &[(&str, &[i32])]) -> Frame {
    let topics = to.iter().map(|(name, partitions)| WritableTxnMarkerTopic {
        name,
        partition_indexes: partitions.to_vec(),
    });
    let marker = WritableTxnMarker {
        producer_id: 7,
        producer_epoch: 0,
        transaction_result: false,
        topics: topics.collect(),
        coordinator_epoch,
        ..Default::default()
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    frame(27, version, |writer, version| request.encode(writer, version))
}

fn codes(version: i16, reply: &[u8]) -> Vec<i16> {
    let response = WriteTxnMarkersResponse::decode(&mut Reader::new(reply), version).unwrap();
    let topics = response.markers.iter().flat_map(|marker| &marker.topics);
    topics.flat_map(|topic| &topic.partitions).map(|it| it.error_code).collect()
}

fn write(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> Vec<i16> {
    let reply = fixture.ask_a_worker(conn, request);
    codes(request.version, &reply)
}

fn read_committed(max_wait_ms: i32) -> Frame {
    let request = FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation_level: 1,
        topics: vec![FetchTopic {
            topic: TOPIC,
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    frame(1, 12, |writer, version| request.encode(writer, version))
}

#[test]
fn a_marker_is_written_once_at_every_version() {
    for version in 0..=2 {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        append(&fixture, &transactional(7, &["a"]));
        for _ in 0..2 {
            let request = marker(version, 3, &[(TOPIC, &[0])]);
            assert_eq!(write(&mut fixture, &mut conn, &request), [0]);
            let log = &fixture.broker.partitions()[0].log;
            assert_eq!((log.log_end_offset(), log.last_stable_offset()), (Offset(2), Offset(2)));
        }
        let zombie = marker(version, 2, &[(TOPIC, &[0])]);
        assert_eq!(write(&mut fixture, &mut conn, &zombie), [FENCED]);
    }
}

#[test]
fn each_partition_of_a_request_has_its_own_code() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let request = marker(1, 0, &[(TOPIC, &[0, 9, 1]), ("missing", &[0])]);
    assert_eq!(write(&mut fixture, &mut conn, &request), [0, 3, 0, 3]);
}

#[test]
fn clients_may_not_write_markers() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[marker(1, 0, &[(TOPIC, &[0])]).bytes]);
    assert_eq!((conn.flow, conn.sent.len()), (Flow::Close, 0));
}

#[test]
fn a_marker_wakes_a_consumer_that_waits_for_the_end_of_the_transaction() {
    let mut fixture = fixture();
    let (mut consumer, mut coordinator) = (fixture.connect(), fixture.connect());
    append(&fixture, &transactional(7, &["a"]));
    append(&fixture, &batch(&["plain"]));
    let fetch = read_committed(60_000);
    fixture.event(&mut consumer, std::slice::from_ref(&fetch.bytes));
    assert!(consumer.is_waiting());
    write(&mut fixture, &mut coordinator, &marker(1, 0, &[(TOPIC, &[0])]));
    fixture.turn_until_sent(&mut consumer);
    let reply = consumer.reply(&fetch);
    let response = FetchResponse::decode(&mut Reader::new(&reply), 12).unwrap();
    let data = &response.responses[0].partitions[0];
    let aborted = data.aborted_transactions.as_ref().unwrap();
    assert_eq!(data.last_stable_offset, 3);
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (7, 0));
}

#[test]
fn a_marker_is_acknowledged_once_all_in_sync_replicas_have_it() {
    let mut fixture = leader(&PartitionAssignment { isr: vec![0, 1], ..Default::default() });
    let (mut coordinator, mut follower) = (fixture.connect(), fixture.connect());
    partition(&fixture).log.append_as_leader(&transactional(7, &["a"])).unwrap();
    let request = marker(1, 0, &[(TOPIC, &[0])]);
    for _ in 0..2 {
        fixture.event(&mut coordinator, std::slice::from_ref(&request.bytes));
        until("the marker is not appended", || {
            fixture.turn(&mut [&mut coordinator]);
            marks(&fixture).0 == 2
        });
        fixture.turn(&mut [&mut coordinator]);
        assert!(coordinator.is_waiting());
        let next = fixture.connect();
        fixture.close(std::mem::replace(&mut coordinator, next));
    }
    fixture.event(&mut coordinator, std::slice::from_ref(&request.bytes));
    FollowerFetch::at(1, 0).ask(&mut fixture, &mut follower);
    FollowerFetch::at(1, 2).ask(&mut fixture, &mut follower);
    fixture.turn_until_sent(&mut coordinator);
    let reply = coordinator.reply(&request);
    assert_eq!((codes(1, &reply), marks(&fixture)), (vec![0], (2, 2)));
    assert_eq!(partition(&fixture).log.last_stable_offset(), Offset(2));
}
