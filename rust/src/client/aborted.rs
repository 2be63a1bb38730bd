//! Which records of a partition belong to aborted transactions, followed along its batches.
//! Invariant: batches are asked about in the order of offsets, control batches too: the marker ends
//!     what a transaction hides.

use std::collections::HashSet;

use crate::record::batch::Batch;

/// See the module.
#[derive(Debug, Default)]
pub struct Aborted {
    /// (first offset, producer), descending: the next one is last.
    coming: Vec<(i64, i64)>,
    open: HashSet<i64>,
}

impl Aborted {
    /// Of transactions given as (first offset, producer id), none of which ended before the first
    /// batch that will be asked about.
    pub fn of(transactions: impl Iterator<Item = (i64, i64)>) -> Self {
        let mut coming: Vec<_> = transactions.collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Self { coming, open: HashSet::new() }
    }

    /// Whether the next batch is to be hidden.
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
