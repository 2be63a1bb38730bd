//! The records of one partition from one Fetch response, read batch by batch.
//!
//! [`Chunk::open`] moves to the next batch with records to show and decompresses it, which may take
//! time. [`Chunk::visit`] then visits its records, which does not. A visit may stop at any record
//! and continue at the next one. One batch is decompressed at a time, to at most [`INFLATED`]
//! bytes.
//! Threads: one at a time.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{Error, Result};
use crate::record::batch::{self, Batch, Record, RecordMark, TimestampType};
use crate::record::compression::{Codec, Inflate};

/// The position of the magic byte, the same in batches and in older messages.
const MAGIC_POSITION: usize = 16;
/// The most bytes that one batch may decompress to.
const INFLATED: usize = 256 << 20;

/// The records of one partition in one Fetch response, and the position of the next one (see the
/// module).
#[derive(Debug)]
pub struct Chunk {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The partition's high watermark in the response; -1: unknown.
    pub high_watermark: i64,
    first: i64,
    end: Option<i64>,
    magic: i8,
    bytes: Bytes,
    hidden: HashSet<i64>,
    cursor: ChunkCursor,
}

/// The parts of which a chunk is made.
#[derive(Debug)]
pub struct ChunkParts {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The first offset to show.
    pub first: i64,
    /// The first offset that is no longer shown.
    pub end: Option<i64>,
    /// The format that the records had before they became batches.
    pub magic: i8,
    /// Whole batches of magic 2.
    pub bytes: Bytes,
    /// The base offsets of batches that are not shown.
    pub hidden: HashSet<i64>,
}

/// The position in a chunk: the batch at `at`, decompressed if it is open and compressed.
#[derive(Debug, Default)]
struct ChunkCursor {
    at: usize,
    open: bool,
    /// The position in the open batch.
    mark: RecordMark,
    inflated: Vec<u8>,
}

/// The batch of a record that [`Chunk::visit`] visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOrigin {
    /// The codec it came in.
    pub codec: Codec,
    /// -1: the format has no timestamps; 0: CreateTime; 1: LogAppendTime.
    pub timestamp_type: i8,
    /// -1: no idempotent producer.
    pub producer_id: i64,
}

impl Chunk {
    /// The records from offset `first` on in the records of a Fetch response. A message set becomes
    /// batches; an incomplete batch at the end is left out.
    pub fn of((topic, partition): (Arc<str>, i32), first: i64, fetched: &[u8]) -> Result<Self> {
        let key = (topic, partition);
        let magic = fetched.get(MAGIC_POSITION).map_or(2, |magic| magic.cast_signed());
        let mut bytes = match magic {
            0 | 1 => super::legacy::upgrade(fetched, &key)?.into(),
            _ => Bytes::copy_from_slice(fetched),
        };
        let whole =
            batch::iter(&bytes).map_while(|batch| batch.ok()).map(|batch| batch.size()).sum();
        bytes.truncate(whole);
        let ((topic, partition), hidden) = (key, HashSet::new());
        Ok(Self::new(ChunkParts { topic, partition, first, end: None, magic, bytes, hidden }, -1))
    }

    /// A chunk at its first record; `high_watermark` -1 if unknown.
    pub fn new(parts: ChunkParts, high_watermark: i64) -> Self {
        let ChunkParts { topic, partition, first, end, magic, bytes, hidden } = parts;
        let cursor = ChunkCursor::default();
        Self { topic, partition, high_watermark, first, end, magic, bytes, hidden, cursor }
    }

    /// Moves to the next batch with records to show and decompresses it; `false`: there is none.
    pub fn open(&mut self) -> Result<bool> {
        while !self.cursor.open {
            let rest = self.bytes.get(self.cursor.at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(false);
            }
            let batch = Batch::parse(rest).map_err(|error| self.corrupt(&error))?;
            let unwanted = batch.is_control() || self.hidden.contains(&batch.base_offset());
            if unwanted || batch.last_offset() < self.first {
                (self.cursor.at, self.first) = (
                    self.cursor.at + batch.size(),
                    self.first.max(batch.last_offset().saturating_add(1)),
                );
                continue;
            }
            if !batch.crc_ok() {
                return Err(
                    self.corrupt(&format!("checksum of the batch at {}", batch.base_offset()))
                );
            }
            if batch.codec() != Codec::None {
                let mut inflated = std::mem::take(&mut self.cursor.inflated);
                inflated.clear();
                Inflate::new(batch.codec(), batch.payload())
                    .map_err(|error| self.corrupt(&error))?
                    .read_all(INFLATED, &mut inflated)
                    .map_err(|error| self.corrupt(&error))?;
                self.cursor.inflated = inflated;
            }
            self.cursor.open = true;
        }
        Ok(true)
    }

    /// Visits the records of the open batch in the order of offsets. `visit` returns whether it
    /// wants more. The next call continues after the last record visited.
    #[inline]
    pub fn visit(
        &mut self,
        mut visit: impl FnMut(&Record<'_>, &BatchOrigin) -> bool,
    ) -> Result<()> {
        let rest = self.bytes.get(self.cursor.at..).unwrap_or_default();
        let batch = Batch::parse(rest).map_err(|error| self.corrupt(&error))?;
        let origin = BatchOrigin {
            codec: batch.codec(),
            timestamp_type: match self.magic {
                0 => -1,
                _ => i8::from(batch.timestamp_type() == TimestampType::LogAppendTime),
            },
            producer_id: batch.header().producer_id,
        };
        let payload = match origin.codec {
            Codec::None => batch.payload(),
            _ => &self.cursor.inflated,
        };
        let mut records = batch.records_from(payload, self.cursor.mark);
        let (size, last) = (batch.size(), batch.last_offset());
        let mut first = self.first;
        while let Some(record) = records.next() {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    let failed = self.corrupt(&error);
                    self.first = first;
                    return Err(failed);
                }
            };
            if record.offset < first {
                continue;
            }
            if self.end.is_some_and(|end| record.offset >= end) {
                self.first = first;
                self.cursor = ChunkCursor { at: self.bytes.len(), ..ChunkCursor::default() };
                return Ok(());
            }
            first = record.offset.saturating_add(1);
            if !visit(&record, &origin) {
                (self.first, self.cursor.mark) = (first, records.mark());
                return Ok(());
            }
        }
        self.first = first.max(last.saturating_add(1));
        self.cursor.at += size;
        (self.cursor.open, self.cursor.mark) = (false, RecordMark::START);
        Ok(())
    }

    /// Visits every record that is left.
    pub fn visit_all(
        &mut self,
        mut visit: impl FnMut(&Record<'_>, &BatchOrigin) -> bool,
    ) -> Result<()> {
        let mut wanted = true;
        while wanted && self.open()? {
            self.visit(|record, origin| {
                wanted = visit(record, origin);
                wanted
            })?;
        }
        Ok(())
    }

    /// The next offset to visit.
    pub fn position(&self) -> i64 {
        self.first
    }

    /// The size as received, batch headers included.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, for reuse. They are copied only if something else holds them.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }

    fn corrupt(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Refused {
            code: 2,
            subject: format!("{}:{}", self.topic, self.partition),
            message: Some(error.to_string()),
        }
    }
}
