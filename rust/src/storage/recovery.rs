//! Recovery makes a log that ends in a whole batch from the files in a partition's directory.
//!
//! Steps: list the segments and remove leftovers (`listing`); after a clean shutdown walk only the
//! last headers, otherwise read every batch from the segment of the recovery point on and cut at
//! the first bad batch above the recovery point; rebuild indexes, epochs, producers and aborted
//! transactions where the log was read.
//! A batch is bad with a size beyond the file, a wrong checksum, an unknown magic, an offset or
//! epoch that is lower than the one before or higher than a later one, and, where offsets are
//! dense, an offset that jumps.
//! Invariants: synced data stays; a second run changes nothing, also when the first was killed; a
//! bad batch below the recovery point is damage: reported, never cut.
//! Threads: one, before any other thread has the log.
//! Not promised: that damage below the segment of the recovery point is found. It is not read.

use std::io;
use std::sync::Arc;

use super::aborted;
use super::consistency::{self, LastBatch};
use super::cut::{BadBatch, cut};
use super::epochs::Epochs;
use super::errors::StorageError;
use super::file_names::LOG;
use super::indexing::IndexBuilder;
use super::listing;
use super::partition_dir::PartitionDir;
use super::producer_replay::{ProducerReplay, drop_snapshots_above, load_producers};
use super::progress::STEP;
use super::recovered::{Recovered, RecoveryRequest};
use super::scan::{BatchAt, HEAD, WalkStep, Walker};
use super::segment::Segment;
use super::txnindex::AbortedTxn;
use crate::ids::{Epoch, Offset};

/// A file with so much more disk than bytes had some reserved.
const RESERVED: u64 = 1 << 20;
/// The indexes of so many segments stay in memory, so that what is lost of a log is logged before
/// its files change. In longer logs those of the first ones are written before.
const UNSAVED: usize = 8;

/// Recovers a log. Errors are the disk's; bad bytes are not errors.
pub(crate) fn recover(
    partition_dir: &Arc<PartitionDir>,
    request: &RecoveryRequest,
) -> Result<Recovered, StorageError> {
    let Some(listing) = listing::list(partition_dir)? else {
        return Ok(Recovered { epochs_saved: true, ..Recovered::default() });
    };
    if listing.has_sums {
        partition_dir.load_txn_index_sums();
    }
    let mut found = Recovered { names_unsynced: !request.clean, ..Recovered::default() };
    for (base, size) in &listing.segments {
        found.segments.push(Segment::existing(partition_dir, *base, *size));
    }
    let first = found.segments.first().map(|segment| segment.base_offset);
    let epochs = read_epochs(partition_dir);
    found.log_start = consistency::log_start(partition_dir, request, first, epochs.as_ref());
    found.epochs_saved = epochs.is_some();
    let mut has_epochs = epochs.is_some();
    let names_none = epochs.as_ref().is_some_and(|epochs| epochs.entries().is_empty());
    found.epochs = epochs.unwrap_or_default();
    let end = if request.clean { clean_end(&mut found)? } else { None };
    // A log that is longer than what the shutdown noted is not what it left.
    let end = end.filter(|(end, _)| *end <= request.recovery_point);
    match end {
        Some((end, epoch)) => {
            found.log_end = end;
            if consistency::lost_its_end(partition_dir, request, end) {
                found.report_damage(partition_dir, "the log ends too early");
            }
            let last = epoch.map(|epoch| LastBatch { end, epoch });
            has_epochs = has_epochs && consistency::has_right_epochs(partition_dir, &found, last);
        }
        None => {
            let wrong = check(partition_dir, request, &mut found)?;
            let read_whole = first_to_check(&found.segments, request.recovery_point) == 0;
            has_epochs = read_whole
                || (has_epochs
                    && !names_none
                    && !wrong
                    && consistency::has_right_epochs(partition_dir, &found, None));
        }
    }
    if found.log_end < found.log_start && found.damage.is_none() {
        restart(partition_dir, &mut found)?;
    }
    found.log_start = found.log_start.min(found.log_end);
    finish(partition_dir, (request, has_epochs, end.is_some()), &mut found)?;
    aborted::check(partition_dir, &found, &listing.txn_indexes)?;
    Ok(found)
}

/// Begins an empty log at its start offset: all that is left lies below, and offsets of records
/// that were deleted are not used again.
fn restart(partition_dir: &PartitionDir, found: &mut Recovered) -> Result<(), StorageError> {
    consistency::keep_aside(partition_dir, found)?;
    for segment in found.segments.drain(..).rev() {
        segment.remove_files()?;
    }
    found.log_end = found.log_start;
    found.since_entry = 0;
    Ok(())
}

/// Epochs, producers and watermarks, once it is known where the log ends.
fn finish(
    partition_dir: &Arc<PartitionDir>,
    (request, has_epochs, clean): (&RecoveryRequest, bool, bool),
    found: &mut Recovered,
) -> Result<(), StorageError> {
    if found.epochs.truncate_to(Offset(found.log_end)) {
        found.epochs_saved = false;
    }
    if !has_epochs {
        rebuild_epochs(partition_dir, found)?;
    }
    if found.epochs.truncate_from_start(Offset(found.log_start)) {
        found.epochs_saved = false;
    }
    found.flushed = if clean { found.log_end } else { request.recovery_point.min(found.log_end) };
    drop_snapshots_above(partition_dir, found.log_end)?;
    let point = request.recovery_point;
    let checked = if clean { found.segments.len() } else { first_to_check(&found.segments, point) };
    let limit = found.segments.get(checked).map_or(found.log_end, |segment| segment.base_offset);
    let end = if found.without_producers { limit } else { found.log_end };
    let replay = ProducerReplay { snapshot_limit: limit, end, check_crc: false };
    let replayed = load_producers(partition_dir, &found.segments, &replay)?;
    for (index, segment) in found.segments.iter().enumerate().skip(checked) {
        let next = found.segments.get(index + 1).map_or(i64::MAX, |next| next.base_offset);
        let here = |entry: &&AbortedTxn| (segment.base_offset..next).contains(&entry.last_offset);
        segment.order.trust();
        segment.set_aborted(replayed.aborted.iter().filter(here).copied().collect());
        segment.save(true)?;
    }
    if !clean && found.damage.is_none() {
        // What was rolled and not flushed since.
        let rolled = found.segments.iter().skip(checked.saturating_sub(1));
        rolled.into_iter().try_for_each(|segment| trim_reserved(partition_dir, segment))?;
    }
    found.producers = replayed.producers;
    found.producers.commit();
    found.snapshot = replayed.snapshot;
    for segment in &found.segments {
        super::descriptors::FileHolder::close(&**segment, true);
    }
    Ok(())
}

/// Gives back disk that was reserved beyond a file's end before a crash.
fn trim_reserved(partition_dir: &PartitionDir, segment: &Arc<Segment>) -> Result<(), StorageError> {
    use std::os::unix::fs::MetadataExt;
    let file = segment.file()?;
    let metadata = file.metadata().map_err(|e| StorageError::io("stat", &segment.path(LOG), e))?;
    if metadata.blocks() * 512 > metadata.len() + RESERVED {
        let fail = |error| partition_dir.log_dir.failed("trim a segment", error);
        partition_dir.log_dir.disk().set_len(&file, segment.size()).map_err(fail)?;
    }
    Ok(())
}

fn first_to_check(segments: &[Arc<Segment>], recovery_point: i64) -> usize {
    segments.partition_point(|segment| segment.base_offset <= recovery_point).saturating_sub(1)
}

/// Where the log ends after a clean shutdown, and the epoch of its last batch; `None` if its last
/// segment does not look like one.
fn clean_end(found: &mut Recovered) -> Result<Option<(i64, Option<i32>)>, StorageError> {
    let Some(last) = found.segments.last() else { return Ok(Some((0, None))) };
    let size = last.size();
    if size == 0 {
        return Ok(Some((last.base_offset, None)));
    }
    let entry = last.last_offset_entry()?;
    let from = entry.and_then(|entry| u64::try_from(entry.position).ok()).unwrap_or(0);
    let file = last.file()?;
    let mut walker = Walker::new(&file, from.min(size), size);
    let mut next = None;
    loop {
        match walker.step().map_err(|e| StorageError::io("read", &last.path(LOG), e))? {
            WalkStep::Batch(batch) if next.is_none_or(|(next, _)| batch.base_offset >= next) => {
                next = Some((batch.last_offset + 1, Some(batch.leader_epoch)));
            }
            WalkStep::End if next.is_some() => break,
            _ => return Ok(None),
        }
    }
    found.since_entry = size - from;
    Ok(next)
}

/// Reads every batch from the recovery point's segment on and cuts at the first bad byte. Whether
/// the epochs' file contradicts the log.
fn check(
    partition_dir: &Arc<PartitionDir>,
    request: &RecoveryRequest,
    found: &mut Recovered,
) -> Result<bool, StorageError> {
    let first = first_to_check(&found.segments, request.recovery_point);
    let mut scratch = Vec::new();
    let mut next = found.segments.get(first).map_or(0, |segment| segment.base_offset);
    found.log_end = next;
    found.epochs_saved &= !found.epochs.truncate_to(Offset(next));
    let (mut last_epoch, mut wrong) = (-1, false);
    found.without_producers = true;
    let mut index = first;
    while let Some(segment) = found.segments.get(index).cloned() {
        let mut walk = Check {
            request,
            next: if segment.base_offset >= next { segment.base_offset } else { next },
            base: segment.base_offset,
            builder: IndexBuilder::new(segment.base_offset, request.interval),
            epochs: &mut found.epochs,
            last_epoch,
            epochs_changed: false,
            epochs_wrong: false,
            without_producers: true,
        };
        let gap = if index > first { walk.is_gap(next, segment.base_offset) } else { None };
        let (end, bad) = match gap {
            Some(reason) => (0, Some(reason)),
            None => {
                let behind = found.segments.get(index + 1).map(|segment| segment.base_offset);
                walk.segment((&segment, behind), &mut scratch)?
            }
        };
        if gap.is_none() {
            next = walk.next;
        }
        last_epoch = walk.last_epoch;
        wrong |= walk.epochs_wrong;
        found.without_producers &= walk.without_producers;
        found.epochs_saved &= !walk.epochs_changed;
        found.since_entry = walk.builder.since_entry();
        segment.install_indexes(walk.builder.finish());
        found.log_end = next;
        if let Some(reason) = bad {
            cut(
                partition_dir,
                request,
                found,
                &BadBatch { segment: index, position: end, reason },
            )?;
            break;
        }
        let settled = index.checked_sub(UNSAVED).filter(|settled| *settled >= first);
        if let Some(segment) = settled.and_then(|settled| found.segments.get(settled)) {
            segment.save(true)?;
        }
        index += 1;
    }
    if found.damage.is_none() && consistency::lost_its_end(partition_dir, request, found.log_end) {
        found.report_damage(partition_dir, "the log ends too early");
    }
    Ok(wrong)
}

/// The walk over one segment that is read whole.
struct Check<'c> {
    request: &'c RecoveryRequest<'c>,
    next: i64,
    base: i64,
    builder: IndexBuilder,
    epochs: &'c mut Epochs,
    last_epoch: i32,
    epochs_changed: bool,
    epochs_wrong: bool,
    without_producers: bool,
}

impl Check<'_> {
    /// Bytes that are good, and why the next is not. `behind`: where the next segment begins.
    fn segment(
        &mut self,
        (segment, behind): (&Arc<Segment>, Option<i64>),
        scratch: &mut Vec<u8>,
    ) -> Result<(u64, Option<&'static str>), StorageError> {
        let file = segment.file()?;
        let fail = |e: io::Error| StorageError::io("read", &segment.path(LOG), e);
        let mut walker = Walker::reading(&file, 0, segment.size());
        let mut reported = 0;
        loop {
            let at = walker.position();
            if let Some(checking) = self.request.checking.filter(|_| at >= reported + STEP) {
                checking.add(at - reported)?;
                reported = at;
            }
            match walker.step().map_err(fail)? {
                WalkStep::End => return Ok((at, None)),
                WalkStep::Bad(reason) => return Ok((at, Some(reason))),
                WalkStep::Batch(batch) => {
                    if let Some(reason) = self.invalid_reason(&batch) {
                        return Ok((at, Some(reason)));
                    }
                    if !walker.check_crc(&batch, scratch).map_err(fail)? {
                        return Ok((at, Some("wrong checksum")));
                    }
                    if batch.base_offset > self.next && self.is_ahead((segment, behind), &batch)? {
                        return Ok((at, Some("an offset jumps ahead of those behind it")));
                    }
                    self.take(&batch);
                }
            }
        }
    }

    /// Whether a batch that does not follow the one before it would be followed by the next one if
    /// it did: then its own offset is wrong, which no checksum covers.
    fn is_ahead(
        &self,
        (segment, behind): (&Arc<Segment>, Option<i64>),
        batch: &BatchAt,
    ) -> Result<bool, StorageError> {
        let file = segment.file()?;
        let mut walker = Walker::aiming(&file, batch.end(), segment.size(), HEAD);
        let behind =
            match walker.step().map_err(|e| StorageError::io("read", &segment.path(LOG), e))? {
                WalkStep::Batch(next) => Some(next.base_offset),
                WalkStep::End => behind,
                WalkStep::Bad(_) => None,
            };
        Ok(behind == Some(self.next + (batch.last_offset - batch.base_offset) + 1))
    }

    fn invalid_reason(&self, batch: &BatchAt) -> Option<&'static str> {
        if batch.base_offset < self.next {
            return Some("an offset falls");
        }
        if batch.magic == 2
            && let Some(reason) = self.is_gap(self.next, batch.base_offset)
        {
            return Some(reason);
        }
        if batch.last_offset - self.base > i64::from(i32::MAX) {
            return Some("an offset is too far from its segment's");
        }
        if batch.leader_epoch < Epoch::NONE.0 {
            return Some("a leader epoch is below -1");
        }
        let falls = batch.leader_epoch >= 0 && batch.leader_epoch < self.last_epoch;
        falls.then_some("a leader epoch falls")
    }

    fn is_gap(&self, next: i64, found: i64) -> Option<&'static str> {
        if found < next {
            return Some("an offset falls");
        }
        let beyond = self.request.dense && next >= self.request.recovery_point;
        (found > next && beyond).then_some("an offset jumps")
    }

    fn take(&mut self, batch: &BatchAt) {
        self.builder.add(batch);
        self.next = batch.last_offset + 1;
        self.without_producers &= batch.header.is_none_or(|header| header.producer_id < 0);
        if batch.leader_epoch >= 0 {
            let (epoch, start) = (Epoch(batch.leader_epoch), Offset(batch.base_offset));
            self.last_epoch = epoch.0;
            self.epochs_wrong |= epoch < self.epochs.latest();
            self.epochs_changed |= self.epochs.assign(epoch, start);
        }
    }
}

/// Epochs from the headers of all segments, where the file is missing or torn.
fn rebuild_epochs(partition_dir: &PartitionDir, found: &mut Recovered) -> Result<(), StorageError> {
    found.epochs = Epochs::default();
    for segment in &found.segments {
        let file = segment.file()?;
        let mut walker = Walker::new(&file, 0, segment.size());
        let fail = |e| StorageError::io("read", &segment.path(LOG), e);
        while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
            found.epochs.assign(Epoch(batch.leader_epoch), Offset(batch.base_offset));
        }
    }
    found.epochs_saved = false;
    if !found.segments.is_empty() {
        tracing::info!(log = %partition_dir.name, "leader epochs rebuilt from the log");
    }
    Ok(())
}

fn read_epochs(partition_dir: &PartitionDir) -> Option<Epochs> {
    let path = partition_dir.path.read().join("leader-epoch-checkpoint");
    let bytes = std::fs::read(path).ok()?;
    let epochs = std::str::from_utf8(&bytes).ok().and_then(Epochs::parse);
    if epochs.is_none() {
        let log = &partition_dir.name;
        tracing::warn!(%log, "leader-epoch-checkpoint is not readable: it is rebuilt");
    }
    epochs
}
