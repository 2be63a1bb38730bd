//! Builds a batch of magic 2: records are added to a buffer one by one, then compressed, then the
//! header is written. A builder keeps its buffer, so that the next batch allocates nothing.
//! Invariant: offset deltas ascend. [`BatchBuilder::size`] is the uncompressed size.

use super::RecordError;
use super::batch::MAGIC;
use super::compression::{Codec, deflate};
use super::cursor::{length, nullable_size, put_nullable, put_varint, varint_size};
use super::header::{CONTROL, DELETE_HORIZON, HEADER_SIZE, Header, LOG_APPEND_TIME, TRANSACTIONAL};

/// The header fields that apply to all records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFields {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Epoch of the leader; -1 from a producer.
    pub leader_epoch: i32,
    /// How the records are compressed.
    pub codec: Codec,
    /// The codec's level; `None`: its default.
    pub level: Option<i32>,
    /// The broker's time, if it replaces the records' own timestamps.
    pub log_append_time: Option<i64>,
    /// Whether the base timestamp is the time from which compaction may remove tombstones (see
    /// [`BatchBuilder::set_base_timestamp`]).
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

impl Default for BatchFields {
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

/// A record to add to a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// Its time in milliseconds; -1: none.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// Keys and values of its headers.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Collects records and writes them as a batch. It can be used again afterwards.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    records: Vec<u8>,
    tally: RecordTotals,
}

/// Count, next offset and timestamps of the records added so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordTotals {
    pub count: i32,
    pub next_delta: i32,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
}

/// A record's time and offset, counted from those of its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordDeltas {
    timestamp: i64,
    offset: i64,
}

impl BatchBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of records added.
    pub const fn count(&self) -> i32 {
        self.tally.count
    }

    /// Whether there is no record yet.
    pub const fn is_empty(&self) -> bool {
        self.tally.count == 0
    }

    /// Size of the uncompressed batch in bytes, if it were finished now.
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.records.len()
    }

    /// Sets the base timestamp; call it before the first record is added. The default is the first
    /// record's timestamp.
    pub const fn set_base_timestamp(&mut self, timestamp: i64) {
        self.tally.base_timestamp = Some(timestamp);
    }

    /// Adds a record at the next offset.
    pub fn add(&mut self, entry: &NewRecord<'_>) {
        self.add_at(self.tally.next_delta, entry);
    }

    /// Adds a record at `offset_delta`, which must be above all earlier ones; gaps are allowed, as
    /// in a compacted log.
    pub fn add_at(&mut self, offset_delta: i32, entry: &NewRecord<'_>) {
        let deltas = self.tally.record(offset_delta, entry.timestamp);
        put_record(&mut self.records, deltas, entry);
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.records.clear();
        self.tally = RecordTotals::default();
    }

    /// Appends the batch to `out` and removes its records from the builder. Errors: `TooLarge`
    /// beyond 2 GiB; `Invalid` if the codec refuses its level. `out` is then unchanged.
    pub fn finish(&mut self, fields: &BatchFields, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let last = self.tally.next_delta.saturating_sub(1).max(0);
        self.finish_at(fields, last, out)
    }

    /// [`BatchBuilder::finish`] with a last offset that may be above the last record's, because
    /// compaction removed the last record.
    pub fn finish_at(
        &mut self,
        fields: &BatchFields,
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

    /// Calls [`BatchBuilder::finish`] with a new buffer and returns it.
    pub fn to_bytes(&mut self, fields: &BatchFields) -> Result<Vec<u8>, RecordError> {
        let mut out = Vec::with_capacity(self.size());
        self.finish(fields, &mut out)?;
        Ok(out)
    }
}

impl RecordTotals {
    /// Counts a record and returns its timestamp and offset as deltas.
    #[inline]
    pub(crate) fn record(&mut self, offset_delta: i32, timestamp: i64) -> RecordDeltas {
        self.max_timestamp = match self.count {
            0 => timestamp,
            _ => self.max_timestamp.max(timestamp),
        };
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp);
        self.count += 1;
        self.next_delta = offset_delta.saturating_add(1);
        let timestamp = timestamp.wrapping_sub(base_timestamp);
        RecordDeltas { timestamp, offset: i64::from(offset_delta) }
    }

    /// The header for these records; the caller sets length and checksum.
    pub(crate) fn header(&self, fields: &BatchFields) -> Header {
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

fn attributes(fields: &BatchFields) -> i16 {
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
    RecordDeltas { timestamp: timestamp_delta, offset: offset_delta }: RecordDeltas,
    entry: &NewRecord<'_>,
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
