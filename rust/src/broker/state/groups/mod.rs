//! What the group coordinator keeps here, of the groups whose partitions of `__consumer_offsets`
//! this broker leads. Nothing here decides.
//!
//! ```text
//! shard    one partition: which groups, their log    records  keys and values, as bytes
//! offsets  what a group has committed                kinds    records of consumer groups
//! fences   who may commit, as published              epochs   the same of consumer groups
//! sessions whose time is up                          appending  what is appended, and where
//! ```
//! Each partition of `__consumer_offsets` that this broker leads is a [`shard::Shard`] behind a
//! lock of its own: under it a commit is checked, appended and kept, in one order for log and
//! memory.
//! Invariant: a shard's lock is taken before a lock of the fences, never after.
//! Threads: network threads (commits, fetches), the policy thread, the loader.
//! Not promised: anything before the partition is loaded; that is `CoordinatorState::Loading`.

pub(crate) mod appending;
pub(crate) mod epochs;
pub(crate) mod kinds;
pub(crate) mod offsets;
pub(crate) mod records;
pub(crate) mod sessions;
pub(crate) mod shard;
pub(crate) mod snapshots;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use arc_swap::ArcSwap;

use crate::broker::state::groups::records::RecordBuilder;
use crate::broker::state::groups::shard::{Phase, Shard, partition_for};
use crate::broker::state::groups::snapshots::GroupSnapshots;
use crate::broker::state::image::{PartitionImage, TopicImage};
use crate::protocol::ErrorCode;

/// What a group's coordinator keeps here.
#[derive(Debug, Default)]
pub struct Groups {
    /// Who may commit and heartbeat.
    pub(crate) snapshots: GroupSnapshots,
    pub(crate) shards: ArcSwap<Shards>,
    /// Until when (monotonic) requests wait for what is being read since the start; 0: no longer.
    pub(crate) wait_until_ms: AtomicI64,
    /// Set when the broker closes, so that a replay ends.
    pub(crate) stopping: AtomicBool,
}

/// The partitions of the topic as they are in the image.
#[derive(Debug, Default)]
pub(crate) struct Shards {
    /// By number; `None`: led elsewhere.
    pub(crate) all: Vec<Option<Arc<Shard>>>,
}

/// Memory that one reactor thread uses again from request to request.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) record_builder: RecordBuilder,
    pub(crate) codes: Vec<ErrorCode>,
}

/// How far the partition of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorState {
    /// It is being replayed: COORDINATOR_LOAD_IN_PROGRESS.
    Loading,
    /// Requests are answered.
    Ready,
    /// Another broker leads it, or it does not exist yet: NOT_COORDINATOR.
    NotHere,
}

impl Groups {
    /// Follows the topic from now on. Returns the shards that have something to replay, and the
    /// groups that do not live here any more, or are to be read again.
    pub(crate) fn follow(
        &self,
        topic: Option<&TopicImage>,
        node: i32,
    ) -> (Vec<Arc<Shard>>, Vec<Arc<str>>) {
        let before = self.shards.load_full();
        let partitions = topic.map(|topic| topic.partitions.as_slice()).unwrap_or_default();
        // With another number of partitions each group lives elsewhere.
        let kept = if partitions.len() == before.all.len() { before.all.as_slice() } else { &[] };
        let mut loading = Vec::new();
        let shard = |(index, image): (i32, &PartitionImage)| {
            let partition = image.local.as_ref().filter(|_| image.state.leader == node)?;
            let is_its = |old: &&Arc<Shard>| Arc::ptr_eq(&old.partition, partition);
            if let Some(old) = kept.iter().flatten().find(is_its) {
                return Some(Arc::clone(old));
            }
            let shard = Arc::new(Shard::new(index, Arc::clone(partition)));
            if shard.phase() == Phase::Loading {
                loading.push(Arc::clone(&shard));
            }
            Some(shard)
        };
        let all: Vec<_> = (0..).zip(partitions).map(shard).collect();
        let stays = |old: &Arc<Shard>| all.iter().flatten().any(|new| Arc::ptr_eq(new, old));
        let gone: Vec<_> = before.all.iter().flatten().filter(|old| !stays(old)).collect();
        for gone in &gone {
            gone.leave(&mut gone.state.lock());
        }
        let mut left = if gone.is_empty() { Vec::new() } else { self.snapshots.groups() };
        left.retain(|group_id| {
            let place = partition_for(group_id, before.all.len());
            gone.iter().any(|gone| usize::try_from(gone.index) == Ok(place))
        });
        self.shards.store(Arc::new(Shards { all }));
        (loading, left)
    }

    pub(crate) fn shard_of(&self, group_id: &str) -> Option<Arc<Shard>> {
        let shards = self.shards.load();
        shards.all.get(partition_for(group_id, shards.all.len()))?.clone()
    }

    /// Whether a group lives in a shard.
    pub(crate) fn is_of(&self, shard: &Arc<Shard>, group_id: &str) -> bool {
        self.shard_of(group_id).is_some_and(|other| Arc::ptr_eq(shard, &other))
    }

    /// The shard of a group that is ready, or the error that says why not.
    pub(crate) fn shard(&self, group_id: &str) -> Result<Arc<Shard>, ErrorCode> {
        let shard = self.shard_of(group_id).ok_or(ErrorCode::NotCoordinator)?;
        shard.usable().map(|()| shard)
    }

    /// All shards that are ready.
    pub(crate) fn ready(&self) -> Vec<Arc<Shard>> {
        let shards = self.shards.load();
        let ready = shards.all.iter().flatten().filter(|shard| shard.phase() == Phase::Ready);
        ready.cloned().collect()
    }

    /// How far the partition of a group is.
    pub(crate) fn state(&self, group_id: &str) -> CoordinatorState {
        match self.shard_of(group_id).map(|shard| shard.phase()) {
            Some(Phase::Ready) => CoordinatorState::Ready,
            Some(Phase::Loading) => CoordinatorState::Loading,
            Some(Phase::Gone) | None => CoordinatorState::NotHere,
        }
    }
}

impl Groups {
    /// From now until then (monotonic) requests on groups wait while groups are being read.
    pub(crate) fn have_requests_wait(&self, until_ms: i64) {
        self.wait_until_ms.store(until_ms, Ordering::Relaxed);
    }
}
