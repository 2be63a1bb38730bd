//! What each transaction wrote, how it was told to end, and what a reader may see of it.

use std::collections::BTreeMap;

use crate::broker::transactions::transaction::{ProducerIdentity, Transaction};

use super::coordinator::LoggedTransaction;
use super::partition::{Found, Partition};

#[derive(Default)]
struct Written {
    /// The values that were sent, and whether they were acknowledged.
    values: BTreeMap<u64, bool>,
    /// How its producer has told it to end.
    told: Option<bool>,
    /// The producer has heard that it ended so.
    is_ended: bool,
}

#[derive(Default)]
pub struct Oracle {
    transactions: Vec<Written>,
    /// The transaction of each value.
    values: Vec<usize>,
    /// The last logged producer of each id, and of each producer id its last logged epoch.
    epochs: BTreeMap<i64, i16>,
    /// How many markers each producer id is due in each partition.
    due: BTreeMap<(i64, usize), usize>,
    /// The last stable offset of each partition.
    stable: BTreeMap<usize, i64>,
}

impl Oracle {
    pub fn begin(&mut self) -> usize {
        self.transactions.push(Written::default());
        self.transactions.len() - 1
    }

    pub fn written(&self, open: usize) -> usize {
        self.transactions[open].values.len()
    }

    /// A new value of a transaction.
    pub fn value(&mut self, open: usize, _partition: usize) -> u64 {
        let value = self.values.len() as u64;
        self.values.push(open);
        self.transactions[open].values.insert(value, false);
        value
    }

    pub fn acknowledged(&mut self, value: u64) {
        let open = self.values[usize::try_from(value).unwrap()];
        self.transactions[open].values.insert(value, true);
    }

    pub fn ends(&mut self, open: usize, commit: bool) {
        self.transactions[open].told = Some(commit);
    }

    pub fn ended(&mut self, open: usize) {
        self.transactions[open].is_ended = true;
    }

    /// P2, T3: the epochs of a producer id never fall in the coordinator's log, and each
    /// transaction has one end.
    pub fn logged(&mut self, logged: &[LoggedTransaction]) {
        for LoggedTransaction { id, transaction } in logged {
            let Transaction { producer: ProducerIdentity { id: producer_id, epoch }, .. } =
                *transaction;
            let last = self.epochs.insert(producer_id, epoch).unwrap_or(-1);
            assert!(last <= epoch, "P2: {id} falls from epoch {last} to {epoch}");
            if transaction.state.marker().is_some() {
                for partition in &transaction.partitions {
                    let number = usize::try_from(partition.partition).unwrap();
                    *self.due.entry((producer_id, number)).or_default() += 1;
                }
            }
        }
    }

    /// T2: the last stable offset never falls, nor passes the high watermark.
    pub fn check_offsets(&mut self, partitions: &[Partition]) {
        for (number, Partition { log, .. }) in partitions.iter().enumerate() {
            let stable = log.last_stable_offset().0;
            assert!(stable <= log.high_watermark().0, "T2: beyond the high watermark");
            let last = self.stable.insert(number, stable).unwrap_or(0);
            assert!(last <= stable, "T2: the last stable offset falls from {last} to {stable}");
        }
    }

    /// T3: no partition has more markers of a producer than were decided.
    pub fn check_markers(&self, partitions: &[Partition]) {
        for (number, partition) in partitions.iter().enumerate() {
            let mut markers: BTreeMap<i64, usize> = BTreeMap::new();
            for found in partition.read() {
                if let Found::Marker { producer_id, .. } = found {
                    *markers.entry(producer_id).or_default() += 1;
                }
            }
            for (producer_id, count) in markers {
                let due = self.due.get(&(producer_id, number)).copied().unwrap_or(0);
                assert!(
                    count <= due,
                    "T3: {count} markers of producer {producer_id}, {due} decided"
                );
            }
        }
    }

    /// T1, T4, P1 when all has ended: each transaction is seen as a whole or not at all, as its
    /// producer has heard, each record once, and both ways to read agree.
    pub fn check_end(&self, partitions: &[Partition]) -> usize {
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for partition in partitions {
            let log = &partition.log;
            assert!(log.last_stable_offset() == log.log_end_offset(), "T2: one never ended");
            let by_markers = resolved(&partition.read());
            let mut committed = partition.committed();
            committed.sort_unstable();
            assert!(committed == by_markers, "L5: the list of aborted transactions is wrong");
            if partition.group.is_some() {
                // A commit that arrives twice is there twice: it has no sequence number.
                committed.dedup();
            }
            for value in committed {
                *seen.entry(value).or_default() += 1;
            }
        }
        assert!(seen.values().all(|count| *count == 1), "P1: a record is there twice");
        let mut whole = 0;
        for (number, Written { values, told, is_ended }) in self.transactions.iter().enumerate() {
            let visible = values.keys().filter(|value| seen.contains_key(value)).count();
            let is_whole = values.iter().all(|(value, _)| seen.contains_key(value));
            match (told, is_ended) {
                (Some(true), true) => assert!(is_whole, "T1: {number} was committed"),
                (Some(true), false) => assert!(is_whole || visible == 0, "T1: half of {number}"),
                _ => assert!(visible == 0, "T1: {number} was not committed"),
            }
            whole += usize::from(is_whole && visible > 0);
        }
        whole
    }
}

/// The values of committed transactions, by the markers that follow them.
fn resolved(batches: &[Found]) -> Vec<u64> {
    let mut open: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    let mut committed = Vec::new();
    for found in batches {
        match found {
            Found::Record { producer_id, value } => {
                open.entry(*producer_id).or_default().push(*value)
            }
            Found::Marker { producer_id, commit } => {
                let ended = open.remove(producer_id).unwrap_or_default();
                committed.extend(ended.into_iter().filter(|_| *commit));
            }
        }
    }
    committed.sort_unstable();
    committed
}
