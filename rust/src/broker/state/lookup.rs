//! Looks up the topics and partitions of a request in the image. The errors are Kafka's codes.
//!
//! Threads: any; pure.

use std::sync::Arc;

use crate::broker::state::image::{ClusterImage, PartitionImage, TopicImage};
use crate::broker::state::partition::Partition;
use crate::ids::{Epoch, TopicId};
use crate::protocol::ErrorCode;

/// A topic as a request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedTopic<'a> {
    /// The topic's name, if the version has names.
    pub(crate) topic: &'a str,
    /// The topic's id, if the version has ids.
    pub(crate) id: Option<TopicId>,
}

impl NamedTopic<'_> {
    /// The topic, or the error if it does not exist.
    #[inline]
    pub(crate) fn find(self, image: &ClusterImage) -> Result<&Arc<TopicImage>, ErrorCode> {
        match self.id {
            None => image.topic(self.topic).ok_or(ErrorCode::UnknownTopicOrPartition),
            Some(id) => image.topic_by_id(id).ok_or(ErrorCode::UnknownTopicId),
        }
    }
}

/// A topic that was looked up by the name `named` or by its id, if the client may use it:
/// `is_allowed` tells of a name. An id that no topic has stays unknown.
pub(crate) fn allowed<'i>(
    named: &str,
    found: Result<&'i Arc<TopicImage>, ErrorCode>,
    is_allowed: impl FnOnce(&str) -> bool,
) -> Result<&'i Arc<TopicImage>, ErrorCode> {
    let name = match found {
        Ok(topic) => &*topic.name,
        Err(ErrorCode::UnknownTopicId) => return found,
        Err(_) => named,
    };
    if is_allowed(name) { found } else { Err(ErrorCode::TopicAuthorizationFailed) }
}

/// Finds the partition of a topic, if this broker leads it.
#[inline]
pub(crate) fn find_led(
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

/// Finds the partition of a topic, if this broker has a replica, whichever broker leads it.
pub(crate) fn find_replica(
    topic: &TopicImage,
    index: i32,
    node: i32,
) -> Result<(&PartitionImage, &Arc<Partition>), ErrorCode> {
    let image = topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    match &image.local {
        Some(local) => Ok((image, local)),
        None if image.state.replicas.contains(&node) => Err(ErrorCode::KafkaStorageError),
        None => Err(ErrorCode::NotLeaderOrFollower),
    }
}

/// Compares the leader epoch that a client knows with the current one; -1: it knows none.
#[inline]
pub(crate) fn check_leader_epoch(believed: i32, real: Epoch) -> Result<(), ErrorCode> {
    match believed {
        -1 => Ok(()),
        older if older < real.0 => Err(ErrorCode::FencedLeaderEpoch),
        newer if newer > real.0 => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}
