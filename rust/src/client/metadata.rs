//! A Metadata response as owned values: brokers, topics, partitions, leaders.
//!
//! All fields exist at every version. A field that an old version lacks has Kafka's "unknown"
//! value.

use std::sync::Arc;

use super::error::Error;
use super::options::Address;
use crate::ids::TopicId;
use crate::protocol::metadata::{
    MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const LEADER_NOT_AVAILABLE: i16 = 5;

/// Topic and partition.
pub type PartitionKey = (Arc<str>, i32);

/// A Metadata response.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The cluster's id; `None` before version 2.
    pub cluster_id: Option<String>,
    /// The controller's node id; -1: unknown.
    pub controller_id: i32,
    /// The live brokers.
    pub brokers: Vec<BrokerMetadata>,
    /// The requested topics, or all.
    pub topics: Vec<Arc<TopicMetadata>>,
}

/// A live broker.
#[derive(Clone, Debug)]
pub struct BrokerMetadata {
    /// Its node id.
    pub node_id: i32,
    /// Its advertised address.
    pub address: Address,
    /// Its rack.
    pub rack: Option<String>,
}

/// A topic's partitions, or its error.
#[derive(Clone, Debug)]
pub struct TopicMetadata {
    /// Kafka's error code; 0: the other fields are valid.
    pub error_code: i16,
    /// The name.
    pub name: Arc<str>,
    /// The id; zero before version 10.
    pub topic_id: TopicId,
    /// Kafka's own topic (`__consumer_offsets`).
    pub is_internal: bool,
    /// The partitions, ascending.
    pub partitions: Vec<PartitionMetadata>,
}

/// One partition.
#[derive(Clone, Debug)]
pub struct PartitionMetadata {
    /// Kafka's error code. With LEADER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE the other fields are
    /// valid.
    pub error_code: i16,
    /// Its number.
    pub partition: i32,
    /// The leader's node id; -1: none.
    pub leader: i32,
    /// The leader epoch; -1: unknown.
    pub leader_epoch: i32,
    /// The replicas' node ids, the preferred leader first.
    pub replicas: Vec<i32>,
    /// The in-sync replicas.
    pub isr: Vec<i32>,
    /// The replicas on a broker or disk that has failed.
    pub offline: Vec<i32>,
}

impl Metadata {
    /// Copies a response out of its frame. A broker with an impossible port is left out.
    pub fn of(response: &MetadataResponse<'_>) -> Self {
        let brokers = response.brokers.iter().filter_map(|broker| {
            let address =
                Address { host: broker.host.to_owned(), port: u16::try_from(broker.port).ok()? };
            let rack = broker.rack.map(str::to_owned);
            Some(BrokerMetadata { node_id: broker.node_id, address, rack })
        });
        Self {
            cluster_id: response.cluster_id.map(str::to_owned),
            controller_id: response.controller_id,
            brokers: brokers.collect(),
            topics: response
                .topics
                .iter()
                .map(|topic| Arc::new(TopicMetadata::of(topic)))
                .collect(),
        }
    }
}

impl Metadata {
    /// Why a requested topic cannot be used; `None`: it can.
    pub(super) fn refusal(&self, name: &str) -> Option<Error> {
        let topic = self.topics.iter().find(|topic| &*topic.name == name);
        let code = match topic {
            None => UNKNOWN_TOPIC_OR_PARTITION,
            Some(topic) if topic.exists() => return None,
            Some(topic) if topic.error_code == 0 => LEADER_NOT_AVAILABLE,
            Some(topic) => topic.error_code,
        };
        Some(Error::refused(code, format!("topic {name:?}")))
    }
}

impl TopicMetadata {
    fn of(topic: &MetadataResponseTopic<'_>) -> Self {
        let mut partitions: Vec<_> = topic.partitions.iter().map(PartitionMetadata::of).collect();
        partitions.sort_by_key(|partition| partition.partition);
        Self {
            error_code: topic.error_code,
            name: topic.name.unwrap_or_default().into(),
            topic_id: topic.topic_id,
            is_internal: topic.is_internal,
            partitions,
        }
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        self.error_code == 0 && !self.partitions.is_empty()
    }

    /// The partition with this number.
    pub fn partition(&self, number: i32) -> Option<&PartitionMetadata> {
        let found = self.partitions.binary_search_by_key(&number, |p| p.partition).ok()?;
        self.partitions.get(found)
    }
}

impl PartitionMetadata {
    /// Whether the broker has a replica that is not known to be offline.
    pub(super) fn has_online(&self, node: i32) -> bool {
        self.replicas.contains(&node) && !self.offline.contains(&node)
    }

    fn of(partition: &MetadataResponsePartition) -> Self {
        Self {
            error_code: partition.error_code,
            partition: partition.partition_index,
            leader: partition.leader_id,
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes.clone(),
            isr: partition.isr_nodes.clone(),
            offline: partition.offline_replicas.clone(),
        }
    }
}
