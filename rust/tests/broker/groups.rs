//! Group requests for the tests.

use krust::broker::CoordinatorState;
use krust::ids::TopicId;
use krust::protocol::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse,
};
use krust::protocol::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse,
};
use krust::storage::LogConfig;
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, TestBroker, frame, until};
use crate::records::TOPIC;

/// The topic of groups.
pub const GROUPS: &str = "__consumer_offsets";
/// A group, and its partition of 50.
pub const GROUP: (&str, i32) = ("billing", 9);

/// A fixture with the topic of groups (id 9), and [`TOPIC`] with 3 partitions (id 1).
pub fn fixture() -> TestBroker {
    let mut fixture = TestBroker::new();
    create_topics(&mut fixture);
    fixture
}

/// The same topics in a fixture that has none.
pub fn create_topics(fixture: &mut TestBroker) {
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    fixture.topic(GROUPS, groups_topic());
    wait_until_loaded(fixture);
}

pub fn groups_topic() -> Made {
    let config = LogConfig { compact: true, delete: false, ..LogConfig::default() };
    Made { partitions: 50, id: 9, config }
}

/// Waits while any partition is replayed.
pub fn wait_until_loaded(fixture: &TestBroker) {
    let ids: Vec<String> = (0..400).map(|number| format!("g{number}")).collect();
    let is_loading =
        |id: &String| fixture.broker.coordinator_state(id) == CoordinatorState::Loading;
    until("still loading", || !ids.iter().any(is_loading));
}

/// An offset to commit: partition, offset, leader epoch, metadata.
pub type OffsetToCommit<'a> = (i32, i64, i32, Option<&'a str>);

/// A simple consumer's commit of offsets of [`TOPIC`].
pub fn commit(version: i16, group_id: &str, wanted: &[OffsetToCommit<'_>]) -> Frame {
    commit_as(version, (group_id, "", -1), wanted)
}

/// A commit by a member: group, member id, generation.
pub fn commit_as(
    version: i16,
    (group_id, member_id, generation): (&str, &str, i32),
    wanted: &[OffsetToCommit<'_>],
) -> Frame {
    let partitions = wanted.iter().map(|&(partition_index, offset, epoch, metadata)| {
        OffsetCommitRequestPartition {
            partition_index,
            committed_offset: offset,
            committed_leader_epoch: epoch,
            committed_metadata: metadata,
            ..Default::default()
        }
    });
    let topic = OffsetCommitRequestTopic {
        name: TOPIC,
        topic_id: TopicId([1; 16]),
        partitions: partitions.collect(),
    };
    let request = OffsetCommitRequest {
        group_id,
        member_id,
        generation_id_or_member_epoch: generation,
        topics: vec![topic],
        ..Default::default()
    };
    frame(8, version, |writer, version| request.encode(writer, version))
}

/// Commits and gives the code of each partition.
pub fn committed(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> Vec<i16> {
    let reply = fixture.ask(conn, request);
    codes(request.version, &reply)
}

/// The code of each partition of a commit's reply.
pub fn codes(version: i16, reply: &[u8]) -> Vec<i16> {
    let response = OffsetCommitResponse::decode(&mut Reader::new(reply), version).unwrap();
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

/// A committed offset as OffsetFetch returns it: topic, partition, offset, leader epoch, metadata,
/// error.
pub type OffsetRow = (String, i32, i64, i32, String, i16);

/// An OffsetFetch of a group. `partitions`: of [`TOPIC`]; `None`: of all topics.
pub fn fetch(version: i16, group_id: &str, partitions: Option<&[i32]>) -> Frame {
    let (name, topic_id) = (TOPIC, TopicId([1; 16]));
    let request = if version < 8 {
        let topics = partitions.map(|partitions| {
            vec![OffsetFetchRequestTopic { name, partition_indexes: partitions.to_vec() }]
        });
        OffsetFetchRequest { group_id, topics, ..Default::default() }
    } else {
        let topics = partitions.map(|partitions| {
            let partition_indexes = partitions.to_vec();
            vec![OffsetFetchRequestTopics { name, topic_id, partition_indexes }]
        });
        let groups = vec![OffsetFetchRequestGroup { group_id, topics, ..Default::default() }];
        OffsetFetchRequest { groups, ..Default::default() }
    };
    frame(9, version, |writer, version| request.encode(writer, version))
}

/// The error of the group, and its rows in order.
pub fn fetched(version: i16, reply: &[u8]) -> (i16, Vec<OffsetRow>) {
    let response = OffsetFetchResponse::decode(&mut Reader::new(reply), version).unwrap();
    let text = |metadata: Option<&str>| metadata.unwrap_or("null").to_owned();
    let mut rows = Vec::new();
    for topic in &response.topics {
        for p in &topic.partitions {
            let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
            let row = (topic.name.into(), p.partition_index, offset, epoch);
            rows.push((row.0, row.1, row.2, row.3, text(p.metadata), p.error_code));
        }
    }
    let mut error = response.error_code;
    for group in &response.groups {
        error = group.error_code;
        for topic in &group.topics {
            let is_ours = version >= 10 && topic.topic_id == TopicId([1; 16]);
            let name = if is_ours { TOPIC } else { topic.name };
            for p in &topic.partitions {
                let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
                let row = (name.into(), p.partition_index, offset, epoch);
                rows.push((row.0, row.1, row.2, row.3, text(p.metadata), p.error_code));
            }
        }
    }
    rows.sort();
    (error, rows)
}

/// Asks and reads the answer.
pub fn ask(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, group_id, partitions): (i16, &str, Option<&[i32]>),
) -> (i16, Vec<OffsetRow>) {
    let reply = fixture.ask(conn, &fetch(version, group_id, partitions));
    fetched(version, &reply)
}

/// Partition and offset of each row.
pub fn offsets(rows: &[OffsetRow]) -> Vec<(i32, i64)> {
    rows.iter().map(|row| (row.1, row.2)).collect()
}
