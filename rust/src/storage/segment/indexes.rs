//! What the indexes of a segment answer, and what of them is in memory.
//!
//! Index files are read through the cache of indexes: pages of `.index` and `.timeindex`, and the
//! list of `.txnindex` as a whole. Of the active segment's indexes the tails are in memory, and the
//! list of aborted transactions.
//! An index that is missing or invalid is rebuilt from the log; one that the disk refuses to read
//! is a failure of the disk. Neither is ever an empty answer.
//! Threads: as the segment; nothing is locked while a file is read.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::super::errors::StorageError;
use super::super::file_names::{INDEX, TIME_INDEX, TXN_INDEX};
use super::super::files;
use super::super::index::{IndexEntry, OffsetEntry, TimeEntry};
use super::super::index_cache::CachedIndexes;
use super::super::indexing::{BuiltIndexes, IndexBuilder};
use super::super::pages::IndexFile;
use super::super::scan::{HEAD, WINDOW, WalkStep, Walker};
use super::super::segment_index::Index;
use super::super::txnindex::{self, AbortedTxn};
use super::{AbortedList, MAKE_ROOM, NEAR, Segment, UNKNOWN};

impl Segment {
    /// What the index knows of where the batch that holds `offset` begins.
    pub(crate) fn hint(self: &Arc<Self>, offset: i64) -> Result<Hint, StorageError> {
        let delta = offset - self.base_offset;
        if delta <= 0 {
            return Ok(Hint { from: 0, is_first: true, next: None });
        }
        let (entry, next) = self.in_offsets(|index, source| {
            index.around(source, |entry| i64::from(entry.delta) <= delta)
        })?;
        let position = |entry: OffsetEntry| u64::try_from(entry.position).unwrap_or(0);
        Ok(Hint {
            from: entry.map_or(0, position),
            is_first: entry.is_some_and(|entry| i64::from(entry.delta) == delta),
            next: next.map(|next| (position(next), self.base_offset + i64::from(next.delta))),
        })
    }

    /// The last entry of the offset index.
    pub(crate) fn last_offset_entry(self: &Arc<Self>) -> Result<Option<OffsetEntry>, StorageError> {
        self.in_offsets(Index::last)
    }

    /// The last entry of the time index whose timestamp is below `timestamp`; it is right.
    pub(crate) fn time_entry_below(
        self: &Arc<Self>,
        timestamp: i64,
    ) -> Result<Option<TimeEntry>, StorageError> {
        let is_below = |entry: &TimeEntry| entry.timestamp < timestamp;
        let found = self.in_times(|index, source| index.around(source, is_below))?;
        self.checked_time(found.0)
    }

    /// Bytes of both indexes.
    pub(crate) fn index_sizes(self: &Arc<Self>) -> Result<(usize, usize), StorageError> {
        Ok((self.in_offsets(Index::size)?, self.in_times(Index::size)?))
    }

    fn in_offsets<R>(
        self: &Arc<Self>,
        f: impl Fn(&Index<OffsetEntry>, &IndexFile<'_>) -> io::Result<R>,
    ) -> Result<R, StorageError> {
        self.in_index((&self.offsets, INDEX), f)
    }

    fn in_times<R>(
        self: &Arc<Self>,
        f: impl Fn(&Index<TimeEntry>, &IndexFile<'_>) -> io::Result<R>,
    ) -> Result<R, StorageError> {
        self.in_index((&self.times, TIME_INDEX), f)
    }

    /// Asks an index, which is rebuilt if its file is invalid.
    fn in_index<E: IndexEntry, R>(
        self: &Arc<Self>,
        (index, kind): (&Index<E>, &str),
        f: impl Fn(&Index<E>, &IndexFile<'_>) -> io::Result<R>,
    ) -> Result<R, StorageError> {
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
        let dir = &self.partition_dir.log_dir;
        let (path, enter) = (|| self.path(kind), || self.enter_cache());
        let source =
            IndexFile { disk: dir.disk(), cache: dir.index_cache(), path: &path, enter: &enter };
        let mut tries = 0;
        loop {
            match f(index, &source) {
                Ok(found) => return self.not_replaced().map(|()| found),
                Err(error) if is_lost(&error) && tries == 0 => self.rebuild()?,
                Err(error) if crate::sys::is_out_of_descriptors(&error) && tries < MAKE_ROOM => {
                    dir.descriptors().make_room();
                }
                Err(error) => return Err(self.failed("read an index of", error)),
            }
            tries += 1;
        }
    }

    /// The cache of indexes learns that something is held.
    fn enter_cache(self: &Arc<Self>) {
        if !self.cached.load(Ordering::Acquire) && !self.cached.swap(true, Ordering::AcqRel) {
            let weak: Weak<Self> = Arc::downgrade(self);
            self.partition_dir.log_dir.index_cache().enter(weak);
        }
    }

    /// Rebuilds both indexes of a segment that readers may use. What an active segment holds of its
    /// times belongs to the writer, and stays.
    pub(crate) fn rebuild(self: &Arc<Self>) -> Result<(), StorageError> {
        let built = self.build_indexes()?;
        if !self.is_sealed() {
            self.offsets.set(&built.offsets);
            self.times.set(&built.times);
            return Ok(());
        }
        self.install_indexes(built);
        self.not_replaced()?;
        self.save(true)
    }

    /// Both indexes, from the headers of the log.
    pub(crate) fn build_indexes(self: &Arc<Self>) -> Result<BuiltIndexes, StorageError> {
        let file = self.file()?;
        let mut walker = Walker::new(&file, 0, self.size());
        let mut builder = IndexBuilder::new(self.base_offset, 4096);
        while let WalkStep::Batch(batch) = walker.step().map_err(|e| self.failed("read", e))? {
            builder.add(&batch);
        }
        Ok(builder.finish())
    }

    /// Writes what of the indexes of an active segment should not stay in memory. A disk that is
    /// full is asked again later.
    pub(crate) fn save_due(&self) {
        let disk = self.partition_dir.log_dir.disk();
        let saved = self
            .with_room(|| self.offsets.save_due(disk, || self.path(INDEX)))
            .and_then(|()| self.with_room(|| self.times.save_due(disk, || self.path(TIME_INDEX))));
        if let Err(error) = saved {
            let error = self.failed("write an index of", error);
            tracing::debug!(log = %self.log_name(), "an index stays in memory: {error}");
        }
    }

    /// Takes over indexes that were rebuilt.
    #[expect(clippy::needless_pass_by_value, reason = "they take memory, and are done with")]
    pub(crate) fn install_indexes(&self, built: BuiltIndexes) {
        self.offsets.set(&built.offsets);
        self.times.set(&built.times);
        self.set_max(built.max.0, built.max.1);
        self.forget_first_timestamp();
        self.set_first_timestamp(built.first.unwrap_or(UNKNOWN));
    }

    /// The largest timestamp and the last offset of its batch; (-1, -1) without any.
    pub(crate) fn max_timestamp(self: &Arc<Self>) -> Result<(i64, i64), StorageError> {
        if self.max_timestamp.load(Ordering::Acquire) == UNKNOWN {
            let last = self.in_times(Index::last)?;
            match last {
                Some(last) => self.check_max(last)?,
                None if self.size() == 0 => self.set_max(-1, -1),
                None => self.rebuild()?,
            }
        }
        Ok((self.max_timestamp.load(Ordering::Acquire), self.offset_of_max.load(Ordering::Acquire)))
    }

    /// Takes the time index's last entry if the segment's headers agree with it.
    fn check_max(self: &Arc<Self>, last: TimeEntry) -> Result<(), StorageError> {
        if !self.is_largest_time(last)? {
            return self.rebuild();
        }
        self.set_max(last.timestamp, self.base_offset + i64::from(last.delta));
        Ok(())
    }

    /// Makes it the one that is appended to. Only the ends of its indexes are read.
    pub(crate) fn unseal(self: &Arc<Self>) -> Result<(), StorageError> {
        self.in_offsets(Index::activate)?;
        self.in_times(Index::activate)?;
        if self.max_timestamp.load(Ordering::Acquire) == UNKNOWN {
            self.max_timestamp()?;
            // A rebuild has sealed them.
            self.in_offsets(Index::activate)?;
            self.in_times(Index::activate)?;
        }
        self.keep_aborted()?;
        self.sealed.store(false, Ordering::Release);
        Ok(())
    }

    /// Runs `f` over the aborted transactions of the segment.
    /// Errors: `Damaged`: the file is no index, see [`Segment::set_aborted`]; the disk's.
    pub(crate) fn with_aborted<R>(
        self: &Arc<Self>,
        f: impl FnOnce(&[AbortedTxn]) -> R,
    ) -> Result<R, StorageError> {
        self.asked.store(true, Ordering::Relaxed);
        if let Some(AbortedList { list, .. }) = &*self.aborted.lock() {
            return Ok(f(list));
        }
        let list = self.read_aborted()?;
        let found = f(&list);
        let bytes = list.capacity() * size_of::<AbortedTxn>() + size_of::<AbortedList>();
        if let Some(charge) = self.partition_dir.log_dir.index_cache().reserve(bytes) {
            self.aborted.lock().get_or_insert(AbortedList { list, charge: Some(charge) });
            self.enter_cache();
        }
        Ok(found)
    }

    fn read_aborted(self: &Arc<Self>) -> Result<Vec<AbortedTxn>, StorageError> {
        let bytes = match files::read(self.partition_dir.log_dir.disk(), &self.path(TXN_INDEX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|error| self.failed("read an index of", error))?,
        };
        self.not_replaced()?;
        match txnindex::parse(&bytes) {
            Some(list) if self.is_as_written(&bytes) && self.has_markers(&list)? => Ok(list),
            _ => Err(StorageError::Damaged {
                log: Arc::clone(&self.partition_dir.name),
                offset: self.base_offset,
                reason: "its .txnindex does not agree with it".into(),
            }),
        }
    }

    fn is_as_written(&self, txn_index: &[u8]) -> bool {
        self.partition_dir.txn_index_sums.is_same(self.base_offset, txn_index)
    }

    /// The aborted transactions of a segment that is appended to.
    pub(crate) fn change_aborted<R>(&self, f: impl FnOnce(&mut Vec<AbortedTxn>) -> R) -> R {
        f(&mut self.aborted.lock().get_or_insert_default().list)
    }

    /// Takes the aborted transactions into memory for as long as the segment lives: its file is
    /// about to go, or is appended to.
    pub(crate) fn keep_aborted(self: &Arc<Self>) -> Result<(), StorageError> {
        let list = self.with_aborted(<[AbortedTxn]>::to_vec)?;
        *self.aborted.lock() = Some(AbortedList { list, charge: None });
        Ok(())
    }

    /// Replaces the list of aborted transactions, as recovery found it.
    pub(crate) fn set_aborted(&self, list: Vec<AbortedTxn>) {
        *self.aborted.lock() = Some(AbortedList { list, charge: None });
    }
}

impl CachedIndexes for Segment {
    fn let_go(&self, at_once: bool) -> bool {
        if self.asked.swap(false, Ordering::Relaxed) && !at_once {
            return false;
        }
        // Whoever keeps something from now on enters again.
        self.cached.store(false, Ordering::Release);
        let mut holds = false;
        holds |= !self.offsets.let_go(at_once);
        holds |= !self.times.let_go(at_once);
        if let Some(mut aborted) = self.aborted.try_lock() {
            aborted.take_if(|listed| listed.charge.is_some());
        }
        // Otherwise the cache keeps the segment, unless another thread has entered it meanwhile.
        !holds || self.cached.swap(true, Ordering::AcqRel)
    }
}

/// Where a search for an offset begins, and where it need not go beyond.
pub(crate) struct Hint {
    /// Where a batch begins that is the one sought, or lies before it.
    pub from: u64,
    /// Whether it is the one sought.
    pub(super) is_first: bool,
    /// Where the batch of the next entry begins, which ends above the offset, and where it ends.
    pub(super) next: Option<(u64, i64)>,
}

impl Hint {
    /// How much to read, so that the header sought is among it.
    pub(super) fn ahead(&self) -> usize {
        match self.next {
            _ if self.is_first => HEAD,
            Some((next, _)) if next <= self.from + NEAR => {
                usize::try_from(next.saturating_sub(self.from)).unwrap_or(0) + HEAD
            }
            _ => WINDOW,
        }
    }
}

fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}
