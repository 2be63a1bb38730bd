//! OffsetCommit (8), v0-10: stores a group's offsets in memory and in the group's log.
//! Behaviour: the group's snapshot says whether this member may commit. All offsets of a request
//!     are one batch, and the reply leaves when it is committed. A request without offsets
//!     succeeds.
//! Errors of the group, repeated for each partition: COORDINATOR_LOAD_IN_PROGRESS (14).
//!     COORDINATOR_NOT_AVAILABLE (15): after `offsets.commit.timeout.ms`. NOT_COORDINATOR (16).
//!     INVALID_COMMIT_OFFSET_SIZE (28): the batch is larger than the topic's limit. From the
//!     snapshot: ILLEGAL_GENERATION (22), UNKNOWN_MEMBER_ID (25), REBALANCE_IN_PROGRESS (27),
//!     FENCED_INSTANCE_ID (82); of consumer groups UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (113), and
//!     UNSUPPORTED_VERSION (35) before v9.
//! Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION (3), UNKNOWN_TOPIC_ID (100).
//!     OFFSET_METADATA_TOO_LARGE (12): above `offset.metadata.max.bytes`, or above what a record
//!     holds.
//! Authorization: Read on the group, else each partition is GROUP_AUTHORIZATION_FAILED (30); Read
//!     on a topic, else its partitions are TOPIC_AUTHORIZATION_FAILED (29).
//! Version notes: v1 has a timestamp, v2-v4 a retention time. v6 adds leader epochs, v7 static
//!     members. For a group that does not exist v9 returns GROUP_ID_NOT_FOUND (69), older ones
//!     ILLEGAL_GENERATION; v9 also carries the epoch of a consumer group's member. v10 adds topic
//!     ids. The policy answers v0, whose offsets are in ZooKeeper.

use crate::broker::handlers::{group_reply, policy};
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Settings;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Read;
use crate::broker::state::acls::ResourceType::Group;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::groups::offsets::{StoredOffset, fits_metadata};
use crate::broker::state::groups::published::MemberIdentity;
use crate::broker::state::groups::shard::{GROUP_ID_MAX, GroupShard};
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::broker::state::lookup::NamedTopic;
use crate::protocol::ErrorCode;
use crate::protocol::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use crate::protocol::offset_commit_value::OffsetCommitValue;
use crate::wire::Reader;

/// The only version with a timestamp for each offset.
const TIMES_IN: i16 = 1;
/// The first version that names topics by id.
const IDS_FROM: i16 = 10;
/// The first version with GROUP_ID_NOT_FOUND.
const NOT_FOUND_FROM: i16 = 9;

/// A request while it is handled.
struct CommitRequest<'r, 'f> {
    request: &'r OffsetCommitRequest<'f>,
    version: i16,
    now_ms: i64,
    image: &'r ClusterImage,
    access: &'r Access,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    if version == 0 {
        return policy::handle(call);
    }
    let request = OffsetCommitRequest::decode(&mut call.reader(), version)?;
    let image = call.image();
    let now_ms = call.broker.clock.wall_ms();
    let access = &call.access();
    let commit = CommitRequest { request: &request, version, now_ms, image: &image, access };
    if !access.check(Read, Group, request.group_id) {
        let error = ErrorCode::GroupAuthorizationFailed;
        let response = respond(&request, std::iter::repeat(error));
        call.reply(|writer, version| response.encode(writer, version));
        return Ok(Flow::Go);
    }
    let mut codes = std::mem::take(&mut call.thread.groups.codes);
    codes.clear();
    let at = commit.run(call, &mut codes);
    let response = respond(&request, codes.iter().copied());
    call.thread.groups.codes = codes;
    group_reply::answer(call, at.into_iter().collect(), refuse, |writer, version| {
        response.encode(writer, version);
    })
}

/// The reply if nothing was committed.
fn refuse(head: Head, body: &[u8], error: ErrorCode) -> Output {
    let request = OffsetCommitRequest::decode(&mut Reader::new(body), head.version);
    let request = request.unwrap_or_default();
    let response = respond(&request, std::iter::repeat(error));
    head.output(|writer, version| response.encode(writer, version))
}

/// A code for each partition, in the request's order.
fn respond<'f>(
    request: &OffsetCommitRequest<'f>,
    mut codes: impl Iterator<Item = ErrorCode>,
) -> OffsetCommitResponse<'f> {
    // Kafka leaves out a topic without partitions.
    let named = request.topics.iter().filter(|topic| !topic.partitions.is_empty());
    let topics = named.map(|topic| {
        let partitions = topic.partitions.iter().zip(codes.by_ref());
        let partition = |(partition, code): (&OffsetCommitRequestPartition<'_>, ErrorCode)| {
            let partition_index = partition.partition_index;
            OffsetCommitResponsePartition { partition_index, error_code: code.code() }
        };
        OffsetCommitResponseTopic {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions: partitions.map(partition).collect(),
        }
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

impl CommitRequest<'_, '_> {
    /// Commits the offsets. `codes` gets an error code for each partition. Returns the end of the
    /// append.
    fn run(&self, call: &mut Call<'_, '_>, codes: &mut Vec<ErrorCode>) -> Option<AppendedAt> {
        for topic in &self.request.topics {
            let found = self.access.topic(Read, self.name(topic), self.image);
            codes.extend(topic.partitions.iter().map(|partition| match found {
                Ok(found) if found.partition(partition.partition_index).is_some() => {
                    ErrorCode::None
                }
                Ok(_) => ErrorCode::UnknownTopicOrPartition,
                Err(error) => error,
            }));
        }
        if !codes.contains(&ErrorCode::None) {
            return None;
        }
        self.commit(call, codes).unwrap_or_else(|error| {
            let accepted = codes.iter_mut().filter(|code| **code == ErrorCode::None);
            accepted.for_each(|code| *code = error);
            None
        })
    }

    fn name<'t>(&self, topic: &OffsetCommitRequestTopic<'t>) -> NamedTopic<'t> {
        let id = (self.version >= IDS_FROM).then_some(topic.topic_id);
        NamedTopic { topic: topic.name, id }
    }

    /// Commits the partitions without an error. Partitions with too much metadata get their error
    /// here, after the group's checks.
    fn commit(
        &self,
        call: &mut Call<'_, '_>,
        codes: &mut [ErrorCode],
    ) -> Result<Option<AppendedAt>, ErrorCode> {
        let group_id = self.request.group_id;
        if group_id.len() > GROUP_ID_MAX {
            return Err(ErrorCode::InvalidGroupId);
        }
        let shard = call.broker.groups.shards.ready_of(group_id)?;
        let mut memory = shard.lock_ready()?;
        self.fenced(call, memory.kept.has_offsets(group_id))?;
        self.measure(codes, &call.broker.settings.load());
        if !codes.contains(&ErrorCode::None) {
            return Ok(None);
        }
        let record_builder = &mut call.thread.groups.record_builder;
        record_builder.begin(self.now_ms);
        self.each_accepted(codes, |topic, partition, value| {
            record_builder.offset((group_id, &topic.name, partition), Some(value));
        });
        let count = record_builder.count();
        shard.append_records(&mut memory, record_builder, self.now_ms)?;
        let mut record_offset = memory.end.0 - i64::from(count);
        self.each_accepted(codes, |topic, partition, value| {
            let stored = StoredOffset::of(value, record_offset);
            memory.kept.offsets.put((group_id, partition), &topic.name, stored);
            record_offset += 1;
        });
        let at = shard.end(&memory);
        drop(memory);
        advance(call, &shard);
        Ok(Some(at))
    }

    /// Checks whether this member may commit. `exists`: the group has committed before.
    fn fenced(&self, call: &Call<'_, '_>, exists: bool) -> Result<(), ErrorCode> {
        let request = self.request;
        let snapshots = &call.broker.groups.snapshots;
        let identity = MemberIdentity {
            group_id: request.group_id,
            member_id: request.member_id,
            instance_id: request.group_instance_id,
            generation: request.generation_id_or_member_epoch,
        };
        let error =
            snapshots.check_commit(&identity, self.version, call.broker.clock.monotonic_ms());
        match error {
            ErrorCode::None => Ok(()),
            ErrorCode::IllegalGeneration if snapshots.of(request.group_id).is_none() => {
                Err(match self.version {
                    _ if exists => ErrorCode::UnknownMemberId,
                    NOT_FOUND_FROM.. => ErrorCode::GroupIdNotFound,
                    _ => ErrorCode::IllegalGeneration,
                })
            }
            error => Err(error),
        }
    }

    /// Refuses the partitions with too much metadata.
    fn measure(&self, codes: &mut [ErrorCode], settings: &Settings) {
        let limit = settings.offset_metadata_max_bytes;
        let partitions = self.request.topics.iter().flat_map(|topic| &topic.partitions);
        for (partition, code) in partitions.zip(codes) {
            let metadata = partition.committed_metadata.unwrap_or_default();
            if *code == ErrorCode::None && !fits_metadata(metadata, limit) {
                *code = ErrorCode::OffsetMetadataTooLarge;
            }
        }
    }

    fn each_accepted(
        &self,
        codes: &[ErrorCode],
        mut with: impl FnMut(&TopicImage, i32, &OffsetCommitValue<'_>),
    ) {
        let mut codes = codes.iter();
        for topic in &self.request.topics {
            let found = self.name(topic).find(self.image);
            for (partition, code) in topic.partitions.iter().zip(codes.by_ref()) {
                if let (Ok(found), ErrorCode::None) = (found, code) {
                    with(found, partition.partition_index, &self.value(partition));
                }
            }
        }
    }

    fn value<'p>(&self, partition: &OffsetCommitRequestPartition<'p>) -> OffsetCommitValue<'p> {
        let retention_ms = self.request.retention_time_ms;
        let expires = retention_ms >= 0;
        let has_time = self.version == TIMES_IN && partition.commit_timestamp != -1;
        OffsetCommitValue {
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.committed_metadata.unwrap_or_default(),
            commit_timestamp: if has_time { partition.commit_timestamp } else { self.now_ms },
            expire_timestamp: if expires { self.now_ms.saturating_add(retention_ms) } else { -1 },
            ..Default::default()
        }
    }
}

/// Moves the watermark after an append to a shard, and wakes the requests that wait for it.
pub(crate) fn advance(call: &mut Call<'_, '_>, shard: &GroupShard) {
    shard.partition.advance(&mut call.broker.wakes(call.thread));
}
