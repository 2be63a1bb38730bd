//! Validation of a producer's batch before it is stored: one walk over its bytes in place, without
//! decoding or copying a record.
//! Behaviour: for every record, the length equals that of its fields, the offset deltas are
//!     0, 1, .. record_count - 1, no byte is left over, the key is present if the topic is
//!     compacted, and the timestamp lies within the topic's bounds. The walk computes the largest
//!     timestamp. Compressed records are inflated through a small buffer of fixed size. If the
//!     topic trusts its producers (`krust.validate.compressed=header`), only the header of a
//!     compressed batch is checked, unless the topic requires keys or bounds old timestamps; the
//!     largest timestamp is then the one in the producer's header.
//! Source: Kafka's `LogValidator`; every batch that it refuses is refused here.

use std::ops::Range;

use super::RecordError;
use super::batch::{Batch, TimestampType, body};
use super::compression::Codec;
use super::cursor::{Cursor, zigzag64};
use super::record_stream::RecordStream;

/// What the topic requires of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValidationRules {
    /// Each record must have a key (`cleanup.policy=compact`).
    pub need_keys: bool,
    /// The bounds of timestamps; `None`: the broker sets the timestamps, or there are no bounds.
    pub bounds: Option<TimestampBounds>,
    /// The header of a compressed batch is trusted.
    pub trusts_compressed: bool,
    /// Most bytes that compressed records may inflate to; `None`: the codec's budget for their
    /// size.
    pub inflated_max: Option<u64>,
}

/// Why a record without a key is refused.
pub const NO_KEY: &str = "a compacted topic takes no record without a key";

/// How far a record's timestamp may be from the broker's time. No timestamp (-1) is always valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampBounds {
    /// The broker's time, in milliseconds.
    pub now_ms: i64,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
}

/// What [`check`] computed from a valid batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidationResult {
    /// The largest timestamp of any record.
    pub max_timestamp: i64,
    /// Offset of the first record with that timestamp, minus the base offset. If only the header
    /// was checked: that of the last record.
    pub offset_of_max_timestamp: i64,
    /// Records in the batch.
    pub record_count: i32,
    /// Offset of the last record, minus the base offset.
    pub last_offset_delta: i32,
    /// Number of bytes that the check inflated.
    pub inflated: u64,
}

impl TimestampBounds {
    /// The earliest valid timestamp, in milliseconds.
    pub const fn earliest(&self) -> i64 {
        self.now_ms.saturating_sub(self.before_max_ms)
    }

    /// The latest valid timestamp, in milliseconds.
    pub const fn latest(&self) -> i64 {
        self.now_ms.saturating_add(self.after_max_ms)
    }

    /// Whether a record may have this timestamp.
    pub const fn allow(&self, timestamp: i64) -> bool {
        timestamp == -1 || (self.earliest() <= timestamp && timestamp <= self.latest())
    }
}

/// Checks a batch that a client sent. The checksum comes first.
///
/// Errors: `Corrupt` (checksum); `Timestamp`; `Invalid` with the index of the first bad record.
pub fn check(batch: &Batch<'_>, rules: &ValidationRules) -> Result<ValidationResult, RecordError> {
    if !batch.crc_ok() {
        return Err(RecordError::Corrupt("checksum"));
    }
    check_header(batch)?;
    match batch.codec() {
        Codec::None => check_uncompressed(batch, rules),
        _ if !rules.trusts_compressed
            || rules.need_keys
            || rules.bounds.is_some_and(|bounds| bounds.earliest() > 0) =>
        {
            check_compressed(batch, rules)
        }
        _ => {
            let header = batch.header();
            let mut validator = RecordValidator::new(batch, rules);
            validator.check_timestamp(-1, header.max_timestamp)?;
            let last = i64::from(header.last_offset_delta);
            Ok(ValidationResult { offset_of_max_timestamp: last, ..validator.result(batch) })
        }
    }
}

fn check_header(batch: &Batch<'_>) -> Result<(), RecordError> {
    let header = batch.header();
    if batch.is_control() {
        return Err(RecordError::batch("clients may not write control records"));
    }
    if header.record_count == 0 {
        return Err(RecordError::batch("no records"));
    }
    if header.record_count.wrapping_sub(1) != header.last_offset_delta {
        return Err(RecordError::batch("record count and last offset delta disagree"));
    }
    if header.producer_id >= 0 && header.base_sequence < 0 {
        return Err(RecordError::batch("a producer id without a sequence number"));
    }
    if batch.timestamp_type() == TimestampType::LogAppendTime {
        return Err(RecordError::Timestamp { index: -1, timestamp: header.max_timestamp });
    }
    Ok(())
}

/// Checks keys and timestamps record by record, and keeps the largest timestamp.
struct RecordValidator {
    need_keys: bool,
    earliest: i64,
    latest: i64,
    base_timestamp: i64,
    max_timestamp: i64,
    index_of_max: i32,
}

impl RecordValidator {
    fn new(batch: &Batch<'_>, rules: &ValidationRules) -> Self {
        Self {
            need_keys: rules.need_keys,
            earliest: rules.bounds.map_or(i64::MIN, |bounds| bounds.earliest()),
            latest: rules.bounds.map_or(i64::MAX, |bounds| bounds.latest()),
            base_timestamp: batch.header().base_timestamp,
            max_timestamp: i64::MIN,
            index_of_max: 0,
        }
    }

    #[inline(always)]
    fn check_timestamp(&mut self, index: i32, timestamp: i64) -> Result<(), RecordError> {
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.index_of_max = index;
        }
        if (timestamp < self.earliest || timestamp > self.latest) && timestamp != -1 {
            return Err(RecordError::Timestamp { index, timestamp });
        }
        Ok(())
    }

    #[inline(always)]
    const fn check_key(&self, index: i32, present: bool) -> Result<(), RecordError> {
        if self.need_keys && !present {
            return Err(RecordError::Invalid { index, reason: NO_KEY });
        }
        Ok(())
    }

    fn result(&self, batch: &Batch<'_>) -> ValidationResult {
        ValidationResult {
            max_timestamp: self.max_timestamp,
            offset_of_max_timestamp: i64::from(self.index_of_max),
            record_count: batch.header().record_count,
            last_offset_delta: batch.header().last_offset_delta,
            inflated: 0,
        }
    }
}

fn check_uncompressed(
    batch: &Batch<'_>,
    rules: &ValidationRules,
) -> Result<ValidationResult, RecordError> {
    let mut validator = RecordValidator::new(batch, rules);
    let mut at = Cursor::new(batch.payload());
    for index in 0..batch.header().record_count {
        let (timestamp_delta, key) = match walk_short_record(&mut at, index) {
            Some(fields) => fields,
            None => walk_record(&mut at, index)
                .map_err(|reason| RecordError::Invalid { index, reason })?,
        };
        validator.check_timestamp(index, validator.base_timestamp.wrapping_add(timestamp_delta))?;
        validator.check_key(index, key)?;
    }
    if at.rest.is_empty() {
        Ok(validator.result(batch))
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

/// Walks one record that has no headers and whose varints have at most three bytes, as most
/// records do. Returns its timestamp delta and whether it has a key; `None`: [`walk_record`] must
/// walk it.
#[inline(always)]
fn walk_short_record(at: &mut Cursor<'_>, index: i32) -> Option<(i64, bool)> {
    let mut rest = at.rest;
    let (length, negative) = split_zigzag(short_varint(&mut rest)?);
    let (body, next) = rest.split_at_checked(length)?;
    let (_, mut body) = body.split_first()?;
    let timestamp_delta = zigzag64(u64::from(short_varint(&mut body)?));
    let in_sequence = i64::from(short_varint(&mut body)?) == i64::from(index) * 2;
    let (key, no_key) = split_zigzag(short_varint(&mut body)?);
    let (_, mut body) = body.split_at_checked(if no_key { 0 } else { key })?;
    let (value, no_value) = split_zigzag(short_varint(&mut body)?);
    let (_, body) = body.split_at_checked(if no_value { 0 } else { value })?;
    // A negative length is -1, so that its half is 0.
    if negative || !in_sequence || (no_key && key != 0) || (no_value && value != 0) || body != [0] {
        return None;
    }
    at.rest = next;
    Some((timestamp_delta, !no_key))
}

/// Splits a raw zigzag length into half its value and whether it is negative.
#[inline(always)]
const fn split_zigzag(raw: u32) -> (usize, bool) {
    ((raw >> 1) as usize, raw & 1 != 0)
}

/// Reads a raw varint of at most three bytes.
#[inline(always)]
fn short_varint(rest: &mut &[u8]) -> Option<u32> {
    let (&first, after) = rest.split_first()?;
    if first < 0x80 {
        *rest = after;
        return Some(u32::from(first));
    }
    let (&second, after) = after.split_first()?;
    let raw = u32::from(first & 0x7f) | u32::from(second & 0x7f) << 7;
    if second < 0x80 {
        *rest = after;
        return Some(raw);
    }
    let (&third, after) = after.split_first()?;
    *rest = after;
    (third < 0x80).then(|| raw | u32::from(third) << 14)
}

/// Walks any record. Returns its timestamp delta and whether it has a key, or what is wrong.
#[cold]
#[inline(never)]
fn walk_record(at: &mut Cursor<'_>, index: i32) -> Result<(i64, bool), &'static str> {
    let mut at = Cursor::new(body(at)?);
    at.int8().ok_or("empty record")?;
    let timestamp_delta = at.varlong().ok_or("bad timestamp delta")?;
    if at.varint() != Some(index) {
        return Err("offset delta out of sequence");
    }
    let key = at.nullable().ok_or("bad key length")?;
    at.nullable().ok_or("bad value length")?;
    headers(&mut at)?;
    Ok((timestamp_delta, key.is_some()))
}

fn headers(at: &mut Cursor<'_>) -> Result<(), &'static str> {
    let count = at.varint().ok_or("bad header count")?;
    let count = usize::try_from(count).map_err(|_| "negative header count")?;
    if count > at.rest.len() {
        return Err("more headers than bytes");
    }
    for _ in 0..count {
        at.nullable().flatten().ok_or("bad header key")?;
        at.nullable().ok_or("bad header value")?;
    }
    if at.rest.is_empty() { Ok(()) } else { Err("bytes left over in a record") }
}

fn check_compressed(
    batch: &Batch<'_>,
    rules: &ValidationRules,
) -> Result<ValidationResult, RecordError> {
    let mut validator = RecordValidator::new(batch, rules);
    let mut at = RecordStream::new(batch.codec(), batch.payload())?;
    if let Some(most) = rules.inflated_max {
        at.allow(most);
    }
    let count = batch.header().record_count;
    let mut index = 0;
    while index < count {
        let walked = walk_window(&mut validator, at.window()?, index..count)?;
        index = walked.index;
        at.advance(walked.bytes);
        if index < count && walked.bytes == 0 {
            // The record is larger than the window.
            let (timestamp_delta, key) =
                walk_long_record(&mut at, index).map_err(|error| match error {
                    RecordError::Invalid { reason, .. } => RecordError::Invalid { index, reason },
                    other => other,
                })?;
            validator
                .check_timestamp(index, validator.base_timestamp.wrapping_add(timestamp_delta))?;
            validator.check_key(index, key)?;
            index += 1;
        }
    }
    if at.at_end()? {
        Ok(ValidationResult { inflated: at.consumed, ..validator.result(batch) })
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

/// How far a walk through a window got.
struct WindowProgress {
    /// Index of the next record.
    index: i32,
    bytes: usize,
}

/// Walks the records with these indexes, as far as they lie completely in `window`.
fn walk_window(
    validator: &mut RecordValidator,
    window: &[u8],
    indexes: Range<i32>,
) -> Result<WindowProgress, RecordError> {
    let (mut index, count) = (indexes.start, indexes.end);
    let mut at = Cursor::new(window);
    while index < count && !at.rest.is_empty() {
        let (timestamp_delta, key) = match walk_short_record(&mut at, index) {
            Some(fields) => fields,
            None if body(&mut Cursor::new(at.rest)).is_err() => break,
            None => walk_record(&mut at, index)
                .map_err(|reason| RecordError::Invalid { index, reason })?,
        };
        validator.check_timestamp(index, validator.base_timestamp.wrapping_add(timestamp_delta))?;
        validator.check_key(index, key)?;
        index += 1;
    }
    Ok(WindowProgress { index, bytes: window.len() - at.rest.len() })
}

fn walk_long_record(at: &mut RecordStream<'_>, index: i32) -> Result<(i64, bool), RecordError> {
    let length =
        u64::try_from(at.varint()?).map_err(|_| RecordError::batch("bad record length"))?;
    let end = at.consumed.saturating_add(length);
    at.byte()?;
    let timestamp_delta = at.varlong()?;
    if at.varint()? != index {
        return Err(RecordError::batch("offset delta out of sequence"));
    }
    let key = at.skip_nullable()?;
    at.skip_nullable()?;
    for _ in 0..at.varint()? {
        if !at.skip_nullable()? {
            return Err(RecordError::batch("bad header key"));
        }
        at.skip_nullable()?;
    }
    if at.consumed == end {
        Ok((timestamp_delta, key))
    } else {
        Err(RecordError::batch("a record's length is not that of its fields"))
    }
}
