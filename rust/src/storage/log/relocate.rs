//! A log's move to another log directory while it is read and written (KIP-113).
//!
//! A *future* is a directory `topic-N.<32 hex>-future` in the other log directory. In rounds it is
//! made the same as the log's own, file by file and byte for byte: whatever segments there are, as
//! far as they are written. A future that an earlier start left is compared, and gone on with.
//! When little is missing, the log is held for the rest: the active segment is sealed and copied,
//! everything is synced, the directory's checkpoints get the log's points, a marker that names the
//! old log directory is written. Then the future takes the partition's name, the log goes on in it,
//! the old directory is renamed to `-delete` and removed, and the marker goes.
//! Invariant: from the rename on nothing is appended to the old directory, whatever fails. So a
//! crash leaves the old one alone, or both with the same records: the one with the marker counts.
//! Threads: that of `future_replicas`. Rounds hold no lock; the end holds layout, flushing and
//! writer.
//! Not promised: cleaning waits for the end of a move, not for its rounds; what it or retention
//! took away is copied in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::super::checkpoints::CheckpointedOffsets;
use super::super::deletion::delete_now;
use super::super::dirs::LogDir;
use super::super::errors::StorageError;
use super::super::file_names::{INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_name};
use super::super::files;
use super::super::names;
use super::super::partition_dir::{ABORTED, PartitionDir, TxnIndexSums};
use super::super::producer_replay::snapshots;
use super::super::scan::{WalkStep, Walker};
use super::super::segment::Segment;
use super::flush::EPOCHS;
use super::{Log, LogWriter};

/// The file that names the log directory which a log was moved from, until nothing is left there.
pub(in super::super) const MOVED: &str = "krust-moved-from";

/// The log is held for the rest where so much is missing at most.
const LITTLE: u64 = 1 << 20;
/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// How far a move has come.
#[derive(Debug, Default)]
pub(in super::super) struct Copied {
    /// Bytes of the segments.
    pub size: AtomicU64,
    /// One past the last offset.
    pub end: AtomicI64,
}

/// A log's copy in another log directory.
pub(in super::super) struct FutureLog {
    log: Arc<Log>,
    partition_dir: Arc<PartitionDir>,
    copies: BTreeMap<i64, Copy>,
    snapshots: BTreeSet<i64>,
    truncations: u32,
    progress: Arc<Copied>,
    piece: Vec<u8>,
}

/// The copy of a segment.
struct Copy {
    of: Arc<Segment>,
    /// Open until it is synced.
    file: Option<Arc<File>>,
    size: u64,
    /// With its indexes, and durable.
    whole: bool,
    /// So far batches were looked at, and where they end.
    walked: u64,
    end: i64,
}

impl FutureLog {
    /// Makes the directory at `path`, in `dir`, or goes on with what is there.
    pub(in super::super) fn begin(
        log: &Arc<Log>,
        dir: &Arc<LogDir>,
        (path, progress): (&Path, &Arc<Copied>),
    ) -> Result<Self, StorageError> {
        log.usable()?;
        dir.online()?;
        log.damage.get().map_or(Ok(()), |damage| Err(damage.clone()))?;
        let live = dir.path().join(log.name.to_string());
        if live.exists() {
            let text = format!("{} is there already", live.display());
            return Err(StorageError::Meta(text.into()));
        }
        let fail = |error| dir.failed(&format!("make {}", path.display()), error);
        dir.disk().make_dir(path).map_err(fail)?;
        let partition_dir = Arc::new(PartitionDir {
            log_dir: Arc::clone(dir),
            name: Arc::clone(&log.partition_dir().name),
            path: RwLock::new(path.to_owned()),
            txn_index_sums: TxnIndexSums::default(),
        });
        if let Some(id) = log.topic_id() {
            dir.replace_file(&path.join(names::METADATA), names::topic_id_text(id).as_bytes())?;
        }
        dir.sync_dir(dir.path())?;
        Ok(Self {
            log: Arc::clone(log),
            partition_dir,
            copies: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            truncations: log.truncations.load(Ordering::Acquire),
            progress: Arc::clone(progress),
            piece: Vec::new(),
        })
    }

    /// Whether so few bytes are missing that the log may be held for them.
    pub(in super::super) const fn is_little(missing: u64) -> bool {
        missing <= LITTLE
    }

    /// Copies what is missing now, as long as `goes_on`. How many bytes are missing afterwards.
    pub(in super::super) fn copy(
        &mut self,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, StorageError> {
        self.log.usable()?;
        self.partition_dir.log_dir.online()?;
        let truncations = self.log.truncations.load(Ordering::Acquire);
        if truncations != self.truncations {
            self.truncations = truncations;
            self.copies.clear();
            self.snapshots.clear();
        }
        let segments = self.log.segments.load_full();
        self.drop_gone(&segments)?;
        for segment in segments.iter() {
            if !goes_on() || !self.segment(segment, goes_on)? {
                break;
            }
        }
        let copied: u64 = self.copies.values().map(|copy| copy.size).sum();
        let start = self.log.log_start_offset().0;
        let end = self.copies.last_key_value().map_or(start, |(_, copy)| copy.end);
        self.progress.size.store(copied, Ordering::Relaxed);
        self.progress.end.store(end, Ordering::Relaxed);
        let missing = |segment: &Arc<Segment>| match self.copies.get(&segment.base_offset) {
            Some(copy) => segment.size().saturating_sub(copy.size),
            None => segment.size().max(1),
        };
        Ok(segments.iter().map(missing).sum())
    }

    /// Removes the copies of segments that the log has no more.
    fn drop_gone(&mut self, segments: &[Arc<Segment>]) -> Result<(), StorageError> {
        let is_there = |copy: &Copy| segments.iter().any(|one| Arc::ptr_eq(one, &copy.of));
        let gone = self.copies.iter().filter(|(_, copy)| !is_there(copy));
        let gone: Vec<i64> = gone.map(|(base, _)| *base).collect();
        for base in gone {
            self.copies.remove(&base);
            for kind in [LOG, INDEX, TIME_INDEX, TXN_INDEX] {
                self.remove(&self.partition_dir.file(base, kind))?;
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), StorageError> {
        files::remove_if_there(self.partition_dir.log_dir.disk(), path)
            .map_err(|error| self.partition_dir.log_dir.failed("remove a copy", error))
    }

    /// Brings the copy of one segment up to what is written; false: the segment is gone.
    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, StorageError> {
        let base = segment.base_offset;
        let is_sealed = segment.is_sealed();
        let size = segment.size();
        let done = |copy: &Copy| copy.whole && copy.size == size;
        if self.copies.get(&base).is_some_and(done) {
            return Ok(true);
        }
        let source = match segment.file() {
            Err(error) if error.is_not_found() => return Ok(false),
            other => other?,
        };
        let (dir, path) =
            (Arc::clone(&self.partition_dir.log_dir), self.partition_dir.file(base, LOG));
        let fail = |error| dir.failed(&format!("write {}", path.display()), error);
        let held = self.copies.get(&base).and_then(|copy| copy.file.clone());
        let target = match held {
            Some(file) => file,
            None => Arc::new(dir.disk().create(&path).map_err(fail)?),
        };
        if !self.copies.contains_key(&base) {
            let same = match self.same(&source, &target, size) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                other => other.map_err(fail)?,
            };
            dir.disk().set_len(&target, same).map_err(fail)?;
            let of = Arc::clone(segment);
            let file = Some(Arc::clone(&target));
            let copy = Copy { of, file, size: same, whole: false, walked: 0, end: base };
            self.copies.insert(base, copy);
        }
        let Some(copy) = self.copies.get_mut(&base) else { return Ok(false) };
        copy.whole = false;
        while copy.size < size && goes_on() {
            let len = (size - copy.size).min(PIECE as u64);
            self.piece.resize(usize::try_from(len).unwrap_or(PIECE), 0);
            match source.read_exact_at(&mut self.piece, copy.size) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                other => {
                    other.map_err(|error| self.log.partition_dir().log_dir.failed("read", error))?
                }
            }
            dir.disk().write_at(&target, &[&self.piece], copy.size).map_err(fail)?;
            copy.size += len;
            self.progress.size.fetch_add(len, Ordering::Relaxed);
        }
        let mut walker = Walker::new(&source, copy.walked, copy.size);
        while let Ok(WalkStep::Batch(batch)) = walker.step() {
            (copy.walked, copy.end) = (batch.end(), batch.last_offset + 1);
        }
        self.progress.end.fetch_max(copy.end, Ordering::Relaxed);
        if !is_sealed || copy.size < size {
            return Ok(true);
        }
        dir.sync_data(&path, &target)?;
        let modified =
            source.metadata().and_then(|metadata| target.set_modified(metadata.modified()?));
        modified.unwrap_or_else(|error| tracing::debug!("the copy is younger: {error}"));
        for kind in [INDEX, TIME_INDEX, TXN_INDEX] {
            self.small(&segment.path(kind), &self.partition_dir.file(base, kind))?;
        }
        if let Some(copy) = self.copies.get_mut(&base) {
            (copy.whole, copy.file) = (true, None);
        }
        Ok(true)
    }

    /// How many of the first bytes are the same in both files.
    fn same(&mut self, source: &File, target: &File, size: u64) -> io::Result<u64> {
        let size = size.min(target.metadata()?.len());
        let mut at = 0;
        let mut other = Vec::new();
        while at < size {
            let len = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
            self.piece.resize(len, 0);
            other.resize(len, 0);
            source.read_exact_at(&mut self.piece, at)?;
            target.read_exact_at(&mut other, at)?;
            if self.piece != other {
                break;
            }
            at += len as u64;
        }
        Ok(at)
    }

    /// Copies a small file, or its absence, and makes it durable.
    fn small(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        match std::fs::read(from) {
            Ok(bytes) => self.write(to, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.remove(to),
            Err(error) => Err(self.log.partition_dir().log_dir.failed("read a small file", error)),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
        let dir = &self.partition_dir.log_dir;
        let fail = |error| dir.failed(&format!("write {}", path.display()), error);
        let file = dir.disk().create(path).map_err(fail)?;
        dir.disk().set_len(&file, 0).map_err(fail)?;
        dir.disk().write_at(&file, &[bytes], 0).map_err(fail)?;
        dir.sync_data(path, &file)
    }

    /// Copies the rest and has the log go on in this directory. False: not now, because a cleaner
    /// is at it or too much came meanwhile.
    pub(in super::super) fn swap(&mut self) -> Result<bool, StorageError> {
        let log = Arc::clone(&self.log);
        log.without_cleaner(|| self.hold_and_swap(&log)).unwrap_or(Ok(false))
    }

    fn hold_and_swap(&mut self, log: &Arc<Log>) -> Result<bool, StorageError> {
        let _layout = log.layout.lock();
        if !Self::is_little(self.copy(&|| true)?) {
            return Ok(false);
        }
        let old = {
            let _flushing = log.flushing.lock();
            let mut writer = log.writer.lock();
            log.usable()?;
            log.write_and_publish(&mut writer)?;
            let active = log.segments.load().last().cloned();
            if let Some(active) = active.filter(|active| !active.is_sealed()) {
                log.trim(&mut writer, &active)?;
                log.seal(&mut writer, &active)?;
            }
            if self.copy(&|| true)? > 0 {
                return Ok(false);
            }
            self.complete(log, &writer)?;
            self.take_place(log, &mut writer)?
        };
        self.partition_dir.log_dir.sync_dir(self.partition_dir.log_dir.path())?;
        if let Err(error) = self.remove_old(log, &old) {
            tracing::warn!(log = %log.name, "moved, but what was left behind stays: {error}");
        }
        Ok(true)
    }

    /// Everything but the segments, and what tells the next start of a move.
    fn complete(&mut self, log: &Log, writer: &LogWriter) -> Result<(), StorageError> {
        let old = log.partition_dir();
        for offset in snapshots(&old)? {
            if self.snapshots.insert(offset) {
                self.small(
                    &old.file(offset, SNAPSHOT),
                    &self.partition_dir.file(offset, SNAPSHOT),
                )?;
            }
        }
        let path = self.partition_dir.path.read().clone();
        self.write(&path.join(EPOCHS), writer.epochs.to_text().as_bytes())?;
        self.write(&path.join(MOVED), old.log_dir.path().as_os_str().as_encoded_bytes())?;
        let taken =
            self.partition_dir.txn_index_sums.take_over(&self.partition_dir, &old.txn_index_sums);
        taken.map_err(|error| {
            self.partition_dir.log_dir.failed(&format!("write {ABORTED}"), error)
        })?;
        let entries = std::fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in entries.map_err(|error| self.partition_dir.log_dir.failed("list", error))? {
            let name = entry.file_name().into_string().unwrap_or_default();
            let belongs = match parse_name(&name) {
                Some((offset, SNAPSHOT)) => old.file(offset, SNAPSHOT).exists(),
                Some((base, LOG | INDEX | TIME_INDEX | TXN_INDEX)) => {
                    self.copies.contains_key(&base)
                }
                _ => [names::METADATA, EPOCHS, ABORTED, MOVED].contains(&name.as_str()),
            };
            if !belongs {
                self.remove(&entry.path())?;
            }
        }
        self.partition_dir.log_dir.sync_dir(&path)?;
        let points = CheckpointedOffsets {
            recovery: Some(log.log_end_offset()),
            log_start: log.checkpointed_start(),
            high_watermark: Some(log.high_watermark()),
            cleaned: old.log_dir.points(&log.name).cleaned,
        };
        self.partition_dir.log_dir.take_over(&log.name, &points)
    }

    /// Gives the directory the partition's name, and the log this directory. Returns the old one.
    fn take_place(
        &self,
        log: &Arc<Log>,
        writer: &mut LogWriter,
    ) -> Result<Arc<PartitionDir>, StorageError> {
        let dir = &self.partition_dir.log_dir;
        let live = dir.path().join(log.name.to_string());
        let future = self.partition_dir.path.read().clone();
        let segments = log.segments.load_full();
        // Who reads the old data may ask for its aborted transactions later.
        segments.iter().try_for_each(Segment::keep_aborted)?;
        dir.disk()
            .rename(&future, &live)
            .map_err(|error| dir.failed(&format!("rename {}", future.display()), error))?;
        *self.partition_dir.path.write() = live;
        let moved = |segment: &Arc<Segment>| {
            Segment::existing(&self.partition_dir, segment.base_offset, segment.size())
        };
        let old = log.partition_dir.swap(Arc::clone(&self.partition_dir));
        segments.iter().for_each(|segment| segment.replace());
        log.publish_segments(segments.iter().map(moved).collect());
        dir.register(log);
        writer.deleted_files.clear();
        writer.allocated = writer.position;
        writer.names_unsynced = false;
        writer.epochs_saved = true;
        log.flushed.fetch_max(log.log_end_offset().0, Ordering::AcqRel);
        Ok(old)
    }

    /// Removes what the log left behind, and then the marker.
    fn remove_old(&self, log: &Log, old: &PartitionDir) -> Result<(), StorageError> {
        old.log_dir.online()?;
        delete_now(&old.log_dir, &log.name)?;
        let path = self.partition_dir.path.read().clone();
        self.remove(&path.join(MOVED))?;
        self.partition_dir.log_dir.sync_dir(&path)
    }
}
