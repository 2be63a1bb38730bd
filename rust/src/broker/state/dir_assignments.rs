//! The log directory of each partition, and the number of partitions in each directory.
//!
//! Invariant: `counts[dir]` is the number of partitions in directory `dir`, so that the emptiest
//!     directory for a new partition is found without a search.
//! Threads: guarded by the lock of the `LogManager`.

use std::collections::HashMap;

use crate::ids::TopicPartition;

/// The directories of partitions. A directory is a number from 0.
#[derive(Debug, Default)]
pub(crate) struct DirAssignments {
    by_name: HashMap<TopicPartition, usize>,
    counts: Vec<usize>,
}

impl DirAssignments {
    /// The directory of a partition.
    pub(crate) fn at(&self, name: &TopicPartition) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The number of partitions in a directory.
    pub(crate) fn count(&self, dir: usize) -> usize {
        self.counts.get(dir).copied().unwrap_or_default()
    }

    /// Records that a partition is in `dir`.
    pub(crate) fn insert(&mut self, name: TopicPartition, dir: usize) {
        if self.counts.len() <= dir {
            self.counts.resize(dir + 1, 0);
        }
        let before = self.by_name.insert(name, dir);
        self.leave(before);
        if let Some(count) = self.counts.get_mut(dir) {
            *count += 1;
        }
    }

    /// Removes a partition. Returns its directory.
    pub(crate) fn remove(&mut self, name: &TopicPartition) -> Option<usize> {
        let before = self.by_name.remove(name);
        self.leave(before);
        before
    }

    /// Removes the partitions for which `gone` is true.
    pub(crate) fn extract(
        &mut self,
        gone: impl Fn(&TopicPartition) -> bool,
    ) -> Vec<(TopicPartition, usize)> {
        let found: Vec<_> = self.by_name.extract_if(|name, _| gone(name)).collect();
        found.iter().for_each(|(_, dir)| self.leave(Some(*dir)));
        found
    }

    fn leave(&mut self, dir: Option<usize>) {
        if let Some(count) = dir.and_then(|dir| self.counts.get_mut(dir)) {
            *count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_those_of_the_places() {
        let name = |number| TopicPartition::new("t", number);
        let mut places = DirAssignments::default();
        (0..6).for_each(|number| places.insert(name(number), number as usize % 2));
        places.insert(name(0), 1);
        assert_eq!((places.at(&name(0)), places.remove(&name(3))), (Some(1), Some(1)));
        assert_eq!((places.count(0), places.count(1), places.count(2)), (2, 3, 0));
        assert_eq!(places.extract(|at| at.partition > 3).len(), 2);
        assert_eq!((places.count(0), places.count(1), places.at(&name(4))), (1, 2, None));
    }
}
