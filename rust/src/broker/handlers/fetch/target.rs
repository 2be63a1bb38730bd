//! The partitions that a Fetch reads: those that it names, or those of its session.
//!
//! Threads: the network thread of the request.

use std::sync::Arc;

use ahash::HashMap;

use crate::broker::handlers::fetch::reader::FetchReader;
use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::requests::access::Access;
use crate::broker::requests::call::Call;
use crate::broker::state::acls::Operation::Read;
use crate::broker::state::fetch_sessions::{
    CachedPartition, FetchContext, FetchSession, ReadRequest, SessionUse, SharedSession,
};
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::broker::state::lookup::NamedTopic;
use crate::ids::{Epoch, TopicId};
use crate::protocol::ErrorCode;
use crate::protocol::fetch::{FetchPartition, FetchRequest, FetchTopic};

/// The first version that names topics by id.
const IDS_FROM: i16 = 13;
/// The session epoch that ends a session, or asks for none.
const FINAL_EPOCH: i32 = -1;

/// The source of the partitions: a session or the request.
#[derive(Debug)]
pub(super) enum FetchTarget {
    /// The partitions of this request; there is no session.
    Once(FetchContext),
    /// The partitions of a session. `full`: the reply has all partitions, not only those that
    /// changed. `epoch`: the session's epoch while this is its last request. `forgotten`: how many
    /// partitions the session had forgotten when they were read.
    Session { session: Arc<SharedSession>, id: i32, full: bool, epoch: i32, forgotten: u64 },
}

/// Finds or creates the fetch context of a request.
pub(super) fn target(
    call: &mut Call<'_, '_>,
    request: &FetchRequest<'_>,
    node: i32,
) -> Result<FetchTarget, ErrorCode> {
    let by_id = call.version() >= IDS_FROM;
    let sessions = &call.broker.fetch_sessions;
    let (connection, now_ms) = (call.connection.number, call.broker.clock.monotonic_ms());
    let reader = FetchReader::of(request);
    let access = if reader.is_follower() { call.own_access() } else { call.access() };
    let thread = &call.thread;
    if request.session_epoch > 0 {
        let (id, epoch) = (request.session_id, request.session_epoch);
        let asked = SessionUse { id, epoch, by_id, connection, now_ms };
        let (session, epoch) =
            sessions.resume(&mut call.connection.fetch_sessions, asked, |session| {
                session.context.go_on_for(access.client.as_ref());
                update(session, request, (&thread.image, node, &access));
            })?;
        return Ok(FetchTarget::Session { session, id, full: false, epoch, forgotten: 0 });
    }
    let mut context = FetchContext::new(by_id);
    context.reads_to_log_end = reader.reads_to_log_end();
    context.reads_any_replica = reader.reads_any_replica(call.version());
    context.reader = access.client.clone();
    context.image_number = thread.image_number;
    let named = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    context.reserve(named);
    let mut topics = HashMap::default();
    let mut first = FirstOnly::with_capacity(if named > 1 { named } else { 0 });
    for (number, topic) in request.topics.iter().enumerate() {
        let (name, found) = named_topic((&thread.image, &access), topic, by_id);
        let number = *topics.entry((topic.topic, topic.topic_id)).or_insert(number);
        for partition in &topic.partitions {
            if named > 1 && !first.passes((number, partition.partition)) {
                continue;
            }
            let mut entry = entry(Arc::clone(&name), topic.topic_id, partition);
            entry.resolve_in(found, (node, context.reads_any_replica));
            context.push(entry);
        }
    }
    let replaced = request.session_id;
    if call.version() < 7 || request.session_epoch == FINAL_EPOCH {
        if replaced != 0 {
            sessions.end(replaced);
        }
        return Ok(FetchTarget::Once(context));
    }
    let of_connection = (&mut call.connection.fetch_sessions, replaced);
    Ok(match sessions.create(context, of_connection, (connection, now_ms)) {
        Ok((id, session)) => {
            FetchTarget::Session { session, id, full: true, epoch: 1, forgotten: 0 }
        }
        Err(context) => FetchTarget::Once(context),
    })
}

/// Applies the changes of an incremental request to its session.
fn update(
    session: &mut FetchSession,
    request: &FetchRequest<'_>,
    (image, node, access): (&ClusterImage, i32, &Access),
) {
    let by_id = session.context.by_id;
    for topic in &request.topics {
        let mut named = None;
        for partition in &topic.partitions {
            let number = session.number(topic.topic, topic.topic_id, partition.partition);
            if let Some(number) = number {
                session.context.activate(number);
                if let Some(entry) = session.context.entry(number) {
                    entry.request = read_request(partition);
                }
                continue;
            }
            let (name, found) =
                named.get_or_insert_with(|| named_topic((image, access), topic, by_id));
            let mut entry = entry(Arc::clone(name), topic.topic_id, partition);
            entry.resolve_in(*found, (node, session.context.reads_any_replica));
            session.add(entry);
        }
    }
    for topic in &request.forgotten_topics_data {
        for partition in &topic.partitions {
            session.forget(topic.topic, topic.topic_id, *partition);
        }
    }
}

/// A topic of a request, by name or id, if the client may read it, and the name to keep.
fn named_topic<'i>(
    (image, access): (&'i ClusterImage, &Access),
    topic: &FetchTopic<'_>,
    by_id: bool,
) -> (Arc<str>, Result<&'i Arc<TopicImage>, ErrorCode>) {
    let named = NamedTopic { topic: topic.topic, id: by_id.then_some(topic.topic_id) };
    let found = access.topic(Read, named, image);
    (found.map_or_else(|_| Arc::from(topic.topic), |it| Arc::clone(&it.name)), found)
}

fn read_request(partition: &FetchPartition) -> ReadRequest {
    ReadRequest {
        fetch_offset: partition.fetch_offset,
        max_bytes: partition.partition_max_bytes,
        current_leader_epoch: partition.current_leader_epoch,
        last_fetched_epoch: partition.last_fetched_epoch,
        log_start: partition.log_start_offset,
    }
}

fn entry(topic: Arc<str>, id: TopicId, partition: &FetchPartition) -> CachedPartition {
    CachedPartition {
        topic,
        id,
        partition: partition.partition,
        request: read_request(partition),
        local: Err(ErrorCode::UnknownTopicOrPartition),
        leader: (-1, Epoch::NONE),
        zstd: false,
        is_active: true,
        sent_high_watermark: -1,
        sent_log_start: -1,
    }
}
