//! Reads one partition's files without a log, while a broker may write them: the first and last
//! offset, the batches from an offset on, the aborted transactions.
//!
//! It writes and locks nothing. Meanwhile a live broker may append, seal, delete and compact. An
//! open file stays readable after it is renamed or deleted; the reader finds the next file by the
//! next offset. Indexes and snapshots are hints: if one is missing or wrong, the reader walks the
//! headers of the log.
//! Invariant: batches come in the order of offsets; the last one is the last whole batch of the
//!     log.
//! Threads: plain values, nothing shared. Memory: [`PIECE`], or one larger batch.
//! Not promised: the high watermark. The reader also returns records that no follower has yet, and
//!     records that a broker rolls back after a failed write.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use super::checkpoints::Checkpoints;
use super::errors::StorageError;
use super::file_names::{INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_name};
use super::index::{self, OffsetEntry, TimeEntry};
use super::log::find_record;
use super::names::{self, DirKind};
use super::producers::Producers;
use super::scan::{self, BatchAt, HEAD, WalkStep, Walker};
use super::txnindex::{self, AbortedTxn};
use crate::record::batch::Batch;

/// Bytes read at once.
const PIECE: usize = 512 << 10;
/// The suffix of a compacted file until the files that it replaces are removed.
const SWAP: &str = "log.swap";
/// How often the names of a directory are read until two readings agree.
const LOOKS: usize = 100;
/// How often files may vanish between listing and opening them.
const TRIES: usize = 16;

/// The directory of one partition.
#[derive(Clone, Debug)]
pub struct PartitionFiles {
    path: PathBuf,
    /// The partition's number.
    pub number: i32,
    /// The log start offset, from the checkpoint.
    checkpointed: i64,
}

/// The transactions of a partition that matter to readers.
#[derive(Clone, Debug, Default)]
pub struct PartitionTransactions {
    /// The aborted transactions.
    pub aborted: Vec<AbortedTxn>,
    /// The first offset of the oldest open transaction.
    pub first_unstable: Option<i64>,
}

impl PartitionFiles {
    /// The partitions of a topic, in the order of their numbers.
    pub fn list(directories: &[PathBuf], topic: &str) -> Result<Vec<Self>, StorageError> {
        let mut found: Vec<Self> = Vec::new();
        for directory in directories {
            let fail = |error| StorageError::io("list", directory, error);
            let names = names::list(directory).map_err(fail)?;
            let mut ours = names
                .into_iter()
                .filter(|found| found.kind == DirKind::Live && &*found.name.topic == topic)
                .peekable();
            if ours.peek().is_none() {
                continue;
            }
            let table = Checkpoints::read(directory);
            for one in ours {
                let start = table.points(&one.name).log_start.map_or(0, |offset| offset.0);
                let (path, number) = (one.path, one.name.partition);
                found.push(Self { path, number, checkpointed: start });
            }
        }
        found.sort_by_key(|partition| partition.number);
        found.dedup_by_key(|partition| partition.number);
        Ok(found)
    }

    /// The first offset.
    pub fn start(&self) -> Result<i64, StorageError> {
        let first = self.segments()?.first().copied();
        Ok(first.unwrap_or(0).max(self.checkpointed))
    }

    /// The offset after the last whole batch.
    pub fn end(&self) -> Result<i64, StorageError> {
        steady(|| self.find_end())
    }

    fn find_end(&self) -> Result<i64, StorageError> {
        let Some(base) = self.segments()?.last().copied() else { return Ok(self.checkpointed) };
        let file = self.open(base)?;
        let fail = |error| StorageError::io("read", &self.file(base, LOG), error);
        let size = file.metadata().map_err(fail)?.len();
        let mut scratch = Vec::new();
        let mut end = base;
        for from in [self.floor(base, i64::MAX), 0] {
            let mut walker = Walker::new(&file, from, size);
            let mut last = None;
            while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
                last = Some(batch);
            }
            let Some(batch) = last else { continue };
            if scan::check_crc(&file, &batch, &mut scratch).map_err(fail)? {
                return Ok(batch.last_offset.saturating_add(1));
            }
            end = batch.base_offset; // the batch is not complete
        }
        Ok(end)
    }

    /// The offset of the first record whose timestamp is at least `timestamp`.
    pub fn offset_at(&self, timestamp: i64) -> Result<Option<i64>, StorageError> {
        steady(|| self.find_time(timestamp))
    }

    fn find_time(&self, timestamp: i64) -> Result<Option<i64>, StorageError> {
        let start = self.start()?;
        let bases = self.segments()?;
        for (number, base) in bases.iter().copied().enumerate() {
            let (file, path) = (self.open(base)?, self.file(base, LOG));
            let fail = |error| StorageError::io("read", &path, error);
            let size = file.metadata().map_err(fail)?.len();
            let times = std::fs::read(self.file(base, TIME_INDEX)).unwrap_or_default();
            let times = times.get(..index::valid_len::<TimeEntry>(&times)).unwrap_or_default();
            let is_true =
                |entry: &TimeEntry| self.is_true(&SegmentLog { base, file: &file, size }, entry);
            let newest =
                index::last(times).filter(|newest: &TimeEntry| newest.timestamp < timestamp);
            if number + 1 < bases.len() && newest.as_ref().is_some_and(is_true) {
                continue;
            }
            let near = index::floor(times, |entry: &TimeEntry| entry.timestamp < timestamp);
            let near = near.filter(is_true).map_or(0, |entry| i64::from(entry.delta));
            let from = start.max(base.saturating_add(near));
            let Some(position) = self.seek(&SegmentLog { base, file: &file, size }, from)? else {
                continue;
            };
            let mut walker = Walker::new(&file, position, size);
            let mut scratch = Vec::new();
            while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
                if batch.max_timestamp < timestamp {
                    continue;
                }
                let fits = |offset, time| time >= timestamp && offset >= start;
                let found = find_record((&file, &path), &batch, &mut scratch, fits)?;
                if let Some((offset, _)) = found {
                    return Ok(Some(offset));
                }
            }
        }
        Ok(None)
    }

    /// Whether an entry of a time index agrees with its batch.
    fn is_true(&self, segment: &SegmentLog<'_>, entry: &TimeEntry) -> bool {
        let offset = segment.base.saturating_add(i64::from(entry.delta));
        let Ok(Some(position)) = self.seek(segment, offset) else { return false };
        let step = Walker::new(segment.file, position, segment.size).step();
        matches!(step, Ok(WalkStep::Batch(batch)) if batch.max_timestamp == entry.timestamp)
    }

    /// The transactions: from the indexes of aborted ones, and from the newest snapshot and the
    /// batches after it.
    pub fn transactions(&self) -> Result<PartitionTransactions, StorageError> {
        steady(|| self.find_transactions())
    }

    fn find_transactions(&self) -> Result<PartitionTransactions, StorageError> {
        let bases = self.segments()?;
        let mut found = PartitionTransactions::default();
        let mut complete = true;
        for base in &bases {
            match std::fs::read(self.file(*base, TXN_INDEX)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                read => match read.ok().and_then(|bytes| txnindex::parse(&bytes)) {
                    Some(aborted) => found.aborted.extend(aborted),
                    None => complete = false,
                },
            }
        }
        let last = bases.last().copied().unwrap_or_default();
        let mut snapshots = self.offsets_of(SNAPSHOT)?;
        snapshots.retain(|offset| *offset <= last && complete);
        let read = |offset: &i64| std::fs::read(self.file(*offset, SNAPSHOT)).ok();
        let parsed = |offset| Some((offset, Producers::from_snapshot(&read(&offset)?)?));
        let newest = snapshots.into_iter().rev().find_map(parsed);
        let (from, mut producers) = newest.unwrap_or_default();
        let first = bases.partition_point(|base| *base <= from).saturating_sub(1);
        for base in bases.iter().skip(first) {
            self.replay(*base, from, &mut producers, &mut found.aborted)?;
        }
        producers.advance(i64::MAX);
        found.first_unstable = producers.first_unstable();
        Ok(found)
    }

    fn replay(
        &self,
        base: i64,
        from: i64,
        producers: &mut Producers,
        aborted: &mut Vec<AbortedTxn>,
    ) -> Result<(), StorageError> {
        let file = self.open(base)?;
        let fail = |error| StorageError::io("read", &self.file(base, LOG), error);
        let size = file.metadata().map_err(fail)?.len();
        let Some(position) = self.seek(&SegmentLog { base, file: &file, size }, from)? else {
            return Ok(());
        };
        let mut walker = Walker::new(&file, position, size);
        let mut scratch = Vec::new();
        while let WalkStep::Batch(at) = walker.step().map_err(fail)? {
            let Some(header) = at.header.filter(|header| header.producer_id >= 0) else { continue };
            if header.is_control() {
                let bytes = scan::read_batch(&file, &at, &mut scratch).map_err(fail)?;
                if let Ok(batch) = Batch::parse(bytes) {
                    aborted.extend(producers.replay(&batch));
                }
            } else if header.is_transactional() {
                producers.note(&header, true);
            }
            producers.commit();
        }
        Ok(())
    }

    /// The base offsets of the segments, ascending. A `.swap` file counts: it is complete, and the
    /// files that it replaces may be gone. A directory is not read atomically, so the names are
    /// read until two readings agree.
    fn segments(&self) -> Result<Vec<i64>, StorageError> {
        let look = || {
            let mut bases = self.offsets_of(LOG)?;
            bases.extend(self.offsets_of(SWAP)?);
            bases.sort_unstable();
            bases.dedup();
            Ok(bases)
        };
        let mut seen = look()?;
        for _ in 0..LOOKS {
            let again = look()?;
            if seen == again {
                break;
            }
            seen = again;
        }
        Ok(seen)
    }

    fn offsets_of(&self, kind: &str) -> Result<Vec<i64>, StorageError> {
        let fail = |error| StorageError::io("list", &self.path, error);
        let mut offsets = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            let parsed = name.to_str().and_then(parse_name);
            offsets.extend(parsed.filter(|(_, found)| *found == kind).map(|(offset, _)| offset));
        }
        offsets.sort_unstable();
        Ok(offsets)
    }

    fn file(&self, base: i64, kind: &str) -> PathBuf {
        self.path.join(format!("{base:020}.{kind}"))
    }

    /// Opens a segment's log, or its `.swap` file.
    fn open(&self, base: i64) -> Result<File, StorageError> {
        self.open_any(base).map(|(file, _)| file)
    }

    fn open_any(&self, base: i64) -> Result<(File, &'static str), StorageError> {
        let open = |kind| {
            let path = self.file(base, kind);
            File::open(&path)
                .map(|file| (file, kind))
                .map_err(|error| StorageError::io("open", &path, error))
        };
        match open(LOG) {
            Err(error) if error.is_not_found() => open(SWAP),
            other => other,
        }
    }

    /// The position of the last batch that ends at or below `offset`, according to the index.
    fn floor(&self, base: i64, offset: i64) -> u64 {
        let bytes = std::fs::read(self.file(base, INDEX)).unwrap_or_default();
        let bytes = bytes.get(..index::valid_len::<OffsetEntry>(&bytes)).unwrap_or_default();
        let entry = index::floor(bytes, |entry: &OffsetEntry| {
            base.saturating_add(i64::from(entry.delta)) <= offset
        });
        entry.and_then(|entry| u64::try_from(entry.position).ok()).unwrap_or(0)
    }

    /// The position of the first batch that ends at or above `offset`.
    fn seek(&self, segment: &SegmentLog<'_>, offset: i64) -> Result<Option<u64>, StorageError> {
        let SegmentLog { base, file, size } = *segment;
        if offset <= base {
            return Ok((size > 0).then_some(0));
        }
        let fail = |error| StorageError::io("read", &self.file(base, LOG), error);
        for from in [self.floor(base, offset), 0] {
            let mut walker = Walker::new(file, from, size);
            let mut is_right = from == 0;
            while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
                is_right |= batch.last_offset <= offset || batch.base_offset <= offset;
                if !is_right {
                    break;
                }
                if batch.last_offset >= offset {
                    return Ok(Some(batch.position));
                }
            }
            if is_right {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

/// An open segment file.
struct SegmentLog<'f> {
    base: i64,
    file: &'f File,
    size: u64,
}

/// The result of a [`PartitionReader::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderOutcome {
    /// Whole batches, or messages, of this magic.
    To(i8),
    /// The next offset was deleted: the log begins at this one.
    TooLate(i64),
    /// The end of the log.
    End,
}

/// Reads a partition from an offset on.
#[derive(Debug)]
pub struct PartitionReader {
    partition: PartitionFiles,
    next: i64,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    file: File,
    path: PathBuf,
    base: i64,
    inode: u64,
    position: u64,
    /// The least valid offset at `position`; all offsets are below `limit`.
    due: i64,
    limit: i64,
    last: bool,
}

impl PartitionReader {
    /// A reader from `offset` on.
    pub const fn new(partition: PartitionFiles, offset: i64) -> Self {
        Self { partition, next: offset, open: None }
    }

    /// The next offset.
    pub const fn next(&self) -> i64 {
        self.next
    }

    /// Continues at a later offset.
    pub fn skip_to(&mut self, offset: i64) {
        (self.next, self.open) = (offset, None);
    }

    /// Reads the next batches into `out`; the first may begin below the next offset.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<ReaderOutcome, StorageError> {
        let mut finished: Option<OpenSegment> = None;
        loop {
            let mut opened = match self.open.take() {
                Some(opened) => opened,
                None => match steady(|| self.locate(finished.as_ref()))? {
                    Ok(opened) => opened,
                    Err(came) => return Ok(came),
                },
            };
            if let Some(magic) = opened.read(&mut self.next, out)? {
                self.open = Some(opened);
                return Ok(ReaderOutcome::To(magic));
            }
            if opened.last && !self.has_newer(&opened)? {
                self.open = Some(opened);
                return Ok(ReaderOutcome::End);
            }
            if std::mem::take(&mut opened.last) {
                self.open = Some(opened); // it may have grown before the newer segment was created
            } else {
                finished = Some(opened);
            }
        }
    }

    fn has_newer(&self, opened: &OpenSegment) -> Result<bool, StorageError> {
        let last = self.partition.segments()?.last().copied();
        Ok(last.is_some_and(|base| base > opened.base))
    }

    /// The file with the next offset, or with the first one above it; not `finished`.
    fn locate(
        &self,
        finished: Option<&OpenSegment>,
    ) -> Result<Result<OpenSegment, ReaderOutcome>, StorageError> {
        let bases = self.partition.segments()?;
        let start = bases.first().copied().unwrap_or(0).max(self.partition.checkpointed);
        if self.next < start {
            return Ok(Err(ReaderOutcome::TooLate(start)));
        }
        let first = bases.partition_point(|base| *base <= self.next).saturating_sub(1);
        for base in bases.into_iter().skip(first) {
            let (file, kind) = self.partition.open_any(base)?;
            let path = self.partition.file(base, kind);
            let metadata =
                file.metadata().map_err(|error| StorageError::io("read", &path, error))?;
            let inode = metadata.ino();
            let opened_log = SegmentLog { base, file: &file, size: metadata.len() };
            if finished.is_some_and(|finished| finished.inode == inode) {
                continue;
            }
            if let Some(position) = self.partition.seek(&opened_log, self.next)? {
                // The file may be a newer one, so its end comes from the current listing.
                let above = self.partition.segments()?.into_iter().find(|other| *other > base);
                let (due, last) = (base, above.is_none());
                let whole = base.saturating_add(1 << 31);
                let limit = above.filter(|_| kind == LOG).unwrap_or(whole);
                return Ok(Ok(OpenSegment { file, path, base, inode, position, due, limit, last }));
            }
        }
        Ok(Err(ReaderOutcome::End))
    }
}

impl OpenSegment {
    /// Reads whole batches of one magic and moves past them; `None`: there are no more.
    fn read(&mut self, next: &mut i64, out: &mut Vec<u8>) -> Result<Option<i8>, StorageError> {
        let fail = |error| StorageError::io("read", &self.path, error);
        let size = self.file.metadata().map_err(fail)?.len();
        let mut wanted = PIECE;
        loop {
            let left = usize::try_from(size.saturating_sub(self.position)).unwrap_or(usize::MAX);
            out.resize(left.min(wanted), 0);
            self.file.read_exact_at(out, self.position).map_err(fail)?;
            let (mut whole, mut magic, mut stop) = (0, None, None);
            let mut due = self.due;
            while let Some(rest) = out.get(whole..).filter(|rest| !rest.is_empty()) {
                if rest.len() < HEAD && whole + rest.len() < left {
                    break; // the header continues after this piece
                }
                match scan::read_head(rest, self.position + whole as u64, size) {
                    WalkStep::Batch(at) if *magic.get_or_insert(at.magic) != at.magic => break,
                    WalkStep::Batch(at) => {
                        let Some(length) = fits(&at, rest) else {
                            stop = Some(Err(at.size));
                            break;
                        };
                        if at.base_offset < due || at.last_offset >= self.limit {
                            return Err(self.damaged(at.base_offset, "an offset out of order"));
                        }
                        whole += length;
                        due = at.last_offset.saturating_add(1);
                        *next = (*next).max(due);
                    }
                    WalkStep::End => break,
                    WalkStep::Bad(reason) => {
                        stop = Some(Ok(reason));
                        break;
                    }
                }
            }
            match (whole, stop) {
                (0, Some(Err(size))) => wanted = usize::try_from(size).unwrap_or(usize::MAX),
                (0, Some(Ok(reason))) if !self.last => return Err(self.damaged(*next, reason)),
                (0, _) => return Ok(None),
                _ => {
                    out.truncate(whole);
                    self.due = due;
                    self.position += whole as u64;
                    return Ok(magic);
                }
            }
        }
    }

    fn damaged(&self, offset: i64, reason: &str) -> StorageError {
        let log = self.path.display().to_string().into();
        let reason = format!("{reason} at byte {}", self.position).into();
        StorageError::Damaged { log, offset, reason }
    }
}

/// The size of a batch, if it is complete in `rest`.
fn fits(at: &BatchAt, rest: &[u8]) -> Option<usize> {
    usize::try_from(at.size).ok().filter(|size| *size <= rest.len())
}

/// Repeats `work` if a file was deleted or replaced after it was listed.
fn steady<R>(work: impl Fn() -> Result<R, StorageError>) -> Result<R, StorageError> {
    let mut tries = 0;
    loop {
        match work() {
            Err(error) if error.is_not_found() && tries < TRIES => tries += 1,
            other => return other,
        }
    }
}
