//! Questions about a log that are not reads: offsets of times and epochs, aborted transactions.
//!
//! Times go through the time index to a segment and near a batch; the batch's records then decide,
//! inflated piece by piece where they are compressed.
//! Threads: as reads. They may read files from the disk: not for a network thread where that
//! matters.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::super::aborted;
use super::super::errors::StorageError;
use super::super::file_names::LOG;
use super::super::scan::{self, BatchAt, WalkStep, Walker};
use super::super::segment::Segment;
use super::super::txnindex::AbortedTxn;
use super::Log;
use crate::ids::{Epoch, Offset};
use crate::record::RecordError;
use crate::record::batch::Batch;
use crate::record::compression::budget;
use crate::record::convert::each_record;
use crate::record::legacy::{self, Message};

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// Its offset.
    pub offset: Offset,
    /// Its time, in milliseconds.
    pub timestamp: i64,
    /// The leader epoch it was appended in; -1 if unknown.
    pub leader_epoch: Epoch,
}

impl Log {
    /// The first record with a timestamp of at least `timestamp`, from the log start on.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
    ) -> Result<Option<FoundOffset>, StorageError> {
        self.usable()?;
        let start = self.log_start_offset().0;
        self.steady(|segments| {
            let mut scratch = Vec::new();
            for segment in segments {
                if segment.max_timestamp()?.0 < timestamp {
                    continue;
                }
                let found = self.find_time(segment, (timestamp, start), &mut scratch)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    /// Where a search for `offset` begins: the base offset of a segment, and the position that its
    /// index names. What Kafka's `OffsetIndex.lookup` answers: no batch was looked at, so nothing
    /// says that one begins there.
    pub fn index_lookup(&self, offset: Offset) -> Result<Option<(Offset, u64)>, StorageError> {
        self.usable()?;
        let segments = self.segments.load();
        let Some(segment) = segments.get(segments.holding(offset.0)) else { return Ok(None) };
        Ok(Some((Offset(segment.base_offset), segment.hint(offset.0)?.from)))
    }

    /// The first record with the largest timestamp of all; `None` in a log without records.
    pub fn max_timestamp(&self) -> Result<Option<FoundOffset>, StorageError> {
        self.usable()?;
        self.steady(latest_by_time)
    }

    /// For ListOffsets v0: the base offsets of segments that were written before `timestamp`,
    /// newest first. -1: all, and the log end before them, as for any time from `now_ms` on; -2:
    /// the log start.
    pub fn legacy_offsets_before(&self, timestamp: i64, now_ms: i64) -> Vec<Offset> {
        let start = self.log_start_offset();
        if timestamp == -2 {
            return vec![start];
        }
        let segments = self.segments.load();
        let bases = segments.iter().rev().map(|s| (Offset(s.base_offset).max(start), s));
        if timestamp == -1 || timestamp >= now_ms {
            let end = [self.log_end_offset()].into_iter();
            return end.chain(bases.filter(|(_, s)| s.size() > 0).map(|(base, _)| base)).collect();
        }
        bases.filter(|(_, s)| s.modified_ms() <= timestamp).map(|(base, _)| base).collect()
    }

    /// The largest epoch up to `epoch` and where it ended (KIP-101, KIP-279); (-1, -1) if unknown.
    pub fn end_offset_for_epoch(&self, epoch: Epoch) -> (Epoch, Offset) {
        let writer = self.writer.lock();
        writer.epochs.end_offset(epoch, self.log_end_offset())
    }

    /// The epoch that `offset` was written in; -1 if unknown.
    pub fn epoch_at(&self, offset: Offset) -> Epoch {
        self.writer.lock().epochs.epoch_at(offset)
    }

    /// The aborted transactions with records in `from..to`.
    pub fn aborted(&self, from: Offset, to: Offset) -> Result<Vec<AbortedTxn>, StorageError> {
        self.steady(|segments| self.aborted_in(segments, from, to))
    }

    fn aborted_in(
        &self,
        segments: &[Arc<Segment>],
        from: Offset,
        to: Offset,
    ) -> Result<Vec<AbortedTxn>, StorageError> {
        let first = segments.partition_point(|it| it.base_offset <= from.0).saturating_sub(1);
        let mut found = Vec::new();
        for segment in segments.iter().skip(first) {
            self.repair_aborted(segments, segment)?;
            let complete = segment.with_aborted(|list| {
                let hits =
                    |entry: &&AbortedTxn| entry.last_offset >= from.0 && entry.first_offset < to.0;
                found.extend(list.iter().filter(hits).copied());
                list.iter().any(|entry| entry.last_stable_offset >= to.0)
            })?;
            if complete {
                break;
            }
        }
        Ok(found)
    }

    /// Rebuilds the aborted transactions of `segment` if their file is damaged.
    pub(super) fn repair_aborted(
        &self,
        segments: &[Arc<Segment>],
        segment: &Arc<Segment>,
    ) -> Result<(), StorageError> {
        match segment.with_aborted(|_| ()) {
            Err(StorageError::Damaged { log, offset, reason }) => {
                tracing::warn!(%log, offset, "aborted transactions are rebuilt: {reason}");
            }
            other => return other,
        }
        aborted::rebuild(&self.partition_dir(), segments, segment, self.log_end_offset().0)
    }

    /// The first record of a segment at or after a time, and not below `start`. Batches between the
    /// index's entry and that record are read: a damaged one is an error, never passed over.
    fn find_time(
        &self,
        segment: &Arc<Segment>,
        (timestamp, start): (i64, i64),
        scratch: &mut Vec<u8>,
    ) -> Result<Option<FoundOffset>, StorageError> {
        let near = segment.time_entry_below(timestamp)?;
        let near = near.map_or(segment.base_offset, |e| segment.base_offset + i64::from(e.delta));
        let size = segment.size();
        let Some(first) = segment.find(near.max(start), size)? else { return Ok(None) };
        let (file, path) = (segment.file()?, segment.path(LOG));
        let mut walker = Walker::new(&file, first.position, size);
        let mut next = first.base_offset;
        let fail = |error| self.partition_dir().log_dir.failed("read", error);
        loop {
            let batch = match walker.step().map_err(fail)? {
                WalkStep::Batch(batch) => batch,
                WalkStep::End => return Ok(None),
                WalkStep::Bad(_) => return Err(segment.unreadable(next)),
            };
            next = batch.last_offset + 1;
            if batch.max_timestamp < timestamp || batch.last_offset < start {
                // Its time is worth as much as its checksum.
                if !walker.check_crc(&batch, scratch).map_err(fail)? {
                    return Err(segment.unreadable(batch.base_offset));
                }
                continue;
            }
            let fits = |offset, time| time >= timestamp && offset >= start;
            if let Some((offset, timestamp)) = find_record((&file, &path), &batch, scratch, fits)? {
                let leader_epoch = Epoch(batch.leader_epoch);
                return Ok(Some(FoundOffset { offset: Offset(offset), timestamp, leader_epoch }));
            }
        }
    }
}

/// The first record with the largest timestamp of all.
fn latest_by_time(segments: &[Arc<Segment>]) -> Result<Option<FoundOffset>, StorageError> {
    let mut best: Option<(i64, i64, &Arc<Segment>)> = None;
    for segment in segments {
        let (timestamp, offset) = segment.max_timestamp()?;
        if timestamp >= 0 && best.is_none_or(|best| timestamp > best.0) {
            best = Some((timestamp, offset, segment));
        }
    }
    let Some((timestamp, offset, segment)) = best else { return Ok(None) };
    let Some(batch) = segment.find(offset, segment.size())? else { return Ok(None) };
    let largest = |_, time| time == timestamp;
    let files = (&*segment.file()?, &*segment.path(LOG));
    let first = find_record(files, &batch, &mut Vec::new(), largest)?;
    let offset = first.map_or(batch.last_offset, |record| record.0);
    let leader_epoch = Epoch(batch.leader_epoch);
    Ok(Some(FoundOffset { offset: Offset(offset), timestamp, leader_epoch }))
}

/// Offset and time of the first record of a batch that `fits`.
pub(in crate::storage) fn find_record(
    (file, path): (&File, &Path),
    at: &BatchAt,
    scratch: &mut Vec<u8>,
    fits: impl Fn(i64, i64) -> bool,
) -> Result<Option<(i64, i64)>, StorageError> {
    let read = scan::read_batch(file, at, scratch);
    let bytes = read.map_err(|e| StorageError::io("read", path, e))?;
    let mut found = None;
    let mut look = |offset: i64, timestamp: i64| {
        if found.is_none() && fits(offset, timestamp) {
            found = Some((offset, timestamp));
        }
    };
    let outcome = if at.magic < 2 {
        let limit = usize::try_from(budget(bytes.len())).unwrap_or(usize::MAX);
        Message::parse(bytes).and_then(|message| {
            let mut held = Vec::new();
            let records = legacy::records(&message, limit, &mut held)?;
            records.for_each(|record| look(record.offset, record.timestamp));
            Ok(())
        })
    } else {
        Batch::parse(bytes).and_then(|batch| {
            if !batch.crc_ok() {
                return Err(RecordError::Corrupt("checksum"));
            }
            each_record(&batch, |record| {
                look(record.offset, record.timestamp);
                Ok(())
            })
        })
    };
    outcome.map_err(|error| StorageError::Damaged {
        log: path.display().to_string().into(),
        offset: at.base_offset,
        reason: error.to_string().into(),
    })?;
    Ok(found)
}
