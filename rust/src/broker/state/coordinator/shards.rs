//! The shards of a coordinator on this broker, and which of them owns a key.
//!
//! A key is a group id or a transactional id. Its partition is Java's hash of the key modulo the
//! number of partitions, as in every broker and client of the cluster.
//! Threads: read by any. [`CoordinatorShards::follow`] is called by one thread at a time, with each
//!     delta.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::broker::state::coordinator::shard::{CoordinatorShard, CoordinatorState};
use crate::broker::state::image::{PartitionImage, TopicImage};
use crate::protocol::ErrorCode;

/// By partition; `None`: another broker leads it.
type ByPartition<S> = Vec<Option<Arc<CoordinatorShard<S>>>>;

/// The partitions of a coordinator's topic as they are in the image.
#[derive(Debug, Default)]
pub(crate) struct CoordinatorShards<S> {
    all: ArcSwap<ByPartition<S>>,
}

/// The changes of a delta.
#[derive(Debug)]
pub(crate) struct ShardChanges<S> {
    /// Shards with records to replay.
    pub(crate) to_load: Vec<Arc<CoordinatorShard<S>>>,
    /// Partitions that this broker no longer coordinates; all of its partitions if the number of
    /// partitions changed.
    pub(crate) unloaded: Vec<i32>,
    /// How many partitions the topic had before.
    pub(crate) partitions_before: usize,
}

/// The partition of a key, of `count`: Java's hash of its UTF-16, without its sign.
pub(crate) fn partition_for(key: &str, count: usize) -> usize {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    let hash = key.encode_utf16().fold(0, step);
    usize::try_from(hash.checked_abs().unwrap_or(0)).unwrap_or(0).checked_rem(count).unwrap_or(0)
}

impl<S> ShardChanges<S> {
    /// Whether a key's shard was unloaded.
    pub(crate) fn has_unloaded(&self, key: &str) -> bool {
        let partition = i32::try_from(partition_for(key, self.partitions_before));
        partition.is_ok_and(|partition| self.unloaded.contains(&partition))
    }
}

impl<S: Default> CoordinatorShards<S> {
    /// Takes over the topic's partitions: those that `node` leads now get a shard, those that it
    /// led are unloaded.
    pub(crate) fn follow(&self, topic: Option<&TopicImage>, node: i32) -> ShardChanges<S> {
        let before = self.all.load_full();
        let partitions = topic.map(|topic| topic.partitions.as_slice()).unwrap_or_default();
        // If the number of partitions changed, each key belongs to another partition.
        let kept = if partitions.len() == before.len() { before.as_slice() } else { &[] };
        let mut to_load = Vec::new();
        let shard = |(index, image): (i32, &PartitionImage)| {
            let partition = image.local.as_ref().filter(|_| image.state.leader == node)?;
            let is_its = |old: &&Arc<CoordinatorShard<S>>| Arc::ptr_eq(&old.partition, partition);
            if let Some(old) = kept.iter().flatten().find(is_its) {
                return Some(Arc::clone(old));
            }
            let shard = Arc::new(CoordinatorShard::new(index, Arc::clone(partition)));
            if shard.state() == CoordinatorState::Loading {
                to_load.push(Arc::clone(&shard));
            }
            Some(shard)
        };
        let all: ByPartition<S> = (0..).zip(partitions).map(shard).collect();
        let stays =
            |old: &Arc<CoordinatorShard<S>>| all.iter().flatten().any(|new| Arc::ptr_eq(new, old));
        let mut unloaded = Vec::new();
        for gone in before.iter().flatten().filter(|old| !stays(old)) {
            gone.unload(&mut gone.lock());
            unloaded.push(gone.index);
        }
        self.all.store(Arc::new(all));
        ShardChanges { to_load, unloaded, partitions_before: before.len() }
    }

    /// The shard of a partition, if this broker has it.
    pub(crate) fn at(&self, partition: i32) -> Option<Arc<CoordinatorShard<S>>> {
        self.all().get(usize::try_from(partition).ok()?)?.clone()
    }

    /// The shard of a key, if this broker has it.
    pub(crate) fn of(&self, key: &str) -> Option<Arc<CoordinatorShard<S>>> {
        let all = self.all();
        all.get(partition_for(key, all.len()))?.clone()
    }

    /// The shard of a key. Errors: the code that requests for it get.
    pub(crate) fn ready_of(&self, key: &str) -> Result<Arc<CoordinatorShard<S>>, ErrorCode> {
        let shard = self.of(key).ok_or(ErrorCode::NotCoordinator)?;
        shard.check_ready().map(|()| shard)
    }

    /// Whether a shard is the one of a key.
    pub(crate) fn is_of(&self, shard: &Arc<CoordinatorShard<S>>, key: &str) -> bool {
        self.of(key).is_some_and(|other| Arc::ptr_eq(shard, &other))
    }

    /// The state of a key's shard.
    pub(crate) fn state_of(&self, key: &str) -> CoordinatorState {
        self.of(key).map_or(CoordinatorState::NotHere, |shard| shard.state())
    }

    /// All shards that are ready.
    pub(crate) fn ready(&self) -> Vec<Arc<CoordinatorShard<S>>> {
        let all = self.all();
        let ready = all.iter().flatten().filter(|it| it.state() == CoordinatorState::Ready);
        ready.cloned().collect()
    }

    /// Whether any shard is being replayed.
    pub(crate) fn is_loading(&self) -> bool {
        self.all().iter().flatten().any(|shard| shard.state() == CoordinatorState::Loading)
    }

    fn all(&self) -> Guard<Arc<ByPartition<S>>> {
        self.all.load()
    }
}
