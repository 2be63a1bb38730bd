//! One partition's records as one answer brought them, walked batch by batch.
//!
//! [`Chunk::open`] goes to the next batch that has something to show and inflates it, which may
//! take time; [`Chunk::show`] then walks its records, which does not. A walk may stop at any record
//! and go on from the next one. One batch is inflated at a time, to at most [`INFLATED`] bytes.
//! Threads: one at a time.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{Error, Result};
use crate::record::batch::{self, Batch, Mark, Record, TimestampType};
use crate::record::compression::{Codec, Inflate};

/// Where batches and the messages before them have their magic.
const MAGIC_AT: usize = 16;
/// What one batch may inflate to.
const INFLATED: usize = 256 << 20;

/// See the module.
#[derive(Debug)]
pub struct Chunk {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The partition's high watermark at that time; -1 where unknown.
    pub high_watermark: i64,
    first: i64,
    end: Option<i64>,
    magic: i8,
    bytes: Bytes,
    hidden: HashSet<i64>,
    walk: Walk,
}

/// What a chunk is made of.
#[derive(Debug)]
pub struct Parts {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The first offset to show.
    pub first: i64,
    /// The first offset not to show any more.
    pub end: Option<i64>,
    /// The format that the records had before they became batches.
    pub magic: i8,
    /// Whole batches of magic 2.
    pub bytes: Bytes,
    /// The base offsets of batches not to show.
    pub hidden: HashSet<i64>,
}

/// Where the walk of a chunk stands: the batch at `at`, inflated if it is open and compressed.
#[derive(Debug, Default)]
struct Walk {
    at: usize,
    open: bool,
    /// Where in the open batch.
    mark: Mark,
    inflated: Vec<u8>,
}

/// What [`Chunk::show`] says of a record's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The codec it came in.
    pub codec: Codec,
    /// -1: the format has no times; 0: the producer's; 1: the broker's.
    pub timestamp_type: i8,
    /// -1: no idempotent producer.
    pub producer_id: i64,
}

impl Chunk {
    /// The records from offset `first` on in what a broker answered to a Fetch: a message set
    /// becomes batches, what was cut at the end is left out.
    pub fn of((topic, partition): (Arc<str>, i32), first: i64, fetched: &[u8]) -> Result<Self> {
        let key = (topic, partition);
        let magic = fetched.get(MAGIC_AT).map_or(2, |magic| magic.cast_signed());
        let mut bytes = match magic {
            0 | 1 => super::legacy::upgrade(fetched, &key)?.into(),
            _ => Bytes::copy_from_slice(fetched),
        };
        let whole =
            batch::iter(&bytes).map_while(|batch| batch.ok()).map(|batch| batch.size()).sum();
        bytes.truncate(whole);
        let ((topic, partition), hidden) = (key, HashSet::new());
        Ok(Self::new(Parts { topic, partition, first, end: None, magic, bytes, hidden }, -1))
    }

    /// A chunk that nobody has walked yet; `high_watermark` -1 where unknown.
    pub fn new(parts: Parts, high_watermark: i64) -> Self {
        let Parts { topic, partition, first, end, magic, bytes, hidden } = parts;
        let walk = Walk::default();
        Self { topic, partition, high_watermark, first, end, magic, bytes, hidden, walk }
    }

    /// Goes to the next batch with records to show, and inflates it; `false`: there is none.
    pub fn open(&mut self) -> Result<bool> {
        while !self.walk.open {
            let rest = self.bytes.get(self.walk.at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(false);
            }
            let batch = Batch::parse(rest).map_err(|error| self.corrupt(&error))?;
            let unwanted = batch.is_control() || self.hidden.contains(&batch.base_offset());
            if unwanted || batch.last_offset() < self.first {
                (self.walk.at, self.first) = (
                    self.walk.at + batch.size(),
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
                let mut inflated = std::mem::take(&mut self.walk.inflated);
                inflated.clear();
                Inflate::new(batch.codec(), batch.payload())
                    .map_err(|error| self.corrupt(&error))?
                    .read_all(INFLATED, &mut inflated)
                    .map_err(|error| self.corrupt(&error))?;
                self.walk.inflated = inflated;
            }
            self.walk.open = true;
        }
        Ok(true)
    }

    /// Shows the records of the open batch in the order of offsets. `show` returns whether it wants
    /// more; the next walk begins behind the last record shown.
    #[inline]
    pub fn show(&mut self, mut show: impl FnMut(&Record<'_>, &Origin) -> bool) -> Result<()> {
        let rest = self.bytes.get(self.walk.at..).unwrap_or_default();
        let batch = Batch::parse(rest).map_err(|error| self.corrupt(&error))?;
        let origin = Origin {
            codec: batch.codec(),
            timestamp_type: match self.magic {
                0 => -1,
                _ => i8::from(batch.timestamp_type() == TimestampType::LogAppendTime),
            },
            producer_id: batch.header().producer_id,
        };
        let payload = match origin.codec {
            Codec::None => batch.payload(),
            _ => &self.walk.inflated,
        };
        let mut records = batch.records_from(payload, self.walk.mark);
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
                self.walk = Walk { at: self.bytes.len(), ..Walk::default() };
                return Ok(());
            }
            first = record.offset.saturating_add(1);
            if !show(&record, &origin) {
                (self.first, self.walk.mark) = (first, records.mark());
                return Ok(());
            }
        }
        self.first = first.max(last.saturating_add(1));
        self.walk.at += size;
        (self.walk.open, self.walk.mark) = (false, Mark::START);
        Ok(())
    }

    /// Shows every record that is left.
    pub fn each(&mut self, mut show: impl FnMut(&Record<'_>, &Origin) -> bool) -> Result<()> {
        let mut wanted = true;
        while wanted && self.open()? {
            self.show(|record, origin| {
                wanted = show(record, origin);
                wanted
            })?;
        }
        Ok(())
    }

    /// The offset that the walk goes on from.
    pub fn position(&self) -> i64 {
        self.first
    }

    /// Bytes as they came, headers of batches included.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, to be used again; nothing is copied where no one else holds them.
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
