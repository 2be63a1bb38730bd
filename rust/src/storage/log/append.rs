//! Appending: staged batches, the write, and what happens when it fails.
//!
//! Steps: check the producer's sequence, make place (roll), set base offset and epoch in a copy of
//! the header, note index entries, producers and epochs, keep small batches and write large ones at
//! once; commit writes what is kept with one call and shows it. A failed write takes all back to
//! the last commit: file, indexes, producers, epochs.
//! Threads: all under the writer's mutex. A network thread stages with [`Log::stage_at_once`], and
//! leaves to a worker what takes long (see `room`).
//! Not promised: a commit waits where another thread began a roll after its stage.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::config::LogConfig;
use super::super::errors::{AppendError, StorageError};
use super::super::index::{OffsetEntry, TimeEntry};
use super::super::producers::{
    AppendOrigin, MarkerCheck, SequenceCheck, TransactionMarker, marker_of,
};
use super::super::segment::Segment;
use super::super::sync::Urgency;
use super::super::txnindex::AbortedTxn;
use super::super::verification::Verification;
use super::room::{self, IncomingBatch};
use super::tail::TailPosition;
use super::{CommitPoint, Log, LogWriter, staging};
use crate::ids::{Epoch, Offset};
use crate::record::RecordError;
use crate::record::batch::{
    self, Batch, Header, HeaderPatch, TimestampType, ValidationResult, patch_header,
};
use crate::record::control::EndTransactionMarker;

/// Batches from this size on are written at once, without a copy.
const LARGE: usize = 64 << 10;
/// Staged bytes are written early from here on.
const STAGING: usize = 256 << 10;
/// Up to so many producers the limit is not checked.
const PRODUCERS_UNCOUNTED: usize = 1000;
/// A partition is hot, and gets disk reserved, once it has written so much.
const HOT: u64 = 8 << 20;
/// So much disk is reserved at a time; asked for when half of it is left.
const AHEAD: u64 = 64 << 20;
/// How many failed generations are remembered.
const CUTS: usize = 16;
/// From this `transaction.version` on each transaction has an epoch of its own.
const EPOCH_PER_TRANSACTION: i8 = 2;

/// A claim on a staged append, to be turned in with [`Log::commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    generation: u32,
    end: i64,
}

/// A batch that was given its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The time that the broker set, or -1.
    pub log_append_time: i64,
    /// The log's start at that moment.
    pub log_start_offset: Offset,
    /// It was in the log already; the offsets are the original's.
    pub duplicate: bool,
    /// What to commit before it may be acknowledged.
    pub staged: Stage,
}

/// A batch to append.
#[derive(Clone, Copy, Debug)]
pub struct NewBatch<'a, 'b> {
    /// The batch.
    pub batch: &'a Batch<'b>,
    /// What [`batch::check`] found.
    pub validated: &'a ValidationResult,
    /// Who made it.
    pub origin: AppendOrigin,
    /// The time, in milliseconds since 1970.
    pub now_ms: i64,
}

impl<'a, 'b> NewBatch<'a, 'b> {
    /// A producer's batch, whose transaction is not verified.
    pub const fn new(batch: &'a Batch<'b>, validated: &'a ValidationResult, now_ms: i64) -> Self {
        let origin = AppendOrigin::Client(Verification::NotRequired);
        Self { batch, validated, origin, now_ms }
    }

    /// The same batch of another origin.
    pub const fn from(self, origin: AppendOrigin) -> Self {
        Self { origin, ..self }
    }
}

/// A marker that was given its place, or has it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedMarker {
    /// The marker was in the log already.
    pub is_repeat: bool,
    /// One past the marker, or one past a later offset.
    pub end: Offset,
    /// What to commit before it may be acknowledged.
    pub staged: Stage,
}

/// A header ready to be written, and what is known of its batch.
struct Ready<'b> {
    header: Header,
    bytes: [u8; batch::HEADER_SIZE],
    payload: &'b [u8],
}

impl Log {
    /// Checks a batch and gives it its offsets. Nothing is visible or may be acknowledged before
    /// [`Log::commit`].
    ///
    /// Errors: see [`AppendError`]; the batch alone is refused, except for a failed write, which
    /// takes back every stage since the last commit.
    pub fn stage(&self, new: &NewBatch<'_, '_>) -> Result<Appended, AppendError> {
        let config = self.config.load();
        check_size(new.batch, &config)?;
        let mut writer = self.writer.lock();
        if let Some(earlier) = self.check_producer(&mut writer, &config, new)? {
            return Ok(earlier);
        }
        self.stage_and_roll(&mut writer, &config, (new.batch, new.validated, new.now_ms))
    }

    /// The same for a thread that serves many connections. `None`, and nothing was staged, where
    /// this would make files, read from the disk, sync, or wait for another writer: another thread
    /// then calls [`Log::stage`].
    pub fn stage_at_once(&self, new: &NewBatch<'_, '_>) -> Result<Option<Appended>, AppendError> {
        let config = self.config.load();
        check_size(new.batch, &config)?;
        let Some(mut writer) = self.writer.try_lock_for(room::PATIENCE) else { return Ok(None) };
        if let Some(earlier) = self.check_producer(&mut writer, &config, new)? {
            return Ok(Some(earlier));
        }
        let next = IncomingBatch::of(&writer, &config, (new.batch, new.validated, new.now_ms));
        if !self.has_room(&writer, &config, &next) {
            return Ok(None);
        }
        self.stage_at(&mut writer, &config, (new.batch, new.validated, &next)).map(Some)
    }

    /// Gives a place to the marker that ends a producer's transaction, unless it has one: a repeat
    /// writes nothing. `transaction_version`: the version of the protocol that the coordinator
    /// follows; from 2 on a marker has the epoch after that of its transaction.
    ///
    /// Errors: as [`Log::stage`]; `CoordinatorFenced` and `InvalidProducerEpoch` where a newer
    /// coordinator or producer has written here.
    pub fn stage_marker(
        &self,
        marker: &EndTransactionMarker,
        transaction_version: i8,
        now_ms: i64,
    ) -> Result<StagedMarker, AppendError> {
        let bytes = marker.to_batch(now_ms).map_err(corrupt)?;
        let batch = Batch::parse(&bytes).map_err(corrupt)?;
        let config = self.config.load();
        let mut writer = self.writer.lock();
        self.may_lead()?;
        let EndTransactionMarker { producer_id, producer_epoch, coordinator_epoch, commit } =
            *marker;
        let ends = TransactionMarker { commit, coordinator_epoch };
        let has_own_epoch = transaction_version >= EPOCH_PER_TRANSACTION;
        let producer = (producer_id, producer_epoch);
        if writer.producers.check_marker(producer, ends, has_own_epoch)? == MarkerCheck::Repeat {
            let (generation, end) = (writer.generation, writer.next_offset);
            let staged = Stage { generation, end };
            return Ok(StagedMarker { is_repeat: true, end: Offset(end), staged });
        }
        let validated = as_made(&batch);
        let appended = self.stage_and_roll(&mut writer, &config, (&batch, &validated, now_ms))?;
        let end = Offset(appended.last_offset.0 + 1);
        Ok(StagedMarker { is_repeat: false, end, staged: appended.staged })
    }

    /// Stages a batch that was checked. It may make a segment.
    fn stage_and_roll(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        (batch, validated, now_ms): (&Batch<'_>, &ValidationResult, i64),
    ) -> Result<Appended, AppendError> {
        let next = IncomingBatch::of(writer, config, (batch, validated, now_ms));
        if self.must_roll(writer, config, &next)? {
            self.roll(writer, now_ms)?;
        }
        self.stage_at(writer, config, (batch, validated, &next))
    }

    /// Whether this broker may append batches that no leader sent.
    fn may_lead(&self) -> Result<(), AppendError> {
        self.appendable()?;
        match self.follows.load(Ordering::Acquire) {
            true => Err(AppendError::NotLeader),
            false => Ok(()),
        }
    }

    /// Whether the log takes the batch. `Some`: it was appended before. While writes fail, a batch
    /// that does not follow is refused for that reason: the one before it was taken back, and a
    /// client may answer a sequence error with a new epoch, which writes batches twice whose
    /// outcome it does not know.
    fn check_producer(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        new: &NewBatch<'_, '_>,
    ) -> Result<Option<Appended>, AppendError> {
        self.may_lead()?;
        let earlier = match analyze_producer_state(writer, new) {
            Err(AppendError::OutOfOrderSequence { .. }) if writer.is_failing => {
                return Err(StorageError::Cut(Arc::clone(&self.partition_dir().name)).into());
            }
            other => other?,
        };
        Ok(earlier.map(|(base, last, time)| Appended {
            base_offset: Offset(base),
            last_offset: Offset(last),
            log_append_time: if log_append(config) { time } else { -1 },
            log_start_offset: self.log_start_offset(),
            duplicate: true,
            staged: Stage { generation: writer.generation, end: last + 1 },
        }))
    }

    /// Gives a batch its offsets and keeps it, in the active segment.
    fn stage_at(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        (batch, validated, next): (&Batch<'_>, &ValidationResult, &IncomingBatch),
    ) -> Result<Appended, AppendError> {
        let log_start_offset = self.log_start_offset();
        let log_append_time = log_append(config).then_some(next.now_ms);
        let timestamp = next.timestamp;
        let patch = HeaderPatch {
            base_offset: writer.next_offset,
            leader_epoch: self.leader_epoch.load(Ordering::Acquire),
            max_timestamp: validated.max_timestamp,
            log_append_time,
        };
        let bytes = patch_header(batch, &patch);
        let header = Header {
            base_offset: patch.base_offset,
            leader_epoch: patch.leader_epoch,
            max_timestamp: timestamp,
            ..*batch.header()
        };
        let ready = Ready { header, bytes, payload: batch.payload() };
        self.keep(writer, config, (batch, &ready))?;
        Ok(Appended {
            base_offset: Offset(patch.base_offset),
            last_offset: Offset(writer.next_offset - 1),
            log_append_time: log_append_time.unwrap_or(-1),
            log_start_offset,
            duplicate: false,
            staged: Stage { generation: writer.generation, end: writer.next_offset },
        })
    }

    /// Writes all that is staged, by whomever, and shows it to readers.
    /// Errors: `Cut` if a write since the stage failed and took it back.
    pub fn commit(&self, stage: Stage) -> Result<(), StorageError> {
        let mut writer = self.writer.lock();
        if stage.generation == writer.generation {
            return self.write_and_publish(&mut writer);
        }
        let cut = writer.cuts.iter().find(|cut| cut.0 == stage.generation);
        if cut.is_some_and(|cut| stage.end <= cut.1) {
            return Ok(());
        }
        Err(StorageError::Cut(Arc::clone(&self.partition_dir().name)))
    }

    /// Checks, stages and commits all batches of `bytes`: for records the broker makes itself.
    /// The first and last offset of all.
    pub fn append_as_leader(&self, bytes: &[u8]) -> Result<(Offset, Offset), AppendError> {
        let now_ms = self.clock.wall_ms();
        let mut bounds: Option<(Offset, Offset)> = None;
        let mut stage = None;
        let batches = batch::iter(bytes).collect::<Result<Vec<_>, _>>().map_err(corrupt)?;
        if !batches.iter().all(Batch::crc_ok) {
            return Err(AppendError::Corrupt("checksum".into()));
        }
        for batch in batches {
            let appended = self.stage(&NewBatch::new(&batch, &as_made(&batch), now_ms))?;
            let first = bounds.map_or(appended.base_offset, |bounds| bounds.0);
            bounds = Some((first, appended.last_offset));
            stage = Some(appended.staged);
        }
        stage.map_or(Ok(()), |stage| self.commit(stage))?;
        let end = self.log_end_offset();
        Ok(bounds.unwrap_or((end, Offset(end.0 - 1))))
    }

    pub(super) fn appendable(&self) -> Result<(), StorageError> {
        self.usable()?;
        self.damage.get().map_or(Ok(()), |damage| Err(damage.clone()))
    }

    /// Notes a batch everywhere, and keeps or writes its bytes.
    fn keep(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        (batch, ready): (&Batch<'_>, &Ready<'_>),
    ) -> Result<(), StorageError> {
        let aborted = note_producer(writer, batch, &ready.header);
        let active = self.note_batch(writer, config, (batch.size(), &ready.header, aborted))?;
        if ready.payload.len() >= LARGE {
            self.write_staged(writer, &active, &[&ready.bytes, ready.payload])
        } else {
            if writer.staging.capacity() == 0 {
                writer.staging = staging::take();
            }
            writer.staging.extend_from_slice(&ready.bytes);
            writer.staging.extend_from_slice(ready.payload);
            if writer.staging.len() >= STAGING {
                return self.write_staged(writer, &active, &[]);
            }
            Ok(())
        }
    }

    /// Notes a batch in the indexes and epochs of the active segment, which it returns. Its bytes
    /// are to be written before anything else is. `aborted`: the transaction that it aborts.
    pub(super) fn note_batch(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        (size, header, aborted): (usize, &Header, Option<AbortedTxn>),
    ) -> Result<Arc<Segment>, StorageError> {
        let Some(active) = self.segments.load().last().cloned() else {
            return Err(StorageError::Closed(Arc::clone(&self.partition_dir().name)));
        };
        let size = size as u64;
        let last_offset = header.base_offset + i64::from(header.last_offset_delta);
        self.note_index(writer, config, (&active, header, last_offset));
        if let Some(aborted) = aborted {
            active.change_aborted(|list| list.push(aborted));
        }
        if writer.epochs.assign(Epoch(header.leader_epoch), Offset(header.base_offset)) {
            writer.epochs_saved = false;
        }
        writer.since_entry += size;
        writer.next_offset = last_offset + 1;
        writer.position += size;
        writer.written += size;
        writer.unsynced_batches = writer.unsynced_batches.saturating_add(1);
        Ok(active)
    }

    fn note_index(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        (active, header, last_offset): (&Segment, &Header, i64),
    ) {
        if writer.position == 0 {
            active.set_first_timestamp(header.max_timestamp);
        }
        if header.max_timestamp > writer.max.0 {
            writer.max = (header.max_timestamp, last_offset);
        }
        if writer.since_entry <= config.index_interval_bytes {
            return;
        }
        let delta = |offset: i64| i32::try_from(offset - active.base_offset);
        if let (Ok(delta), Ok(position)) = (delta(last_offset), i32::try_from(writer.position)) {
            active.offsets.push(OffsetEntry { delta, position });
        }
        if let (true, Ok(delta)) = (writer.max.0 >= 0, delta(writer.max.1)) {
            active.times.push(TimeEntry { timestamp: writer.max.0, delta });
        }
        writer.since_entry = 0;
    }

    /// Writes what is staged and then `more`, at most two pieces. The writer's position counts both
    /// already.
    pub(super) fn write_staged(
        &self,
        writer: &mut LogWriter,
        active: &Arc<Segment>,
        more: &[&[u8]],
    ) -> Result<(), StorageError> {
        let more_len: usize = more.iter().map(|piece| piece.len()).sum();
        let len = (writer.staging.len() + more_len) as u64;
        if len == 0 {
            return Ok(());
        }
        let at = writer.position - len;
        let partition_dir = self.partition_dir();
        let disk = partition_dir.log_dir.disk();
        let outcome = active.change(|file| {
            let written = match (writer.staging.as_slice(), more) {
                ([], pieces) => disk.write_at(file, pieces, at),
                (staged, []) => disk.write_at(file, &[staged], at),
                (staged, [one]) => disk.write_at(file, &[staged, one], at),
                (staged, [head, rest, ..]) => disk.write_at(file, &[staged, head, rest], at),
            };
            written.map_err(|error| {
                partition_dir.log_dir.failed(&format!("write {}", self.name), error)
            })
        });
        writer.staging.clear();
        if let Err(error) = outcome {
            self.roll_back(writer, active);
            return Err(error);
        }
        Ok(())
    }

    /// Restores the state of the last commit.
    pub(super) fn roll_back(&self, writer: &mut LogWriter, active: &Arc<Segment>) {
        let CommitPoint { position, next_offset, max, since_entry } = writer.committed;
        if !std::mem::replace(&mut writer.is_failing, true) {
            tracing::warn!(log = %self.name, next_offset, "a write failed; staged appends are cut");
        }
        writer.staging.clear();
        writer.unsynced_batches = 0;
        let cut = active.change(|file| {
            let partition_dir = self.partition_dir();
            let disk = partition_dir.log_dir.disk();
            disk.set_len(file, position).map_err(|error| partition_dir.log_dir.failed("cut", error))
        });
        if let Err(error) = cut {
            self.partition_dir().log_dir.take_offline(&error);
        }
        writer.allocated = position;
        writer.position = position;
        writer.next_offset = next_offset;
        writer.max = max;
        writer.since_entry = since_entry;
        let keep = next_offset - active.base_offset;
        active.offsets.cut(|entry| i64::from(entry.delta) < keep);
        active.times.cut(|entry| i64::from(entry.delta) < keep);
        active.change_aborted(|list| list.retain(|entry| entry.last_offset < next_offset));
        if position == 0 {
            active.forget_first_timestamp();
        }
        writer.producers.roll_back(next_offset);
        if writer.epochs.truncate_to(Offset(next_offset)) {
            writer.epochs_saved = false;
        }
        if writer.cuts.len() == CUTS {
            writer.cuts.pop_front();
        }
        writer.cuts.push_back((writer.generation, next_offset));
        writer.generation = writer.generation.wrapping_add(1);
    }

    /// Writes what is staged and shows readers everything so far.
    pub(super) fn write_and_publish(&self, writer: &mut LogWriter) -> Result<(), StorageError> {
        if writer.next_offset == writer.committed.next_offset {
            return Ok(());
        }
        let Some(active) = self.segments.load().last().cloned() else { return Ok(()) };
        let recent = self.recent_of(writer, active.base_offset);
        self.write_staged(writer, &active, &[])?;
        if std::mem::take(&mut writer.is_failing) {
            tracing::info!(log = %self.name, "is written again");
        }
        self.keep_recent(recent);
        staging::give_back(&mut writer.staging);
        writer.committed = CommitPoint {
            position: writer.position,
            next_offset: writer.next_offset,
            max: writer.max,
            since_entry: writer.since_entry,
        };
        writer.producers.commit();
        if writer.producers.count() >= PRODUCERS_UNCOUNTED {
            writer.producers.limit(self.config.load().producers_max);
        }
        self.publish_transactions(writer);
        active.set_max(writer.max.0, writer.max.1);
        active.publish_size(writer.position);
        active.save_due();
        self.tail.store(TailPosition {
            end: writer.next_offset,
            base: active.base_offset,
            position: writer.position,
        });
        self.ask_for_sync(writer);
        Ok(())
    }

    /// Tells the sync thread what the settings and a hot partition want of it.
    fn ask_for_sync(&self, writer: &mut LogWriter) {
        let Some(syncer) = &self.syncer else { return };
        let config = self.config.load();
        let hot = config.preallocate || writer.written >= HOT;
        if hot && writer.position + AHEAD / 2 > writer.allocated {
            let to = (writer.position + AHEAD).min(config.segment_bytes);
            if to > writer.allocated {
                writer.allocated = to;
                syncer.allocate(&self.me, to);
            }
        }
        let batches = std::mem::take(&mut writer.unsynced_batches);
        if config.waits_for_disk() {
            let within = self.group.lock().arrived(batches, Instant::now());
            if let Some(within) = within {
                syncer.ask(&self.me, Urgency::Soon(within));
            }
        } else if writer.next_offset - writer.sync_end >= config.flush_messages {
            writer.sync_end = writer.next_offset;
            syncer.ask(&self.me, Urgency::Now);
        } else if config.flush_ms < i64::MAX {
            syncer.ask(&self.me, Urgency::Later(config.flush_ms));
        }
    }
}

pub(super) fn log_append(config: &LogConfig) -> bool {
    config.timestamp_type == TimestampType::LogAppendTime
}

pub(super) fn corrupt(error: RecordError) -> AppendError {
    AppendError::Corrupt(error.to_string().into())
}

fn check_size(batch: &Batch<'_>, config: &LogConfig) -> Result<(), AppendError> {
    let size = batch.size() as u64;
    if size > config.max_message_bytes {
        return Err(AppendError::TooLarge { size, limit: config.max_message_bytes });
    }
    if size > config.segment_bytes {
        return Err(AppendError::SegmentTooSmall { size, limit: config.segment_bytes });
    }
    Ok(())
}

/// Checks the batch against the state of its producer. If the batch is a retry: base offset, last
/// offset and timestamp of the original.
fn analyze_producer_state(
    writer: &mut LogWriter,
    new: &NewBatch<'_, '_>,
) -> Result<Option<(i64, i64, i64)>, AppendError> {
    let header = new.batch.header();
    if header.producer_id < 0 {
        return Ok(None);
    }
    if new.batch.is_control() {
        if let Some(marker) = marker_of(new.batch) {
            let producer = (header.producer_id, header.producer_epoch);
            writer.producers.check_marker(producer, marker, false)?;
        }
        return Ok(None);
    }
    Ok(match writer.producers.check(new.batch, new.origin)? {
        SequenceCheck::Fresh => None,
        SequenceCheck::Duplicate { base_offset, last_offset, timestamp } => {
            Some((base_offset, last_offset, timestamp))
        }
    })
}

/// What a check of a batch that this broker made would find.
fn as_made(batch: &Batch<'_>) -> ValidationResult {
    let header = batch.header();
    ValidationResult {
        max_timestamp: header.max_timestamp,
        offset_of_max_timestamp: i64::from(header.last_offset_delta),
        record_count: header.record_count,
        last_offset_delta: header.last_offset_delta,
        inflated: 0,
    }
}

/// Notes a batch in the producers' state; the transaction that it aborts, if it does.
pub(super) fn note_producer(
    writer: &mut LogWriter,
    batch: &Batch<'_>,
    header: &Header,
) -> Option<AbortedTxn> {
    if header.producer_id < 0 {
        return None;
    }
    if batch.is_control() {
        let marker = marker_of(batch)?;
        return writer.producers.note_marker(header, marker);
    }
    writer.producers.note(header, batch.is_transactional());
    None
}
