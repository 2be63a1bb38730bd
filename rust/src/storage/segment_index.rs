//! The index of a segment (see `index`): closed, sealed, or active.
//!
//! The index of a sealed segment is read in pages through a bounded cache (`pages`, `index_cache`).
//! The index of an active segment has its tail in memory (`active_index`).
//! Threads: one short lock an index, held during writes and never during reads.
//! Not promised: that the file exists and is right. If not, the caller requests a rebuild.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::RwLock;

use super::active_index::ActiveIndex;
use super::files::Disk;
use super::index::{IndexEntry, NeighbourEntries};
use super::pages::{IndexFile, IndexPages, MissingPage};

/// An index: closed, read in pages (of a sealed segment), or appended to (of the active one).
#[derive(Debug)]
pub(crate) struct Index<E: IndexEntry> {
    state: RwLock<IndexState<E>>,
}

#[derive(Debug)]
enum IndexState<E: IndexEntry> {
    Closed,
    Sealed(Box<IndexPages<E>>),
    Active(Box<ActiveIndex<E>>),
}

impl<E: IndexEntry> IndexState<E> {
    /// The end of the entries that pages may have; `None`: the index is closed or sealed.
    fn limit(&self) -> Option<usize> {
        match self {
            Self::Active(active) => Some(active.in_file()),
            Self::Closed | Self::Sealed(_) => None,
        }
    }

    /// See [`Index::around`]; `None`: the pages must be opened.
    fn around(
        &self,
        pred: &impl Fn(&E) -> bool,
    ) -> Option<Result<NeighbourEntries<E>, MissingPage>> {
        match self {
            Self::Closed => None,
            Self::Sealed(pages) => Some(pages.around(pred)),
            Self::Active(active) => active.around(pred),
        }
    }

    fn pages(&mut self) -> Option<&mut IndexPages<E>> {
        match self {
            Self::Closed => None,
            Self::Sealed(pages) => Some(pages),
            Self::Active(active) => active.pages(),
        }
    }

    fn set_pages(&mut self, pages: IndexPages<E>) {
        match self {
            Self::Closed => *self = Self::Sealed(Box::new(pages)),
            Self::Sealed(_) => {}
            Self::Active(active) => active.set_pages(pages),
        }
    }

    fn close_pages(&mut self) {
        match self {
            Self::Closed => {}
            Self::Sealed(_) => *self = Self::Closed,
            Self::Active(active) => active.close_pages(),
        }
    }
}

impl<E: IndexEntry> Index<E> {
    /// A closed index: its entries are in a file, if there is one.
    pub(crate) const fn closed() -> Self {
        Self { state: RwLock::new(IndexState::Closed) }
    }

    /// The empty index of a new segment; `has_file`: there is a file of it.
    pub(crate) fn empty(has_file: bool) -> Self {
        let active = Box::new(ActiveIndex::empty(has_file));
        Self { state: RwLock::new(IndexState::Active(active)) }
    }

    /// The last entry for which `pred` holds and the one after it. `pred` holds for a prefix of the
    /// entries. Errors: `NotFound` without a file, `InvalidData` if the file is no index, or the
    /// disk's.
    pub(crate) fn around(
        &self,
        source: &IndexFile<'_>,
        pred: impl Fn(&E) -> bool,
    ) -> io::Result<NeighbourEntries<E>> {
        loop {
            let (found, limit) = {
                let state = self.state.read();
                (state.around(&pred), state.limit())
            };
            let missing = match found {
                Some(Ok(found)) => return Ok(found),
                Some(Err(missing)) => missing,
                None => {
                    let pages = IndexPages::open(source, limit)?;
                    let mut state = self.state.write();
                    if state.limit() == limit {
                        state.set_pages(pages);
                    }
                    drop(state);
                    (source.enter)();
                    continue;
                }
            };
            let (bytes, page) = missing.read::<E>(source)?;
            let mut state = self.state.write();
            let Some(pages) = state.pages() else { continue };
            let answer = pages.answer(&missing, (&bytes, page), &pred);
            if answer.is_err() {
                state.close_pages();
            }
            drop(state);
            (source.enter)();
            if let Some((entry, next)) = answer? {
                return Ok((entry, next));
            }
        }
    }

    /// The last entry. Errors as [`Index::around`].
    pub(crate) fn last(&self, source: &IndexFile<'_>) -> io::Result<Option<E>> {
        match &*self.state.read() {
            IndexState::Active(active) => return Ok(active.last()),
            IndexState::Sealed(pages) => return Ok(pages.last()),
            IndexState::Closed => {}
        }
        Ok(source.end::<E>()?.1)
    }

    /// Bytes of all entries. Errors as [`Index::around`].
    pub(crate) fn size(&self, source: &IndexFile<'_>) -> io::Result<usize> {
        match &*self.state.read() {
            IndexState::Active(active) => return Ok(active.size()),
            IndexState::Sealed(pages) => return Ok(pages.size()),
            IndexState::Closed => {}
        }
        Ok(source.end::<E>()?.0)
    }

    /// Prepares the index for appends. Errors as [`Index::around`].
    pub(crate) fn activate(&self, source: &IndexFile<'_>) -> io::Result<()> {
        if matches!(*self.state.read(), IndexState::Active(_)) {
            return Ok(());
        }
        let active = Box::new(ActiveIndex::open(source)?);
        *self.state.write() = IndexState::Active(active);
        Ok(())
    }

    /// Replaces the content with that of a rebuild. Entries that were appended meanwhile stay.
    pub(crate) fn set(&self, entries: &[E]) {
        let mut rebuilt = Box::new(ActiveIndex::of(entries));
        let mut state = self.state.write();
        if let IndexState::Active(before) = &*state {
            rebuilt.take_newer(before);
        }
        *state = IndexState::Active(rebuilt);
    }

    /// Appends an entry to an active index, unless its key does not rise.
    pub(crate) fn push(&self, entry: E) {
        if let IndexState::Active(active) = &mut *self.state.write() {
            active.push(entry);
        }
    }

    /// Drops entries from the first one for which `keep` is false. The index is active, and only
    /// uncommitted entries may be dropped.
    pub(crate) fn cut(&self, keep: impl Fn(&E) -> bool) {
        if let IndexState::Active(active) = &mut *self.state.write() {
            active.cut_tail(keep);
        }
    }

    /// Bytes of all entries of an active index; 0 of another one.
    pub(crate) fn active_size(&self) -> usize {
        match &*self.state.read() {
            IndexState::Active(active) => active.size(),
            IndexState::Closed | IndexState::Sealed(_) => 0,
        }
    }

    /// Writes the tail of an active index, if it is long enough.
    pub(crate) fn save_due(&self, disk: &dyn Disk, path: impl Fn() -> PathBuf) -> io::Result<()> {
        let is_due = |state: &IndexState<E>| matches!(state, IndexState::Active(it) if it.is_due());
        if !is_due(&self.state.read()) {
            return Ok(());
        }
        match &mut *self.state.write() {
            IndexState::Active(active) => active.save(disk, &path()),
            IndexState::Closed | IndexState::Sealed(_) => Ok(()),
        }
    }

    /// Writes the tail of an active index. `seal`: no entry will be appended any more.
    pub(crate) fn save(&self, disk: &dyn Disk, path: &Path, seal: bool) -> io::Result<()> {
        let mut state = self.state.write();
        if let IndexState::Active(active) = &mut *state {
            active.save(disk, path)?;
            if seal {
                *state = IndexState::Closed;
            }
        }
        Ok(())
    }

    /// Frees the memory of an index file: its pages first, the rest at the next call or `at_once`.
    /// True if none is left.
    pub(crate) fn let_go(&self, at_once: bool) -> bool {
        let mut state = self.state.write();
        if state.pages().is_some_and(IndexPages::let_go) && !at_once {
            return false;
        }
        state.close_pages();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::OffsetEntry;
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
