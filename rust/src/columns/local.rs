//! Reads ranges of offsets from segment files, with or without a running broker.
//!
//! Files are read in pieces of whole batches, one partition after the other. Checksums are checked,
//! and messages of magic 0 and 1 are converted to batches. Under read_committed the records of
//! aborted transactions are left out, and a range ends with an error at the first record of an open
//! transaction.
//! Missing offsets: as in [`remote`](super::remote).
//! Not promised: the same as in [`reader`](crate::storage::reader).

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use super::builder::ColumnsBuilder;
use super::scan::{ChunkSource, MissingOffsets, OffsetRange, Scan, SourceItem};
use crate::client::aborted::AbortedRanges;
use crate::client::chunk::{Chunk, ChunkParts};
use crate::client::{Error, Interrupt, Result, legacy};
use crate::record::batch;
use crate::storage::StorageError;
use crate::storage::reader::{PartitionFiles, PartitionReader, ReaderOutcome};

const OFFSET_OUT_OF_RANGE: i16 = 1;
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC: i16 = 3;
const STORAGE_ERROR: i16 = 56;
const OFFSET_NOT_AVAILABLE: i16 = 78;

/// The options for reading ranges.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The log directories.
    pub directories: Vec<PathBuf>,
    /// Hides records of transactions that are not committed.
    pub read_committed: bool,
    /// What to do about missing offsets.
    pub missing: MissingOffsets,
}

/// A scan of ranges in log directories.
pub fn scan(
    options: LocalOptions,
    interrupt: Arc<dyn Interrupt>,
    ranges: Vec<OffsetRange>,
    builder: ColumnsBuilder,
) -> Result<Scan> {
    let left = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    let local = LocalSource { options, left, reading: None, spare: Vec::new() };
    Scan::of(Box::new(local), builder, ranges, interrupt)
}

/// The partitions of a topic: number, first offset, and end (the log end offset, or under
/// `read_committed` the first offset that is not readable yet).
pub fn partitions(
    directories: &[PathBuf],
    topic: &str,
    read_committed: bool,
) -> Result<Vec<(i32, i64, i64)>> {
    let found = PartitionFiles::list(directories, topic).map_err(|error| failed(topic, &error))?;
    if found.is_empty() {
        return Err(unknown(topic));
    }
    let bounds = |partition: &PartitionFiles| {
        let (start, end) = (partition.start()?, partition.end()?);
        let stable = match read_committed {
            true => partition.transactions()?.first_unstable.unwrap_or(end),
            false => end,
        };
        Ok((partition.number, start, end.min(stable).max(start)))
    };
    found.iter().map(bounds).collect::<std::result::Result<_, _>>().map_err(|e| failed(topic, &e))
}

/// The first offset of a partition whose record is not older than a time; `None`: all records are
/// older.
pub fn offset_at(
    directories: &[PathBuf],
    (topic, partition): (&str, i32),
    timestamp: i64,
) -> Result<Option<i64>> {
    let found = find(directories, topic, partition)?;
    let subject = format!("{topic}:{partition}");
    let Some(found) = found else { return Err(unknown(&subject)) };
    found.offset_at(timestamp).map_err(|error| failed(&subject, &error))
}

struct LocalSource {
    options: LocalOptions,
    left: VecDeque<OffsetRange>,
    reading: Option<RangeReader>,
    spare: Vec<u8>,
}

/// One range that is being read.
struct RangeReader {
    range: OffsetRange,
    topic: Arc<str>,
    reader: PartitionReader,
    aborted: Option<AbortedRanges>,
    /// The first offset of a transaction that is open.
    unstable: Option<i64>,
}

impl ChunkSource for LocalSource {
    fn next(&mut self) -> Result<SourceItem> {
        loop {
            let Some(reading) = &mut self.reading else {
                let Some(range) = self.left.pop_front() else { return Ok(SourceItem::End) };
                match RangeReader::of(&self.options, &range)? {
                    Some(reading) => self.reading = Some(reading),
                    None if self.options.missing == MissingOffsets::Skip => {
                        return Ok(SourceItem::Missing(range));
                    }
                    None => return Err(unknown(&subject(&range))),
                }
                continue;
            };
            if reading.reader.next() >= reading.range.end {
                self.reading = None;
                continue;
            }
            let mut bytes = std::mem::take(&mut self.spare);
            let first = reading.reader.next();
            match reading.reader.read(&mut bytes) {
                Ok(ReaderOutcome::To(magic)) => {
                    return reading.chunk((first, magic), bytes).map(SourceItem::Chunk);
                }
                Ok(ReaderOutcome::TooLate(begin)) => {
                    let missing = reading.skip_missing(begin, self.options.missing)?;
                    return Ok(SourceItem::Missing(missing));
                }
                Ok(ReaderOutcome::End) => {
                    let missing = reading.skip_missing(i64::MAX, self.options.missing)?;
                    return Ok(SourceItem::Missing(missing));
                }
                Err(error) => return Err(failed(&subject(&reading.range), &error)),
            }
        }
    }

    fn recycle(&mut self, chunk: Chunk) {
        self.spare = chunk.into_bytes();
    }
}

impl RangeReader {
    /// `None`: there is no such partition.
    fn of(options: &LocalOptions, range: &OffsetRange) -> Result<Option<Self>> {
        let found = find(&options.directories, &range.topic, range.partition)?;
        let Some(partition) = found else { return Ok(None) };
        let (mut aborted, mut unstable) = (None, None);
        if options.read_committed {
            let found = partition.transactions().map_err(|e| failed(&subject(range), &e))?;
            let ours = found.aborted.iter().filter(|aborted| aborted.last_offset >= range.start);
            aborted = Some(AbortedRanges::of(ours.map(|one| (one.first_offset, one.producer_id))));
            unstable = found.first_unstable;
        }
        let reader = PartitionReader::new(partition, range.start);
        let (range, topic) = (range.clone(), Arc::clone(&range.topic));
        Ok(Some(Self { range, topic, reader, aborted, unstable }))
    }

    fn chunk(&mut self, (first, magic): (i64, i8), bytes: Vec<u8>) -> Result<Chunk> {
        let partition = self.range.partition;
        let key = (Arc::clone(&self.topic), partition);
        let bytes = if magic < 2 { legacy::upgrade(&bytes, &key)? } else { bytes };
        let mut hidden = HashSet::new();
        if let Some(aborted) = &mut self.aborted {
            for batch in batch::iter(&bytes).map_while(|batch| batch.ok()) {
                if aborted.hides(&batch) {
                    hidden.insert(batch.base_offset());
                }
            }
        }
        let mut end = self.range.end;
        if let Some(unstable) = self.unstable.filter(|unstable| *unstable < end) {
            if first >= unstable {
                let message = Some(format!("offset {unstable} is of a transaction that is open"));
                let (code, subject) = (OFFSET_NOT_AVAILABLE, subject(&self.range));
                return Err(Error::Refused { code, subject, message });
            }
            end = unstable;
            self.reader.skip_to(self.reader.next().min(unstable));
        }
        let (topic, end, bytes) = (Arc::clone(&self.topic), Some(end), bytes.into());
        Ok(Chunk::new(ChunkParts { topic, partition, first, end, magic, bytes, hidden }, -1))
    }

    /// Continues at `begin`, because the offsets before it are missing.
    fn skip_missing(&mut self, begin: i64, missing: MissingOffsets) -> Result<OffsetRange> {
        let (start, end) = (self.reader.next(), self.range.end);
        let to = begin.min(end);
        if missing == MissingOffsets::Fail {
            let what = match begin {
                i64::MAX => format!("offset {start} is not there; the log ends before it"),
                _ => format!("offset {start} is gone; the log begins at {begin}"),
            };
            let (code, subject) = (OFFSET_OUT_OF_RANGE, subject(&self.range));
            return Err(Error::Refused { code, subject, message: Some(what) });
        }
        self.reader.skip_to(to);
        Ok(OffsetRange { start, end: to, ..self.range.clone() })
    }
}

fn find(directories: &[PathBuf], topic: &str, partition: i32) -> Result<Option<PartitionFiles>> {
    let found = PartitionFiles::list(directories, topic).map_err(|error| failed(topic, &error))?;
    Ok(found.into_iter().find(|found| found.number == partition))
}

fn subject(range: &OffsetRange) -> String {
    format!("{}:{}", range.topic, range.partition)
}

fn unknown(subject: &str) -> Error {
    Error::refused(UNKNOWN_TOPIC, subject)
}

/// The error for a disk's failure, with Kafka's code.
fn failed(subject: &str, error: &StorageError) -> Error {
    let code = match error {
        StorageError::Damaged { .. } => CORRUPT_MESSAGE,
        _ => STORAGE_ERROR,
    };
    Error::Refused { code, subject: subject.to_owned(), message: Some(error.to_string()) }
}
