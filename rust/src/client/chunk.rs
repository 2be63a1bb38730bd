//! One partition's records as one answer brought them, walked batch by batch.
//!
//! [`Chunk::open`] goes to the next batch that has something to show and inflates it, which may
//! take time; [`Chunk::show`] then walks its records, which does not. A walk may stop at any record
//! and go on from the next one. One batch is inflated at a time, to at most [`INFLATED`] bytes.
//! Threads: one at a time.

use std::collections::HashSet;
use std::sync::Arc;

use super::error::{Error, Result};
use crate::record::batch::{self, Batch, Record};
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
    pub(super) first: i64,
    pub(super) end: Option<i64>,
    pub(super) bytes: Vec<u8>,
    pub(super) hidden: HashSet<i64>,
    pub(super) walk: Walk,
}

/// Where the walk of a chunk stands: the batch at `at`, inflated if it is open and compressed.
#[derive(Debug, Default)]
pub(super) struct Walk {
    at: usize,
    open: bool,
    inflated: Vec<u8>,
}

/// What [`Chunk::show`] says of a record's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The codec it came in.
    pub codec: Codec,
    /// 0: the producer's time; 1: the broker's.
    pub timestamp_type: i8,
    /// -1: no idempotent producer.
    pub producer_id: i64,
}

impl Chunk {
    /// The records from offset `first` on in what a broker answered to a Fetch: a message set
    /// becomes batches, what was cut at the end is left out.
    pub fn of((topic, partition): (Arc<str>, i32), first: i64, fetched: &[u8]) -> Result<Self> {
        let key = (topic, partition);
        let mut bytes = match fetched.get(MAGIC_AT) {
            Some(magic) if *magic < 2 => super::legacy::upgrade(fetched, &key)?,
            _ => fetched.to_vec(),
        };
        let whole =
            batch::iter(&bytes).map_while(|batch| batch.ok()).map(|batch| batch.size()).sum();
        bytes.truncate(whole);
        let (topic, partition) = key;
        Ok(Self {
            topic,
            partition,
            high_watermark: -1,
            first,
            end: None,
            bytes,
            hidden: HashSet::new(),
            walk: Walk::default(),
        })
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
                (self.walk.at, self.first) =
                    (self.walk.at + batch.size(), self.first.max(batch.last_offset() + 1));
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
    pub fn show(&mut self, show: &mut dyn FnMut(&Record<'_>, &Origin) -> bool) -> Result<()> {
        let rest = self.bytes.get(self.walk.at..).unwrap_or_default();
        let batch = Batch::parse(rest).map_err(|error| self.corrupt(&error))?;
        let header = batch.header();
        let origin = Origin {
            codec: batch.codec(),
            timestamp_type: i8::from(header.attributes & 8 != 0),
            producer_id: header.producer_id,
        };
        let records = match origin.codec {
            Codec::None => batch.records(),
            _ => batch.records_in(&self.walk.inflated),
        };
        let (size, last) = (batch.size(), batch.last_offset());
        let mut first = self.first;
        for record in records {
            let record = record.map_err(|error| self.corrupt(&error))?;
            if record.offset < first {
                continue;
            }
            if self.end.is_some_and(|end| record.offset >= end) {
                self.walk = Walk { at: self.bytes.len(), ..Walk::default() };
                return Ok(());
            }
            first = record.offset + 1;
            if !show(&record, &origin) {
                self.first = first;
                return Ok(());
            }
        }
        self.first = first.max(last + 1);
        self.walk.at += size;
        self.walk.open = false;
        Ok(())
    }

    /// Shows every record that is left.
    pub fn each(&mut self, show: &mut dyn FnMut(&Record<'_>, &Origin) -> bool) -> Result<()> {
        let mut wanted = true;
        while wanted && self.open()? {
            self.show(&mut |record, origin| {
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

    fn corrupt(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Refused {
            code: 2,
            subject: format!("{}:{}", self.topic, self.partition),
            message: Some(error.to_string()),
        }
    }
}
