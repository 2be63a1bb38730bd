//! The requests to a leader: Fetch as a replica, OffsetForLeaderEpoch, ListOffsets.
//!
//! Version notes: Fetch from v4, because older ones convert records. It names topics by id from v13
//!     on, if all topics have one. It names this broker as `replica_id` before v15, and from then
//!     on as `replica_state`, with its registration (KIP-903). A leader without v12 does not say
//!     where logs diverge; it is asked for the end of an epoch first.
//! Threads: one.

use std::collections::HashMap;

use super::partitions::{PartitionTable, Questions, SessionChanges};
use super::session::FetcherSession;
use crate::broker::fetching::FetcherSettings;
use crate::broker::replica::follower::FollowerRequest;
use crate::client::connection::BrokerConnection;
use crate::client::{Error, Result};
use crate::ids::TopicId;
use crate::protocol::fetch::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState,
};
use crate::protocol::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use crate::protocol::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

pub(super) const FETCH: i16 = 1;
pub(super) const LIST_OFFSETS: i16 = 2;
pub(super) const OFFSET_FOR_LEADER_EPOCH: i16 = 23;

/// The first version that does not convert records.
const UNCONVERTED_FROM: i16 = 4;
/// The first version that says where logs diverge.
const DIVERGENCE_FROM: i16 = 12;
/// The last version that names topics.
const BY_NAME: i16 = 12;
/// The newest version that this follower writes.
const NEWEST: i16 = 18;
/// The first version of ListOffsets that answers one offset.
const ONE_OFFSET_FROM: i16 = 1;

/// The Fetch versions that a leader serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchVersions {
    by_name: i16,
    by_id: Option<i16>,
}

impl FetchVersions {
    /// What the leader at the other end serves.
    pub fn of(connection: &BrokerConnection) -> Result<Self> {
        let newest = connection.version(FETCH, NEWEST)?;
        let by_name = connection.version(FETCH, BY_NAME).unwrap_or(newest);
        if by_name < UNCONVERTED_FROM {
            let address = connection.address().to_string();
            return Err(Error::Unsupported { api: "Fetch", address });
        }
        Ok(Self { by_name, by_id: Some(newest).filter(|newest| *newest > BY_NAME) })
    }

    /// Whether the leader says where logs diverge.
    pub fn say_divergence(self) -> bool {
        self.by_name >= DIVERGENCE_FROM
    }

    /// The version to use, and whether it names topics by id.
    pub fn pick(self, has_ids: bool) -> (i16, bool) {
        match self.by_id {
            Some(version) if has_ids => (version, true),
            _ => (self.by_name, false),
        }
    }
}

/// Who fetches.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowerIdentity {
    /// Its node id.
    pub node_id: i32,
    /// Its registration.
    pub broker_epoch: i64,
}

/// A Fetch that says these changes to the leader's session.
pub(super) fn fetch<'t>(
    table: &'t PartitionTable,
    (session, changes): (&FetcherSession, &'t SessionChanges),
    (settings, replica): (&FetcherSettings, FollowerIdentity),
) -> FetchRequest<'t> {
    let mut topics: Vec<FetchTopic<'_>> = Vec::new();
    let mut indexes = HashMap::new();
    for slot in &changes.send {
        let Some(fetched) = table.get(*slot) else { continue };
        let Some(FollowerRequest::Fetch {
            fetch_offset,
            last_fetched_epoch,
            log_start,
            current_leader_epoch,
        }) = fetched.in_session
        else {
            continue;
        };
        let partition = &fetched.partition;
        let topic = &*partition.name.topic;
        let index = *indexes.entry((topic, partition.topic_id)).or_insert_with(|| {
            let topic_id = partition.topic_id;
            topics.push(FetchTopic { topic, topic_id, ..FetchTopic::default() });
            topics.len() - 1
        });
        let Some(named) = topics.get_mut(index) else { continue };
        named.partitions.push(FetchPartition {
            partition: partition.name.partition,
            current_leader_epoch: current_leader_epoch.0,
            fetch_offset: fetch_offset.0,
            last_fetched_epoch: last_fetched_epoch.0,
            log_start_offset: log_start.0,
            partition_max_bytes: settings.partition_max_bytes,
            ..FetchPartition::default()
        });
    }
    FetchRequest {
        replica_id: replica.node_id,
        max_wait_ms: settings.wait_max_ms,
        min_bytes: settings.min_bytes,
        max_bytes: settings.response_max_bytes,
        session_id: session.id,
        session_epoch: session.epoch,
        topics,
        forgotten_topics_data: forgotten(changes),
        replica_state: ReplicaState {
            replica_id: replica.node_id,
            replica_epoch: replica.broker_epoch,
        },
        ..FetchRequest::default()
    }
}

fn forgotten(changes: &SessionChanges) -> Vec<ForgottenTopic<'_>> {
    let mut topics: HashMap<(TopicId, &str), Vec<i32>> = HashMap::new();
    for (id, topic, partition) in &changes.forget {
        topics.entry((*id, topic)).or_default().push(*partition);
    }
    let topic = |((topic_id, topic), partitions)| ForgottenTopic { topic, topic_id, partitions };
    topics.into_iter().map(topic).collect()
}

/// Questions on partitions of this table, by topic. `ask` makes one of a partition's question.
fn by_topic<'t, P>(
    table: &'t PartitionTable,
    questions: &Questions,
    ask: impl Fn(i32, FollowerRequest) -> Option<P>,
) -> Vec<(&'t str, Vec<P>)> {
    let mut topics: HashMap<&str, Vec<P>> = HashMap::new();
    for (slot, question) in questions {
        let Some(fetched) = table.get(*slot) else { continue };
        let name = &fetched.partition.name;
        if let Some(asked) = ask(name.partition, *question) {
            topics.entry(&name.topic).or_default().push(asked);
        }
    }
    topics.into_iter().collect()
}

/// Where the last epochs of partitions end at the leader; `None` if no partition asks that.
pub(super) fn ends_of_epochs<'t>(
    table: &'t PartitionTable,
    questions: &Questions,
    replica: FollowerIdentity,
) -> Option<OffsetForLeaderEpochRequest<'t>> {
    let asked = by_topic(table, questions, |partition, question| {
        let FollowerRequest::EndOfEpoch { epoch, current_leader_epoch } = question else {
            return None;
        };
        Some(OffsetForLeaderPartition {
            partition,
            current_leader_epoch: current_leader_epoch.0,
            leader_epoch: epoch.0,
        })
    });
    let topics: Vec<_> = asked
        .into_iter()
        .map(|(topic, partitions)| OffsetForLeaderTopic { topic, partitions })
        .collect();
    let replica_id = replica.node_id;
    (!topics.is_empty()).then_some(OffsetForLeaderEpochRequest { replica_id, topics })
}

/// Where the logs of partitions begin (`timestamp` -2) or end (-1) at the leader; `None` if no
/// partition asks that.
pub(super) fn bounds<'t>(
    table: &'t PartitionTable,
    questions: &Questions,
    (timestamp, replica): (i64, FollowerIdentity),
) -> Option<ListOffsetsRequest<'t>> {
    let asked = by_topic(table, questions, |partition_index, question| {
        let FollowerRequest::LogBounds { current_leader_epoch } = question else { return None };
        let current_leader_epoch = current_leader_epoch.0;
        Some(ListOffsetsPartition {
            partition_index,
            current_leader_epoch,
            timestamp,
            ..ListOffsetsPartition::default()
        })
    });
    let topics: Vec<_> =
        asked.into_iter().map(|(name, partitions)| ListOffsetsTopic { name, partitions }).collect();
    let replica_id = replica.node_id;
    let request = ListOffsetsRequest { replica_id, topics, ..ListOffsetsRequest::default() };
    (!request.topics.is_empty()).then_some(request)
}

/// The version of ListOffsets to use.
pub(super) fn list_offsets_version(connection: &BrokerConnection) -> Result<i16> {
    let version = connection.version(LIST_OFFSETS, i16::MAX)?;
    if version < ONE_OFFSET_FROM {
        let address = connection.address().to_string();
        return Err(Error::Unsupported { api: "ListOffsets", address });
    }
    Ok(version)
}
