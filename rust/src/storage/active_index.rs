//! The index of an active segment: its head is in the file, its tail in memory.
//!
//! Each append adds at most one entry to the tail. When the tail is [`TAIL`] bytes long, the next
//! commit writes it to the end of the file. So 10,000 active segments of any size need little
//! memory. A lookup in the head reads pages of the file, as in the index of a sealed segment
//! (`pages`).
//! Invariants: the file begins with `in_file` bytes of entries, which do not change. Keys rise,
//! from the file into the tail. Only the tail has entries of batches that are not committed.
//! Threads: plain values; `segment_index` has the lock.
//! Not promised: that the file matches the log after a crash. Recovery rebuilds it.

use std::io;
use std::path::Path;

use super::files::{self, Disk};
use super::index::{self, IndexEntry, NeighbourEntries};
use super::pages::{IndexFile, IndexPages, MissingPage};

/// A tail of at least this size is written: the entries of one MiB of records, or less.
const TAIL: usize = 2 << 10;

/// The index of an active segment (see the module).
#[derive(Debug)]
pub(crate) struct ActiveIndex<E: IndexEntry> {
    /// Bytes of the index that are in the file.
    in_file: usize,
    /// The last entry in the file.
    last_in_file: Option<E>,
    /// The pages of the file, if a lookup has opened them.
    pages: Option<IndexPages<E>>,
    tail: Vec<u8>,
    /// The file exists and has exactly the entries of `in_file`.
    has_file: bool,
}

impl<E: IndexEntry> ActiveIndex<E> {
    /// The empty index of a new segment.
    pub(crate) const fn empty(has_file: bool) -> Self {
        Self { in_file: 0, last_in_file: None, pages: None, tail: Vec::new(), has_file }
    }

    /// Opens an index file for appends. Only its end is read.
    /// Errors: `NotFound` without a file, `InvalidData` if it does not end as an index, or the
    /// disk's.
    pub(crate) fn open(source: &IndexFile<'_>) -> io::Result<Self> {
        let (in_file, last_in_file) = source.end::<E>()?;
        Ok(Self { in_file, last_in_file, has_file: true, ..Self::empty(true) })
    }

    /// An index with these entries, none of them in a file.
    pub(crate) fn of(entries: &[E]) -> Self {
        let mut tail = Vec::with_capacity(entries.len() * E::SIZE);
        entries.iter().for_each(|entry| entry.write(&mut tail));
        Self { tail, ..Self::empty(false) }
    }

    /// Appends the entries of `other` that follow the last one here.
    pub(crate) fn take_newer(&mut self, other: &Self) {
        index::entries::<E>(&other.tail).for_each(|entry| self.push(entry));
    }

    /// Bytes of all entries.
    pub(crate) const fn size(&self) -> usize {
        self.in_file + self.tail.len()
    }

    /// Bytes of the entries in the file.
    pub(crate) const fn in_file(&self) -> usize {
        self.in_file
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Option<E> {
        index::last(&self.tail).or(self.last_in_file)
    }

    /// Appends an entry, unless its key does not rise.
    pub(crate) fn push(&mut self, entry: E) {
        if self.last().is_none_or(|last| last.key() < entry.key()) {
            entry.write(&mut self.tail);
        }
    }

    /// Drops entries of the tail from the first for which `keep` is false.
    pub(crate) fn cut_tail(&mut self, keep: impl Fn(&E) -> bool) {
        let count = index::partition::<E>(&self.tail, &keep);
        self.tail.truncate(count * E::SIZE);
    }

    /// The result of a lookup (see [`index::around`]); `None`: the pages must be opened first.
    pub(crate) fn around(
        &self,
        pred: &impl Fn(&E) -> bool,
    ) -> Option<Result<NeighbourEntries<E>, MissingPage>> {
        let (entry, next) = index::around(&self.tail, pred);
        if entry.is_some() || self.in_file == 0 {
            return Some(Ok((entry, next)));
        }
        if let Some(last) = self.last_in_file.filter(pred) {
            return Some(Ok((Some(last), next)));
        }
        Some(self.pages.as_ref()?.around(pred))
    }

    /// Sets the pages of the file, unless it has grown since they were opened.
    pub(crate) fn set_pages(&mut self, pages: IndexPages<E>) {
        if pages.size() == self.in_file {
            self.pages = Some(pages);
        }
    }

    /// The pages, if they are open.
    pub(crate) const fn pages(&mut self) -> Option<&mut IndexPages<E>> {
        self.pages.as_mut()
    }

    /// Closes the pages.
    pub(crate) fn close_pages(&mut self) {
        self.pages = None;
    }

    /// Whether the tail is long enough to be written.
    pub(crate) const fn is_due(&self) -> bool {
        self.tail.len() >= TAIL
    }

    /// Writes the tail to the file. After an error it stays in memory.
    pub(crate) fn save(&mut self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        if self.has_file && self.tail.is_empty() {
            return Ok(());
        }
        if self.has_file && self.in_file > 0 {
            let file = disk.open(path)?;
            let in_file = self.in_file as u64;
            if file.metadata()?.len() != in_file {
                disk.set_len(&file, in_file)?; // Kafka leaves a tail of zeros
            }
            disk.write_at(&file, &[&self.tail], in_file)?;
        } else {
            files::replace_derived(disk, path, &self.tail)?;
        }
        if let Some(pages) = &mut self.pages {
            pages.extend(&self.tail);
        }
        self.last_in_file = self.last();
        self.in_file += self.tail.len();
        self.has_file = true;
        self.tail.clear();
        self.tail.shrink_to(TAIL);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::RealDisk;
    use super::super::index::OffsetEntry;
    use super::super::index_cache::IndexCache;
    use super::*;

    fn entry(number: i32) -> OffsetEntry {
        OffsetEntry { delta: number * 3, position: number * 4096 }
    }

    #[test]
    fn entries_are_found_wherever_they_lie() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.index");
        let (cache, named) = (IndexCache::new(1 << 20), || path.clone());
        let source = IndexFile { disk: &RealDisk, cache: &cache, path: &named, enter: &|| {} };
        let mut active = ActiveIndex::empty(false);
        for number in 1..9000 {
            active.push(entry(number));
            if active.is_due() {
                active.save(&RealDisk, &path).unwrap();
            }
            if number % 977 != 0 {
                continue;
            }
            for sought in [1, 2, number / 2, number - 300, number - 1, number] {
                let Ok(sought) = usize::try_from(sought) else { continue };
                let pred = |entry: &OffsetEntry| entry.delta <= sought as i32 * 3;
                let found = loop {
                    match active.around(&pred) {
                        Some(Ok(found)) => break found,
                        Some(Err(missing)) => {
                            let (bytes, page) = missing.read::<OffsetEntry>(&source).unwrap();
                            let pages = active.pages().unwrap();
                            pages.answer(&missing, (&bytes, page), &pred).unwrap().unwrap();
                        }
                        None => {
                            let limit = Some(active.in_file());
                            active.set_pages(IndexPages::open(&source, limit).unwrap());
                        }
                    }
                };
                let near = |number: usize| (1..=number).last().map(|number| entry(number as i32));
                assert_eq!(found.0, near(sought), "{sought} of {number}");
                if let Some(next) = found.1 {
                    assert_eq!(next, entry(sought as i32 + 1), "after {sought} of {number}");
                }
            }
            assert_eq!(active.last(), Some(entry(number)));
        }
        assert!(active.tail.capacity() <= 2 * TAIL);
        active.save(&RealDisk, &path).unwrap();
        let reopened = ActiveIndex::<OffsetEntry>::open(&source).unwrap();
        assert_eq!((reopened.size(), reopened.last()), (8999 * 8, Some(entry(8999))));
    }

    #[test]
    fn only_the_tail_is_cut() {
        let mut active = ActiveIndex::of(&[entry(1), entry(2), entry(3)]);
        active.cut_tail(|it| it.delta < 7);
        assert_eq!((active.size(), active.last()), (16, Some(entry(2))));
    }
}
