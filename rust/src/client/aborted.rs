//! Finds the batches of a partition that belong to aborted transactions.
//! Invariant: the caller passes all batches in the order of offsets, control batches too, because a
//!     marker ends its transaction.

use std::collections::HashSet;

use crate::record::batch::Batch;

/// The aborted transactions of one Fetch response, and how far its batches have been passed.
#[derive(Debug, Default)]
pub struct AbortedRanges {
    /// (first offset, producer), descending: the next one is last.
    coming: Vec<(i64, i64)>,
    open: HashSet<i64>,
}

impl AbortedRanges {
    /// The aborted transactions as (first offset, producer id). None of them may end before the
    /// first batch that is passed to `hides`.
    pub fn of(transactions: impl Iterator<Item = (i64, i64)>) -> Self {
        let mut coming: Vec<_> = transactions.collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Self { coming, open: HashSet::new() }
    }

    /// Whether the next batch belongs to an aborted transaction.
    pub fn hides(&mut self, batch: &Batch<'_>) -> bool {
        while let Some((first, producer)) = self.coming.last().copied() {
            if first > batch.last_offset() {
                break;
            }
            self.open.insert(producer);
            self.coming.pop();
        }
        let producer = batch.header().producer_id;
        if batch.is_control() {
            self.open.remove(&producer); // the marker that ends it
            return false;
        }
        batch.is_transactional() && self.open.contains(&producer)
    }
}
