//! Committed offsets in memory: group -> topic -> partition -> offset. Every OffsetFetch reads
//! them.
//!
//! Invariant: each offset here is in the log. The newest record of a key wins.
//! Threads: under the lock of the group's shard.
//! Not promised: that the topics exist.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::protocol::offset_commit_value::OffsetCommitValue;

/// The longest metadata that a record's value can hold, in bytes.
const METADATA_MAX: usize = 0x7fff;

/// Whether metadata is within `offset.metadata.max.bytes` and fits into a record.
pub(crate) fn fits_metadata(metadata: &str, limit: usize) -> bool {
    // Kafka counts UTF-16 units, of which there are never more than bytes.
    let is_large = metadata.len() > limit && metadata.encode_utf16().count() > limit;
    !is_large && metadata.len() <= METADATA_MAX
}

/// Group, topic and partition of an offset.
pub(crate) type OffsetKey = (Arc<str>, Arc<str>, i32);

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredOffset {
    /// The offset of the next record to read.
    pub(crate) offset: i64,
    /// The leader epoch of the last record read; -1: not known.
    pub(crate) leader_epoch: i32,
    /// The member's metadata; `None` if it sent none.
    metadata: Option<Box<str>>,
    /// When it was committed, wall clock.
    pub(crate) commit_timestamp: i64,
    /// Its own expiry time, whatever the settings say; -1: none.
    pub(crate) expire_timestamp: i64,
    /// The offset of its record in the group's log. A later record wins, whenever the transaction
    /// of the earlier one ends.
    record_offset: i64,
}

/// The offsets of one topic by partition.
pub(crate) type TopicOffsets = BTreeMap<i32, StoredOffset>;

/// The offsets of one group. No topic is empty.
#[derive(Debug, Default)]
pub(crate) struct GroupOffsets {
    pub(crate) topics: ahash::HashMap<Arc<str>, TopicOffsets>,
}

/// The offsets of the groups of one shard. No group is empty.
#[derive(Debug, Default)]
pub(crate) struct ShardOffsets {
    pub(crate) groups: HashMap<Arc<str>, GroupOffsets>,
}

impl StoredOffset {
    /// An offset whose record is at `record_offset`.
    pub(crate) fn of(value: &OffsetCommitValue<'_>, record_offset: i64) -> Self {
        Self {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: (!value.metadata.is_empty()).then(|| value.metadata.into()),
            commit_timestamp: value.commit_timestamp,
            expire_timestamp: value.expire_timestamp,
            record_offset,
        }
    }

    /// The member's metadata.
    pub(crate) fn metadata(&self) -> &str {
        self.metadata.as_deref().unwrap_or_default()
    }
}

impl GroupOffsets {
    /// The offset of a partition.
    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<&StoredOffset> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Everything, by topic.
    pub(crate) fn topics(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &TopicOffsets)> {
        self.topics.iter()
    }
}

impl ShardOffsets {
    /// The offsets of a group, if it has any.
    pub(crate) fn of(&self, group: &str) -> Option<&GroupOffsets> {
        self.groups.get(group)
    }

    /// Keeps an offset of `topic`.
    pub(crate) fn put(
        &mut self,
        (group, partition): (&str, i32),
        topic: &(impl AsRef<str> + Clone + Into<Arc<str>>),
        stored: StoredOffset,
    ) {
        if !self.groups.contains_key(group) {
            self.groups.insert(group.into(), GroupOffsets::default());
        }
        let Some(of_group) = self.groups.get_mut(group) else { return };
        match of_group.topics.get_mut(topic.as_ref()) {
            Some(partitions) => drop(partitions.insert(partition, stored)),
            None => {
                let partitions = TopicOffsets::from([(partition, stored)]);
                of_group.topics.insert(topic.clone().into(), partitions);
            }
        }
    }

    /// Keeps the offset of a transaction that is committed, unless a later record has another.
    pub(crate) fn apply(&mut self, (group, topic, partition): &OffsetKey, stored: StoredOffset) {
        let newest = self.of(group).and_then(|offsets| offsets.get(topic, *partition));
        if newest.is_none_or(|newest| newest.record_offset < stored.record_offset) {
            self.put((group, *partition), topic, stored);
        }
    }

    /// Removes an offset.
    pub(crate) fn remove(&mut self, (group, topic, partition): (&str, &str, i32)) {
        let Some(of_group) = self.groups.get_mut(group) else { return };
        let Some(partitions) = of_group.topics.get_mut(topic) else { return };
        partitions.remove(&partition);
        if partitions.is_empty() {
            of_group.topics.remove(topic);
        }
        if of_group.topics.is_empty() {
            self.groups.remove(group);
        }
    }

    /// All offsets of a group.
    pub(crate) fn keys_of(&self, group: &str) -> Vec<OffsetKey> {
        let Some((group, offsets)) = self.groups.get_key_value(group) else { return Vec::new() };
        let mut keys = Vec::new();
        for (topic, partitions) in offsets.topics() {
            let key = |partition: &i32| (Arc::clone(group), Arc::clone(topic), *partition);
            keys.extend(partitions.keys().map(key));
        }
        keys
    }
}
