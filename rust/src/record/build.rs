//! Writing a batch of magic 2: records go into a buffer one by one, then header, codec and
//! checksum. A builder keeps its buffers, so that the next batch allocates nothing.
//! Invariant: offset deltas ascend; the size foretold by [`Builder::size`] is the uncompressed one.

use super::RecordError;
use super::batch::MAGIC;
use super::compression::{Codec, deflate};
use super::cursor::{length, nullable_size, put_nullable, put_varint, varint_size};
use super::header::{CONTROL, DELETE_HORIZON, HEADER_SIZE, Header, LOG_APPEND_TIME, TRANSACTIONAL};

/// What a batch says about all of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Epoch of the leader; -1 from a producer.
    pub leader_epoch: i32,
    /// How the records are compressed.
    pub codec: Codec,
    /// The codec's level; `None`: its default.
    pub level: Option<i32>,
    /// The broker's time, where records carry that and not their own.
    pub log_append_time: Option<i64>,
    /// Whether the base timestamp is the time from which tombstones may go (see
    /// [`Builder::set_base_timestamp`]).
    pub delete_horizon: bool,
    /// Id of an idempotent or transactional producer; -1: none.
    pub producer_id: i64,
    /// Its epoch; -1: none.
    pub producer_epoch: i16,
    /// Sequence number of the first record; -1: none.
    pub base_sequence: i32,
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    /// Whether the records are control records.
    pub control: bool,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            base_offset: 0,
            leader_epoch: -1,
            codec: Codec::None,
            level: None,
            log_append_time: None,
            delete_horizon: false,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
        }
    }
}

/// A record to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<'a> {
    /// Its time in milliseconds; -1: none.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// Keys and values of its headers.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Collects records, then writes them as a batch; may be used again after that.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    records: Vec<u8>,
    tally: Tally,
}

/// What is known of the records so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub count: i32,
    pub next_delta: i32,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
}

impl Builder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records so far.
    pub const fn count(&self) -> i32 {
        self.tally.count
    }

    /// Whether there is no record yet.
    pub const fn is_empty(&self) -> bool {
        self.tally.count == 0
    }

    /// Bytes of the batch if it were finished now without compression.
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.records.len()
    }

    /// Sets what the records' times are counted from, before the first of them is added; unless
    /// set, that is the first record's time.
    pub const fn set_base_timestamp(&mut self, timestamp: i64) {
        self.tally.base_timestamp = Some(timestamp);
    }

    /// Adds a record at the next offset.
    pub fn add(&mut self, entry: &Entry<'_>) {
        self.add_at(self.tally.next_delta, entry);
    }

    /// Adds a record at `offset_delta`, which is above those before (a compacted log has gaps).
    pub fn add_at(&mut self, offset_delta: i32, entry: &Entry<'_>) {
        let deltas = self.tally.record(offset_delta, entry.timestamp);
        put_record(&mut self.records, deltas, entry);
    }

    /// Forgets all records.
    pub fn clear(&mut self) {
        self.records.clear();
        self.tally = Tally::default();
    }

    /// Appends the batch to `out` and forgets its records. Errors: `TooLarge` past 2 GiB; `Invalid`
    /// where the codec refuses its level; `out` is then as it was.
    pub fn finish(&mut self, fields: &Fields, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let last = self.tally.next_delta.saturating_sub(1).max(0);
        self.finish_at(fields, last, out)
    }

    /// [`Builder::finish`] with a last offset that may be above the last record's (its record was
    /// compacted away).
    pub fn finish_at(
        &mut self,
        fields: &Fields,
        last_offset_delta: i32,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let start = out.len();
        out.resize(start + HEADER_SIZE, 0);
        let header = Header { last_offset_delta, ..self.tally.header(fields) };
        let written = deflate(fields.codec, fields.level, &self.records, out)
            .map_err(|_| RecordError::batch("records cannot be compressed as asked"))
            .and_then(|()| header.seal_into(out, start));
        self.clear();
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    /// A batch of its own: [`Builder::finish`] into a new buffer.
    pub fn to_bytes(&mut self, fields: &Fields) -> Result<Vec<u8>, RecordError> {
        let mut out = Vec::with_capacity(self.size());
        self.finish(fields, &mut out)?;
        Ok(out)
    }
}

impl Tally {
    /// Counts a record; gives its time and offset as deltas.
    #[inline]
    pub(crate) fn record(&mut self, offset_delta: i32, timestamp: i64) -> (i64, i64) {
        self.max_timestamp = match self.count {
            0 => timestamp,
            _ => self.max_timestamp.max(timestamp),
        };
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp);
        self.count += 1;
        self.next_delta = offset_delta.saturating_add(1);
        (timestamp.wrapping_sub(base_timestamp), i64::from(offset_delta))
    }

    /// The header for these records, its length and checksum still open.
    pub(crate) fn header(&self, fields: &Fields) -> Header {
        let max_timestamp = if self.count == 0 { -1 } else { self.max_timestamp };
        Header {
            base_offset: fields.base_offset,
            leader_epoch: fields.leader_epoch,
            magic: MAGIC,
            attributes: attributes(fields),
            last_offset_delta: self.next_delta.saturating_sub(1).max(0),
            base_timestamp: self.base_timestamp.unwrap_or(-1),
            max_timestamp: fields.log_append_time.unwrap_or(max_timestamp),
            producer_id: fields.producer_id,
            producer_epoch: fields.producer_epoch,
            base_sequence: fields.base_sequence,
            record_count: self.count,
            ..Header::default()
        }
    }
}

fn attributes(fields: &Fields) -> i16 {
    let flag = |set: bool, bit: i16| if set { bit } else { 0 };
    fields.codec.bits()
        | flag(fields.log_append_time.is_some(), LOG_APPEND_TIME)
        | flag(fields.transactional, TRANSACTIONAL)
        | flag(fields.control, CONTROL)
        | flag(fields.delete_horizon, DELETE_HORIZON)
}

/// Appends one record.
#[inline]
pub(crate) fn put_record(
    out: &mut Vec<u8>,
    (timestamp_delta, offset_delta): (i64, i64),
    entry: &Entry<'_>,
) {
    let headers = length(entry.headers.len());
    let size = 1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + nullable_size(entry.key)
        + nullable_size(entry.value)
        + varint_size(headers)
        + entry
            .headers
            .iter()
            .map(|(key, value)| nullable_size(Some(key.as_bytes())) + nullable_size(*value))
            .sum::<usize>();
    out.reserve(size + 5);
    put_varint(out, length(size));
    out.push(0);
    put_varint(out, timestamp_delta);
    put_varint(out, offset_delta);
    put_nullable(out, entry.key);
    put_nullable(out, entry.value);
    put_varint(out, headers);
    for (key, value) in entry.headers {
        put_nullable(out, Some(key.as_bytes()));
        put_nullable(out, *value);
    }
}
