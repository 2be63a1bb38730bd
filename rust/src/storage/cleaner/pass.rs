//! One cleaning of one log: map the dirty part's keys to their last offsets, then rewrite each
//! group of segments without superseded records, and swap.
//!
//! A record is kept if it lies beyond the mapped part, or is the last of its key and has a value,
//! or is a tombstone before its delete horizon. The first cleaning that meets a tombstone sets the
//! horizon in its batch (`delete.retention.ms` from then; in older formats the segment's age
//! counts). Records without a key are dropped. Data of aborted transactions is dropped at once; a
//! marker is dropped when nothing of its transaction is left and its own horizon has passed. The
//! last batch of each live producer stays for its sequence number, even if it becomes empty.
//! Invariant: a record is removed only after the record that supersedes it is synced.
//! Threads: the cleaner's own.
//! Not promised: disk space for the new segments. A full disk ends the cleaning, and the old
//!     segments stay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::super::config::LogConfig;
use super::super::errors::StorageError;
use super::super::log::{CompactionView, Log};
use super::super::scan::BatchAt;
use super::super::segment::Segment;
use super::choose::{self, DirtyRange};
use super::keymap::{KeyHash, KeyMap, LOOKAHEAD};
use super::output::CleanedSegment;
use super::source::{BatchSource, SourceStep};
use super::transactions::CleanedTransactions;
use super::verdicts::{BatchVerdict, Verdicts};
use super::{CleanerWorker, CleaningResult};
use crate::ids::Offset;
use crate::record::RecordError;
use crate::record::batch::Batch;
use crate::record::retain::{self, DecodedBatch, RecordSummary, StoredBatchReader};

/// A transaction's end, by the type of a control record.
const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// The rules that decide which records of a segment are kept.
struct RetentionRules<'r> {
    map: &'r KeyMap,
    verdicts: &'r Verdicts,
    now_ms: i64,
    delete_retention_ms: i64,
    /// Whether tombstones of older formats stay.
    keep_legacy_tombstones: bool,
    /// The last batch of each producer, and its epoch.
    producers: HashMap<i64, (Option<i64>, i16)>,
}

/// The result of mapping the dirty part of a log.
struct DirtyMap {
    map: KeyMap,
    verdicts: Verdicts,
    transactions: CleanedTransactions,
}

/// The keys and rules that apply to the records of all segments.
struct MappedKeys<'m> {
    map: &'m KeyMap,
    verdicts: &'m Verdicts,
    /// Segments of older formats keep their tombstones if they were modified after this time, ms.
    legacy_horizon: i64,
}

/// Segments that become one.
struct SegmentGroup<'g> {
    segments: &'g [Arc<Segment>],
    /// Base offset of the segment after them.
    end: i64,
}

/// Numbers of records.
#[derive(Clone, Copy)]
struct RecordCounts {
    read: usize,
    kept: usize,
}

/// How the transactions affect a batch.
#[derive(Clone, Copy)]
struct TransactionCheck {
    /// The whole batch may be dropped.
    may_go: bool,
    /// It is a marker.
    is_control: bool,
}

/// The buffers that a batch is rewritten with.
struct RewriteBuffers<'b> {
    keep: &'b mut Vec<bool>,
    out: &'b mut Vec<u8>,
}

/// A cleaning in progress.
pub(super) struct CleaningPass<'p> {
    log: &'p Log,
    config: Arc<LogConfig>,
    now_ms: i64,
    view: CompactionView,
    worker: &'p CleanerWorker<'p>,
    reader: StoredBatchReader,
    keep: Vec<bool>,
    done: CleaningResult,
}

impl<'p> CleaningPass<'p> {
    pub(super) fn new(log: &'p Log, now_ms: i64, worker: &'p CleanerWorker<'p>) -> Self {
        Self {
            log,
            config: log.config(),
            now_ms,
            view: log.view(),
            worker,
            reader: StoredBatchReader::default(),
            keep: Vec::new(),
            done: CleaningResult::default(),
        }
    }

    /// Cleans; `None` if it was stopped, or the log changed under it.
    pub(super) fn run(
        mut self,
        dirty: &DirtyRange,
    ) -> Result<Option<CleaningResult>, StorageError> {
        let Some((map, verdicts)) = self.map(dirty)? else { return Ok(None) };
        let end = map.latest() + 1;
        self.log.flush()?;
        self.log.note_cleaned(&self.view, Offset(dirty.first_dirty))?;
        let segments = self.view.segments.clone();
        let below = |limit| segments.partition_point(|s: &Arc<Segment>| s.base_offset < limit);
        let last_clean = below(dirty.first_dirty).checked_sub(1).and_then(|at| segments.get(at));
        let legacy_horizon = last_clean.map_or(0, |segment| {
            segment.modified_ms().saturating_sub(self.config.delete_retention_ms)
        });
        let mut todo = segments.get(..below(end)).unwrap_or_default();
        let mut transactions = CleanedTransactions::default();
        while !todo.is_empty() {
            let count = choose::group(&sizes(todo)?, dirty.first_uncleanable, &self.config);
            let (group, rest) = todo.split_at(count.min(todo.len()));
            if let [alone] = group
                && let Some(records) = verdicts.untouched(alone.base_offset)
            {
                self.count(RecordCounts { read: records, kept: records });
                todo = rest;
                continue;
            }
            let next = rest.first().or(segments.get(below(end))).map_or(end, |s| s.base_offset);
            todo = rest;
            let group = SegmentGroup { segments: group, end: next };
            let mapped = MappedKeys { map: &map, verdicts: &verdicts, legacy_horizon };
            let whole = self.group(&group, &mapped, &mut transactions)?;
            if !whole {
                return Ok(None);
            }
        }
        self.log.note_cleaned(&self.view, Offset(end))?;
        self.done.clean_to = Offset(end);
        self.done.keys = map.len();
        Ok(Some(self.done))
    }

    /// Maps the last offset of each key of the dirty part, or of as much of it as the memory holds.
    fn map(&mut self, dirty: &DirtyRange) -> Result<Option<(KeyMap, Verdicts)>, StorageError> {
        let (start, end) = (dirty.first_dirty, dirty.first_uncleanable);
        let wanted = end.abs_diff(start);
        let options = &self.worker.options;
        let memory = options.dedupe_buffer_bytes / options.threads.max(1);
        let verdicts = Verdicts::new(memory, start, wanted);
        let map = KeyMap::new(memory - verdicts.bytes(), options.load_factor, start, wanted);
        let mut into = DirtyMap { map, verdicts, transactions: CleanedTransactions::default() };
        into.transactions.expect(self.log.aborted(Offset(start), Offset(end))?);
        let segments = self.view.segments.clone();
        let first = segments.partition_point(|s| s.base_offset <= start).saturating_sub(1);
        for (at, segment) in segments.iter().enumerate().skip(first) {
            if segment.base_offset >= end {
                break;
            }
            match self.map_segment(segment, start, &mut into)? {
                Some(true) => {}
                Some(false) => break,
                None => return Ok(None),
            }
            let next = segments.get(at + 1).map_or(end, |next| next.base_offset);
            into.map.set_latest(next.min(end) - 1);
        }
        let DirtyMap { map, mut verdicts, .. } = into;
        if map.latest() < start {
            let keys = map.limit();
            let text = format!(
                "{}: one batch has more than the {keys} keys that log.cleaner.dedupe.buffer.size \
                 allows",
                self.log.name()
            );
            return Err(StorageError::Meta(text.into()));
        }
        verdicts.settle(&map);
        Ok(Some((map, verdicts)))
    }

    /// Maps a segment. Returns whether all of it fitted; `None` if the cleaner must stop.
    fn map_segment(
        &mut self,
        segment: &Arc<Segment>,
        start: i64,
        into: &mut DirtyMap,
    ) -> Result<Option<bool>, StorageError> {
        let size = segment.size();
        let from = segment.find(start, size)?.map_or(size, |batch| batch.position);
        let file = segment.file()?;
        let mut source = BatchSource::new(&file, from..size, self.worker.piece());
        let mut simple = (from == 0 && start <= segment.base_offset).then_some(0);
        loop {
            let next = source.next().map_err(|error| self.unreadable(error))?;
            let (at, bytes) = match next {
                SourceStep::Batch(at, bytes) => (at, bytes),
                SourceStep::End => {
                    if let Some(records) = simple {
                        into.verdicts.note_segment(segment.base_offset, into.map.latest(), records);
                    }
                    return Ok(Some(true));
                }
                SourceStep::Bad(reason) => return Err(self.damaged(segment.base_offset, reason)),
            };
            let opened = self.reader.open(bytes);
            let opened = opened.map_err(|error| bad(self.log, at.base_offset, &error))?;
            self.done.bytes_mapped += at.size;
            let skip = opened.batch().is_some_and(|batch| {
                check_transaction(batch, &opened, &mut into.transactions).may_go
            });
            let data = !skip && opened.batch().is_none_or(|batch| !batch.is_control());
            if data && !put_all(&opened, start, &mut into.map) {
                return Ok(Some(false));
            }
            if data && is_plain(&opened) {
                into.verdicts.note_plain(at.base_offset);
                simple = simple.filter(|_| !opened.is_empty()).map(|held| held + opened.len());
            } else {
                simple = None;
            }
            into.map.set_latest(at.last_offset.max(start - 1));
            if self.worker.pause(source.take_read()) {
                return Ok(None);
            }
        }
    }

    /// Rewrites a group of segments and swaps the files; false if it was stopped or the log
    /// changed.
    fn group(
        &mut self,
        group: &SegmentGroup<'_>,
        mapped: &MappedKeys<'_>,
        transactions: &mut CleanedTransactions,
    ) -> Result<bool, StorageError> {
        let SegmentGroup { segments: group, end } = *group;
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(true) };
        let partition_dir = Arc::clone(&self.log.partition_dir());
        let interval = self.config.index_interval_bytes;
        let base = first.base_offset;
        let mut output =
            self.log.laid_out(|| CleanedSegment::create(&partition_dir, base, interval))?;
        for (at, segment) in group.iter().enumerate() {
            let next = group.get(at + 1).map_or(end, |next| next.base_offset);
            transactions.expect(self.log.aborted(Offset(segment.base_offset), Offset(next))?);
            let rules = RetentionRules {
                map: mapped.map,
                verdicts: mapped.verdicts,
                now_ms: self.now_ms,
                delete_retention_ms: self.config.delete_retention_ms,
                keep_legacy_tombstones: segment.modified_ms() > mapped.legacy_horizon,
                producers: self.log.last_batches()?,
            };
            if !self.segment(segment, &rules, transactions, &mut output)? {
                self.log.laid_out(|| self.log.discard(base))?;
                return Ok(false);
            }
        }
        let since = std::time::Duration::from_millis(last.modified_ms().max(0).unsigned_abs());
        output.sync()?;
        let (aborted, modified) = (transactions.take_index(), SystemTime::UNIX_EPOCH + since);
        let size = self.log.laid_out(|| output.finish(&aborted, modified))?;
        self.done.bytes_written += size;
        self.log.replace(&self.view, group, size)
    }

    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        rules: &RetentionRules<'_>,
        transactions: &mut CleanedTransactions,
        output: &mut CleanedSegment<'_>,
    ) -> Result<bool, StorageError> {
        let file = segment.file()?;
        let mut source = BatchSource::new(&file, 0..segment.size(), self.worker.piece());
        loop {
            let next = source.next().map_err(|error| self.unreadable(error))?;
            let (at, bytes) = match next {
                SourceStep::Batch(at, bytes) => (at, bytes),
                SourceStep::End => return Ok(true),
                SourceStep::Bad(reason) => return Err(self.damaged(segment.base_offset, reason)),
            };
            let fail = |error| bad(self.log, at.base_offset, &error);
            let room = output.buffer();
            let start = room.len();
            self.done.bytes_read += at.size;
            let counted = match rules.unopened(&at, bytes, room) {
                Some(counted) => counted,
                None => {
                    let opened = self.reader.open(bytes).map_err(fail)?;
                    let mut buffers = RewriteBuffers { keep: &mut self.keep, out: room };
                    let kept = match opened.batch() {
                        Some(batch) => {
                            let checked = check_transaction(batch, &opened, transactions);
                            rules.batch(batch, &opened, checked, &mut buffers)
                        }
                        None => rules.message(&opened, bytes, &mut buffers),
                    };
                    RecordCounts { read: opened.len(), kept: kept.map_err(fail)? }
                }
            };
            self.count(counted);
            let written = if room.len() > start { output.appended(start)? } else { 0 };
            if self.worker.pause(source.take_read() + written) {
                return Ok(false);
            }
        }
    }

    const fn count(&mut self, counts: RecordCounts) {
        self.done.records_read += counts.read as u64;
        self.done.records_kept += counts.kept as u64;
    }

    fn unreadable(&self, error: std::io::Error) -> StorageError {
        self.log.partition_dir().log_dir.failed(&format!("read {}", self.log.name()), error)
    }

    fn damaged(&self, offset: i64, reason: &'static str) -> StorageError {
        bad(self.log, offset, &RecordError::Corrupt(reason))
    }
}

impl RetentionRules<'_> {
    /// Handles a batch that the mapping decided as a whole. Returns the number of its records, and
    /// of those that stay. `None`: it must be opened. Its checksum was right when it was mapped.
    fn unopened(&self, at: &BatchAt, bytes: &[u8], out: &mut Vec<u8>) -> Option<RecordCounts> {
        let count = usize::try_from(at.header.as_ref()?.record_count).ok()?;
        match self.verdicts.of(at.base_offset, at.last_offset, count) {
            BatchVerdict::Mixed | BatchVerdict::Unknown => None,
            BatchVerdict::Stays => {
                out.extend_from_slice(bytes);
                Some(RecordCounts { read: count, kept: count })
            }
            BatchVerdict::Goes => {
                let batch = Batch::parse(bytes).ok()?;
                if self.is_last_of_producer(&batch) {
                    out.extend_from_slice(&retain::emptied(&batch));
                }
                Some(RecordCounts { read: count, kept: 0 })
            }
        }
    }

    /// Appends the records of a batch that stay. Returns the counts.
    fn batch(
        &self,
        batch: &Batch<'_>,
        opened: &DecodedBatch<'_>,
        TransactionCheck { may_go, is_control }: TransactionCheck,
        buffers: &mut RewriteBuffers<'_>,
    ) -> Result<usize, RecordError> {
        let RewriteBuffers { keep, out } = buffers;
        let horizon = batch.has_delete_horizon().then_some(batch.header().base_timestamp);
        let discard = may_go && (!is_control || horizon.is_some_and(|at| at <= self.now_ms));
        let is_last = self.is_last_of_producer(batch);
        keep.clear();
        let mut tombstones = false;
        if discard {
            keep.resize(opened.len(), false);
        } else if is_control {
            keep.resize(opened.len(), true);
        } else {
            let keep_tombstones = horizon.is_none_or(|at| self.now_ms < at);
            tombstones = self.decide(opened, keep_tombstones, keep);
        }
        let kept = keep.iter().filter(|keep| **keep).count();
        if kept == 0 {
            if is_last {
                out.extend_from_slice(&retain::emptied(batch));
            }
            return Ok(0);
        }
        let begins_to_die = horizon.is_none() && (tombstones || (is_control && may_go));
        if kept == opened.len() && !begins_to_die {
            out.extend_from_slice(batch.bytes());
            return Ok(kept);
        }
        let horizon = self.now_ms.saturating_add(self.delete_retention_ms);
        opened.rewrite(keep, begins_to_die.then_some(horizon), out).map(|()| kept)
    }

    /// Appends a message of magic 0 or 1, as far as it stays.
    fn message(
        &self,
        opened: &DecodedBatch<'_>,
        bytes: &[u8],
        buffers: &mut RewriteBuffers<'_>,
    ) -> Result<usize, RecordError> {
        let RewriteBuffers { keep, out } = buffers;
        keep.clear();
        self.decide(opened, self.keep_legacy_tombstones, keep);
        let kept = keep.iter().filter(|keep| **keep).count();
        if kept == opened.len() {
            out.extend_from_slice(bytes);
        } else if kept > 0 {
            opened.rewrite(keep, None, out)?;
        }
        Ok(kept)
    }

    /// Decides which records stay. Returns whether a tombstone is among them.
    fn decide(
        &self,
        opened: &DecodedBatch<'_>,
        keep_tombstones: bool,
        keep: &mut Vec<bool>,
    ) -> bool {
        let known = |batch: &Batch<'_>| {
            let range = (batch.base_offset(), batch.last_offset());
            self.verdicts.of(range.0, range.1, opened.len()) != BatchVerdict::Unknown
        };
        if opened.batch().is_some_and(known) {
            keep.extend(
                opened.record_summaries().map(|record| self.verdicts.is_last(record.offset)),
            );
            return false;
        }
        let mut tombstones = false;
        let mut records = opened.record_summaries();
        let mut block = [(None, KeyHash::default()); LOOKAHEAD];
        loop {
            let mut filled = 0;
            for (place, record) in block.iter_mut().zip(records.by_ref()) {
                let hashed = record.key.map(|key| self.map.hash(key)).unwrap_or_default();
                *place = (Some(record), hashed);
                filled += 1;
            }
            self.map.prefetch_slots(block.iter().take(filled).map(|(_, hashed)| *hashed));
            for (record, hashed) in block.iter().take(filled) {
                let Some(record) = record else { continue };
                let stays = self.stays(record, *hashed, keep_tombstones);
                tombstones |= stays && !record.has_value;
                keep.push(stays);
            }
            if filled < LOOKAHEAD {
                return tombstones;
            }
        }
    }

    #[inline]
    fn stays(&self, record: &RecordSummary<'_>, hashed: KeyHash, keep_tombstones: bool) -> bool {
        if record.offset > self.map.latest() {
            return true;
        }
        record.key.is_some()
            && (record.has_value || keep_tombstones)
            && record.offset >= self.map.last_offset(hashed)
    }

    fn is_last_of_producer(&self, batch: &Batch<'_>) -> bool {
        let header = batch.header();
        let known =
            if header.producer_id < 0 { None } else { self.producers.get(&header.producer_id) };
        known.is_some_and(|(last, epoch)| match last {
            Some(offset) => batch.last_offset() == *offset,
            None => batch.is_control() && header.producer_epoch == *epoch,
        })
    }
}

/// Passes a batch to the transactions.
fn check_transaction(
    batch: &Batch<'_>,
    opened: &DecodedBatch<'_>,
    transactions: &mut CleanedTransactions,
) -> TransactionCheck {
    let (producer_id, last) = (batch.header().producer_id, batch.last_offset());
    if batch.is_control() {
        let kind = opened.first_key().map(|key| match key {
            [_, _, high, low, ..] => i16::from_be_bytes([*high, *low]),
            _ => -1,
        });
        let may_go = match kind {
            None => transactions.marker(producer_id, last, None),
            Some(ABORT) => transactions.marker(producer_id, last, Some(false)),
            Some(COMMIT) => transactions.marker(producer_id, last, Some(true)),
            Some(_) => false,
        };
        return TransactionCheck { may_go, is_control: true };
    }
    let may_go = batch.is_transactional() && transactions.data(producer_id, last);
    TransactionCheck { may_go, is_control: false }
}

/// Whether all records of a batch are alike to a cleaning: with a key, a value, no transaction.
fn is_plain(opened: &DecodedBatch<'_>) -> bool {
    let simple = |batch: &Batch<'_>| !batch.is_transactional() && !batch.has_delete_horizon();
    opened.batch().is_some_and(simple)
        && opened.record_summaries().all(|record| record.key.is_some() && record.has_value)
}

/// Adds all keys of a batch from `start` on to the map; false if it is full.
fn put_all(opened: &DecodedBatch<'_>, start: i64, map: &mut KeyMap) -> bool {
    let mut records = opened.record_summaries().filter(|record| record.offset >= start);
    let mut block = [(KeyHash::default(), 0); LOOKAHEAD];
    loop {
        let mut filled = 0;
        while filled < LOOKAHEAD
            && let Some(record) = records.next()
        {
            if let (Some(key), Some(place)) = (record.key, block.get_mut(filled)) {
                *place = (map.hash(key), record.offset);
                filled += 1;
            }
        }
        map.prefetch_slots(block.iter().take(filled).map(|(hashed, _)| *hashed));
        for (hashed, offset) in block.iter().take(filled) {
            if !map.put(*hashed, *offset) {
                return false;
            }
        }
        if filled < LOOKAHEAD {
            return true;
        }
    }
}

fn sizes(segments: &[Arc<Segment>]) -> Result<Vec<(i64, u64, u64)>, StorageError> {
    let size = |segment: &Arc<Segment>| {
        let (offsets, times) = segment.index_sizes()?;
        Ok((segment.base_offset, segment.size(), offsets.max(times) as u64))
    };
    segments.iter().map(size).collect()
}

fn bad(log: &Log, offset: i64, error: &RecordError) -> StorageError {
    StorageError::Damaged {
        log: log.name().to_string().into(),
        offset,
        reason: error.to_string().into(),
    }
}
