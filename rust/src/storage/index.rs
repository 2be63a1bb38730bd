//! The sparse indexes of a segment: `.index` (offset to position) and `.timeindex` (time to
//! offset).
//! Format: `.index` entries of 8 bytes, `offset - base_offset int32, position int32`: the batch at
//! `position` ends at that offset. `.timeindex` entries of 12 bytes, `timestamp int64, offset -
//! base_offset int32`: the largest timestamp so far, and the last offset of its batch.
//! Invariant: keys rise strictly. A tail of zeros (Kafka preallocates, and leaves it when killed)
//! and a half entry do not belong to an index.
//! Threads: one short lock an index, never held during reads; the file of a sealed segment is read
//! in pages through a bounded cache (`pages`, `index_cache`).
//! Not promised: an index may be wrong, because it is derived. The reader checks the batch at the
//! position, and asks for a rebuild if it does not fit.

use std::io;
use std::path::Path;

use parking_lot::RwLock;

use super::files::Disk;
use super::pages::{Around, IndexFile, Pages};

/// One kind of entry.
pub trait Entry: Copy + PartialEq + std::fmt::Debug + Send + Sync {
    /// Bytes on disk.
    const SIZE: usize;
    /// What entries are sorted by.
    type Key: Ord + Copy;
    /// Reads an entry from `SIZE` bytes.
    fn read(bytes: &[u8]) -> Option<Self>;
    /// Appends the entry's bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// What entries are sorted by.
    fn key(&self) -> Self::Key;
    /// Whether an index could hold it, after `before`.
    fn may_follow(&self, before: Option<&Self>) -> bool;
}

/// An entry of `.index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch, less the segment's base offset.
    pub delta: i32,
    /// Where the batch begins.
    pub position: i32,
}

/// An entry of `.timeindex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// The largest timestamp in the segment so far.
    pub timestamp: i64,
    /// Last offset of the batch that has it, less the segment's base offset.
    pub delta: i32,
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;
    type Key = i32;

    fn read(bytes: &[u8]) -> Option<Self> {
        let (delta, rest) = bytes.split_first_chunk()?;
        let position = rest.first_chunk()?;
        Some(Self { delta: i32::from_be_bytes(*delta), position: i32::from_be_bytes(*position) })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.delta.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn key(&self) -> i32 {
        self.delta
    }

    fn may_follow(&self, before: Option<&Self>) -> bool {
        let (delta, position) = before.map_or((-1, -1), |entry| (entry.delta, entry.position));
        self.delta > delta && self.position > position
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;
    type Key = i64;

    fn read(bytes: &[u8]) -> Option<Self> {
        let (timestamp, rest) = bytes.split_first_chunk()?;
        let delta = rest.first_chunk()?;
        Some(Self { timestamp: i64::from_be_bytes(*timestamp), delta: i32::from_be_bytes(*delta) })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.delta.to_be_bytes());
    }

    fn key(&self) -> i64 {
        self.timestamp
    }

    fn may_follow(&self, before: Option<&Self>) -> bool {
        let (timestamp, delta) = before.map_or((-1, 0), |entry| (entry.timestamp, entry.delta));
        self.timestamp > timestamp && self.delta >= delta
    }
}

/// An index: closed, read in pages (of a sealed segment), or in memory (of the active one).
#[derive(Debug)]
pub(crate) struct Index<E: Entry> {
    state: RwLock<IndexState<E>>,
}

#[derive(Debug)]
enum IndexState<E: Entry> {
    Closed,
    Sealed(Box<Pages<E>>),
    Memory { bytes: Vec<u8>, saved: bool },
}

impl<E: Entry> Index<E> {
    /// An index that lies in a file, if anywhere.
    pub(crate) const fn closed() -> Self {
        Self { state: RwLock::new(IndexState::Closed) }
    }

    /// The empty index of a new segment; `saved`: there is a file of it.
    pub(crate) const fn empty(saved: bool) -> Self {
        Self { state: RwLock::new(IndexState::Memory { bytes: Vec::new(), saved }) }
    }

    /// The last entry for which `pred` holds and the one after it, where it holds for a head of the
    /// entries. Errors: `NotFound` without a file, `InvalidData` if the file is no index, or the
    /// disk's.
    pub(crate) fn around(
        &self,
        source: &IndexFile<'_>,
        pred: impl Fn(&E) -> bool,
    ) -> io::Result<Around<E>> {
        loop {
            let missing = self.look(source, |state| match state {
                IndexState::Memory { bytes, .. } => Some(Ok(around(bytes, &pred))),
                IndexState::Sealed(pages) => Some(pages.around(&pred)),
                IndexState::Closed => None,
            })?;
            let missing = match missing {
                Ok(found) => return Ok(found),
                Err(missing) => missing,
            };
            let (bytes, page) = missing.read::<E>(source)?;
            let mut state = self.state.write();
            let IndexState::Sealed(pages) = &mut *state else { continue };
            let answer = pages.answer(&missing, (&bytes, page), &pred);
            if answer.is_err() {
                *state = IndexState::Closed;
            }
            drop(state);
            (source.enter)();
            if let Some(found) = answer? {
                return Ok(found);
            }
        }
    }

    /// The last entry. Errors as [`Index::around`].
    pub(crate) fn last(&self, source: &IndexFile<'_>) -> io::Result<Option<E>> {
        self.look(source, |state| match state {
            IndexState::Memory { bytes, .. } => Some(last(bytes)),
            IndexState::Sealed(pages) => Some(pages.last()),
            IndexState::Closed => None,
        })
    }

    /// Bytes of all entries. Errors as [`Index::around`].
    pub(crate) fn size(&self, source: &IndexFile<'_>) -> io::Result<usize> {
        self.look(source, |state| match state {
            IndexState::Memory { bytes, .. } => Some(bytes.len()),
            IndexState::Sealed(pages) => Some(pages.count() * E::SIZE),
            IndexState::Closed => None,
        })
    }

    /// What `f` finds; the index is opened where it is closed.
    fn look<R>(
        &self,
        source: &IndexFile<'_>,
        f: impl Fn(&IndexState<E>) -> Option<R>,
    ) -> io::Result<R> {
        loop {
            if let Some(found) = f(&self.state.read()) {
                return Ok(found);
            }
            let pages = Box::new(Pages::open(source)?);
            {
                let mut state = self.state.write();
                if matches!(*state, IndexState::Closed) {
                    *state = IndexState::Sealed(pages);
                }
            }
            (source.enter)();
        }
    }

    /// Takes the index into memory, to be appended to. Errors as [`Index::around`].
    pub(crate) fn load(&self, source: &IndexFile<'_>) -> io::Result<()> {
        if matches!(*self.state.read(), IndexState::Memory { .. }) {
            return Ok(());
        }
        let bytes = source.read_whole::<E>()?;
        *self.state.write() = IndexState::Memory { bytes, saved: true };
        Ok(())
    }

    /// Replaces the content, as a rebuild found it.
    pub(crate) fn set(&self, entries: &[E]) {
        let mut bytes = Vec::with_capacity(entries.len() * E::SIZE);
        entries.iter().for_each(|entry| entry.write(&mut bytes));
        *self.state.write() = IndexState::Memory { bytes, saved: false };
    }

    /// Appends an entry to an index in memory, unless its key does not rise.
    pub(crate) fn push(&self, entry: E) {
        if let IndexState::Memory { bytes, saved } = &mut *self.state.write()
            && last::<E>(bytes).is_none_or(|last| last.key() < entry.key())
        {
            entry.write(bytes);
            *saved = false;
        }
    }

    /// Drops entries from the first for which `keep` is false; of an index in memory.
    pub(crate) fn cut(&self, keep: impl Fn(&E) -> bool) {
        if let IndexState::Memory { bytes, saved } = &mut *self.state.write() {
            let count = partition::<E>(bytes, &keep);
            if count * E::SIZE < bytes.len() {
                bytes.truncate(count * E::SIZE);
                *saved = false;
            }
        }
    }

    /// Bytes held by an index in memory; 0 otherwise.
    pub(crate) fn memory_size(&self) -> usize {
        match &*self.state.read() {
            IndexState::Memory { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// Writes an index in memory to its file, if that is not there yet. `seal` lets go of the
    /// memory: from now on the file is read when it is needed.
    pub(crate) fn save(&self, disk: &dyn Disk, path: &Path, seal: bool) -> io::Result<()> {
        let mut state = self.state.write();
        if let IndexState::Memory { bytes, saved } = &mut *state {
            if !*saved {
                super::files::replace_derived(disk, path, bytes)?;
                *saved = true;
            }
            if seal {
                *state = IndexState::Closed;
            }
        }
        Ok(())
    }

    /// Lets go of what was read of a file: of pages first, of what is left at the next call or
    /// `at_once`. True if nothing is held any more.
    pub(crate) fn let_go(&self, at_once: bool) -> bool {
        let mut state = self.state.write();
        if let IndexState::Sealed(pages) = &mut *state {
            if pages.let_go() && !at_once {
                return false;
            }
            *state = IndexState::Closed;
        }
        true
    }
}

/// Bytes of `bytes` that are whole entries before the tail of zeros.
pub(crate) fn valid_len<E: Entry>(bytes: &[u8]) -> usize {
    let whole = bytes.len() / E::SIZE * E::SIZE;
    let is_set = |entry: &[u8]| entry.iter().any(|byte| *byte != 0);
    let tail_is_set =
        whole.checked_sub(E::SIZE).and_then(|from| bytes.get(from..whole)).is_some_and(is_set);
    if tail_is_set {
        return whole;
    }
    let (mut low, mut high) = (0, whole / E::SIZE);
    while low < high {
        let middle = (low + high) / 2;
        if bytes.get(middle * E::SIZE..(middle + 1) * E::SIZE).is_some_and(is_set) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low * E::SIZE
}

/// The last of entries that follow `before` and rise; `None` if they do not.
#[expect(clippy::option_option, reason = "whether they rise, and whether there are any")]
pub(crate) fn rises<E: Entry>(bytes: &[u8], mut before: Option<E>) -> Option<Option<E>> {
    let rise = entries::<E>(bytes).all(|entry| {
        let fits = entry.may_follow(before.as_ref());
        before = Some(entry);
        fits
    });
    rise.then_some(before)
}

/// All entries of an index's bytes.
pub(crate) fn entries<'b, E: Entry + 'b>(bytes: &'b [u8]) -> impl Iterator<Item = E> + 'b {
    bytes.chunks_exact(E::SIZE).filter_map(E::read)
}

/// The last entry.
pub(crate) fn last<E: Entry>(bytes: &[u8]) -> Option<E> {
    bytes.len().checked_sub(E::SIZE).and_then(|from| E::read(bytes.get(from..)?))
}

/// The last entry for which `pred` holds, where it holds for a head of the entries.
pub(crate) fn floor<E: Entry>(bytes: &[u8], pred: impl Fn(&E) -> bool) -> Option<E> {
    around(bytes, pred).0
}

/// The last entry for which `pred` holds and the one after it, where it holds for a head.
pub(crate) fn around<E: Entry>(bytes: &[u8], pred: impl Fn(&E) -> bool) -> Around<E> {
    let count = partition::<E>(bytes, &pred);
    let at = |index: usize| E::read(bytes.get(index * E::SIZE..)?);
    (count.checked_sub(1).and_then(at), at(count))
}

fn partition<E: Entry>(bytes: &[u8], pred: &impl Fn(&E) -> bool) -> usize {
    let (mut low, mut high) = (0, bytes.len() / E::SIZE);
    while low < high {
        let middle = (low + high) / 2;
        if bytes.get(middle * E::SIZE..).and_then(E::read).is_some_and(|entry| pred(&entry)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::RealDisk;
    use crate::storage::index_cache::IndexCache;

    fn index(entries: &[(i32, i32)]) -> Index<OffsetEntry> {
        let index = Index::empty(false);
        entries.iter().for_each(|&(delta, position)| index.push(OffsetEntry { delta, position }));
        index
    }

    fn at(index: &Index<OffsetEntry>, path: &Path, delta: i32) -> Option<OffsetEntry> {
        try_at(index, path, delta).unwrap()
    }

    fn try_at(
        index: &Index<OffsetEntry>,
        path: &Path,
        delta: i32,
    ) -> io::Result<Option<OffsetEntry>> {
        let (cache, path) = (IndexCache::new(1 << 20), || path.to_owned());
        let source = IndexFile { disk: &RealDisk, cache: &cache, path: &path, enter: &|| {} };
        index.around(&source, |entry: &OffsetEntry| entry.delta <= delta).map(|found| found.0)
    }

    #[test]
    fn floor_finds_the_same_in_memory_and_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.index");
        let index = index(&[(9, 4096), (20, 8200), (20, 9000), (31, 12_300)]);
        for _ in 0..2 {
            assert_eq!(at(&index, &path, 8), None);
            assert_eq!(at(&index, &path, 9).unwrap().position, 4096);
            assert_eq!(at(&index, &path, 30).unwrap().position, 8200);
            assert_eq!(at(&index, &path, 99).unwrap().position, 12_300);
            index.save(&RealDisk, &path, true).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24);
    }

    #[test]
    fn a_tail_of_zeros_is_no_part_of_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.index");
        for (count, zeros) in [(0, 100), (1, 7), (3, 8000), (5, 9)] {
            let mut bytes = Vec::new();
            (1..=count).for_each(|n| OffsetEntry { delta: n, position: n * 10 }.write(&mut bytes));
            bytes.resize(bytes.len() + zeros, 0);
            std::fs::write(&path, &bytes).unwrap();
            let found = at(&Index::closed(), &path, 100);
            assert_eq!(found.map_or(0, |entry| entry.delta), count);
        }
    }

    #[test]
    fn keys_that_fall_are_no_index() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.index");
        std::fs::write(&path, [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 2]).unwrap();
        let index = Index::<OffsetEntry>::closed();
        assert_eq!(try_at(&index, &path, 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
