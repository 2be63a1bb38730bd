//! A partition whose log directory failed has no leader, and answers KAFKA_STORAGE_ERROR.

use krust::protocol::metadata::{MetadataRequest, MetadataResponse};
use krust::wire::Reader;

use crate::double::{Made, TestBroker, frame};
use crate::records::{Fetch, TOPIC, batch, get, put};

#[test]
fn partitions_of_a_failed_directory_have_no_leader() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &batch(&["a"]))), (0, 0));
    let partition = fixture.broker.partitions().remove(0);
    partition.log.dir().take_offline(&"a test wants it");

    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &batch(&["a"]))).0, 56);
    assert_eq!(get(&mut fixture, &mut conn, Fetch::default()).0, 56);
    let request = MetadataRequest { topics: None, ..Default::default() };
    let request = frame(3, 9, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(&mut conn, &request);
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 9).unwrap();
    let partition = &response.topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.leader_id), (5, -1));
    assert_eq!(partition.offline_replicas, [0]);
    fixture.breaks();
}
