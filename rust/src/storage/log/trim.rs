//! The removal of records: from the end when a follower must agree with its leader, from the start
//! when a client deletes them.
//!
//! Order of a cut at the end: the recovery point and the high watermark on disk are lowered.
//! Readers get the log that is left, and a reader that began before reads again. Files are removed
//! from the last to the first, then the file that holds the offset is cut. A crash in between
//! leaves a shorter or a longer log, never one with a hole. An error after readers got the log that
//! is left takes the directory offline.
//! Invariant: a range of a file that a reader was given never shows bytes that were appended later.
//! Where such a range ends behind the cut, the log goes on in a new segment; where nothing is left
//! of a file, an empty one takes its place. A reader that has not sent all of such a range finds
//! that the file ends early.
//! Threads: under the locks of layout, flushing and writer.
//! Not promised: bytes that `sendfile` took and the peer has not yet received may become zeros,
//! which their checksum shows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::errors::{ReadError, StorageError};
use super::super::file_names::LOG_LAST;
use super::super::files;
use super::super::producer_replay::{ProducerReplay, drop_snapshots_above, load_producers};
use super::super::segment::Segment;
use super::super::txnindex::AbortedTxn;
use super::tail::TailPosition;
use super::{CommitPoint, Log, LogWriter};
use crate::ids::Offset;

/// A cut at the end of a log.
struct Truncation<'s> {
    /// The segments before the one that is cut.
    below: &'s [Arc<Segment>],
    /// The segment that is cut.
    active: &'s Arc<Segment>,
    /// The segments behind it.
    gone: &'s [Arc<Segment>],
    /// Where its file is to end.
    position: u64,
    /// One past the last offset that is left.
    end: i64,
}

impl Truncation<'_> {
    /// The aborted transactions of the segment that end below the cut.
    fn aborted_left(&self) -> Result<Vec<AbortedTxn>, StorageError> {
        let is_left = |entry: &&AbortedTxn| entry.last_offset < self.end;
        self.active.with_aborted(|list| list.iter().filter(is_left).copied().collect())
    }
}

impl Log {
    /// Cuts the log so that it ends at `offset`; a batch that holds it goes as a whole. Returns
    /// the new log end. Blocks.
    pub fn truncate_to(&self, offset: Offset) -> Result<Offset, StorageError> {
        let _layout = self.layout.lock();
        let _flushing = self.flushing.lock();
        let mut writer = self.writer.lock();
        self.usable()?;
        self.write_and_publish(&mut writer)?;
        if offset >= self.log_end_offset() {
            return Ok(self.log_end_offset());
        }
        if offset < self.log_start_offset() {
            return self.restart_at(&mut writer, offset);
        }
        let segments = self.segments.load_full();
        let above = segments.partition_point(|segment| segment.base_offset < offset.0).max(1);
        let (kept, gone) = segments.split_at(above.min(segments.len()));
        let Some((active, below)) = kept.split_last() else { return Ok(offset) };
        let size = active.size();
        let (position, end) = match active.find(offset.0, size)? {
            Some(batch) => (batch.position, offset.0.min(batch.base_offset)),
            None => (size, offset.0),
        };
        if end < self.log_start_offset().0 {
            return self.restart_at(&mut writer, offset);
        }
        self.repair_aborted(&segments, active)?;
        let cut = Truncation { below, active, gone, position, end };
        let new_active = active.cut_at(position, cut.aborted_left()?)?;
        self.lower_checkpoints(end, Offset(end))?;
        let outcome = self.apply_truncation(&mut writer, &cut, &new_active);
        outcome.inspect_err(|error| self.partition_dir().log_dir.take_offline(error))?;
        Ok(Offset(end))
    }

    /// Removes all records and starts an empty log at `offset`: for a follower whose leader's log
    /// starts beyond the follower's end. Blocks.
    pub fn truncate_fully(&self, offset: Offset) -> Result<Offset, StorageError> {
        let _layout = self.layout.lock();
        let _flushing = self.flushing.lock();
        let mut writer = self.writer.lock();
        self.usable()?;
        self.restart_at(&mut writer, offset)
    }

    /// Makes `before` the log's start, at most the high watermark (-1 means that); segments go
    /// with the next [`Log::retain`]. Returns the start. The file that remembers it is written with
    /// the next checkpoint.
    pub fn delete_records(&self, before: Offset) -> Result<Offset, ReadError> {
        self.usable()?;
        let mut writer = self.writer.lock();
        let high = self.high_watermark();
        let before = if before.0 == -1 { high } else { before };
        if before > high || before.0 < 0 {
            return Err(ReadError::OutOfRange {
                offset: before.0,
                log_start: self.log_start_offset().0,
                log_end: high.0,
            });
        }
        self.increment_log_start_offset(&mut writer, before);
        if let Some(syncer) = &self.syncer {
            syncer.checkpoint(&self.partition_dir().log_dir);
        }
        Ok(self.log_start_offset())
    }

    pub(super) fn increment_log_start_offset(&self, writer: &mut LogWriter, start: Offset) {
        if self.log_start.fetch_max(start.0, Ordering::AcqRel) >= start.0 {
            return;
        }
        self.high_watermark.fetch_max(start.0, Ordering::AcqRel);
        if writer.epochs.truncate_from_start(start) {
            writer.epochs_saved = false;
        }
        writer.producers.cut_start(start.0);
        self.publish_transactions(writer);
    }

    /// Removes all files of these segments, the last one's first, and syncs their going: a whole
    /// segment must not come back behind what is appended from here on.
    fn remove_segments(&self, gone: &[Arc<Segment>]) -> Result<(), StorageError> {
        if gone.is_empty() {
            return Ok(());
        }
        let partition_dir = self.partition_dir();
        for segment in gone.iter().rev() {
            for kind in LOG_LAST {
                files::remove_if_there(
                    partition_dir.log_dir.disk(),
                    &partition_dir.file(segment.base_offset, kind),
                )
                .map_err(|error| partition_dir.log_dir.failed("remove a file", error))?;
            }
        }
        let partition = partition_dir.path.read().clone();
        partition_dir.log_dir.sync_dir(&partition)
    }

    /// Lowers the checkpoints on disk to `point` before the log is cut at `end`. The offsets in
    /// memory go first, because the log scheduler may write the checkpoints at any moment.
    fn lower_checkpoints(&self, end: i64, point: Offset) -> Result<(), StorageError> {
        self.lower_watermarks(end);
        self.partition_dir().log_dir.lower(&self.name, point)
    }

    fn lower_watermarks(&self, end: i64) {
        self.flushed.fetch_min(end, Ordering::AcqRel);
        self.high_watermark.fetch_min(end, Ordering::AcqRel);
    }

    /// Shows readers the log that is left, with no watermark above its end, before a file changes.
    /// The cut is counted last: a reader that sees the old count after its read has registered the
    /// bytes it got with their segments.
    fn show_cut(&self, segments: Vec<Arc<Segment>>, tail: TailPosition) {
        self.publish_segments(segments);
        self.tail.store(tail);
        self.truncations.fetch_add(1, Ordering::SeqCst);
        self.lower_watermarks(tail.end);
    }

    fn apply_truncation(
        &self,
        writer: &mut LogWriter,
        cut: &Truncation<'_>,
        new_active: &Arc<Segment>,
    ) -> Result<(), StorageError> {
        let Truncation { position, end, .. } = *cut;
        let base = new_active.base_offset;
        let segments = cut.below.iter().chain([new_active]).map(Arc::clone).collect();
        self.show_cut(segments, TailPosition { end, base, position });
        new_active.lend(cut.active.lent());
        cut.gone.iter().chain([cut.active]).for_each(|segment| segment.replace());
        self.remove_segments(cut.gone)?;
        new_active.cut_file()?;
        new_active.install_indexes(new_active.build_indexes()?);
        let (max, since_entry) = (new_active.max_timestamp()?, 0);
        writer.committed = CommitPoint { position, next_offset: end, max, since_entry };
        self.reset_writer(writer)?;
        if position > 0 && new_active.lent() > position {
            self.roll(writer, self.clock.wall_ms())?;
        }
        Ok(())
    }

    /// Sets the writer to its last commit, and reads producers and epochs again.
    fn reset_writer(&self, writer: &mut LogWriter) -> Result<(), StorageError> {
        let CommitPoint { position, next_offset, max, since_entry } = writer.committed;
        writer.position = position;
        writer.next_offset = next_offset;
        writer.max = max;
        writer.since_entry = since_entry;
        writer.allocated = position;
        writer.sync_end = self.flushed_offset().0;
        writer.generation = writer.generation.wrapping_add(1);
        writer.cuts.clear();
        writer.names_unsynced = true;
        if writer.epochs.truncate_to(Offset(next_offset)) {
            writer.epochs_saved = false;
        }
        let segments = self.segments.load_full();
        drop_snapshots_above(&self.partition_dir(), next_offset)?;
        let replay =
            ProducerReplay { snapshot_limit: next_offset, end: next_offset, check_crc: false };
        let found = load_producers(&self.partition_dir(), &segments, &replay)?;
        writer.producers = found.producers;
        writer.snapshot = found.snapshot;
        self.publish_transactions(writer);
        Ok(())
    }

    fn restart_at(&self, writer: &mut LogWriter, offset: Offset) -> Result<Offset, StorageError> {
        self.write_and_publish(writer)?;
        self.lower_checkpoints(offset.0, Offset(0))?;
        let outcome = self.begin_anew(writer, offset);
        outcome.inspect_err(|error| self.partition_dir().log_dir.take_offline(error))?;
        Ok(offset)
    }

    /// Removes all segments, and has the log begin at `offset`. After an error readers see another
    /// log than the writer has.
    fn begin_anew(&self, writer: &mut LogWriter, offset: Offset) -> Result<(), StorageError> {
        let segments = self.segments.load_full();
        let tail = TailPosition { end: offset.0, base: offset.0, position: 0 };
        self.show_cut(Vec::new(), tail);
        segments.iter().for_each(|segment| segment.replace());
        self.remove_segments(&segments)?;
        self.partition_dir().log_dir.begins(&self.name, offset)?;
        self.log_start.store(offset.0, Ordering::Release);
        self.high_watermark.store(offset.0, Ordering::Release);
        self.flushed.store(offset.0, Ordering::Release);
        writer.committed =
            CommitPoint { next_offset: offset.0, max: (-1, -1), ..CommitPoint::default() };
        writer.epochs.truncate_to(Offset(0));
        self.reset_writer(writer)
    }
}
