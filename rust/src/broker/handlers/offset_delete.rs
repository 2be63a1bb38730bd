//! OffsetDelete (47), v0: deletes a group's offsets of some partitions.
//! Behaviour: writes tombstones in one batch; the reply leaves when it is committed. A partition
//!     without an offset succeeds.
//! Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION (3). GROUP_SUBSCRIBED_TO_TOPIC (86): a member
//!     subscribes to its topic.
//! Errors of the group: INVALID_GROUP_ID (24): it has no name. GROUP_ID_NOT_FOUND (69).
//!     NON_EMPTY_GROUP (68): it has members and is no consumer group. COORDINATOR_LOAD_IN_PROGRESS
//!     (14), NOT_COORDINATOR (16).
//! Not done: removing the group with its last offset. The group is removed when it expires.

use crate::broker::handlers::group_reply;
use crate::broker::handlers::offset_commit::advance;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::acls::Operation::{Delete, Read};
use crate::broker::state::acls::ResourceType::{Group, Topic};
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::image::ClusterImage;
use crate::protocol::ErrorCode;
use crate::protocol::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteResponse,
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = OffsetDeleteRequest::decode(&mut call.reader(), call.version())?;
    let (response, at) = match delete(call, &request) {
        Ok((response, at)) => (response, at.into_iter().collect()),
        Err(error) => (failed(error), Vec::new()),
    };
    group_reply::answer(call, at, refuse, |writer, version| response.encode(writer, version))
}

fn failed(error: ErrorCode) -> OffsetDeleteResponse<'static> {
    OffsetDeleteResponse { error_code: error.code(), ..Default::default() }
}

fn refuse(head: Head, _: &[u8], error: ErrorCode) -> Output {
    head.output(|writer, version| failed(error).encode(writer, version))
}

fn delete<'f>(
    call: &mut Call<'_, '_>,
    request: &OffsetDeleteRequest<'f>,
) -> Result<(OffsetDeleteResponse<'f>, Option<AppendedAt>), ErrorCode> {
    let group_id = request.group_id;
    let access = call.access();
    if !access.check(Delete, Group, group_id) {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    if group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let (image, now_ms) = (call.image(), call.broker.clock.wall_ms());
    let shard = call.broker.groups.shards.ready_of(group_id)?;
    let mut memory = shard.lock_ready()?;
    let membership = call.broker.groups.snapshots.membership(group_id);
    if membership.is_absent() && !memory.kept.has_offsets(group_id) {
        return Err(ErrorCode::GroupIdNotFound);
    }
    if !membership.may_delete_offsets() {
        return Err(ErrorCode::NonEmptyGroup);
    }
    let record_builder = &mut call.thread.groups.record_builder;
    record_builder.begin(now_ms);
    let mut gone = Vec::new();
    let topics = request.topics.iter().map(|topic| {
        let is_allowed = access.check(Read, Topic, topic.name);
        let is_subscribed = membership.subscribes(topic.name);
        let partitions = topic.partitions.iter().map(|partition| {
            let index = partition.partition_index;
            let error = match is_allowed {
                true => check_partition(topic.name, index, &image, is_subscribed),
                false => ErrorCode::TopicAuthorizationFailed,
            };
            let is_right = error == ErrorCode::None;
            if is_right && memory.kept.has_offset(group_id, topic.name, index) {
                record_builder.offset((group_id, topic.name, index), None);
                gone.push((topic.name, index));
            }
            respond(partition, error)
        });
        OffsetDeleteResponseTopic { name: topic.name, partitions: partitions.collect() }
    });
    let response = OffsetDeleteResponse { topics: topics.collect(), ..Default::default() };
    if gone.is_empty() {
        return Ok((response, None));
    }
    shard.append_records(&mut memory, record_builder, now_ms)?;
    for (topic, partition) in gone {
        memory.kept.remove((group_id, topic, partition));
    }
    let at = shard.end(&memory);
    drop(memory);
    advance(call, &shard);
    Ok((response, Some(at)))
}

fn check_partition(
    topic: &str,
    index: i32,
    image: &ClusterImage,
    is_subscribed: bool,
) -> ErrorCode {
    if image.topic(topic).is_none_or(|topic| topic.partition(index).is_none()) {
        ErrorCode::UnknownTopicOrPartition
    } else if is_subscribed {
        ErrorCode::GroupSubscribedToTopic
    } else {
        ErrorCode::None
    }
}

fn respond(
    partition: &OffsetDeleteRequestPartition,
    error: ErrorCode,
) -> OffsetDeleteResponsePartition {
    let partition_index = partition.partition_index;
    OffsetDeleteResponsePartition { partition_index, error_code: error.code() }
}
