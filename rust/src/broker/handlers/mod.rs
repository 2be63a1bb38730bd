//! The handlers, one file per API; each opens with what it serves, how, and what it leaves out.

pub(crate) mod api_versions;
pub(crate) mod consumer_group_heartbeat;
pub(crate) mod delete_records;
pub(crate) mod describe_acls;
pub(crate) mod describe_cluster;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod group;
pub(crate) mod heartbeat;
pub(crate) mod init_producer_id;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod policy;
pub(crate) mod produce;
pub(crate) mod sasl_handshake;

use std::hash::Hash;
use std::sync::Arc;

use ahash::{HashSet, RandomState};

use super::image::{ClusterImage, PartitionImage, TopicImage};
use super::partition::Partition;
use crate::ids::{Epoch, TopicId};
use crate::protocol::ErrorCode;

/// `topic_authorized_operations` where nobody asked.
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// Every operation on a topic: without an authorizer everybody may do everything.
pub(crate) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// Every operation on the cluster.
pub(crate) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// A topic as a request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    /// The topic's name, where the version has names.
    pub(crate) topic: &'a str,
    /// The topic's id, where the version has ids.
    pub(crate) id: Option<TopicId>,
}

impl Named<'_> {
    /// The topic, or the error of its absence.
    #[inline]
    pub(crate) fn find(self, image: &ClusterImage) -> Result<&Arc<TopicImage>, ErrorCode> {
        match self.id {
            None => image.topic(self.topic).ok_or(ErrorCode::UnknownTopicOrPartition),
            Some(id) => image.topic_by_id(id).ok_or(ErrorCode::UnknownTopicId),
        }
    }
}

/// Lets each key pass the first time only: what a request names a thousand times is answered
/// once.
#[derive(Debug)]
pub(crate) struct FirstOnly<K>(HashSet<K>);

impl<K> Default for FirstOnly<K> {
    fn default() -> Self {
        Self(HashSet::default())
    }
}

impl<K: Eq + Hash> FirstOnly<K> {
    /// One that has room for so many keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        Self(HashSet::with_capacity_and_hasher(keys, RandomState::default()))
    }

    /// Whether this is the first time.
    pub(crate) fn passes(&mut self, key: K) -> bool {
        self.0.insert(key)
    }
}

/// The partition of a topic that this broker leads.
#[inline]
pub(crate) fn led(
    topic: &TopicImage,
    index: i32,
    node: i32,
) -> Result<(&PartitionImage, &Arc<Partition>), ErrorCode> {
    let image = topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if image.state.leader != node {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let local = image.local.as_ref().ok_or(ErrorCode::KafkaStorageError)?;
    Ok((image, local))
}

/// Compares the leader epoch that a client believes in with the real one; -1 believes in none.
#[inline]
pub(crate) fn fence(believed: i32, real: Epoch) -> Result<(), ErrorCode> {
    match believed {
        -1 => Ok(()),
        older if older < real.0 => Err(ErrorCode::FencedLeaderEpoch),
        newer if newer > real.0 => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}
