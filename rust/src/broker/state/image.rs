//! The cluster image: names, ids, leaders, epochs, typed settings, and the partitions on this
//! broker. It is immutable. A numbered [`MetadataDelta`] makes a new image.
//!
//! A request reads one image, so that it sees one state of the cluster. A delayed request reads the
//! newest one when it goes on.
//! Format: topics are stored in 64 shards, by name and by id. A delta of one topic copies one shard
//!     of each kind, not all topics.
//! Invariant: versions rise. A topic is in the shard of its name and, if it has an id, in the shard
//!     of its id. Hashes are keyed, because clients choose names and could choose ones that
//!     collide.
//! Threads: swapped as a whole. Each network thread keeps an `Arc` and compares version numbers.
//! Not promised: that other brokers have the same image at the same time.

use std::collections::HashSet;
use std::sync::Arc;

use ahash::{HashMap, RandomState};

use crate::broker::state::acls::AclTable;
use crate::broker::state::partition::Partition;
use crate::broker::state::quotas;
use crate::broker::state::quotas::replication::ReplicaThrottles;
use crate::ids::{Epoch, TopicId, TopicPartition};
use crate::storage::LogConfig;
use crate::transport::sasl::{DelegationToken, DelegationTokens, ScramUsers};

const SHARDS: usize = 64;

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterImage {
    /// The number of the last delta in it.
    pub version: u64,
    /// The cluster's id, 22 characters.
    pub cluster_id: Arc<str>,
    /// The controller's node id; -1 if there is none.
    pub controller_id: i32,
    /// All brokers that are alive, this one included.
    pub brokers: Arc<[BrokerImage]>,
    /// This broker's registration (KIP-903); -1: it has none yet.
    pub broker_epoch: i64,
    /// True until the controller has sent the first metadata. Until then clients should use other
    /// brokers.
    pub waits: bool,
    /// The client quotas, if there are any.
    pub quotas: Option<Arc<quotas::QuotaTable>>,
    /// The users that log in by SCRAM.
    pub scram: Arc<ScramUsers>,
    /// The delegation tokens.
    pub tokens: Arc<DelegationTokens>,
    /// The ACLs, if there is an authorizer.
    pub acls: Arc<AclTable>,
    keys: RandomState,
    names: Vec<Arc<TopicShard<Arc<str>>>>,
    ids: Vec<Arc<TopicShard<TopicId>>>,
}

type TopicShard<K> = HashMap<K, Arc<TopicImage>>;

/// A broker and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its node id.
    pub id: i32,
    /// Its rack.
    pub rack: Option<Arc<str>>,
    /// One entry per listener with an advertised address. A listener of this broker without one
    /// is advertised as the address the client connected to.
    pub endpoints: Vec<Endpoint>,
}

/// An advertised address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name.
    pub listener: Arc<str>,
    /// The host that clients receive.
    pub host: Arc<str>,
    /// The port that clients receive.
    pub port: u16,
}

/// Where another broker listens for brokers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// Its node id.
    pub broker: i32,
    /// The host of its inter-broker listener.
    pub host: Arc<str>,
    /// The port of that listener.
    pub port: u16,
}

/// A topic.
#[derive(Clone, Debug)]
pub struct TopicImage {
    /// Its name.
    pub name: Arc<str>,
    /// Its id; zero if it has none.
    pub id: TopicId,
    /// True for topics that hold the broker's own state.
    pub internal: bool,
    /// Its settings as far as the data path needs them.
    pub settings: Arc<TopicSettings>,
    /// Its partitions by number.
    pub partitions: Vec<PartitionImage>,
}

/// A partition.
#[derive(Clone, Debug)]
pub struct PartitionImage {
    /// Its leader and replicas.
    pub state: PartitionState,
    /// The partition, if a replica is on this broker and its log directory is online.
    pub local: Option<Arc<Partition>>,
}

/// The leader and replicas of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The leader's node id; -1 if there is none.
    pub leader: i32,
    /// The leader's epoch.
    pub leader_epoch: Epoch,
    /// In-sync replicas.
    pub isr: Vec<i32>,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Kafka's partition epoch: it rises with each change of leader or in-sync replicas. It is the
    /// version of the partition's state in the metadata store. -1: unknown.
    pub partition_epoch: i32,
}

/// A topic's settings, typed.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// The settings of the log.
    pub log: LogConfig,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `krust.validate.compressed=header`: only the headers of compressed batches are checked.
    pub trusts_compressed: bool,
    /// The throttled replicas.
    pub throttles: ReplicaThrottles,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            log: LogConfig::default(),
            min_insync_replicas: 1,
            trusts_compressed: false,
            throttles: ReplicaThrottles::default(),
        }
    }
}

/// A change of the image.
#[derive(Clone, Debug, Default)]
pub struct MetadataDelta {
    /// Its number; above the image's, or the delta is ignored.
    pub version: u64,
    /// The cluster's id, when it becomes known.
    pub cluster_id: Option<Arc<str>>,
    /// The controller, if it changed.
    pub controller_id: Option<i32>,
    /// All brokers, if any changed.
    pub brokers: Option<Vec<BrokerImage>>,
    /// This broker's registration, if it registered.
    pub broker_epoch: Option<i64>,
    /// Whether the first metadata is still missing, if that changed.
    pub waits: Option<bool>,
    /// All quotas, if any changed.
    pub quotas: Option<Vec<(quotas::QuotaEntity, quotas::QuotaLimits)>>,
    /// All users that log in by SCRAM, if any changed.
    pub scram: Option<ScramUsers>,
    /// The delegation tokens that changed; `None` for one that is gone.
    pub tokens: Vec<(String, Option<DelegationToken>)>,
    /// All ACLs, if any changed.
    pub acls: Option<Arc<AclTable>>,
    /// The topics that changed; `None` for one that is gone.
    pub topics: Vec<(Arc<str>, Option<TopicDelta>)>,
    /// Partitions whose files are renamed and kept when they leave this broker. The files of others
    /// are deleted.
    pub strays: HashSet<TopicPartition>,
}

/// A topic's new state.
#[derive(Clone, Debug)]
pub struct TopicDelta {
    /// Its id. A different id than the image's means that the old topic was deleted.
    pub id: TopicId,
    /// True for topics that hold the broker's own state.
    pub internal: bool,
    /// Its settings.
    pub settings: TopicSettings,
    /// The partitions that changed, in ascending order. Other partitions stay as they are. A topic
    /// that is new to the image has all of its partitions here, from 0 on.
    pub partitions: Vec<(i32, PartitionState)>,
}

impl ClusterImage {
    /// An image without topics.
    pub fn empty() -> Self {
        Self {
            controller_id: -1,
            broker_epoch: -1,
            names: vec![Arc::default(); SHARDS],
            ids: vec![Arc::default(); SHARDS],
            ..Self::default()
        }
    }

    /// The topic of this name.
    #[inline]
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.names.get(shard(&self.keys, name.as_bytes()))?.get(name)
    }

    /// The topic with this id.
    #[inline]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.ids.get(shard(&self.keys, &id.0))?.get(&id)
    }

    /// All topics, in no order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.names.iter().flat_map(|shard| shard.values())
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.names.iter().map(|shard| shard.len()).sum()
    }

    /// The broker with this node id.
    pub fn broker(&self, id: i32) -> Option<&BrokerImage> {
        self.brokers.iter().find(|broker| broker.id == id)
    }

    /// Where a broker listens for brokers, if it is registered with that listener.
    pub fn peer_address(&self, broker: i32, listener: &str) -> Option<PeerAddress> {
        let mut endpoints = self.broker(broker)?.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| *endpoint.listener == *listener)?;
        Some(PeerAddress { broker, host: Arc::clone(&endpoint.host), port: endpoint.port })
    }

    /// Adds a topic or replaces the one of the same name.
    pub fn put(&mut self, topic: Arc<TopicImage>) {
        self.remove(&topic.name);
        if topic.id != TopicId::ZERO
            && let Some(shard) = self.ids.get_mut(shard(&self.keys, &topic.id.0))
        {
            Arc::make_mut(shard).insert(topic.id, Arc::clone(&topic));
        }
        if let Some(shard) = self.names.get_mut(shard(&self.keys, topic.name.as_bytes())) {
            Arc::make_mut(shard).insert(Arc::clone(&topic.name), topic);
        }
    }

    /// Removes a topic.
    pub fn remove(&mut self, name: &str) -> Option<Arc<TopicImage>> {
        let names = self.names.get_mut(shard(&self.keys, name.as_bytes()))?;
        let topic = Arc::make_mut(names).remove(name)?;
        if let Some(ids) = self.ids.get_mut(shard(&self.keys, &topic.id.0)) {
            Arc::make_mut(ids).remove(&topic.id);
        }
        Some(topic)
    }
}

impl TopicImage {
    /// The partition of this number.
    #[inline]
    pub fn partition(&self, index: i32) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

/// The shard of a key.
#[inline]
fn shard(keys: &RandomState, key: &[u8]) -> usize {
    (keys.hash_one(key) >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, id: u8) -> Arc<TopicImage> {
        Arc::new(TopicImage {
            name: name.into(),
            id: TopicId([id; 16]),
            internal: false,
            settings: Arc::default(),
            partitions: Vec::new(),
        })
    }

    #[test]
    fn a_topic_is_found_by_name_and_by_id() {
        let mut image = ClusterImage::empty();
        for index in 0..200 {
            image.put(topic(&format!("orders-{index}"), index as u8 + 1));
        }
        assert_eq!(image.topic_count(), 200);
        assert_eq!(image.topic("orders-17").unwrap().id, TopicId([18; 16]));
        assert_eq!(&*image.topic_by_id(TopicId([18; 16])).unwrap().name, "orders-17");
        assert!(image.topic("orders-200").is_none());
    }

    #[test]
    fn a_topic_created_again_loses_its_old_id() {
        let mut image = ClusterImage::empty();
        image.put(topic("a", 1));
        let before = image.clone();
        image.put(topic("a", 2));
        assert!(image.topic_by_id(TopicId([1; 16])).is_none());
        assert_eq!(&*image.topic_by_id(TopicId([2; 16])).unwrap().name, "a");
        assert!(before.topic_by_id(TopicId([1; 16])).is_some(), "an image never changes");
        image.remove("a");
        assert_eq!(image.topic_count(), 0);
    }
}
