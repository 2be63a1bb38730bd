//! What a shard of the group coordinator keeps in memory of its log: committed offsets, and those
//! of open transactions.
//!
//! Threads: under the lock of the shard.

use crate::broker::state::groups::offsets::{OffsetKey, ShardOffsets, StoredOffset};
use crate::broker::state::groups::pending_offsets::PendingOffsets;
use crate::protocol::offset_commit_key::OffsetCommitKey;
use crate::protocol::offset_commit_value::OffsetCommitValue;

/// The state of a shard's groups.
#[derive(Debug, Default)]
pub struct ShardGroups {
    pub(crate) offsets: ShardOffsets,
    pub(crate) pending: PendingOffsets,
    /// Groups that the policy has lost, for example after a failed append. They are replayed.
    pub(crate) lost: Vec<Box<str>>,
}

impl ShardGroups {
    /// Whether a group has an offset, committed or pending.
    pub(crate) fn has_offsets(&self, group: &str) -> bool {
        self.offsets.of(group).is_some() || self.pending.has_group(group)
    }

    /// Whether a partition has an offset, committed or pending.
    pub(crate) fn has_offset(&self, group: &str, topic: &str, partition: i32) -> bool {
        let offsets = self.offsets.of(group);
        offsets.is_some_and(|offsets| offsets.get(topic, partition).is_some())
            || self.pending.is_pending(group, topic, partition)
    }

    /// All partitions of a group with an offset.
    pub(crate) fn keys_of(&self, group: &str) -> Vec<OffsetKey> {
        let mut keys = self.offsets.keys_of(group);
        if self.pending.has_group(group) {
            keys.extend(self.pending.keys_of(group));
            keys.sort_unstable();
            keys.dedup();
        }
        keys
    }

    /// Takes an offset of the log, or its tombstone (`None`), that is at `record_offset` there.
    ///
    /// transaction_of: the producer whose transaction it belongs to.
    pub fn replay(
        &mut self,
        (transaction_of, record_offset): (Option<i64>, i64),
        key: &OffsetCommitKey<'_>,
        value: Option<&OffsetCommitValue<'_>>,
    ) {
        let (group, topic, partition) = (key.group, key.topic, key.partition);
        let stored = value.map(|value| StoredOffset::of(value, record_offset));
        match (stored, transaction_of) {
            (Some(stored), None) => self.offsets.put((group, partition), &topic, stored),
            (Some(stored), Some(producer)) => {
                let key = (group.into(), topic.into(), partition);
                self.pending.put(producer, key, stored);
            }
            (None, _) => self.remove((group, topic, partition)),
        }
    }

    /// The committed offset of a partition.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        Some(self.offsets.of(group)?.get(topic, partition)?.offset)
    }

    /// Whether an open transaction has committed an offset of a partition.
    pub fn is_pending(&self, group: &str, topic: &str, partition: i32) -> bool {
        self.pending.is_pending(group, topic, partition)
    }

    /// The transaction of a producer has ended: its offsets apply, or are dropped.
    pub fn end_transaction(&mut self, producer_id: i64, commit: bool) {
        let ended = self.pending.take(producer_id);
        for (key, stored) in ended.into_iter().filter(|_| commit) {
            self.offsets.apply(&key, stored);
        }
    }

    /// Removes offsets, committed and pending, whose tombstones are written.
    pub(crate) fn remove_all(&mut self, keys: &[OffsetKey]) {
        for (group, topic, partition) in keys {
            self.remove((group, topic, *partition));
        }
    }

    /// Removes an offset, whose tombstone is written.
    pub(crate) fn remove(&mut self, key: (&str, &str, i32)) {
        self.offsets.remove(key);
        self.pending.remove(key);
    }
}
