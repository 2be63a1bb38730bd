//! An index in a file that is read in pages: of a sealed segment, or the head of an active one. Its
//! outline (the first entry of each page and the last entry of all) and some of its pages are
//! in memory.
//!
//! The first opening reads the whole file: it is a valid index only if its keys rise. After that a
//! lookup needs one page, which takes one `pread` if it is not in memory; the outline has the entry
//! after the page.
//! Invariants: a page in memory begins with the outline's entry, rises strictly, and ends below the
//! next page's first entry. A file that changed during use is no longer a valid index.
//! Threads: plain values; `segment_index` has the lock, and does not hold it during reads.
//! Not promised: that the index is right (see `index`).

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::{self, Disk};
use super::index::{self, IndexEntry, NeighbourEntries};
use super::index_cache::{CacheCharge, IndexCache};

/// The size of a page: as many whole entries as fit.
const PAGE: usize = 16 << 10;
/// Pages read at once while an index is opened.
const AT_ONCE: usize = 4;
/// The memory of an open index without its pages.
const OVERHEAD: usize = 128;

/// The number of the next opening of an index.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// The file of an index, and the cache for its pages.
pub(crate) struct IndexFile<'s> {
    pub disk: &'s dyn Disk,
    pub cache: &'s Arc<IndexCache>,
    pub path: &'s dyn Fn() -> PathBuf,
    /// Called when the index keeps something in memory.
    pub enter: &'s dyn Fn(),
}

/// The outline and the pages of an index file (see the module).
#[derive(Debug)]
pub(crate) struct IndexPages<E: IndexEntry> {
    opened: u64,
    count: usize,
    firsts: Vec<E>,
    last: Option<E>,
    pages: Vec<Option<Page>>,
    charge: CacheCharge,
}

/// The bytes of a page in memory.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: Box<[u8]>,
    _charge: CacheCharge,
}

/// A page that a lookup needs and that is not in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingPage {
    opened: u64,
    number: usize,
    entries: usize,
}

const fn per_page<E: IndexEntry>() -> usize {
    PAGE / E::SIZE
}

/// The memory of a page in the outline.
const fn per_page_outline<E: IndexEntry>() -> usize {
    size_of::<E>() + size_of::<Option<Page>>()
}

/// The error of a file that is no index, or no longer the same one.
fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl IndexFile<'_> {
    fn open(&self) -> io::Result<File> {
        self.disk.open(&(self.path)())
    }

    /// Reads all of `bytes`. A file that ends earlier is not a valid index.
    fn read(&self, file: &File, bytes: &mut [u8], at: usize) -> io::Result<()> {
        match files::read_exact_at(self.disk, file, bytes, at as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(invalid()),
            other => other,
        }
    }

    /// Bytes of an index, without its tail of zeros, and its last entry. Only the end of the file
    /// is read. Errors: as [`IndexPages::open`].
    pub(crate) fn end<E: IndexEntry>(&self) -> io::Result<(usize, Option<E>)> {
        let file = self.open()?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut entry = vec![0; E::SIZE];
        let mut is_set = |number: usize| {
            self.read(&file, &mut entry, number * E::SIZE)?;
            Ok::<_, io::Error>(entry.iter().any(|byte| *byte != 0).then(|| E::read(&entry)))
        };
        let (mut low, mut high) = (0, len / E::SIZE);
        if high > 0 && is_set(high - 1)?.is_some() {
            low = high;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_set(middle)?.is_some() { low = middle + 1 } else { high = middle }
        }
        let Some(last) = low.checked_sub(1) else { return Ok((0, None)) };
        let last = is_set(last)?.flatten().filter(|last| last.may_follow(None));
        last.map(|last| (low * E::SIZE, Some(last))).ok_or_else(invalid)
    }

    /// Reads an index up to its tail of zeros or to `limit`. It passes pieces of whole pages to
    /// `take`; the last piece may be smaller.
    fn scan<E: IndexEntry>(
        &self,
        limit: Option<usize>,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let file = self.open()?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let len = match limit {
            Some(limit) if limit > len => return Err(invalid()),
            Some(limit) => limit,
            None => len,
        };
        let whole = len / E::SIZE * E::SIZE;
        let most = AT_ONCE * per_page::<E>() * E::SIZE;
        let mut piece = vec![0; whole.min(most)];
        let mut last = vec![0; E::SIZE];
        let is_full = whole > most && {
            self.read(&file, &mut last, whole - E::SIZE)?;
            last.iter().any(|byte| *byte != 0)
        };
        let (mut at, mut before) = (0, None);
        while at < whole {
            let piece = piece.get_mut(..most.min(whole - at)).unwrap_or_default();
            self.read(&file, piece, at)?;
            let valid = if is_full { piece.len() } else { index::valid_len::<E>(piece) };
            let entries = piece.get(..valid).unwrap_or_default();
            before = index::rises::<E>(entries, before).ok_or_else(invalid)?;
            take(entries);
            at += piece.len();
            if valid < piece.len() {
                break;
            }
        }
        Ok(())
    }
}

impl<E: IndexEntry> IndexPages<E> {
    /// Opens an index, or its first `limit` bytes.
    /// Errors: `NotFound` without a file, `InvalidData` if the file is no index or shorter, or the
    /// disk's.
    pub(crate) fn open(source: &IndexFile<'_>, limit: Option<usize>) -> io::Result<Self> {
        let (mut firsts, mut last, mut count, mut page) = (Vec::new(), None, 0, Vec::new());
        source.scan::<E>(limit, &mut |piece| {
            let size = per_page::<E>() * E::SIZE;
            firsts.extend(piece.chunks(size).filter_map(E::read));
            last = index::last::<E>(piece).or(last);
            page.clear();
            if count == 0 && piece.len() <= size {
                page.extend_from_slice(piece);
            }
            count += piece.len() / E::SIZE;
        })?;
        let pages = || std::iter::repeat_with(|| None).take(firsts.len());
        let outline = firsts.len() * per_page_outline::<E>() + OVERHEAD;
        let mut opened = Self {
            opened: OPENED.fetch_add(1, Ordering::Relaxed),
            count,
            last,
            pages: pages().collect(),
            firsts,
            charge: source.cache.charge(outline),
        };
        if count > 0 && count * E::SIZE == page.len() {
            opened.keep(0, Page::new(source, page.into()));
        }
        Ok(opened)
    }

    /// Bytes of all entries.
    pub(crate) const fn size(&self) -> usize {
        self.count * E::SIZE
    }

    /// Notes entries that were appended to the file.
    pub(crate) fn extend(&mut self, entries: &[u8]) {
        self.opened = OPENED.fetch_add(1, Ordering::Relaxed);
        if let Some(grown) = self.pages.last_mut() {
            *grown = None;
        }
        for entry in index::entries::<E>(entries) {
            if self.count.is_multiple_of(per_page::<E>()) {
                self.firsts.push(entry);
                self.pages.push(None);
                self.charge.grow(per_page_outline::<E>());
            }
            self.last = Some(entry);
            self.count += 1;
        }
    }

    /// The last entry.
    pub(crate) const fn last(&self) -> Option<E> {
        self.last
    }

    /// The last entry for which `pred` holds and the one after it. `pred` holds for a prefix of the
    /// entries.
    pub(crate) fn around(
        &self,
        pred: &impl Fn(&E) -> bool,
    ) -> Result<NeighbourEntries<E>, MissingPage> {
        let after = match self.firsts.len() {
            1 => usize::from(self.firsts.first().is_some_and(pred)),
            _ => self.firsts.partition_point(pred),
        };
        let Some(number) = after.checked_sub(1) else {
            return Ok((None, self.firsts.first().copied()));
        };
        match self.pages.get(number) {
            Some(Some(page)) => Ok(self.within(number, &page.bytes, pred)),
            _ => {
                let entries = per_page::<E>().min(self.count - number * per_page::<E>());
                Err(MissingPage { opened: self.opened, number, entries })
            }
        }
    }

    fn within(
        &self,
        number: usize,
        page: &[u8],
        pred: &impl Fn(&E) -> bool,
    ) -> NeighbourEntries<E> {
        let (entry, next) = index::around(page, pred);
        (entry, next.or_else(|| self.firsts.get(number + 1).copied()))
    }

    /// The result of a lookup in the page that was missing. The page is kept if there is room.
    /// `None`: the index was opened again meanwhile. Errors: the page is not of this index.
    pub(crate) fn answer(
        &mut self,
        missing: &MissingPage,
        (bytes, page): (&[u8], Option<Page>),
        pred: &impl Fn(&E) -> bool,
    ) -> io::Result<Option<NeighbourEntries<E>>> {
        if self.opened != missing.opened {
            return Ok(None);
        }
        let number = missing.number;
        let last = index::rises::<E>(bytes, None).flatten().ok_or_else(invalid)?;
        let next = self.firsts.get(number + 1);
        let follows = next.is_none_or(|next| next.may_follow(Some(&last)));
        if E::read(bytes) != self.firsts.get(number).copied() || !follows {
            return Err(invalid());
        }
        let found = self.within(number, bytes, pred);
        self.keep(number, page);
        Ok(Some(found))
    }

    fn keep(&mut self, number: usize, page: Option<Page>) {
        if let Some(place) = self.pages.get_mut(number) {
            *place = page;
        }
    }

    /// Drops all pages. Returns whether the outline is worth keeping.
    pub(crate) fn let_go(&mut self) -> bool {
        let had_any = self.pages.iter().any(Option::is_some);
        self.pages.fill_with(|| None);
        had_any && self.pages.len() > 1
    }
}

impl Page {
    /// `None` if there is no room.
    fn new(source: &IndexFile<'_>, bytes: Box<[u8]>) -> Option<Self> {
        let charge = source.cache.reserve(bytes.len() + OVERHEAD)?;
        Some(Self { bytes, _charge: charge })
    }
}

impl MissingPage {
    /// Reads the page, and keeps a copy if there is room.
    pub(crate) fn read<E: IndexEntry>(
        &self,
        source: &IndexFile<'_>,
    ) -> io::Result<(Vec<u8>, Option<Page>)> {
        let file = source.open()?;
        let mut bytes = vec![0; self.entries * E::SIZE];
        source.read(&file, &mut bytes, self.number * per_page::<E>() * E::SIZE)?;
        let page = Page::new(source, bytes.as_slice().into());
        Ok((bytes, page))
    }
}
