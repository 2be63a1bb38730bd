//! ListOffsets: every special timestamp, a time, and v0's list.

use krust::protocol::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic,
};
use krust::wire::Reader;

use crate::double::{Conn, Made, NOW_MS, TestBroker, frame};
use crate::records::{TOPIC, batch, put};

fn list(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, timestamp): (i16, i64),
) -> ListOffsetsPartitionResponse {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: TOPIC,
            partitions: vec![ListOffsetsPartition {
                timestamp,
                max_num_offsets: 10,
                current_leader_epoch: -1,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let request = frame(2, version, |writer, version| request.encode(writer, version));
    let reply = fixture.ask_a_worker(conn, &request);
    let mut response = ListOffsetsResponse::decode(&mut Reader::new(&reply), version).unwrap();
    response.topics.remove(0).partitions.remove(0)
}

#[test]
fn offsets_are_listed_by_name_and_by_time() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    put(&mut fixture, &mut conn, (9, 1, &batch(&["a", "b", "c"])));
    for (version, timestamp, expected) in [
        (1, -1, (0, 3)),
        (1, -2, (0, 0)),
        (7, -3, (0, 0)),
        (6, -3, (35, -1)),
        (8, -4, (0, 0)),
        (9, -5, (0, -1)),
        (11, -6, (0, -1)),
        (10, -6, (35, -1)),
        (11, NOW_MS - 1, (0, 0)),
        (11, NOW_MS + 1, (0, -1)),
    ] {
        let found = list(&mut fixture, &mut conn, (version, timestamp));
        assert_eq!((found.error_code, found.offset), expected, "v{version} {timestamp}");
    }
    assert_eq!(list(&mut fixture, &mut conn, (11, NOW_MS)).timestamp, NOW_MS);
    assert_eq!(list(&mut fixture, &mut conn, (0, -1)).old_style_offsets, [3, 0]);
    assert_eq!(list(&mut fixture, &mut conn, (0, i64::MAX)).old_style_offsets, [3, 0]);
    assert_eq!(list(&mut fixture, &mut conn, (0, -2)).old_style_offsets, [0]);
}
