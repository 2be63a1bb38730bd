//! One segment of a log: a `.log` file, its indexes, and what is known of it without reading.
//!
//! Names: 20 digits of the base offset, then the kind. Invariants: what lies below `size` is whole
//! batches and never changes while the segment lives; base_offset <= each offset in it.
//! Threads: readers share it without a lock but that of an index, held for a search; the writer
//! alone raises `size`. Files are opened when used and closed by the descriptor cache; what is in
//! memory of the indexes of a sealed segment belongs to the cache of indexes (`indexes`).
//! Not promised: indexes may be missing or wrong; [`Segment::rebuild`] rebuilds them.

mod indexes;
mod syncing;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::cold;
use super::descriptors::{CloseOutcome, FileHolder};
use super::errors::StorageError;
use super::file_names::{INDEX, LOG, LOG_LAST, LOG_TMP, TIME_INDEX, TXN_INDEX};
use super::files;
use super::index::{OffsetEntry, TimeEntry};
use super::index_cache::CacheCharge;
use super::order::BatchOrder;
use super::partition_dir::PartitionDir;
use super::scan::{BatchAt, HEAD, WalkStep, Walker};
use super::segment_index::Index;
use super::txnindex::{self, AbortedTxn};

/// How many files are closed for one that cannot be opened otherwise.
const MAKE_ROOM: usize = 64;

/// Where entries of the index are farther apart there is a large batch between them, and what is
/// sought is most likely the one that the later entry names.
const NEAR: u64 = 8 << 10;

/// No timestamp is known yet.
pub(crate) const UNKNOWN: i64 = i64::MIN;

/// A segment.
pub(crate) struct Segment {
    pub base_offset: i64,
    partition_dir: Arc<PartitionDir>,
    /// Bytes that readers may see.
    size: AtomicU64,
    /// Up to where readers were given ranges of the file; they may send them at any time.
    lent: AtomicU64,
    sealed: AtomicBool,
    /// Another segment follows it, and disk may be reserved behind its end.
    has_reserve: AtomicBool,
    file: ArcSwapOption<File>,
    used: AtomicBool,
    registered: AtomicBool,
    /// Changes of the `.log` file that began, that are done, and how many of them are synced.
    begun: AtomicU64,
    done: AtomicU64,
    synced: AtomicU64,
    /// Its files are, or are about to be, those of the segment that took its place.
    replaced: AtomicBool,
    pub order: BatchOrder,
    pub offsets: Index<OffsetEntry>,
    pub times: Index<TimeEntry>,
    aborted: Mutex<Option<AbortedList>>,
    /// Its indexes were asked since the cache came by, and the cache knows of it.
    asked: AtomicBool,
    cached: AtomicBool,
    /// The largest timestamp, and the last offset of its batch; `UNKNOWN` until asked.
    max_timestamp: AtomicI64,
    offset_of_max: AtomicI64,
    /// The largest timestamp of the first batch, which the segment's age counts from.
    first_timestamp: AtomicI64,
}

/// The aborted transactions of a segment, in memory.
#[derive(Debug, Default)]
pub(super) struct AbortedList {
    pub list: Vec<AbortedTxn>,
    /// What the cache gets back when it lets go of them; `None`: they stay.
    charge: Option<CacheCharge>,
}

impl Segment {
    /// A segment whose `.log` file has `size` bytes of whole batches.
    pub(crate) fn existing(
        partition_dir: &Arc<PartitionDir>,
        base_offset: i64,
        size: u64,
    ) -> Arc<Self> {
        let segment = Self {
            sealed: AtomicBool::new(true),
            order: BatchOrder::of(size),
            offsets: Index::closed(),
            times: Index::closed(),
            aborted: Mutex::new(None),
            max_timestamp: AtomicI64::new(UNKNOWN),
            ..Self::bare(partition_dir, base_offset)
        };
        segment.size.store(size, Ordering::Release);
        Arc::new(segment)
    }

    /// Makes the empty segment that a log goes on with, and beside it an index: what tells that
    /// there was a segment should the `.log` file be lost.
    pub(crate) fn create(
        partition_dir: &Arc<PartitionDir>,
        base_offset: i64,
    ) -> Result<Arc<Self>, StorageError> {
        let segment = Arc::new(Self::bare(partition_dir, base_offset));
        segment.open(&segment.path(LOG), true)?;
        let disk = partition_dir.log_dir.disk();
        let cut = |file: &File| disk.set_len(file, 0).map_err(|e| segment.failed("cut", e));
        segment.change(cut)?;
        let path = segment.path(INDEX);
        let index = segment.with_room(|| disk.create(&path));
        let index = index.map_err(|e| segment.failed("make the index of", e))?;
        if index.metadata().map_or(1, |metadata| metadata.len()) > 0 {
            cut(&index)?;
        }
        Ok(segment)
    }

    /// What takes this segment's place when it is cut at `position`, the edge of a batch. It has
    /// the same file, or, if nothing is left, another one that has no name yet (see
    /// [`Segment::cut_file`]). Its indexes are missing.
    pub(crate) fn cut_at(
        self: &Arc<Self>,
        position: u64,
        aborted: Vec<AbortedTxn>,
    ) -> Result<Arc<Self>, StorageError> {
        let file = if position > 0 { self.file()? } else { Arc::new(self.empty_file()?) };
        let segment = Self {
            size: AtomicU64::new(position),
            file: ArcSwapOption::new(Some(file)),
            order: self.order.cut_at(position),
            ..Self::bare(&self.partition_dir, self.base_offset)
        };
        segment.set_aborted(aborted);
        Ok(Arc::new(segment))
    }

    fn empty_file(&self) -> Result<File, StorageError> {
        let (disk, path) = (self.partition_dir.log_dir.disk(), self.path(LOG_TMP));
        let file = self.with_room(|| disk.create(&path));
        let file = file.map_err(|e| self.failed("make the file of", e))?;
        disk.set_len(&file, 0).map_err(|e| self.failed("cut", e))?;
        Ok(file)
    }

    /// Makes the file end where the segment does, durably: of one that [`Segment::cut_at`] made.
    pub(crate) fn cut_file(self: &Arc<Self>) -> Result<(), StorageError> {
        let (dir, size) = (&self.partition_dir.log_dir, self.size());
        let fail = |e| self.failed("cut", e);
        if size > 0 {
            self.change(|file| dir.disk().set_len(file, size).map_err(fail))?;
            self.sync_log()?;
        } else {
            dir.disk().rename(&self.path(LOG_TMP), &self.path(LOG)).map_err(fail)?;
            dir.sync_dir(&self.partition_dir.path.read())?;
        }
        self.enter();
        Ok(())
    }

    fn bare(partition_dir: &Arc<PartitionDir>, base_offset: i64) -> Self {
        Self {
            base_offset,
            partition_dir: Arc::clone(partition_dir),
            size: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            has_reserve: AtomicBool::new(false),
            file: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            replaced: AtomicBool::new(false),
            order: BatchOrder::of(0),
            offsets: Index::empty(true),
            times: Index::empty(false),
            aborted: Mutex::new(Some(AbortedList::default())),
            asked: AtomicBool::new(false),
            cached: AtomicBool::new(false),
            max_timestamp: AtomicI64::new(-1),
            offset_of_max: AtomicI64::new(-1),
            first_timestamp: AtomicI64::new(UNKNOWN),
        }
    }

    /// The path of one of its files.
    pub(crate) fn path(&self, kind: &str) -> PathBuf {
        self.partition_dir.file(self.base_offset, kind)
    }

    /// Bytes that readers may see.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// The partition.
    pub(crate) fn log_name(&self) -> &str {
        &self.partition_dir.name
    }

    /// Notes that a reader is given bytes below `end`.
    pub(crate) fn lend(&self, end: u64) {
        if self.lent() < end {
            self.lent.fetch_max(end, Ordering::SeqCst);
        }
    }

    /// Up to where readers were given bytes.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::SeqCst)
    }

    pub(crate) fn publish_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Whether its file is open.
    pub(crate) fn is_open(&self) -> bool {
        self.file.load().is_some()
    }

    /// The open file, which stays open while the caller holds it. Not found: the segment is gone
    /// or replaced, and the log has another list of segments, or soon.
    pub(crate) fn file(self: &Arc<Self>) -> Result<Arc<File>, StorageError> {
        self.used.store(true, Ordering::Relaxed);
        let file = match self.file.load_full() {
            Some(file) => file,
            None => self.open(&self.path(LOG), false)?,
        };
        self.not_replaced().map(|()| file)
    }

    /// Runs `f`, which changes the file. From now on the descriptor cache keeps the file open until
    /// it is synced: the system may report an error of the disk only to those who have it open.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        f: impl FnOnce(&File) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let outcome = self.file().and_then(|file| f(&file));
        self.done.fetch_add(1, Ordering::SeqCst);
        outcome
    }

    /// Whether the file was changed since its last sync; nothing of a directory that is offline is
    /// worth to be kept open.
    fn is_unsynced(&self) -> bool {
        self.begun.load(Ordering::SeqCst) != self.synced.load(Ordering::SeqCst)
            && !self.partition_dir.log_dir.is_offline()
    }

    /// Makes the data durable.
    fn sync_log(self: &Arc<Self>) -> Result<(), StorageError> {
        let file = self.file()?;
        self.sync_file(&file)
    }

    fn sync_file(&self, file: &File) -> Result<(), StorageError> {
        let done = self.done.load(Ordering::SeqCst);
        self.partition_dir.log_dir.sync_data(&self.path(LOG), file)?;
        self.synced.fetch_max(done, Ordering::SeqCst);
        Ok(())
    }

    /// Call before other files take the names of this segment's. From now on an open by name fails,
    /// because the file may not be this segment's.
    pub(crate) fn replace(&self) {
        self.replaced.store(true, Ordering::SeqCst);
    }

    fn not_replaced(&self) -> Result<(), StorageError> {
        if self.replaced.load(Ordering::SeqCst) {
            let gone = io::ErrorKind::NotFound.into();
            return Err(StorageError::io("open", &self.path(LOG), gone));
        }
        Ok(())
    }

    fn open(self: &Arc<Self>, path: &Path, create: bool) -> Result<Arc<File>, StorageError> {
        if !cold::may_wait() && self.partition_dir.log_dir.descriptors().must_sync_first() {
            return Err(StorageError::io("open", path, io::ErrorKind::WouldBlock.into()));
        }
        self.enter();
        let disk = self.partition_dir.log_dir.disk();
        let file = self.with_room(|| if create { disk.create(path) } else { disk.open(path) });
        let file = Arc::new(file.map_err(|e| StorageError::io("open", path, e))?);
        // Somebody else may have opened it meanwhile: theirs stays.
        let before = self.file.compare_and_swap(&None::<Arc<File>>, Some(Arc::clone(&file)));
        Ok(before.as_ref().map_or(file, Arc::clone))
    }

    /// Opens a file; others are closed for it where there are too many.
    fn with_room<R>(&self, open: impl Fn() -> io::Result<R>) -> io::Result<R> {
        let mut tries = 0;
        loop {
            match open() {
                Err(error) if crate::sys::is_out_of_descriptors(&error) && tries < MAKE_ROOM => {
                    tries += 1;
                    self.partition_dir.log_dir.descriptors().make_room();
                }
                other => return other,
            }
        }
    }

    fn enter(self: &Arc<Self>) {
        let is_known = self.registered.load(Ordering::Acquire);
        if !is_known && !self.registered.swap(true, Ordering::AcqRel) {
            let weak: Weak<Self> = Arc::downgrade(self);
            self.partition_dir.log_dir.descriptors().enter(weak);
        }
    }

    fn failed(&self, doing: &str, error: io::Error) -> StorageError {
        self.partition_dir.log_dir.failed(
            &format!("{doing} segment {} of {}", self.base_offset, self.partition_dir.name),
            error,
        )
    }

    /// The batch that holds `offset`, or the first one above it; `None` if it ends below.
    /// Looks up to `end`, a batch's edge.
    pub(crate) fn find(
        self: &Arc<Self>,
        offset: i64,
        end: u64,
    ) -> Result<Option<BatchAt>, StorageError> {
        let file = self.file()?;
        let hint = self.hint(offset)?;
        let from = hint.from;
        if let Some((next, last_offset)) = hint.next.filter(|next| next.0 > from + NEAR) {
            let mut walker = Walker::aiming(&file, next, end, HEAD);
            if let WalkStep::Batch(batch) = walker.step().map_err(|e| self.failed("read", e))?
                && (batch.base_offset..=batch.last_offset).contains(&offset)
                && batch.last_offset <= last_offset
            {
                return Ok(Some(batch));
            }
        }
        let walker = Walker::aiming(&file, from, end, hint.ahead());
        let (walked, first) = self.walk_to(walker, offset)?;
        // What lies before a batch at or below the offset is not it, gaps or no.
        let is_right = from == 0 || first.is_some_and(|last_offset| last_offset <= offset);
        match walked {
            OffsetSearch::Found(batch) if is_right || batch.base_offset <= offset => {
                Ok(Some(batch))
            }
            OffsetSearch::None if is_right => Ok(None),
            _ if from == 0 => Err(self.unreadable(offset)),
            _ => {
                let found = match self.walk_to(Walker::new(&file, 0, end), offset)?.0 {
                    OffsetSearch::Found(batch) => Some(batch),
                    OffsetSearch::None => None,
                    // What the index says of batches behind a bad place is all that is known.
                    OffsetSearch::Bad => return Err(self.unreadable(offset)),
                };
                let log = self.log_name();
                tracing::warn!(%log, base = self.base_offset, "index is wrong");
                self.rebuild()?;
                Ok(found)
            }
        }
    }

    /// Up to where the batches of `from..to` may be shown; `from` is where a batch begins. All
    /// offsets are below `limit`, the base offset of the next segment.
    pub(crate) fn in_order(
        self: &Arc<Self>,
        (from, to): (u64, u64),
        limit: i64,
    ) -> Result<u64, StorageError> {
        let (size, base_offset) = (self.size(), self.base_offset);
        let Some(walk) = self.order.walk_of(from..to, size, base_offset) else { return Ok(to) };
        let file = self.file()?;
        let end = walk
            .run(&file, size, limit)
            .map_err(|error| StorageError::io("read", &self.path(LOG), error))?;
        if let Some(reason) = end.reason.filter(|_| self.order.is_first_report()) {
            let file = self.path(LOG);
            tracing::error!(
                log = %self.log_name(), from = end.due.max(base_offset),
                "{reason} at byte {} of {}: records from there to the next good batch are not \
                 served; see krust log verify, fetch the partition from a replica, or cut it with \
                 krust log repair",
                end.good, file.display()
            );
        }
        self.order.note(&walk, &end);
        Ok(if end.good >= walk.to { to } else { end.good.max(from) })
    }

    /// Whether the whole segment is in order; it is walked once.
    pub(crate) fn is_in_order(self: &Arc<Self>, limit: i64) -> Result<bool, StorageError> {
        let size = self.size();
        Ok(self.in_order((0, size), limit)? >= size)
    }

    /// Removes its files, the `.log` last.
    pub(crate) fn remove_files(&self) -> Result<(), StorageError> {
        LOG_LAST.iter().try_for_each(|kind| self.partition_dir.remove(self.path(kind)))
    }

    /// The batch that begins at `position`; `None` at `end`.
    pub(crate) fn batch_at(
        self: &Arc<Self>,
        position: u64,
        end: u64,
    ) -> Result<Option<BatchAt>, StorageError> {
        let file = self.file()?;
        match Walker::new(&file, position, end).step().map_err(|e| self.failed("read", e))? {
            WalkStep::Batch(batch) => Ok(Some(batch)),
            WalkStep::End => Ok(None),
            WalkStep::Bad(_) => Err(self.unreadable(self.base_offset)),
        }
    }

    pub(crate) fn unreadable(&self, offset: i64) -> StorageError {
        StorageError::Damaged {
            log: Arc::clone(&self.partition_dir.name),
            offset,
            reason: format!("no batch where one should be in segment {}", self.base_offset).into(),
        }
    }

    /// The first batch that ends at `offset` or above, and where the first of all ends.
    fn walk_to(
        &self,
        mut walker: Walker<'_>,
        offset: i64,
    ) -> Result<(OffsetSearch, Option<i64>), StorageError> {
        let mut first = None;
        loop {
            let walked = match walker.step().map_err(|e| self.failed("read", e))? {
                WalkStep::Batch(batch) => {
                    first = first.or(Some(batch.last_offset));
                    if batch.last_offset < offset {
                        continue;
                    }
                    OffsetSearch::Found(batch)
                }
                WalkStep::End => OffsetSearch::None,
                WalkStep::Bad(_) => OffsetSearch::Bad,
            };
            return Ok((walked, first));
        }
    }

    pub(crate) fn set_max(&self, timestamp: i64, offset: i64) {
        self.offset_of_max.store(offset, Ordering::Release);
        self.max_timestamp.store(timestamp, Ordering::Release);
    }

    /// The largest timestamp of the first batch; `None` while it is empty.
    pub(crate) fn first_timestamp(self: &Arc<Self>) -> Result<Option<i64>, StorageError> {
        let known = self.first_timestamp.load(Ordering::Relaxed);
        if known != UNKNOWN || self.size() == 0 {
            return Ok((known != UNKNOWN).then_some(known));
        }
        let file = self.file()?;
        let first =
            Walker::new(&file, 0, self.size()).step().map_err(|e| self.failed("read", e))?;
        let WalkStep::Batch(batch) = first else { return Ok(None) };
        self.first_timestamp.store(batch.max_timestamp, Ordering::Relaxed);
        Ok(Some(batch.max_timestamp))
    }

    pub(crate) fn set_first_timestamp(&self, timestamp: i64) {
        let _ = self.first_timestamp.compare_exchange(
            UNKNOWN,
            timestamp,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    pub(crate) fn forget_first_timestamp(&self) {
        self.first_timestamp.store(UNKNOWN, Ordering::Relaxed);
    }

    /// When the `.log` file was last written, in milliseconds since 1970.
    pub(crate) fn modified_ms(&self) -> i64 {
        let modified = std::fs::metadata(self.path(LOG)).and_then(|metadata| metadata.modified());
        let since = modified.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
    }

    /// Writes the indexes; `seal`: no more appends will come, so let go of their memory.
    pub(crate) fn save(&self, seal: bool) -> Result<(), StorageError> {
        let disk = self.partition_dir.log_dir.disk();
        let fail = |e| self.failed("write an index of", e);
        if let (timestamp, Ok(delta)) = (
            self.max_timestamp.load(Ordering::Acquire),
            i32::try_from(self.offset_of_max.load(Ordering::Acquire) - self.base_offset),
        ) && timestamp >= 0
        {
            self.times.push(TimeEntry { timestamp, delta });
        }
        self.offsets.save(disk, &self.path(INDEX), seal).map_err(fail)?;
        self.times.save(disk, &self.path(TIME_INDEX), seal).map_err(fail)?;
        let mut aborted = self.aborted.lock();
        if let Some(AbortedList { list, .. }) = &*aborted {
            let path = self.path(TXN_INDEX);
            let bytes = txnindex::to_bytes(list);
            if !list.is_empty() {
                files::replace_derived(disk, &path, &bytes).map_err(fail)?;
            } else if path.exists() {
                files::remove_if_there(disk, &path).map_err(fail)?;
            }
            self.partition_dir
                .txn_index_sums
                .note(&self.partition_dir, self.base_offset, &bytes)
                .map_err(fail)?;
        }
        if seal {
            *aborted = None;
            self.sealed.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl FileHolder for Segment {
    fn close(&self, at_once: bool) -> CloseOutcome {
        if self.used.swap(false, Ordering::Relaxed) && !at_once {
            return CloseOutcome::Used;
        }
        if self.is_unsynced() {
            return CloseOutcome::Unsynced;
        }
        self.registered.store(false, Ordering::Release);
        let file = self.file.swap(None);
        // A change that began meanwhile may have this file: it stays open.
        if file.is_some() && self.is_unsynced() {
            self.file.compare_and_swap(&None::<Arc<File>>, file);
            if !self.registered.swap(true, Ordering::AcqRel) {
                return CloseOutcome::Unsynced;
            }
        }
        CloseOutcome::Yes
    }

    fn sync_now(self: Arc<Self>) {
        // What is not synced is open.
        if let Some(file) = self.file.load_full().filter(|_| self.is_unsynced())
            && let Err(error) = self.sync_file(&file)
        {
            let log = self.log_name();
            tracing::warn!(%log, "not synced before it is closed: {error}");
        }
    }
}

enum OffsetSearch {
    Found(BatchAt),
    None,
    Bad,
}
