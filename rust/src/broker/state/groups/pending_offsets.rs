//! Offsets that a transaction has committed while it is open. They apply when it is committed, and
//! are dropped when it is aborted.
//!
//! Invariant: each offset here is in the log, above the last marker of its producer. `producers` of
//!     a partition are exactly those that have an offset of it.
//! Threads: under the lock of the groups' shard.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::broker::state::groups::offsets::{OffsetKey, StoredOffset};

/// The pending offsets of one producer.
pub(crate) type TransactionOffsets = HashMap<OffsetKey, StoredOffset>;

/// The producers with a pending offset, by topic and partition.
type GroupPartitions = HashMap<Arc<str>, BTreeMap<i32, Vec<i64>>>;

/// The pending offsets of the groups of one shard. No producer, group or topic is empty.
#[derive(Debug, Default)]
pub(crate) struct PendingOffsets {
    by_producer: HashMap<i64, TransactionOffsets>,
    groups: HashMap<Arc<str>, GroupPartitions>,
}

impl PendingOffsets {
    /// Keeps an offset of a producer's transaction. A later one of the same partition replaces it.
    pub(crate) fn put(&mut self, producer: i64, key: OffsetKey, stored: StoredOffset) {
        let (group, topic, partition) = key.clone();
        if self.by_producer.entry(producer).or_default().insert(key, stored).is_none() {
            let topics = self.groups.entry(group).or_default();
            let partitions = topics.entry(topic).or_default();
            partitions.entry(partition).or_default().push(producer);
        }
    }

    /// Removes the offsets of a producer, whose transaction has ended.
    pub(crate) fn take(&mut self, producer: i64) -> TransactionOffsets {
        let offsets = self.by_producer.remove(&producer).unwrap_or_default();
        for (group, topic, partition) in offsets.keys() {
            self.unlist((group, topic, *partition), Some(producer));
        }
        offsets
    }

    /// Removes the pending offsets of a partition, because a tombstone was written.
    pub(crate) fn remove(&mut self, (group, topic, partition): (&str, &str, i32)) {
        let Some((group, topics)) = self.groups.get_key_value(group) else { return };
        let Some((topic, _)) = topics.get_key_value(topic) else { return };
        let key = (Arc::clone(group), Arc::clone(topic), partition);
        for producer in self.unlist((&key.0, &key.1, partition), None) {
            let Some(offsets) = self.by_producer.get_mut(&producer) else { continue };
            offsets.remove(&key);
            if offsets.is_empty() {
                self.by_producer.remove(&producer);
            }
        }
    }

    /// Whether an open transaction has committed an offset of this partition.
    pub(crate) fn is_pending(&self, group: &str, topic: &str, partition: i32) -> bool {
        let partitions = self.groups.get(group).and_then(|topics| topics.get(topic));
        partitions.is_some_and(|partitions| partitions.contains_key(&partition))
    }

    /// Whether an open transaction has committed an offset of this group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// The groups with pending offsets.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.keys()
    }

    /// The partitions of a group with pending offsets.
    pub(crate) fn keys_of(&self, group: &str) -> Vec<OffsetKey> {
        let Some((group, topics)) = self.groups.get_key_value(group) else { return Vec::new() };
        let keys = topics.iter().flat_map(|(topic, partitions)| {
            partitions.keys().map(|index| (Arc::clone(group), Arc::clone(topic), *index))
        });
        keys.collect()
    }

    /// The partitions of these topics with pending offsets.
    pub(crate) fn keys_of_topics(&self, topics: &HashSet<&str>) -> Vec<OffsetKey> {
        let keys = self.by_producer.values().flat_map(HashMap::keys);
        let mut keys: Vec<OffsetKey> =
            keys.filter(|(_, topic, _)| topics.contains(&**topic)).cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Takes a producer, or all, from the list of a partition. Returns those that were taken.
    fn unlist(
        &mut self,
        (group, topic, partition): (&str, &str, i32),
        producer: Option<i64>,
    ) -> Vec<i64> {
        let Some(topics) = self.groups.get_mut(group) else { return Vec::new() };
        let Some(partitions) = topics.get_mut(topic) else { return Vec::new() };
        let Some(producers) = partitions.get_mut(&partition) else { return Vec::new() };
        let is_taken = |it: &mut i64| producer.is_none_or(|producer| producer == *it);
        let taken = producers.extract_if(.., is_taken).collect();
        if producers.is_empty() {
            partitions.remove(&partition);
        }
        if partitions.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            self.groups.remove(group);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::offset_commit_value::OffsetCommitValue;

    fn key(group: &str, partition: i32) -> OffsetKey {
        (group.into(), "t".into(), partition)
    }

    fn stored(offset: i64) -> StoredOffset {
        StoredOffset::of(&OffsetCommitValue { offset, ..Default::default() }, offset)
    }

    #[test]
    fn a_partition_is_pending_until_all_transactions_with_an_offset_of_it_have_ended() {
        let mut pending = PendingOffsets::default();
        pending.put(1, key("g", 0), stored(10));
        pending.put(1, key("g", 0), stored(11));
        pending.put(2, key("g", 0), stored(20));
        pending.put(2, key("h", 1), stored(21));
        assert_eq!(pending.take(1)[&key("g", 0)].offset, 11);
        assert!(pending.is_pending("g", "t", 0) && pending.has_group("h"));
        assert!(pending.take(1).is_empty());
        assert_eq!(pending.take(2).len(), 2);
        assert!(!pending.is_pending("g", "t", 0) && pending.groups().count() == 0);
    }

    #[test]
    fn a_removed_partition_is_gone_from_all_transactions() {
        let mut pending = PendingOffsets::default();
        pending.put(1, key("g", 0), stored(10));
        pending.put(2, key("g", 0), stored(20));
        pending.put(2, key("g", 1), stored(21));
        assert_eq!(pending.keys_of_topics(&HashSet::from(["t"])).len(), 2);
        pending.remove(("g", "t", 0));
        assert_eq!(pending.keys_of("g"), [key("g", 1)]);
        assert!(pending.take(1).is_empty());
        assert_eq!(pending.take(2).len(), 1);
    }
}
