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
//! An offset with its own expiry timestamp expires by that only. The policy is told of empty groups
//! without offsets (`OffsetsExpired`). Offsets of deleted topics are removed at once.
//! Threads: the log scheduler's, and that of a delta. A shard's lock is held for one partition.
//! Not promised: that an offset is removed before the next round.

use std::sync::Arc;

use crate::broker::policy::Event;
use crate::broker::requests::broker::Broker;
use crate::broker::state::groups::offsets::Key;
use crate::broker::state::groups::records::RecordBuilder;
use crate::broker::state::groups::shard::{GroupShard, GroupShardMemory};
use crate::broker::state::groups::snapshots::GroupSnapshots;
use crate::broker::state::waking::Wakes;
use crate::protocol::value::Value;

impl Broker {
    /// One round: tombstones for all expired offsets.
    pub fn expire_offsets(&self) {
        let now_ms = self.clock.wall_ms();
        let times = (now_ms, self.settings.load().offsets_retention_ms);
        let idle = self.groups.snapshots.idle();
        for shard in self.groups.shards.ready() {
            let Ok(mut memory) = shard.lock_ready() else { continue };
            let keys = due(&memory, &self.groups.snapshots, times);
            let gone = shard.forget(&mut memory, keys, now_ms);
            let mut empty: Vec<&str> =
                gone.iter().map(|group| &**group).filter(|it| self.is_empty(it)).collect();
            let here = |group: &&Arc<str>| self.groups.shards.is_of(&shard, group);
            let bare = idle.iter().filter(here).filter(|it| memory.kept.offsets.of(it).is_none());
            empty.extend(bare.map(|group| &**group));
            empty.sort_unstable();
            empty.dedup();
            for group in empty {
                let group_id = Value::Str(group.to_owned());
                let fields = vec![("group_id".into(), group_id)];
                self.policy.submit(Event::internal("OffsetsExpired", Value::Map(fields)));
            }
            drop(memory);
            shard.partition.advance(&mut Wakes { here: None, waker: self });
        }
    }

    fn is_empty(&self, group: &str) -> bool {
        self.groups.snapshots.membership(group).is_empty()
    }

    /// Tombstones for the offsets of deleted topics.
    pub(crate) fn forget_topics(&self, topics: &[Arc<str>]) {
        let now_ms = self.clock.wall_ms();
        for shard in self.groups.shards.ready().iter().filter(|_| !topics.is_empty()) {
            let Ok(mut memory) = shard.lock_ready() else { continue };
            let mut keys = Vec::new();
            for (group, offsets) in &memory.kept.offsets.groups {
                for topic in topics {
                    let partitions = offsets.topics.get(topic).into_iter().flatten();
                    keys.extend(
                        partitions.map(|(at, _)| (Arc::clone(group), Arc::clone(topic), *at)),
                    );
                }
            }
            shard.forget(&mut memory, keys, now_ms);
            drop(memory);
            shard.partition.advance(&mut Wakes { here: None, waker: self });
        }
    }
}

/// The expired offsets of a shard.
fn due(memory: &GroupShardMemory, snapshots: &GroupSnapshots, times: (i64, i64)) -> Vec<Key> {
    let mut keys = Vec::new();
    for (group, offsets) in &memory.kept.offsets.groups {
        let membership = snapshots.membership(group);
        for (topic, partitions) in offsets.topics() {
            let due = partitions.iter().filter(|(_, it)| membership.expired((topic, it), times));
            keys.extend(due.map(|(at, _)| (Arc::clone(group), Arc::clone(topic), *at)));
        }
    }
    keys
}

impl GroupShard {
    /// Appends tombstones for `keys`, as many as possible. Returns the groups without offsets.
    fn forget(&self, memory: &mut GroupShardMemory, keys: Vec<Key>, now_ms: i64) -> Vec<Arc<str>> {
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
                memory.kept.offsets.remove_all(&rest);
                Ok(())
            });
        if let Err(error) = outcome {
            let partition = &self.partition.name;
            tracing::warn!(%partition, "tombstones of offsets: {}", error.name());
        }
        groups.dedup();
        groups.retain(|group| memory.kept.offsets.of(group).is_none());
        groups
    }
}
