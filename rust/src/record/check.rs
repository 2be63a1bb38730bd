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

use super::RecordError;
use super::batch::{Batch, TimestampType};
use super::compression::Codec;
use super::cursor::Cursor;
use super::record_stream::RecordStream;
use super::walk::{RecordRules, RecordWalk};

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
            record_rules(batch, rules).check_timestamp(-1, header.max_timestamp)?;
            Ok(result(batch, header.max_timestamp, header.last_offset_delta))
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

fn record_rules(batch: &Batch<'_>, rules: &ValidationRules) -> RecordRules {
    RecordRules {
        need_keys: rules.need_keys,
        earliest: rules.bounds.map_or(i64::MIN, |bounds| bounds.earliest()),
        latest: rules.bounds.map_or(i64::MAX, |bounds| bounds.latest()),
        base_timestamp: batch.header().base_timestamp,
    }
}

fn result(batch: &Batch<'_>, max_timestamp: i64, index_of_max: i32) -> ValidationResult {
    ValidationResult {
        max_timestamp,
        offset_of_max_timestamp: i64::from(index_of_max),
        record_count: batch.header().record_count,
        last_offset_delta: batch.header().last_offset_delta,
        inflated: 0,
    }
}

fn check_uncompressed(
    batch: &Batch<'_>,
    rules: &ValidationRules,
) -> Result<ValidationResult, RecordError> {
    let mut walk = RecordWalk::new(record_rules(batch, rules));
    let mut at = Cursor::new(batch.payload());
    let count = batch.header().record_count;
    walk.walk(&mut at, count)?;
    while walk.index < count {
        // The record is cut; this says how.
        walk.walk_any(&mut at)?;
    }
    if at.rest.is_empty() {
        Ok(result(batch, walk.max_timestamp, walk.index_of_max))
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

fn check_compressed(
    batch: &Batch<'_>,
    rules: &ValidationRules,
) -> Result<ValidationResult, RecordError> {
    let mut walk = RecordWalk::new(record_rules(batch, rules));
    let mut at = RecordStream::new(batch.codec(), batch.payload())?;
    if let Some(most) = rules.inflated_max {
        at.allow(most);
    }
    let count = batch.header().record_count;
    while walk.index < count {
        let window = at.window()?;
        let mut inside = Cursor::new(window);
        walk.walk(&mut inside, count)?;
        let walked = window.len() - inside.rest.len();
        at.advance(walked);
        if walk.index < count && walked == 0 {
            // The record is larger than the window.
            let index = walk.index;
            let (timestamp_delta, has_key) =
                walk_long_record(&mut at, index).map_err(|error| match error {
                    RecordError::Invalid { reason, .. } => RecordError::Invalid { index, reason },
                    other => other,
                })?;
            walk.take(timestamp_delta, has_key)?;
        }
    }
    if at.at_end()? {
        let result = result(batch, walk.max_timestamp, walk.index_of_max);
        Ok(ValidationResult { inflated: at.consumed, ..result })
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
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
