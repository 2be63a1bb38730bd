//! The group coordinator's state for the partitions of `__consumer_offsets` that this broker leads.
//! It makes no decision about a group; the coordinator in Python does.
//!
//! ```text
//! shard      one partition and its groups            records       keys and values, as bytes
//! offsets    committed offsets                       kinds         records of consumer groups
//! snapshot   members, as the policy publishes them   published     the same, to check requests
//! snapshots  all published groups                    epochs        checks for consumer groups
//! sessions   session deadlines of members            membership    when offsets may be deleted
//! shard_groups: what a shard keeps of its log        offset_scan   offsets in slices
//! pending_offsets: committed by open transactions
//! appending  records that the policy appends         next_members  those of the next snapshot
//! group_table, shared_map: how snapshots are kept
//! ```
//! Invariant: a shard's lock is taken before a lock of the snapshots, never after.
//! Threads: network threads (commits, fetches), the policy thread, the loader, the log scheduler
//!     (expiry of offsets), workers and the transaction thread (markers).
//! Before a shard is loaded (`CoordinatorState::Loading`), its state is incomplete and no request
//! reads it.

pub(crate) mod appending;
pub(crate) mod epochs;
mod group_table;
pub(crate) mod kinds;
pub(crate) mod membership;
mod next_members;
pub(crate) mod offset_scan;
pub(crate) mod offsets;
pub(crate) mod pending_offsets;
pub(crate) mod published;
pub(crate) mod records;
pub(crate) mod sessions;
pub(crate) mod shard;
pub(crate) mod shard_groups;
mod shared_map;
pub(crate) mod snapshot;
pub(crate) mod snapshots;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::broker::state::coordinator::shards::CoordinatorShards;
use crate::broker::state::groups::records::RecordBuilder;
use crate::broker::state::groups::shard::GroupShard;
use crate::broker::state::groups::shard_groups::ShardGroups;
use crate::broker::state::groups::snapshots::GroupSnapshots;
use crate::broker::state::image::TopicImage;
use crate::protocol::ErrorCode;

/// The group coordinator's state.
#[derive(Debug, Default)]
pub struct Groups {
    /// The group snapshots.
    pub(crate) snapshots: GroupSnapshots,
    pub(crate) shards: CoordinatorShards<ShardGroups>,
    /// Requests wait until this monotonic time for the groups that are loaded at the start; 0: they
    /// do not wait.
    pub(crate) wait_until_ms: AtomicI64,
}

/// Buffers that one network thread reuses from request to request.
#[derive(Debug, Default)]
pub(crate) struct GroupScratch {
    pub(crate) record_builder: RecordBuilder,
    pub(crate) codes: Vec<ErrorCode>,
}

impl Groups {
    /// Follows the topic's partitions. Returns the shards that must be replayed, and the groups
    /// that this broker no longer coordinates.
    pub(crate) fn follow(
        &self,
        topic: Option<&TopicImage>,
        node: i32,
    ) -> (Vec<Arc<GroupShard>>, Vec<Arc<str>>) {
        let changes = self.shards.follow(topic, node);
        let is_none = changes.unloaded.is_empty();
        let mut unloaded = if is_none { Vec::new() } else { self.snapshots.groups() };
        unloaded.retain(|group_id| changes.has_unloaded(group_id));
        (changes.to_load, unloaded)
    }

    /// Until this monotonic time, requests on groups wait for groups that are being loaded.
    pub(crate) fn have_requests_wait(&self, until_ms: i64) {
        self.wait_until_ms.store(until_ms, Ordering::Relaxed);
    }
}
