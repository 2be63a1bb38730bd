//! What a producer's batch must be before it is stored: one walk over it in place, no record
//! decoded, nothing copied.
//! Behaviour: every record is walked: its length is that of its fields, offset deltas are
//!     0, 1, .. record_count - 1, no byte is left over, keys are there where the topic is
//!     compacted, times lie within the topic's bounds; the largest time is computed. Compressed
//!     records are inflated through a small buffer, however large they say they are. Where the
//!     topic trusts its producers (`krust.validate.compressed=header`) a compressed batch is
//!     checked by its header alone, unless keys or a lower bound of times ask for the records; the
//!     largest time is then the producer's word.
//! Source: Kafka's `LogValidator`; a batch that it refuses is refused here.

use super::RecordError;
use super::batch::{Batch, TimestampType, body};
use super::compression::Codec;
use super::cursor::{Cursor, zigzag64};
use super::skim::Skim;

/// What the topic asks of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Each record has a key (`cleanup.policy=compact`).
    pub need_keys: bool,
    /// The bounds of times; `None` where the broker sets the time, or there are none.
    pub bounds: Option<Bounds>,
    /// Compressed records are believed to be what the header says.
    pub trusts_compressed: bool,
    /// Most bytes that compressed records may inflate to; `None`: what their size can account for.
    pub inflated_max: Option<u64>,
}

/// Why a record without a key is refused.
pub const NO_KEY: &str = "a compacted topic takes no record without a key";

/// How far a record's time may lie from the broker's; a record without a time (-1) always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The broker's time, in milliseconds.
    pub now_ms: i64,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
}

/// What [`check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The largest time of any record.
    pub max_timestamp: i64,
    /// Offset of the first record with that time, less the base offset; the last record's where the
    /// batch is compressed and was checked by its header.
    pub offset_of_max_timestamp: i64,
    /// Records in the batch.
    pub record_count: i32,
    /// Offset of the last record, less the base offset.
    pub last_offset_delta: i32,
    /// Bytes that were inflated to find this out.
    pub inflated: u64,
}

impl Bounds {
    /// The earliest time that is taken, in milliseconds.
    pub const fn earliest(&self) -> i64 {
        self.now_ms.saturating_sub(self.before_max_ms)
    }

    /// The latest.
    pub const fn latest(&self) -> i64 {
        self.now_ms.saturating_add(self.after_max_ms)
    }

    /// Whether a record may have this time.
    pub const fn allow(&self, timestamp: i64) -> bool {
        timestamp == -1 || (self.earliest() <= timestamp && timestamp <= self.latest())
    }
}

/// Checks a batch that a client sent, its checksum first.
///
/// Errors: `Corrupt` (checksum); `Timestamp`; `Invalid` with the index of the first bad record.
pub fn check(batch: &Batch<'_>, rules: &Rules) -> Result<Facts, RecordError> {
    if !batch.crc_ok() {
        return Err(RecordError::Corrupt("checksum"));
    }
    check_header(batch)?;
    match batch.codec() {
        Codec::None => walk(batch, rules),
        _ if !rules.trusts_compressed
            || rules.need_keys
            || rules.bounds.is_some_and(|bounds| bounds.earliest() > 0) =>
        {
            inflate(batch, rules)
        }
        _ => {
            let header = batch.header();
            let mut seen = Seen::new(batch, rules);
            seen.timestamp(-1, header.max_timestamp)?;
            let last = i64::from(header.last_offset_delta);
            Ok(Facts { offset_of_max_timestamp: last, ..seen.facts(batch) })
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

/// What was seen of the records so far.
struct Seen {
    need_keys: bool,
    earliest: i64,
    latest: i64,
    base_timestamp: i64,
    max_timestamp: i64,
    index_of_max: i32,
}

impl Seen {
    fn new(batch: &Batch<'_>, rules: &Rules) -> Self {
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
    fn timestamp(&mut self, index: i32, timestamp: i64) -> Result<(), RecordError> {
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
    const fn key(&self, index: i32, present: bool) -> Result<(), RecordError> {
        if self.need_keys && !present {
            return Err(RecordError::Invalid { index, reason: NO_KEY });
        }
        Ok(())
    }

    fn facts(&self, batch: &Batch<'_>) -> Facts {
        Facts {
            max_timestamp: self.max_timestamp,
            offset_of_max_timestamp: i64::from(self.index_of_max),
            record_count: batch.header().record_count,
            last_offset_delta: batch.header().last_offset_delta,
            inflated: 0,
        }
    }
}

fn walk(batch: &Batch<'_>, rules: &Rules) -> Result<Facts, RecordError> {
    let mut seen = Seen::new(batch, rules);
    let mut at = Cursor::new(batch.payload());
    for index in 0..batch.header().record_count {
        let (timestamp_delta, key) = match quick(&mut at, index) {
            Some(fields) => fields,
            None => {
                fields(&mut at, index).map_err(|reason| RecordError::Invalid { index, reason })?
            }
        };
        seen.timestamp(index, seen.base_timestamp.wrapping_add(timestamp_delta))?;
        seen.key(index, key)?;
    }
    if at.rest.is_empty() {
        Ok(seen.facts(batch))
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

/// Walks one record without headers whose varints have at most three bytes, as nearly all are;
/// gives its timestamp delta and whether it has a key. `None`: [`fields`] must look at it.
#[inline(always)]
fn quick(at: &mut Cursor<'_>, index: i32) -> Option<(i64, bool)> {
    let mut rest = at.rest;
    let (length, negative) = halves(short(&mut rest)?);
    let (body, next) = rest.split_at_checked(length)?;
    let (_, mut body) = body.split_first()?;
    let timestamp_delta = zigzag64(u64::from(short(&mut body)?));
    let in_sequence = i64::from(short(&mut body)?) == i64::from(index) * 2;
    let (key, no_key) = halves(short(&mut body)?);
    let (_, mut body) = body.split_at_checked(if no_key { 0 } else { key })?;
    let (value, no_value) = halves(short(&mut body)?);
    let (_, body) = body.split_at_checked(if no_value { 0 } else { value })?;
    // A negative length is -1, so that its half is 0.
    if negative || !in_sequence || (no_key && key != 0) || (no_value && value != 0) || body != [0] {
        return None;
    }
    at.rest = next;
    Some((timestamp_delta, !no_key))
}

/// A raw zigzag length as a number and whether it is negative.
#[inline(always)]
const fn halves(raw: u32) -> (usize, bool) {
    ((raw >> 1) as usize, raw & 1 != 0)
}

/// A raw varint of at most three bytes.
#[inline(always)]
fn short(rest: &mut &[u8]) -> Option<u32> {
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

/// Walks any record; gives its timestamp delta and whether it has a key, or what is wrong.
#[cold]
#[inline(never)]
fn fields(at: &mut Cursor<'_>, index: i32) -> Result<(i64, bool), &'static str> {
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

fn inflate(batch: &Batch<'_>, rules: &Rules) -> Result<Facts, RecordError> {
    let mut seen = Seen::new(batch, rules);
    let mut at = Skim::new(batch.codec(), batch.payload())?;
    if let Some(most) = rules.inflated_max {
        at.allow(most);
    }
    let count = batch.header().record_count;
    let mut index = 0;
    while index < count {
        let walked = walk_window(&mut seen, at.window()?, (index, count))?;
        index = walked.index;
        at.advance(walked.bytes);
        if index < count && walked.bytes == 0 {
            // The record is larger than the window.
            let (timestamp_delta, key) =
                skim_fields(&mut at, index).map_err(|error| match error {
                    RecordError::Invalid { reason, .. } => RecordError::Invalid { index, reason },
                    other => other,
                })?;
            seen.timestamp(index, seen.base_timestamp.wrapping_add(timestamp_delta))?;
            seen.key(index, key)?;
            index += 1;
        }
    }
    if at.at_end()? {
        Ok(Facts { inflated: at.consumed, ..seen.facts(batch) })
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

/// How far a walk through a window came.
struct Walked {
    /// The record that is next.
    index: i32,
    bytes: usize,
}

/// Walks the records that lie whole in `window`, from number `index` to before `count`.
fn walk_window(
    seen: &mut Seen,
    window: &[u8],
    (mut index, count): (i32, i32),
) -> Result<Walked, RecordError> {
    let mut at = Cursor::new(window);
    while index < count && !at.rest.is_empty() {
        let (timestamp_delta, key) = match quick(&mut at, index) {
            Some(fields) => fields,
            None if body(&mut Cursor::new(at.rest)).is_err() => break,
            None => {
                fields(&mut at, index).map_err(|reason| RecordError::Invalid { index, reason })?
            }
        };
        seen.timestamp(index, seen.base_timestamp.wrapping_add(timestamp_delta))?;
        seen.key(index, key)?;
        index += 1;
    }
    Ok(Walked { index, bytes: window.len() - at.rest.len() })
}

fn skim_fields(at: &mut Skim<'_>, index: i32) -> Result<(i64, bool), RecordError> {
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
