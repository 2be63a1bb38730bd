//! The frames of group requests, and readers of their replies.

use krust::protocol::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use krust::protocol::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use krust::protocol::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use krust::protocol::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse,
};
use krust::protocol::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse,
};
use krust::protocol::sync_group::{
    SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse,
};

use crate::requests::{body, frame};

pub const OFFSET_COMMIT: i16 = 8;
pub const OFFSET_FETCH: i16 = 9;
pub const FIND_COORDINATOR: i16 = 10;
pub const JOIN_GROUP: i16 = 11;
pub const HEARTBEAT: i16 = 12;
pub const SYNC_GROUP: i16 = 14;

/// Joins are of the last version that enters a group in one step.
pub const NEWEST: [(i16, i16); 6] = [
    (OFFSET_COMMIT, 9),
    (OFFSET_FETCH, 5),
    (FIND_COORDINATOR, 2),
    (JOIN_GROUP, 3),
    (HEARTBEAT, 4),
    (SYNC_GROUP, 3),
];

pub const LOADING: i16 = 14;
pub const REBALANCING: i16 = 27;
const PROTOCOL: &str = "range";

pub fn find_coordinator(version: i16, group: &str) -> Vec<u8> {
    let request = FindCoordinatorRequest { key: group, ..Default::default() };
    frame(FIND_COORDINATOR, version, |w| request.encode(w, version))
}

/// Its error.
pub fn found_coordinator(reply: &[u8], version: i16) -> i16 {
    let mut r = body(reply, FIND_COORDINATOR, version);
    FindCoordinatorResponse::decode(&mut r, version).expect("FindCoordinator").error_code
}

/// One OffsetCommit of a consumer without membership: `offset` for each of `partitions`.
pub fn commit(version: i16, group: &str, to: (&str, &[i32]), offset: i64) -> Vec<u8> {
    let partition = |index: &i32| OffsetCommitRequestPartition {
        partition_index: *index,
        committed_offset: offset,
        ..Default::default()
    };
    let partitions = to.1.iter().map(partition).collect();
    let topic = OffsetCommitRequestTopic { name: to.0, partitions, ..Default::default() };
    let request =
        OffsetCommitRequest { group_id: group, topics: vec![topic], ..Default::default() };
    frame(OFFSET_COMMIT, version, |w| request.encode(w, version))
}

/// The first error of any partition, or 0.
pub fn committed(reply: &[u8], version: i16) -> i16 {
    let mut r = body(reply, OFFSET_COMMIT, version);
    let response = OffsetCommitResponse::decode(&mut r, version).expect("OffsetCommit");
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.find_map(|it| (it.error_code != 0).then_some(it.error_code)).unwrap_or(0)
}

pub fn fetch_offsets(version: i16, group: &str, (topic, partitions): (&str, &[i32])) -> Vec<u8> {
    let topic = OffsetFetchRequestTopic { name: topic, partition_indexes: partitions.to_vec() };
    let request =
        OffsetFetchRequest { group_id: group, topics: Some(vec![topic]), ..Default::default() };
    frame(OFFSET_FETCH, version, |w| request.encode(w, version))
}

/// The group's offsets, or its error.
pub fn fetched_offsets(reply: &[u8], version: i16) -> Result<Vec<i64>, i16> {
    let mut r = body(reply, OFFSET_FETCH, version);
    let response = OffsetFetchResponse::decode(&mut r, version).expect("OffsetFetch");
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    match response.error_code {
        0 => Ok(partitions.map(|partition| partition.committed_offset).collect()),
        error => Err(error),
    }
}

/// JoinGroup of a consumer with `metadata`.
pub fn join(version: i16, group: &str, member: &str, metadata: &[u8]) -> Vec<u8> {
    let request = JoinGroupRequest {
        group_id: group,
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 60_000,
        member_id: member,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol { name: PROTOCOL, metadata }],
        ..Default::default()
    };
    frame(JOIN_GROUP, version, |w| request.encode(w, version))
}

/// A member's answer in a rebalance.
pub struct Joined {
    pub generation: i32,
    pub member: String,
    /// All members, if this one is the leader.
    pub members: Vec<String>,
}

pub fn joined(reply: &[u8], version: i16) -> Joined {
    let mut r = body(reply, JOIN_GROUP, version);
    let response = JoinGroupResponse::decode(&mut r, version).expect("JoinGroup");
    assert_eq!(response.error_code, 0, "JoinGroup {}", response.member_id);
    Joined {
        generation: response.generation_id,
        member: response.member_id.to_owned(),
        members: response.members.iter().map(|member| member.member_id.to_owned()).collect(),
    }
}

/// SyncGroup; `assignments` of the leader alone.
pub fn sync(
    version: i16,
    group: &str,
    (member, generation): (&str, i32),
    assignments: &[(String, Vec<u8>)],
) -> Vec<u8> {
    let assignments = assignments
        .iter()
        .map(|(member, assignment)| SyncGroupRequestAssignment { member_id: member, assignment });
    let request = SyncGroupRequest {
        group_id: group,
        generation_id: generation,
        member_id: member,
        assignments: assignments.collect(),
        ..Default::default()
    };
    frame(SYNC_GROUP, version, |w| request.encode(w, version))
}

/// The member's part; panics on an error.
pub fn synced(reply: &[u8], version: i16) -> Vec<u8> {
    let mut r = body(reply, SYNC_GROUP, version);
    let response = SyncGroupResponse::decode(&mut r, version).expect("SyncGroup");
    assert_eq!(response.error_code, 0, "SyncGroup");
    response.assignment.to_vec()
}

pub fn heartbeat(version: i16, group: &str, (member, generation): (&str, i32)) -> Vec<u8> {
    let request = HeartbeatRequest {
        group_id: group,
        generation_id: generation,
        member_id: member,
        ..Default::default()
    };
    frame(HEARTBEAT, version, |w| request.encode(w, version))
}

/// Its error.
pub fn beaten(reply: &[u8], version: i16) -> i16 {
    let mut r = body(reply, HEARTBEAT, version);
    HeartbeatResponse::decode(&mut r, version).expect("Heartbeat").error_code
}

/// A consumer's subscription to one topic, v1: with the partitions it owns.
pub fn subscription(topic: &str, owned: &[i32]) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    strings(&mut bytes, &[topic]);
    bytes.extend_from_slice(&(-1_i32).to_be_bytes());
    match owned {
        [] => bytes.extend_from_slice(&0_i32.to_be_bytes()),
        _ => partitions(&mut bytes, topic, owned),
    }
    bytes
}

/// A consumer's assignment, v1.
pub fn assignment(topic: &str, owned: &[i32]) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    partitions(&mut bytes, topic, owned);
    bytes.extend_from_slice(&(-1_i32).to_be_bytes());
    bytes
}

fn strings(bytes: &mut Vec<u8>, texts: &[&str]) {
    bytes.extend_from_slice(&(texts.len() as i32).to_be_bytes());
    for text in texts {
        bytes.extend_from_slice(&(text.len() as i16).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
}

fn partitions(bytes: &mut Vec<u8>, topic: &str, owned: &[i32]) {
    strings(bytes, &[topic]);
    bytes.extend_from_slice(&(owned.len() as i32).to_be_bytes());
    owned.iter().for_each(|index| bytes.extend_from_slice(&index.to_be_bytes()));
}
