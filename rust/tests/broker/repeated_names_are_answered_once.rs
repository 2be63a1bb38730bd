//! A name that a request repeats a thousand times costs one answer. Before, 12 KB that named one
//! large topic thousands of times took gigabytes.

use krust::ids::TopicId;
use krust::protocol::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse,
};
use krust::protocol::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, TopicRequest,
};
use krust::protocol::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use krust::protocol::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use krust::wire::Reader;

use crate::double::{Made, TestBroker, frame};
use crate::records::{Fetch, TOPIC, fetched};

const TIMES: usize = 1000;

fn fixture() -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 2, ..Made::default() });
    fixture
}

#[test]
fn a_topic_named_twice_in_metadata_is_answered_once() {
    let (mut fixture, mut named) = (fixture(), vec![TOPIC; 200]);
    named.insert(1, "other");
    let mut conn = fixture.connect();
    for version in [4, 9, 12] {
        let topics = (0..).zip(&named).map(|(number, name)| MetadataRequestTopic {
            name: Some(name),
            topic_id: TopicId([number; 16]),
        });
        let request = MetadataRequest { topics: Some(topics.collect()), ..Default::default() };
        let request = MetadataRequest { allow_auto_topic_creation: false, ..request };
        let request = frame(3, version, |writer, version| request.encode(writer, version));
        let reply = fixture.ask(&mut conn, &request);
        let response = MetadataResponse::decode(&mut Reader::new(&reply), version).unwrap();
        let names: Vec<_> = response.topics.iter().map(|topic| topic.name).collect();
        assert_eq!(names, [Some(TOPIC), Some("other")]);
    }
}

#[test]
fn a_partition_named_twice_in_describe_producers_is_answered_once() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let topic = TopicRequest { name: TOPIC, partition_indexes: vec![1; TIMES] };
    let request = DescribeProducersRequest { topics: vec![topic.clone(), topic] };
    let request = frame(61, 0, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(&mut conn, &request);
    let response = DescribeProducersResponse::decode(&mut Reader::new(&reply), 0).unwrap();
    let counts: Vec<_> = response.topics.iter().map(|topic| topic.partitions.len()).collect();
    assert_eq!(counts, [1, 0]);
}

#[test]
fn a_partition_named_twice_in_describe_log_dirs_is_answered_once() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let topic = DescribableLogDirTopic { topic: TOPIC, partitions: vec![1; TIMES] };
    let request = DescribeLogDirsRequest { topics: Some(vec![topic]) };
    let request = frame(35, 1, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(&mut conn, &request);
    let response = DescribeLogDirsResponse::decode(&mut Reader::new(&reply), 1).unwrap();
    assert_eq!(response.results[0].topics[0].partitions.len(), 1);
}

#[test]
fn a_partition_that_list_offsets_names_twice_is_refused_as_kafka_refuses_it() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let of = |partition_index| ListOffsetsPartition {
        partition_index,
        timestamp: 1,
        ..ListOffsetsPartition::default()
    };
    let topic = ListOffsetsTopic { name: TOPIC, partitions: vec![of(0), of(1), of(0)] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let request = frame(2, 1, |writer, version| request.encode(writer, version));
    let reply = fixture.ask_a_worker(&mut conn, &request);
    let response = ListOffsetsResponse::decode(&mut Reader::new(&reply), 1).unwrap();
    let errors = response.topics[0].partitions.iter().map(|partition| partition.error_code);
    assert_eq!(errors.collect::<Vec<_>>(), [42, 0, 42]);
}

#[test]
fn a_partition_that_fetch_names_twice_is_read_once() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for version in [0, 4, 12] {
        let request = Fetch { version, ..Fetch::default() }.of(&[0, 1, 0]);
        let (_, _, partitions) = fetched(version, &fixture.ask(&mut conn, &request));
        let numbers: Vec<i32> = partitions.iter().map(|partition| partition.0).collect();
        assert_eq!(numbers, [0, 1]);
    }
}
