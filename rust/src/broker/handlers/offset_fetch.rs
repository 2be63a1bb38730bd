//! OffsetFetch (9), v0-10: returns a group's committed offsets.
//! Behaviour: answered from memory; the reply leaves when the state it was made from is committed.
//!     A partition without an offset has offset -1, epoch -1 and no error. A group, topic or
//!     partition that is named twice is answered once.
//! Errors of a group: COORDINATOR_LOAD_IN_PROGRESS (14), NOT_COORDINATOR (16).
//! Authorization: Describe on the group, else GROUP_AUTHORIZATION_FAILED (30); Describe on a topic,
//!     else its partitions are TOPIC_AUTHORIZATION_FAILED (29), or missing in a list of all topics.
//! Version notes: v1 repeats a group's error for each partition; later versions have one for the
//!     group. From v2 on, null topics mean all. v5 adds leader epochs. v7 adds `require_stable`: a
//!     partition to which an open transaction has committed is UNSTABLE_OFFSET_COMMIT (88). v8 asks
//!     for many groups; each has an error. v9 adds the member of a consumer group: it must exist
//!     (else UNKNOWN_MEMBER_ID, 25) and have the current epoch (else STALE_MEMBER_EPOCH, 113; in
//!     the classic protocol ILLEGAL_GENERATION, 22). v10 adds topic ids: an unknown one is
//!     UNKNOWN_TOPIC_ID (100), and a reply with all topics omits deleted ones. The policy answers
//!     v0, whose offsets are in ZooKeeper.

use std::borrow::Cow;

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::handlers::group_reply;
use crate::broker::handlers::policy;
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::acls::ResourceType::{Group, Topic};
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::groups::offsets::{GroupOffsets, StoredOffset};
use crate::broker::state::groups::pending_offsets::PendingOffsets;
use crate::broker::state::image::ClusterImage;
use crate::ids::TopicId;
use crate::protocol::ErrorCode;
use crate::protocol::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use crate::wire::Reader;

/// The first version that asks for many groups.
const GROUPS_FROM: i16 = 8;
/// The first version with the member's id and epoch.
const MEMBERS_FROM: i16 = 9;
/// The first version that names topics by id.
const IDS_FROM: i16 = 10;
/// The first version whose answer has an error of the group.
const ERROR_FROM: i16 = 2;

/// A group's offsets of one topic.
struct OffsetFetchTopic<'f> {
    name: Cow<'f, str>,
    id: TopicId,
    partitions: Vec<OffsetFetchPartition>,
}

/// A partition's number, and its offset or error.
type OffsetFetchPartition = (i32, Result<Option<StoredOffset>, ErrorCode>);

/// A group in the reply.
struct OffsetFetchGroup<'f> {
    group_id: &'f str,
    topics: Result<Vec<OffsetFetchTopic<'f>>, ErrorCode>,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    if version == 0 {
        return policy::handle(call);
    }
    let request = OffsetFetchRequest::decode(&mut call.reader(), version)?;
    let (image, require_stable) = (call.image(), request.require_stable);
    let access = call.access();
    let mut at = Vec::new();
    let groups = asked(request, version).into_iter().map(|group| {
        let request = (version, require_stable, &group);
        let topics = match access.check(Describe, Group, group.group_id) {
            true => topics(call.broker, (&image, &access), request, &mut at),
            false => Err(ErrorCode::GroupAuthorizationFailed),
        };
        let topics = topics.or_else(|error| refused(&group, version, error));
        OffsetFetchGroup { group_id: group.group_id, topics }
    });
    let groups: Vec<OffsetFetchGroup<'_>> = groups.collect();
    group_reply::answer(call, at, refuse, |writer, version| {
        respond(&groups, version).encode(writer, version);
    })
}

/// The reply if the offsets cannot be read.
fn refuse(head: Head, body: &[u8], error: ErrorCode) -> Output {
    let version = head.version;
    let request = OffsetFetchRequest::decode(&mut Reader::new(body), version).unwrap_or_default();
    let groups = asked(request, version).into_iter().map(|group| OffsetFetchGroup {
        group_id: group.group_id,
        topics: refused(&group, version, error),
    });
    let groups: Vec<OffsetFetchGroup<'_>> = groups.collect();
    head.output(|writer, version| respond(&groups, version).encode(writer, version))
}

/// The requested groups in the form of the newest version.
fn asked(request: OffsetFetchRequest<'_>, version: i16) -> Vec<OffsetFetchRequestGroup<'_>> {
    if version >= GROUPS_FROM {
        let (mut groups, mut first) = (request.groups, FirstOnly::default());
        groups.retain(|group| first.passes(group.group_id));
        return groups;
    }
    let topics = request.topics.map(|topics| {
        let named = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..Default::default()
        });
        named.collect()
    });
    vec![OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() }]
}

/// A group's error in the form of the version: v1 repeats it for each partition.
fn refused<'f>(
    group: &OffsetFetchRequestGroup<'f>,
    version: i16,
    error: ErrorCode,
) -> Result<Vec<OffsetFetchTopic<'f>>, ErrorCode> {
    if version >= ERROR_FROM {
        return Err(error);
    }
    let topics = group.topics.iter().flatten();
    Ok(topics
        .map(|topic| each_partition(topic, Cow::Borrowed(topic.name), |_| Err(error)))
        .collect())
}

fn each_partition<'f>(
    topic: &OffsetFetchRequestTopics<'_>,
    name: Cow<'f, str>,
    mut find: impl FnMut(i32) -> Result<Option<StoredOffset>, ErrorCode>,
) -> OffsetFetchTopic<'f> {
    let mut first = FirstOnly::default();
    let once = topic.partition_indexes.iter().filter(|index| first.passes(**index));
    let partitions = once.map(|index| (*index, find(*index)));
    OffsetFetchTopic { name, id: topic.topic_id, partitions: partitions.collect() }
}

/// A group's offsets of the requested partitions. `at`: where the log must be committed first.
fn topics<'f>(
    broker: &Broker,
    (image, access): (&ClusterImage, &Access),
    (version, require_stable, group): (i16, bool, &OffsetFetchRequestGroup<'f>),
    at: &mut Vec<AppendedAt>,
) -> Result<Vec<OffsetFetchTopic<'f>>, ErrorCode> {
    let shard = broker.groups.shards.ready_of(group.group_id)?;
    let memory = shard.lock_ready()?;
    if version >= MEMBERS_FROM {
        let member = (group.member_id, group.member_epoch);
        broker.groups.snapshots.check_fetch(group.group_id, member)?;
    }
    if !shard.is_committed(&memory) {
        at.push(shard.end(&memory));
    }
    let offsets = memory.kept.offsets.of(group.group_id);
    let by_id = version >= IDS_FROM;
    let Some(asked) = &group.topics else {
        let mut topics = offsets.map_or_else(Vec::new, |offsets| all(offsets, image, by_id));
        topics.retain(|topic| access.sees(Describe, Topic, &topic.name));
        if require_stable {
            let pending = (&memory.kept.pending, group.group_id);
            topics.iter_mut().for_each(|topic| hide_pending(topic, pending));
        }
        return Ok(topics);
    };
    let pending = &memory.kept.pending;
    let get = |name: &str, index| {
        if !access.sees(Describe, Topic, name) {
            return Err(ErrorCode::TopicAuthorizationFailed);
        }
        if require_stable && pending.is_pending(group.group_id, name, index) {
            return Err(ErrorCode::UnstableOffsetCommit);
        }
        Ok(offsets.and_then(|it| it.get(name, index)).cloned())
    };
    let mut first = FirstOnly::default();
    let once = asked.iter().filter(|topic| first.passes((topic.name, topic.topic_id)));
    let topics = once.map(|topic| match image.topic_by_id(topic.topic_id) {
        _ if !by_id => {
            each_partition(topic, Cow::Borrowed(topic.name), |index| get(topic.name, index))
        }
        Some(found) => each_partition(topic, Cow::Borrowed(""), |index| get(&found.name, index)),
        None => each_partition(topic, Cow::Borrowed(""), |_| Err(ErrorCode::UnknownTopicId)),
    });
    Ok(topics.collect())
}

/// Replaces the offsets of partitions for which an open transaction has committed others.
fn hide_pending(topic: &mut OffsetFetchTopic<'_>, (pending, group_id): (&PendingOffsets, &str)) {
    for (index, found) in &mut topic.partitions {
        if pending.is_pending(group_id, &topic.name, *index) {
            *found = Err(ErrorCode::UnstableOffsetCommit);
        }
    }
}

/// All offsets of a group.
fn all<'f>(offsets: &GroupOffsets, image: &ClusterImage, by_id: bool) -> Vec<OffsetFetchTopic<'f>> {
    let topics = offsets.topics().filter_map(|(name, partitions)| {
        let id = image.topic(name).map(|topic| topic.id);
        if by_id && id.is_none_or(|id| id == TopicId::ZERO) {
            return None;
        }
        let partitions =
            partitions.iter().map(|(index, stored)| (*index, Ok(Some(stored.clone()))));
        Some(OffsetFetchTopic {
            name: Cow::Owned(name.to_string()),
            id: id.unwrap_or_default(),
            partitions: partitions.collect(),
        })
    });
    topics.collect()
}

/// Offset, leader epoch, metadata and error of a partition.
fn parts(found: &Result<Option<StoredOffset>, ErrorCode>) -> (i64, i32, &str, i16) {
    match found {
        Ok(Some(stored)) => (stored.offset, stored.leader_epoch, stored.metadata(), 0),
        Ok(None) => (-1, -1, "", 0),
        Err(error) => (-1, -1, "", error.code()),
    }
}

fn respond<'a>(groups: &'a [OffsetFetchGroup<'a>], version: i16) -> OffsetFetchResponse<'a> {
    if version >= GROUPS_FROM {
        let groups = groups.iter().map(|found| OffsetFetchResponseGroup {
            group_id: found.group_id,
            topics: found.topics.iter().flatten().map(of_group).collect(),
            error_code: found.topics.as_ref().err().map_or(0, |error| error.code()),
        });
        return OffsetFetchResponse { groups: groups.collect(), ..Default::default() };
    }
    let found = groups.first().map(|found| &found.topics);
    let error = found.and_then(|topics| topics.as_ref().err());
    let topics = found.into_iter().flatten().flatten().map(|topic| OffsetFetchResponseTopic {
        name: &topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|(partition_index, found)| {
                let (committed_offset, epoch, metadata, error_code) = parts(found);
                OffsetFetchResponsePartition {
                    partition_index: *partition_index,
                    committed_offset,
                    committed_leader_epoch: epoch,
                    metadata: Some(metadata),
                    error_code,
                }
            })
            .collect(),
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: error.map_or(0, |error| error.code()),
        ..Default::default()
    }
}

fn of_group<'a>(topic: &'a OffsetFetchTopic<'_>) -> OffsetFetchResponseTopics<'a> {
    let partitions = topic.partitions.iter().map(|(partition_index, found)| {
        let (committed_offset, epoch, metadata, error_code) = parts(found);
        OffsetFetchResponsePartitions {
            partition_index: *partition_index,
            committed_offset,
            committed_leader_epoch: epoch,
            metadata: Some(metadata),
            error_code,
        }
    });
    OffsetFetchResponseTopics {
        name: &topic.name,
        topic_id: topic.id,
        partitions: partitions.collect(),
    }
}
