//! A scan of a shard's committed offsets in slices, so that the shard's lock is released between
//! them.
//!
//! Invariant: a slice checks at most its limit of offsets and groups. An offset that exists from
//!     the first slice to the last is checked once.
//! Threads: each slice is under the shard's lock, the scan belongs to one thread.
//! Not promised: offsets that are committed between two slices. The next scan finds them.

use std::sync::Arc;

use crate::broker::state::groups::offsets::{GroupOffsets, OffsetKey, ShardOffsets, StoredOffset};

/// The progress of a scan.
#[derive(Debug)]
pub(crate) struct OffsetScan {
    /// Groups to scan, the last first.
    groups: Vec<Arc<str>>,
    current: Option<CurrentGroup>,
}

/// The group that is being scanned.
#[derive(Debug)]
struct CurrentGroup {
    group: Arc<str>,
    /// Topics to scan, the last first.
    topics: Vec<Arc<str>>,
    /// The first partition to check in the last of `topics`.
    from: i32,
}

impl OffsetScan {
    /// A scan of all groups.
    pub(crate) fn of(offsets: &ShardOffsets) -> Self {
        Self { groups: offsets.groups.keys().cloned().collect(), current: None }
    }

    /// The next slice: which offsets are due among at most `limit`. `None`: all have been scanned.
    ///
    /// `topics` chooses among the topics of a group; `is_due` is asked for a group, then for each
    /// of its offsets.
    pub(crate) fn next<F: Fn(&str, &StoredOffset) -> bool>(
        &mut self,
        offsets: &ShardOffsets,
        limit: usize,
        (topics, is_due): (impl Fn(&GroupOffsets) -> Vec<Arc<str>>, impl Fn(&str) -> F),
    ) -> Option<Vec<OffsetKey>> {
        let mut keys = Vec::new();
        let mut left = limit.max(1);
        while left > 0 {
            let Some(current) = &mut self.current else {
                let Some(group) = self.groups.pop() else {
                    return (left < limit.max(1)).then_some(keys);
                };
                let topics = offsets.of(&group).map(&topics).unwrap_or_default();
                self.current = Some(CurrentGroup { group, topics, from: i32::MIN });
                left -= 1;
                continue;
            };
            match current.scan(offsets, left, &is_due, &mut keys) {
                Some(scanned) => left -= scanned.min(left),
                None => self.current = None,
            }
        }
        Some(keys)
    }
}

impl CurrentGroup {
    /// Checks at most `limit` offsets of one topic. Returns how many; `None`: there is no topic
    /// left.
    fn scan<F: Fn(&str, &StoredOffset) -> bool>(
        &mut self,
        offsets: &ShardOffsets,
        limit: usize,
        is_due: impl Fn(&str) -> F,
        keys: &mut Vec<OffsetKey>,
    ) -> Option<usize> {
        let topic = self.topics.last()?;
        let partitions = offsets.of(&self.group).and_then(|group| group.topics.get(topic));
        let mut rest = partitions.into_iter().flat_map(|all| all.range(self.from..));
        let is_due = is_due(&self.group);
        let mut scanned = 0;
        for (partition, stored) in rest.by_ref().take(limit) {
            scanned += 1;
            if is_due(topic, stored) {
                keys.push((Arc::clone(&self.group), Arc::clone(topic), *partition));
            }
        }
        if let Some((next, _)) = rest.next() {
            self.from = *next;
        } else {
            self.topics.pop();
            self.from = i32::MIN;
        }
        Some(scanned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::offset_commit_value::OffsetCommitValue;

    use proptest::prelude::*;

    fn offsets(sizes: &[Vec<i32>]) -> ShardOffsets {
        let mut offsets = ShardOffsets::default();
        for (group, topics) in sizes.iter().enumerate() {
            for (topic, partitions) in topics.iter().enumerate() {
                for partition in 0..*partitions {
                    let value =
                        OffsetCommitValue { offset: partition.into(), ..Default::default() };
                    let (group, topic) = (format!("g{group}"), format!("t{topic}"));
                    offsets.put((&group, partition), &topic, StoredOffset::of(&value, 0));
                }
            }
        }
        offsets
    }

    fn all(group: &GroupOffsets) -> Vec<Arc<str>> {
        group.topics.keys().cloned().collect()
    }

    proptest! {
        #[test]
        fn each_offset_is_looked_at_once_and_a_slice_keeps_its_limit(
            sizes in prop::collection::vec(prop::collection::vec(0..20i32, 0..5), 0..12),
            limit in 1..40usize,
        ) {
            let offsets = offsets(&sizes);
            let mut scan = OffsetScan::of(&offsets);
            let mut found = Vec::new();
            let each = |_: &str| |_: &str, _: &StoredOffset| true;
            while let Some(keys) = scan.next(&offsets, limit, (all, each)) {
                prop_assert!(keys.len() <= limit);
                found.extend(keys);
            }
            let mut wanted: Vec<OffsetKey> =
                offsets.groups.keys().flat_map(|group| offsets.keys_of(group)).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_scan_goes_on_when_offsets_and_groups_go_between_slices() {
        let mut offsets = offsets(&[vec![9, 9], vec![9, 9], vec![9, 9]]);
        let mut scan = OffsetScan::of(&offsets);
        let mut slices = 0;
        while let Some(keys) = scan.next(&offsets, 4, (all, |_: &str| |_: &str, _: &_| true)) {
            for (group, topic, partition) in keys.iter().chain(&offsets.keys_of("g1")) {
                offsets.remove((group, topic, *partition));
            }
            slices += 1;
        }
        assert!(offsets.groups.is_empty());
        assert!(slices >= 9, "{slices}");
    }

    #[test]
    fn only_what_is_due_is_named() {
        let offsets = offsets(&[vec![4, 4], vec![4]]);
        let mut scan = OffsetScan::of(&offsets);
        let is_due = |group: &str| {
            let is_its = group == "g0";
            move |topic: &str, stored: &StoredOffset| is_its && topic == "t1" && stored.offset > 1
        };
        let keys = scan.next(&offsets, 100, (all, is_due)).unwrap();
        let mut found: Vec<_> = keys.iter().map(|(_, _, partition)| *partition).collect();
        found.sort_unstable();
        assert_eq!(found, [2, 3]);
        assert!(scan.next(&offsets, 100, (all, is_due)).is_none());
    }
}
