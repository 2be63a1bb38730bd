//! Expires offsets by Kafka's rules for `offsets.retention.minutes`, in rounds of
//! `offsets.retention.check.interval.ms`, and writes tombstones for them.
//!
//! ```text
//! the group                        an offset's time runs
//! has no members or metadata       from its commit
//! is Empty                         from when the group became empty, or its commit if later
//! is Stable, of consumers          from its commit, if no member subscribes to the topic
//! is a consumer group (KIP-848)    from its commit, if no member subscribes to the topic
//! otherwise                        not at all
//! ```
//! An offset with its own expiry timestamp expires by that only. While a transaction has a pending
//! offset of a partition, the committed one stays, and so does the group. The policy gets the event
//! `OffsetsExpired` for an empty group without offsets. Offsets of deleted topics are removed at
//! once.
//! Threads: the log scheduler's, and that of a delta. A shard's lock is held for a slice of
//!     [`SLICE`] offsets; requests that wait for it come between two slices.
//! Not promised: that an offset is removed before the next round.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::broker::policy::Event;
use crate::broker::requests::broker::Broker;
use crate::broker::state::groups::offset_scan::OffsetScan;
use crate::broker::state::groups::offsets::{GroupOffsets, OffsetKey, StoredOffset};
use crate::broker::state::groups::records::RecordBuilder;
use crate::broker::state::groups::shard::{GroupShard, GroupShardMemory};
use crate::broker::state::waking::Wakes;
use crate::protocol::value::Value;

/// How many offsets, or groups without offsets, are checked under one hold of a shard's lock.
const SLICE: usize = 512;

impl Broker {
    /// One round: tombstones for all expired offsets.
    pub fn expire_offsets(&self) {
        let times = (self.clock.wall_ms(), self.settings.load().offsets_retention_ms);
        let idle = self.groups.snapshots.idle();
        for shard in self.groups.shards.ready() {
            let mut empty = HashSet::new();
            let every = |group: &GroupOffsets| group.topics.keys().cloned().collect();
            let is_due = |group: &str| {
                let membership = self.groups.snapshots.membership(group);
                move |topic: &str, stored: &StoredOffset| membership.expired((topic, stored), times)
            };
            self.forget_in_slices(&shard, (every, is_due, true), |gone| {
                for group in gone {
                    if self.groups.snapshots.membership(&group).is_empty() {
                        self.tell_expired(&group);
                        empty.insert(group);
                    }
                }
            });
            let here = |group: &&Arc<str>| self.groups.shards.is_of(&shard, group);
            let bare: Vec<_> =
                idle.iter().filter(|group| !empty.contains(*group)).filter(here).collect();
            for groups in bare.chunks(SLICE) {
                let Ok(memory) = shard.lock_ready() else { break };
                let bare = groups.iter().filter(|group| !memory.kept.has_offsets(group));
                bare.for_each(|group| self.tell_expired(group));
                MutexGuard::unlock_fair(memory);
            }
        }
    }

    /// Tells the policy that a group has no offsets left.
    fn tell_expired(&self, group: &str) {
        let fields = vec![("group_id".into(), Value::Str(group.to_owned()))];
        self.policy.submit(Event::internal("OffsetsExpired", Value::Map(fields)));
    }

    /// Tombstones for the offsets of deleted topics.
    pub(crate) fn forget_topics(&self, topics: &[Arc<str>]) {
        let deleted: HashSet<&str> = topics.iter().map(|topic| &**topic).collect();
        let select = |group: &GroupOffsets| -> Vec<Arc<str>> {
            if group.topics.len() < deleted.len() {
                let is_deleted = |topic: &&Arc<str>| deleted.contains(&***topic);
                group.topics.keys().filter(is_deleted).cloned().collect()
            } else {
                let is_there = |topic: &&Arc<str>| group.topics.contains_key(*topic);
                topics.iter().filter(is_there).cloned().collect()
            }
        };
        for shard in self.groups.shards.ready().iter().filter(|_| !topics.is_empty()) {
            let each = |_: &str| |_: &str, _: &StoredOffset| true;
            self.forget_in_slices(shard, (&select, each, false), |_| {});
            let Ok(mut memory) = shard.lock_ready() else { continue };
            let pending = memory.kept.pending.keys_of_topics(&deleted);
            if !pending.is_empty() {
                shard.forget(&mut memory, pending, self.clock.wall_ms());
                drop(memory);
                shard.partition.advance(&mut Wakes { here: None, waker: self });
            }
        }
    }

    /// Tombstones for the offsets of a shard that are due (see [`OffsetScan::next`]), but not those
    /// of partitions with pending offsets if it `spares_pending`. `emptied` is called with the
    /// groups that have no offsets left, under the shard's lock.
    fn forget_in_slices<F: Fn(&str, &StoredOffset) -> bool>(
        &self,
        shard: &GroupShard,
        (topics, is_due, spares_pending): (
            impl Fn(&GroupOffsets) -> Vec<Arc<str>>,
            impl Fn(&str) -> F,
            bool,
        ),
        mut emptied: impl FnMut(Vec<Arc<str>>),
    ) {
        let now_ms = self.clock.wall_ms();
        let Ok(memory) = shard.lock_ready() else { return };
        let mut scan = OffsetScan::of(&memory.kept.offsets);
        MutexGuard::unlock_fair(memory);
        while let Ok(mut memory) = shard.lock_ready() {
            let due = scan.next(&memory.kept.offsets, SLICE, (&topics, &is_due));
            let Some(mut keys) = due else { break };
            if spares_pending {
                let pending = &memory.kept.pending;
                keys.retain(|(group, topic, index)| !pending.is_pending(group, topic, *index));
            }
            let is_none = keys.is_empty();
            emptied(shard.forget(&mut memory, keys, now_ms));
            MutexGuard::unlock_fair(memory);
            if !is_none {
                shard.partition.advance(&mut Wakes { here: None, waker: self });
            }
        }
    }
}

impl GroupShard {
    /// Appends tombstones for `keys`, as many as possible. Returns the groups without offsets.
    fn forget(
        &self,
        memory: &mut GroupShardMemory,
        keys: Vec<OffsetKey>,
        now_ms: i64,
    ) -> Vec<Arc<str>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let mut groups: Vec<Arc<str>> = keys.iter().map(|key| Arc::clone(&key.0)).collect();
        let mut record_builder = RecordBuilder::default();
        record_builder.begin(now_ms);
        let outcome =
            self.write_tombstones(memory, &mut record_builder, (keys, now_ms)).and_then(|rest| {
                if !record_builder.is_empty() {
                    self.append_records(memory, &mut record_builder, now_ms)?;
                }
                memory.kept.remove_all(&rest);
                Ok(())
            });
        if let Err(error) = outcome {
            let partition = &self.partition.name;
            tracing::warn!(%partition, "tombstones of offsets: {}", error.name());
        }
        groups.dedup();
        groups.retain(|group| !memory.kept.has_offsets(group));
        groups
    }
}
