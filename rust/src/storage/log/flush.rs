//! New segments, durability, and the end of a log's use: roll, flush, close, delete.
//!
//! Order in a flush: data and indexes of each segment since the last flush, epochs, directory
//! entries, then the flushed offset rises. A sync that fails takes the log directory offline.
//! Threads: rolls under the writer's mutex and without a sync, for producers on a worker; flushes
//! on the sync thread or the caller's, the mutex held only to learn what to do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::deletion::Deletions;
use super::super::errors::StorageError;
use super::super::file_names::SNAPSHOT;
use super::super::files;
use super::super::names;
use super::super::segment::Segment;
use super::super::sync::Urgency;
use super::tail::TailPosition;
use super::{CommitPoint, Log, LogWriter};
use crate::ids::Offset;

/// The file of the leader epochs.
pub(super) const EPOCHS: &str = "leader-epoch-checkpoint";

/// Where a log ends that is being closed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Ending {
    end: i64,
    truncations: u32,
    /// Something of it may not be on the disk.
    pub is_unsynced: bool,
}

/// A flush that found the disk full is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);

impl Log {
    /// Makes all that is committed durable and moves the flushed offset. Blocks; never on a
    /// reactor thread. A sync that fails takes the log directory offline.
    pub fn flush(&self) -> Result<Offset, StorageError> {
        self.usable()?;
        let _one_at_a_time = self.flushing.lock();
        let outcome = self.flush_committed();
        let again = self.group.lock().ends(Instant::now());
        let again = if outcome.is_err() { Some(RETRY) } else { again };
        if let (Some(syncer), Some(within), Ok(())) = (&self.syncer, again, self.usable()) {
            syncer.ask(&self.me, Urgency::Soon(within));
        }
        outcome
    }

    fn flush_committed(&self) -> Result<Offset, StorageError> {
        let (segments, end, names, truncations) = {
            let mut writer = self.writer.lock();
            let flushed = self.flushed.load(Ordering::Acquire);
            let segments = self.segments.load_full();
            // The segment that ends at the flushed offset too: it may have been sealed since.
            let first = segments.partition_point(|s| s.base_offset < flushed).saturating_sub(1);
            let unflushed = segments.get(first..).unwrap_or_default().to_vec();
            let names = std::mem::take(&mut writer.names_unsynced);
            let end = self.tail.load().end;
            writer.sync_end = end;
            let truncations = self.truncations.load(Ordering::Acquire);
            self.group.lock().begins(Instant::now());
            (unflushed, end, names, truncations)
        };
        if end > self.flushed.load(Ordering::Acquire) || names {
            let outcome = segments.iter().try_for_each(Segment::sync);
            if let Err(error) = outcome.and_then(|()| self.sync_names(names)) {
                self.writer.lock().names_unsynced |= names;
                return Err(error);
            }
        }
        self.save_epochs()?;
        let _writer = self.writer.lock();
        if truncations == self.truncations.load(Ordering::Acquire) {
            self.flushed.fetch_max(end, Ordering::AcqRel);
        }
        Ok(self.flushed_offset())
    }

    /// Reserves disk up to `to` in the active segment; for the sync thread.
    pub(in super::super) fn allocate(&self, to: u64) {
        let Some(active) = self.segments.load().last().cloned() else { return };
        let size = active.size();
        let Ok(file) = active.file() else { return };
        if active.is_sealed() || to <= size {
            return;
        }
        let partition_dir = self.partition_dir();
        let disk = partition_dir.log_dir.disk();
        if let Err(error) = disk.allocate(&file, size, to - size) {
            tracing::debug!(log = %self.name, "no disk reserved ahead: {error}");
            return;
        }
        if active.is_sealed() {
            let _ = disk.set_len(&file, active.size());
        }
    }

    /// Flushes, writes what lets the next start read nothing, and refuses use from then on.
    pub fn close(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.begin_close()?;
        self.flush()?;
        self.note_and_close();
        Ok(())
    }

    /// Writes what lets the next start read nothing, but for the leader epochs. What is to be made
    /// durable before [`Log::end_close`].
    pub(in super::super) fn begin_close(&self) -> Result<Ending, StorageError> {
        let mut writer = self.writer.lock();
        if !self.closed.load(Ordering::Acquire) {
            self.usable()?;
            self.write_and_publish(&mut writer)?;
            let segments = self.segments.load_full();
            if let Some(active) = segments.last().filter(|active| !active.is_sealed()) {
                self.trim(&mut writer, active)?;
                self.seal(&mut writer, active)?;
            }
            segments.iter().try_for_each(Segment::give_back)?;
            // Without one at the end the next start reads all headers from the last one on.
            if self.is_on_disk() && self.damage().is_none() {
                self.save_snapshot(&mut writer)?;
            }
        }
        let (end, truncations) = (self.tail.load().end, self.truncations.load(Ordering::Acquire));
        let is_unsynced = writer.names_unsynced
            || end > self.flushed.load(Ordering::Acquire)
            || (!writer.epochs_saved && self.is_on_disk());
        Ok(Ending { end, truncations, is_unsynced })
    }

    /// Writes the epochs' file if it lags, without a sync: for who syncs everything afterwards.
    pub(in super::super) fn write_epochs(&self) -> Result<(), StorageError> {
        let writer = self.writer.lock();
        if writer.epochs_saved || self.segments.load().is_empty() {
            return Ok(());
        }
        let partition_dir = self.partition_dir();
        let path = partition_dir.path.read().join(EPOCHS);
        files::replace_derived(
            partition_dir.log_dir.disk(),
            &path,
            writer.epochs.to_text().as_bytes(),
        )
        .map_err(|error| partition_dir.log_dir.failed("write leader epochs", error))
    }

    /// Ends the use of a log, of which all that [`Log::begin_close`] found is durable by now.
    pub(in super::super) fn end_close(&self, ending: Ending) {
        {
            let _writer = self.writer.lock();
            if ending.truncations == self.truncations.load(Ordering::Acquire) {
                self.flushed.fetch_max(ending.end, Ordering::AcqRel);
            }
        }
        self.note_and_close();
    }

    fn note_and_close(&self) {
        if self.is_on_disk() {
            self.partition_dir().log_dir.note(self);
        }
        self.closed.store(true, Ordering::Release);
    }

    /// Where its files are.
    pub(in super::super) fn path(&self) -> PathBuf {
        self.partition_dir().path.read().clone()
    }

    /// Renames the directory to `…-stray` and forgets the partition; the files stay as they are.
    /// Readers that hold ranges keep them. Blocks; never on a network thread.
    pub fn mark_stray(&self) -> Result<(), StorageError> {
        let closed = self.close();
        self.closed.store(true, Ordering::Release);
        let _layout = self.layout.lock();
        let _writer = self.writer.lock();
        self.publish_segments(Vec::new());
        let partition_dir = self.partition_dir();
        let mut path = partition_dir.path.write();
        if let Some(target) = partition_dir.log_dir.mark_stray(&self.name, &path)? {
            *path = target;
        }
        closed
    }

    /// Ends the use of the log and renames its directory to `…-delete`.
    /// Its files are removed later.
    /// Readers that hold ranges keep them. Blocks; never on a network thread.
    pub fn delete(&self, deletions: &mut Deletions) -> Result<(), StorageError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let _layout = self.layout.lock();
        let _writer = self.writer.lock();
        deletions.close_later(self.segments.load().to_vec());
        self.publish_segments(Vec::new());
        let partition_dir = self.partition_dir();
        let mut path = partition_dir.path.write();
        if let Some(target) = deletions.rename(&partition_dir.log_dir, &self.name, &path)? {
            *path = target;
        }
        Ok(())
    }

    /// Makes the directory and the first segment.
    pub(super) fn first_segment(
        &self,
        writer: &mut LogWriter,
        now_ms: i64,
    ) -> Result<(), StorageError> {
        let dir = &self.partition_dir().log_dir;
        let path = self.partition_dir().path.read().clone();
        let fail = |error| dir.failed(&format!("make {}", self.name), error);
        dir.forget_deleted(&self.name)?;
        dir.disk().make_dir(&path).map_err(fail)?;
        let metadata = path.join(names::METADATA);
        if let (Some(id), false) = (self.topic_id.get(), metadata.exists()) {
            let text = names::topic_id_text(*id);
            files::replace_derived(dir.disk(), &metadata, text.as_bytes()).map_err(fail)?;
        }
        self.open_segment(writer, now_ms)
    }

    /// Ends the active segment and begins a new one at the log's end.
    pub(super) fn roll(&self, writer: &mut LogWriter, now_ms: i64) -> Result<(), StorageError> {
        self.write_and_publish(writer)?;
        let active = self.segments.load().last().cloned();
        let has_reserve = writer.allocated > writer.position;
        if let Some(active) = &active {
            self.seal(writer, active)?;
        }
        self.open_segment(writer, now_ms)?;
        if let Some(active) = active.filter(|_| has_reserve) {
            active.give_back_later();
        }
        if let Some(syncer) = &self.syncer {
            syncer.ask(&self.me, Urgency::Now);
        }
        Ok(())
    }

    fn open_segment(&self, writer: &mut LogWriter, now_ms: i64) -> Result<(), StorageError> {
        let segment = Segment::create(&self.partition_dir(), writer.next_offset)?;
        let mut segments = self.segments.load().to_vec();
        segments.push(Arc::clone(&segment));
        self.publish_segments(segments);
        let next_offset = writer.next_offset;
        writer.committed = CommitPoint { next_offset, max: (-1, -1), ..CommitPoint::default() };
        writer.position = 0;
        writer.max = (-1, -1);
        writer.since_entry = 0;
        writer.allocated = 0;
        writer.active_since_ms = now_ms;
        writer.names_unsynced = true;
        self.tail.store(TailPosition { end: next_offset, base: next_offset, position: 0 });
        Ok(())
    }

    /// Gives back the disk that is reserved for the active segment.
    pub(super) fn trim(
        &self,
        writer: &mut LogWriter,
        active: &Arc<Segment>,
    ) -> Result<(), StorageError> {
        if writer.allocated > writer.position {
            let dir = &self.partition_dir().log_dir;
            let fail = |error| dir.failed("trim", error);
            active.change(|file| dir.disk().set_len(file, writer.position).map_err(fail))?;
            writer.allocated = writer.position;
        }
        Ok(())
    }

    /// Writes the indexes of a segment that gets no more appends, and the producer snapshot at
    /// its end.
    pub(super) fn seal(
        &self,
        writer: &mut LogWriter,
        active: &Arc<Segment>,
    ) -> Result<(), StorageError> {
        active.save(true)?;
        writer.names_unsynced = true;
        self.save_snapshot(writer)
    }

    fn save_snapshot(&self, writer: &mut LogWriter) -> Result<(), StorageError> {
        let offset = writer.next_offset;
        if writer.snapshot == Some(offset) {
            return Ok(());
        }
        let path = self.partition_dir().file(offset, SNAPSHOT);
        let dir = &self.partition_dir().log_dir;
        files::replace_derived(dir.disk(), &path, &writer.producers.to_snapshot())
            .map_err(|error| dir.failed("write a snapshot", error))?;
        writer.snapshot = Some(offset);
        Ok(())
    }

    /// Writes the epochs' file if it lags, without holding up appends.
    pub(in super::super) fn save_epochs(&self) -> Result<(), StorageError> {
        let text = {
            let mut writer = self.writer.lock();
            if writer.epochs_saved || self.segments.load().is_empty() {
                return Ok(());
            }
            writer.epochs_saved = true;
            writer.epochs.to_text()
        };
        let path = self.partition_dir().path.read().join(EPOCHS);
        let outcome = self.partition_dir().log_dir.replace_file(&path, text.as_bytes());
        if outcome.is_err() {
            self.writer.lock().epochs_saved = false;
        }
        outcome
    }

    fn sync_names(&self, names: bool) -> Result<(), StorageError> {
        if !names {
            return Ok(());
        }
        let path = self.partition_dir().path.read().clone();
        self.sync_small_files(&path)?;
        self.partition_dir().log_dir.sync_dir(&path)?;
        self.partition_dir().log_dir.sync_dir(self.partition_dir().log_dir.path())
    }

    /// The newest snapshot and the topic's id, which are written without a sync.
    fn sync_small_files(&self, path: &Path) -> Result<(), StorageError> {
        let snapshot = self.writer.lock().snapshot;
        let paths = snapshot.map(|offset| self.partition_dir().file(offset, SNAPSHOT));
        let dir = &self.partition_dir().log_dir;
        for path in paths.into_iter().chain([path.join(names::METADATA)]) {
            match dir.disk().open(&path) {
                Ok(file) => dir.sync_data(&path, &file)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(dir.failed("open a small file", error)),
            }
        }
        Ok(())
    }
}
