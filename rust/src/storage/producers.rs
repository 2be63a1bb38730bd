//! The state of a partition's producers: sequence numbers for idempotence, open transactions for
//! the last stable offset. `snapshot` writes it to files and reads it back.
//! Invariants: a batch (producer, epoch, sequences) is stored at most once; a retry of one of the
//! last five gets its original offset; first_unstable <= any offset of an open transaction.
//! Threads: guarded by the partition's lock.
//! Limits: `krust.partition.producers.max` producers. Beyond it the least recent writers are
//! removed, a sixteenth at a time; a producer with an open transaction stays.
//! Not promised: that duplicates of a silent producer are found. A producer that is silent for
//! `producer.id.expiration.ms` is removed, and its next batch is accepted with any sequence
//! number.

mod snapshot;

use std::collections::{BTreeMap, HashMap};

use super::errors::AppendError;
use super::txnindex::AbortedTxn;
use super::verification::{Guards, Verification};
use crate::record::batch::{Batch, Header};
use crate::record::control::ControlRecord;

const KEPT: usize = 5;
/// The range of a producer that has stored no batch.
const NOTHING: SequenceRange =
    SequenceRange { last_sequence: -1, offset_delta: 0, last_offset: -1, timestamp: -1 };

/// A stored batch, as far as a retry of it must be recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SequenceRange {
    last_sequence: i32,
    offset_delta: i32,
    last_offset: i64,
    timestamp: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProducerEntry {
    epoch: i16,
    coordinator_epoch: i32,
    last_timestamp: i64,
    txn_first_offset: Option<i64>,
    stored: [SequenceRange; KEPT],
    count: usize,
}

/// The end of a transaction, from a control batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionMarker {
    pub commit: bool,
    pub coordinator_epoch: i32,
}

/// What to do with a batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    Fresh,
    Duplicate { base_offset: i64, last_offset: i64, timestamp: i64 },
}

/// Who made a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer, which counts its batches.
    Client(Verification),
    /// A coordinator of this broker. Its batches have no sequence numbers that count.
    Coordinator(Verification),
}

/// What to do with a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerCheck {
    Fresh,
    /// It is in the log already.
    Repeat,
}

/// One producer of a partition, as `DescribeProducers` shows it; -1 where there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Its last sequence number.
    pub last_sequence: i32,
    /// The time of its last batch, in milliseconds.
    pub last_timestamp: i64,
    /// The epoch of the coordinator of its last marker.
    pub coordinator_epoch: i32,
    /// The first offset of its open transaction.
    pub current_txn_start_offset: i64,
}

/// The producers of one partition.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: HashMap<i64, ProducerEntry>,
    /// The first offset of each open transaction, and its producer.
    open: BTreeMap<i64, i64>,
    /// First offset and marker of transactions whose marker is not below the high watermark yet.
    unreplicated: BTreeMap<i64, i64>,
    /// The producers' states before the appends that are not written yet.
    undo: Vec<(i64, Option<ProducerEntry>)>,
    /// The transactions that coordinators are asked about.
    guards: Guards,
}

impl ProducerEntry {
    const fn new(epoch: i16) -> Self {
        Self {
            epoch,
            coordinator_epoch: -1,
            last_timestamp: -1,
            txn_first_offset: None,
            stored: [NOTHING; KEPT],
            count: 0,
        }
    }

    fn kept(&self) -> &[SequenceRange] {
        self.stored.get(..self.count).unwrap_or_default()
    }

    fn last(&self) -> Option<&SequenceRange> {
        self.kept().last()
    }

    fn last_sequence(&self) -> i32 {
        self.last().map_or(-1, |stored| stored.last_sequence)
    }

    fn keep(&mut self, stored: SequenceRange) {
        if self.count == KEPT {
            self.stored.rotate_left(1);
            self.count -= 1;
        }
        if let Some(place) = self.stored.get_mut(self.count) {
            *place = stored;
            self.count += 1;
        }
    }

    /// The stored batch that a batch repeats.
    fn duplicate_of(&self, header: &Header) -> Option<SequenceCheck> {
        let (first, last) = (header.base_sequence, last_sequence(header));
        let is_it = |stored: &&SequenceRange| {
            stored.last_sequence == last
                && subtract(stored.last_sequence, stored.offset_delta) == first
        };
        let kept = if header.producer_epoch == self.epoch { self.kept() } else { &[] };
        kept.iter().find(is_it).map(|stored| SequenceCheck::Duplicate {
            base_offset: stored.last_offset - i64::from(stored.offset_delta),
            last_offset: stored.last_offset,
            timestamp: stored.timestamp,
        })
    }

    fn check_epoch(&self, producer_id: i64, found: i16) -> Result<(), AppendError> {
        if found < self.epoch {
            let current = self.epoch;
            return Err(AppendError::InvalidProducerEpoch { producer_id, found, current });
        }
        Ok(())
    }

    /// Whether a batch follows the last one.
    fn check_sequence(&self, header: &Header) -> Result<(), AppendError> {
        let first = header.base_sequence;
        let last = if header.producer_epoch == self.epoch { self.last_sequence() } else { -1 };
        if first == last.wrapping_add(1) || (first == 0 && last == i32::MAX) {
            return Ok(());
        }
        let producer_id = header.producer_id;
        Err(AppendError::OutOfOrderSequence { producer_id, last, found: first })
    }

    fn bump(&mut self, epoch: i16) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.count = 0;
        }
    }
}

impl Producers {
    /// What to do with a batch that a client sent, or a coordinator of this broker made.
    pub(crate) fn check(
        &mut self,
        batch: &Batch<'_>,
        origin: AppendOrigin,
    ) -> Result<SequenceCheck, AppendError> {
        let header = batch.header();
        let known = self.known.get(&header.producer_id);
        let (is_client, verification) = match origin {
            AppendOrigin::Client(verification) => (true, verification),
            AppendOrigin::Coordinator(verification) => (false, verification),
        };
        if let Some(producer) = known {
            if is_client && let Some(duplicate) = producer.duplicate_of(header) {
                return Ok(duplicate);
            }
            producer.check_epoch(header.producer_id, header.producer_epoch)?;
        }
        let is_open = known.is_some_and(|producer| {
            producer.txn_first_offset.is_some() && producer.epoch == header.producer_epoch
        });
        if batch.is_transactional() && !is_open {
            self.guards.check(header, verification, known.is_some())?;
        }
        match known {
            Some(producer) if is_client => producer.check_sequence(header)?,
            _ => return Ok(SequenceCheck::Fresh),
        }
        if known.is_some_and(|it| it.txn_first_offset.is_some()) && !batch.is_transactional() {
            return Err(AppendError::InvalidTxnState(header.producer_id));
        }
        Ok(SequenceCheck::Fresh)
    }

    /// Whether a marker may be appended, or is here already. `has_own_epoch`: its epoch is one
    /// above that of its transaction.
    pub(crate) fn check_marker(
        &mut self,
        (producer_id, epoch): (i64, i16),
        marker: TransactionMarker,
        has_own_epoch: bool,
    ) -> Result<MarkerCheck, AppendError> {
        let Some(producer) = self.known.get_mut(&producer_id) else {
            return Ok(MarkerCheck::Fresh);
        };
        producer.check_epoch(producer_id, epoch)?;
        if marker.coordinator_epoch < producer.coordinator_epoch {
            return Err(AppendError::CoordinatorFenced {
                producer_id,
                found: marker.coordinator_epoch,
                current: producer.coordinator_epoch,
            });
        }
        if epoch > producer.epoch {
            return Ok(MarkerCheck::Fresh);
        }
        if producer.txn_first_offset.is_some() {
            if has_own_epoch {
                let (found, current) = (epoch, producer.epoch);
                return Err(AppendError::InvalidProducerEpoch { producer_id, found, current });
            }
            return Ok(MarkerCheck::Fresh);
        }
        if producer.coordinator_epoch < 0 {
            return Ok(MarkerCheck::Fresh);
        }
        producer.coordinator_epoch = marker.coordinator_epoch;
        self.guards.void(producer_id);
        Ok(MarkerCheck::Repeat)
    }

    /// Notes a stored batch of data. `header` has the final base offset.
    pub(crate) fn note(&mut self, header: &Header, transactional: bool) {
        let producer_id = header.producer_id;
        if producer_id < 0 {
            return;
        }
        let before = self.known.get(&producer_id).copied();
        self.undo.push((producer_id, before));
        let mut producer = before.unwrap_or(ProducerEntry::new(header.producer_epoch));
        producer.bump(header.producer_epoch);
        let last_offset = header.base_offset + i64::from(header.last_offset_delta);
        producer.keep(SequenceRange {
            last_sequence: last_sequence(header),
            offset_delta: header.last_offset_delta,
            last_offset,
            timestamp: header.max_timestamp,
        });
        producer.last_timestamp = header.max_timestamp;
        if transactional && producer.txn_first_offset.is_none() {
            producer.txn_first_offset = Some(header.base_offset);
            self.open.insert(header.base_offset, producer_id);
        }
        if transactional {
            self.guards.void(producer_id);
        }
        self.known.insert(producer_id, producer);
    }

    /// Notes a stored marker. Returns the transaction if the marker aborted it.
    pub(crate) fn note_marker(
        &mut self,
        header: &Header,
        marker: TransactionMarker,
    ) -> Option<AbortedTxn> {
        let producer_id = header.producer_id;
        self.guards.void(producer_id);
        let before = self.known.get(&producer_id).copied();
        self.undo.push((producer_id, before));
        let mut producer = before.unwrap_or(ProducerEntry::new(header.producer_epoch));
        producer.bump(header.producer_epoch);
        producer.coordinator_epoch = marker.coordinator_epoch;
        producer.last_timestamp = header.max_timestamp;
        let first = producer.txn_first_offset.take();
        self.known.insert(producer_id, producer);
        let first_offset = first?;
        self.open.remove(&first_offset);
        let last_offset = header.base_offset;
        self.unreplicated.insert(first_offset, last_offset);
        let last_stable_offset = self.open.keys().next().copied().unwrap_or(last_offset + 1);
        (!marker.commit).then_some(AbortedTxn {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset,
        })
    }

    /// Notes a batch of the log, of data or a marker. Recovery and followers use it.
    pub(crate) fn replay(&mut self, batch: &Batch<'_>) -> Option<AbortedTxn> {
        if batch.header().producer_id < 0 {
            return None;
        }
        if batch.is_control() {
            let marker = marker_of(batch)?;
            return self.note_marker(batch.header(), marker);
        }
        self.note(batch.header(), batch.is_transactional());
        None
    }

    /// Another broker leads: a transaction that a coordinator confirms may have ended there.
    pub(crate) fn void_guards(&mut self) {
        self.guards.void_all();
    }

    /// Notes that the appends so far are written.
    pub(crate) fn commit(&mut self) {
        self.undo.clear();
    }

    /// The number of producers.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// Removes the producers that wrote longest ago if there are more than `most`, and a few more.
    /// No append may be waiting for a commit.
    pub(crate) fn limit(&mut self, most: usize) {
        let Some(surplus) = self.known.len().checked_sub(most).filter(|more| *more > 0) else {
            return;
        };
        let done = self.known.iter().filter(|(_, producer)| producer.txn_first_offset.is_none());
        let offset =
            |producer: &ProducerEntry| producer.last().map_or(-1, |stored| stored.last_offset);
        let mut by_age: Vec<(i64, i64)> =
            done.map(|(id, producer)| (offset(producer), *id)).collect();
        let count = (surplus + most / 16).min(by_age.len());
        if count < by_age.len() {
            by_age.select_nth_unstable(count);
        }
        for (_, id) in by_age.iter().take(count) {
            self.known.remove(id);
        }
    }

    /// Undoes the appends since the last commit: the log ends at `log_end` again.
    pub(crate) fn roll_back(&mut self, log_end: i64) {
        while let Some((producer_id, before)) = self.undo.pop() {
            if let Some(now) = self.known.remove(&producer_id)
                && let Some(first) = now.txn_first_offset
            {
                self.open.remove(&first);
            }
            if let Some(before) = before {
                if let Some(first) = before.txn_first_offset {
                    self.open.insert(first, producer_id);
                }
                self.known.insert(producer_id, before);
            }
        }
        self.unreplicated.retain(|_, marker| *marker < log_end);
    }

    /// Markers below `high_watermark` no longer hold back the last stable offset.
    pub(crate) fn advance(&mut self, high_watermark: i64) {
        self.unreplicated.retain(|_, marker| *marker >= high_watermark);
    }

    /// Whether [`Producers::advance`] must be called when the high watermark rises.
    pub(crate) fn waits_for_high_watermark(&self) -> bool {
        !self.unreplicated.is_empty()
    }

    /// The first offset that no read_committed reader may pass.
    pub(crate) fn first_unstable(&self) -> Option<i64> {
        let open = self.open.keys().next().copied();
        let unreplicated = self.unreplicated.keys().next().copied();
        open.into_iter().chain(unreplicated).min()
    }

    /// Removes producers without a transaction that have been silent too long.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.known.retain(|_, producer| {
            producer.txn_first_offset.is_some()
                || now_ms.saturating_sub(producer.last_timestamp) < expiration_ms
        });
    }

    /// Notes that records below `log_start` were removed. For readers, a transaction that began
    /// there now begins at `log_start`.
    pub(crate) fn cut_start(&mut self, log_start: i64) {
        self.unreplicated.retain(|_, marker| *marker >= log_start);
    }

    /// The first offset of a producer's open transaction.
    pub(crate) fn open_since(&self, producer_id: i64) -> Option<i64> {
        self.known.get(&producer_id)?.txn_first_offset
    }

    /// For each producer the last offset of its last batch of data, and its epoch. `None`: a marker
    /// set that epoch.
    pub(crate) fn last_batches(&self) -> HashMap<i64, (Option<i64>, i16)> {
        let last = |(id, producer): (&i64, &ProducerEntry)| {
            (*id, (producer.last().map(|stored| stored.last_offset), producer.epoch))
        };
        self.known.iter().map(last).collect()
    }

    /// All producers, for `DescribeProducers`.
    pub(crate) fn active_producers(&self) -> Vec<ActiveProducer> {
        let active = |(id, producer): (&i64, &ProducerEntry)| ActiveProducer {
            producer_id: *id,
            producer_epoch: producer.epoch,
            last_sequence: producer.last_sequence(),
            last_timestamp: producer.last_timestamp,
            coordinator_epoch: producer.coordinator_epoch,
            current_txn_start_offset: producer.txn_first_offset.unwrap_or(-1),
        };
        self.known.iter().map(active).collect()
    }
}

/// The transaction marker of a control batch; `None` for other control records.
pub(crate) fn marker_of(batch: &Batch<'_>) -> Option<TransactionMarker> {
    match ControlRecord::parse(&batch.records().next()?.ok()?) {
        Ok(ControlRecord::EndTransaction { commit, coordinator_epoch }) => {
            Some(TransactionMarker { commit, coordinator_epoch })
        }
        _ => None,
    }
}

fn last_sequence(header: &Header) -> i32 {
    if header.base_sequence < 0 {
        return -1;
    }
    let sum = i64::from(header.base_sequence) + i64::from(header.last_offset_delta);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(-1)
}

fn subtract(sequence: i32, delta: i32) -> i32 {
    if sequence >= delta {
        return sequence - delta;
    }
    let wrapped = i64::from(sequence) - i64::from(delta) + i64::from(i32::MAX) + 1;
    i32::try_from(wrapped).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn header(sequence: i32, delta: i32, offset: i64) -> Header {
        Header {
            base_offset: offset,
            last_offset_delta: delta,
            producer_id: 7,
            producer_epoch: 1,
            base_sequence: sequence,
            max_timestamp: 100,
            ..Header::default()
        }
    }

    #[test]
    fn sequences_wrap_at_two_to_the_31() {
        assert_eq!(last_sequence(&header(i32::MAX - 1, 3, 0)), 1);
        assert_eq!(subtract(1, 3), i32::MAX - 1);
    }

    #[test]
    fn a_roll_back_forgets_what_was_not_written() {
        let mut producers = Producers::default();
        producers.note(&header(0, 0, 0), true);
        producers.commit();
        let marker = TransactionMarker { commit: false, coordinator_epoch: 3 };
        let before = producers.active_producers();
        assert!(producers.note_marker(&header(-1, 0, 1), marker).is_some());
        producers.note(&header(1, 0, 2), true);
        producers.roll_back(1);
        assert_eq!(producers.active_producers(), before);
        assert_eq!(producers.first_unstable(), Some(0));
    }
}
