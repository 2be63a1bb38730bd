//! Decides which batches of transactions a cleaning may drop: data of aborted ones at once, a
//! marker when nothing of its transaction is left.
//!
//! The caller passes batches in the order of the log. The aborted transactions of each segment come
//! from its index, before its batches; two segments may name the same transaction.
//! Invariant: a marker may be dropped only if no batch of its transaction was passed.
//! Threads: a plain value of one cleaner.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::txnindex::AbortedTxn;

/// The transactions of the batches so far.
#[derive(Debug, Default)]
pub(super) struct CleanedTransactions {
    /// Aborted transactions that have not begun yet, by first offset and producer.
    coming: BTreeMap<(i64, i64), AbortedTxn>,
    /// Aborted transactions that are under way, by producer, and whether one of their batches was
    /// passed.
    aborted: HashMap<i64, (AbortedTxn, bool)>,
    /// Producers whose present transaction is not aborted, and had a batch.
    committed: HashSet<i64>,
    /// The aborted transactions for the index of the segment that is being written.
    kept: Vec<AbortedTxn>,
}

impl CleanedTransactions {
    /// Notes aborted transactions with records in the next segment.
    pub(super) fn expect(&mut self, aborted: impl IntoIterator<Item = AbortedTxn>) {
        for entry in aborted {
            self.coming.insert((entry.first_offset, entry.producer_id), entry);
        }
    }

    /// Passes a batch of a transaction. Returns whether the transaction is aborted, so that the
    /// records may be dropped.
    pub(super) fn data(&mut self, producer_id: i64, last_offset: i64) -> bool {
        self.begin_up_to(last_offset);
        match self.aborted.get_mut(&producer_id) {
            Some((_, shown)) => {
                *shown = true;
                true
            }
            None => {
                self.committed.insert(producer_id);
                false
            }
        }
    }

    /// Passes a marker; `commit` is `None` if its record was dropped before. Returns whether the
    /// marker may be dropped.
    pub(super) fn marker(
        &mut self,
        producer_id: i64,
        last_offset: i64,
        commit: Option<bool>,
    ) -> bool {
        self.begin_up_to(last_offset);
        match commit {
            None => true,
            Some(true) => !self.committed.remove(&producer_id),
            Some(false) => match self.aborted.remove(&producer_id) {
                Some((entry, true)) => {
                    self.kept.push(entry);
                    false
                }
                _ => true,
            },
        }
    }

    /// Returns the index of the segment that was written, and begins the next one.
    pub(super) fn take_index(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.kept)
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(entry) = self.coming.first_entry()
            && entry.key().0 <= offset
        {
            let entry = entry.remove();
            self.aborted.entry(entry.producer_id).or_insert((entry, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTxn {
        AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset: last_offset + 1 }
    }

    #[test]
    fn data_goes_first_and_its_marker_a_round_later() {
        let mut round = CleanedTransactions::default();
        round.expect([aborted(1, 10, 20)]);
        assert!(!round.data(2, 9));
        assert!(round.data(1, 12));
        assert!(!round.marker(1, 20, Some(false)));
        assert!(!round.marker(2, 21, Some(true)));
        assert_eq!(round.take_index(), [aborted(1, 10, 20)]);
        let mut next = CleanedTransactions::default();
        next.expect([aborted(1, 10, 20)]);
        assert!(next.marker(1, 20, Some(false)));
        assert!(next.marker(2, 21, Some(true)));
        assert!(next.take_index().is_empty());
    }

    #[test]
    fn the_next_transaction_of_a_producer_is_its_own() {
        let mut round = CleanedTransactions::default();
        round.expect([aborted(1, 0, 5), aborted(1, 0, 5)]);
        assert!(round.data(1, 0));
        assert!(!round.marker(1, 5, Some(false)));
        assert!(!round.data(1, 7));
        assert!(!round.marker(1, 8, Some(true)));
        assert!(round.marker(1, 9, None));
    }
}
