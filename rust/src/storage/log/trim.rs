//! Taking records away: from the end when a follower must agree with its leader, from the start
//! when somebody deletes them.
//!
//! Order of a cut at the end: the recovery point on disk is lowered first, then files go from the
//! last to the first, then the file that holds the offset is cut; a crash in between leaves a
//! shorter or a longer log, never one with a hole.
//! Threads: under the writer's mutex. Readers that hold ranges of cut files may read what is
//! appended there later: the replica protocol cuts only what no reader was given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::errors::{ReadError, StorageError};
use super::super::file_names::LOG_LAST;
use super::super::files;
use super::super::producer_replay::{ProducerReplay, drop_snapshots_above, load_producers};
use super::super::segment::Segment;
use super::tail::TailPosition;
use super::{CommitPoint, Log, Writer};
use crate::ids::Offset;

impl Log {
    /// Cuts the log so that it ends at `offset`; a batch that holds it goes as a whole. Returns
    /// the new log end. Blocks.
    pub fn truncate_to(&self, offset: Offset) -> Result<Offset, StorageError> {
        let _layout = self.layout.lock();
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
        let Some(active) = kept.last() else { return Ok(offset) };
        let size = active.size();
        let (position, end) = match active.find(offset.0, size)? {
            Some(batch) => (batch.position, offset.0.min(batch.base_offset)),
            None => (size, offset.0),
        };
        if end < self.log_start_offset().0 {
            return self.restart_at(&mut writer, offset);
        }
        self.begin_cut(Offset(end), Offset(end))?;
        self.publish_segments(kept.to_vec());
        self.remove_segments(gone)?;
        self.cut_segment(&mut writer, active, (position, end))
    }

    /// Throws everything away and begins anew at `offset`: a follower whose leader's log starts
    /// beyond its own end. Blocks.
    pub fn truncate_fully(&self, offset: Offset) -> Result<Offset, StorageError> {
        let _layout = self.layout.lock();
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

    pub(super) fn increment_log_start_offset(&self, writer: &mut Writer, start: Offset) {
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

    /// Makes sure that no watermark lies above the offset of a cut, and none on disk above what a
    /// crash may leave.
    fn begin_cut(&self, offset: Offset, left: Offset) -> Result<(), StorageError> {
        self.partition_dir().log_dir.lower(&self.name, left)?;
        self.truncations.fetch_add(1, Ordering::AcqRel);
        self.flushed.fetch_min(offset.0, Ordering::AcqRel);
        self.high_watermark.fetch_min(offset.0, Ordering::AcqRel);
        Ok(())
    }

    fn cut_segment(
        &self,
        writer: &mut Writer,
        active: &Arc<Segment>,
        (position, end): (u64, i64),
    ) -> Result<Offset, StorageError> {
        active.unseal()?;
        active.publish_size(position);
        self.tail.store(TailPosition { end, base: active.base_offset, position });
        let dir = &self.partition_dir().log_dir;
        let fail = |error| dir.failed("cut a segment", error);
        active.change(|file| dir.disk().set_len(file, position).map_err(fail))?;
        active.sync()?;
        active.change_aborted(|list| list.retain(|entry| entry.last_offset < end));
        active.rebuild()?;
        let (max, since_entry) = (active.max_timestamp()?, 0);
        writer.committed = CommitPoint { position, next_offset: end, max, since_entry };
        self.reset_writer(writer)?;
        Ok(Offset(end))
    }

    /// Sets the writer to its last commit, and reads producers and epochs anew.
    fn reset_writer(&self, writer: &mut Writer) -> Result<(), StorageError> {
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

    fn restart_at(&self, writer: &mut Writer, offset: Offset) -> Result<Offset, StorageError> {
        self.write_and_publish(writer)?;
        self.begin_cut(offset, Offset(0))?;
        let segments = self.segments.swap(Arc::default());
        self.remove_segments(&segments)?;
        self.partition_dir().log_dir.begins(&self.name, offset)?;
        self.log_start.store(offset.0, Ordering::Release);
        self.high_watermark.store(offset.0, Ordering::Release);
        self.flushed.store(offset.0, Ordering::Release);
        self.tail.store(TailPosition { end: offset.0, base: offset.0, position: 0 });
        writer.committed =
            CommitPoint { next_offset: offset.0, max: (-1, -1), ..CommitPoint::default() };
        writer.epochs.truncate_to(Offset(0));
        self.reset_writer(writer)?;
        Ok(offset)
    }
}
