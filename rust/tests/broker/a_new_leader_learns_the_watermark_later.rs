//! A new leader's high watermark may lag behind what its predecessor showed. Until the in-sync
//! replicas have fetched, questions that depend on it are answered OFFSET_NOT_AVAILABLE (78).

use krust::protocol::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use krust::wire::Reader;

use crate::double::{Conn, NOW_MS, TestBroker, frame};
use crate::records::{Fetch, TOPIC, batch, get, put};
use crate::replicas::{FollowerFetch, PartitionAssignment, leader, marks};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

fn listed(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, replica_id, timestamp): (i16, i32, i64),
) -> (i16, i64) {
    let partition = ListOffsetsPartition { timestamp, ..Default::default() };
    let topic = ListOffsetsTopic { name: TOPIC, partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id, topics: vec![topic], ..Default::default() };
    let request = frame(2, version, |writer, version| request.encode(writer, version));
    let reply = fixture.ask_a_worker(conn, &request);
    let response = ListOffsetsResponse::decode(&mut Reader::new(&reply), version).unwrap();
    let partition = &response.topics[0].partitions[0];
    (partition.error_code, partition.offset)
}

#[test]
fn the_latest_offset_is_not_available_until_the_in_sync_replicas_fetched() {
    let mut fixture = leader(&PartitionAssignment::default());
    let (mut conn, mut follower) = (fixture.connect(), fixture.connect());
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a", "b"]))), (0, 0));
    assert_eq!(listed(&mut fixture, &mut conn, (7, -1, LATEST)), (0, 0), "its own records wait");
    let next = PartitionAssignment {
        leader_epoch: 6,
        partition_epoch: 8,
        ..PartitionAssignment::default()
    };
    PartitionAssignment { leader: 1, ..next.clone() }.to(&mut fixture);
    PartitionAssignment { leader_epoch: 7, partition_epoch: 9, ..next }.to(&mut fixture);
    for (version, error) in [(4, 5), (5, 78), (7, 78)] {
        assert_eq!(listed(&mut fixture, &mut conn, (version, -1, LATEST)), (error, -1));
        assert_eq!(listed(&mut fixture, &mut conn, (version, -1, NOW_MS)), (error, -1));
    }
    assert_eq!(listed(&mut fixture, &mut conn, (7, -1, EARLIEST)), (0, 0));
    assert_eq!(listed(&mut fixture, &mut conn, (7, 1, LATEST)), (0, 2), "a replica's log end");
    let waits = get(&mut fixture, &mut conn, Fetch { offset: 2, ..Fetch::default() });
    assert_eq!(waits.0, 0, "a consumer waits: what it had read is not out of range");
    for replica in [1, 2] {
        let fetch = FollowerFetch { leader_epoch: 7, ..FollowerFetch::at(replica, 2) };
        assert_eq!(fetch.ask(&mut fixture, &mut follower).error, 0);
    }
    assert_eq!(marks(&fixture), (2, 2));
    assert_eq!(listed(&mut fixture, &mut conn, (7, -1, LATEST)), (0, 2));
    assert_eq!(listed(&mut fixture, &mut conn, (7, -1, NOW_MS)), (0, 0));
}
