//! The walk over the records of a producer's batch: in place, without decoding or copying one.
//!
//! Three walks give the same result. The first is the fastest; each one after it is tried when the
//! one before gives up:
//! ```text
//! run      records like the one before: each field has the same size, only bytes of the timestamp,
//!          offset, key and value differ. Their places are known before they are read.
//! short    no headers, and no varint is longer than three bytes
//! any      everything, and what is wrong with a record
//! ```
//! Invariant: a record that `run` or `short` accepts is valid, and `any` reads the same timestamp
//!     and key from it (a property test compares them). They never refuse a record: `any` walks the
//!     records that they leave.
//! Threads: a plain value.

use super::RecordError;
use super::batch::body;
use super::cursor::{Cursor, zigzag64};

/// Why a record without a key is refused.
pub const NO_KEY: &str = "a compacted topic takes no record without a key";

/// Bytes at the start of a record that the short walk reads.
const HEAD: usize = 16;

/// After this many records in a row of the same size, a run may begin.
const RUN_FROM: u32 = 2;

/// The rules for each record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRules {
    /// Whether each must have a key.
    pub(crate) need_keys: bool,
    /// The bounds of timestamps. No timestamp (-1) is always valid.
    pub(crate) earliest: i64,
    pub(crate) latest: i64,
    /// The timestamp to which the records' deltas are added.
    pub(crate) base_timestamp: i64,
}

/// Walks records one after the other, checks keys and timestamps, and keeps the largest timestamp.
#[derive(Clone, Debug)]
pub(crate) struct RecordWalk {
    rules: RecordRules,
    /// The index of the next record.
    pub(crate) index: i32,
    /// The largest timestamp so far.
    pub(crate) max_timestamp: i64,
    /// The first record that has it.
    pub(crate) index_of_max: i32,
}

/// A record as the short walk found it.
struct ShortRecord {
    timestamp_delta: i64,
    has_key: bool,
    size: usize,
}

/// The offset delta of the next record as a varint, little-endian.
///
/// Invariant: below an index of 2^20, `bytes` is the shortest varint of the index, and `bits` its
///     size. Above, no record has it.
#[derive(Clone, Copy)]
struct OffsetVarint {
    bytes: u64,
    /// Of its bits, those that say that another byte follows.
    more: u64,
    bits: u32,
    /// The first index whose varint is longer.
    until: i32,
}

impl RecordRules {
    /// Checks the timestamp of a record; -1: of the batch as a whole.
    #[inline(always)]
    pub(crate) const fn check_timestamp(
        &self,
        index: i32,
        timestamp: i64,
    ) -> Result<(), RecordError> {
        let is_outside = timestamp < self.earliest || timestamp > self.latest;
        if is_outside && timestamp != -1 {
            return Err(RecordError::Timestamp { index, timestamp });
        }
        Ok(())
    }
}

impl RecordWalk {
    /// Before the first record.
    pub(crate) const fn new(rules: RecordRules) -> Self {
        Self { rules, index: 0, max_timestamp: i64::MIN, index_of_max: 0 }
    }

    /// Walks the records below `count`, as far as they lie completely in the bytes of `at`.
    pub(crate) fn walk(&mut self, at: &mut Cursor<'_>, count: i32) -> Result<(), RecordError> {
        let mut offset = OffsetVarint::of(self.index);
        let (mut size_before, mut alike) = (0, 0);
        while self.index < count && !at.rest.is_empty() {
            let Some(record) = short_record(at.rest, &offset) else {
                let mut next = Cursor::new(at.rest);
                let Ok(record) = body(&mut next) else { break };
                self.take_any(record)?;
                *at = next;
                offset = OffsetVarint::of(self.index);
                continue;
            };
            self.take(record.timestamp_delta, record.has_key)?;
            let bytes = at.rest;
            at.rest = bytes.get(record.size..).unwrap_or_default();
            offset.advance(self.index);
            alike = if record.size == size_before { alike + 1 } else { 0 };
            size_before = record.size;
            if alike == RUN_FROM {
                self.walk_run(at, (bytes, record.size), offset.until.min(count))?;
                offset = OffsetVarint::of(self.index);
                alike = 0;
            }
        }
        Ok(())
    }

    /// Walks one record of any shape. The error says what is wrong with it.
    pub(crate) fn walk_any(&mut self, at: &mut Cursor<'_>) -> Result<(), RecordError> {
        let index = self.index;
        let record = body(at).map_err(|reason| RecordError::Invalid { index, reason })?;
        self.take_any(record)
    }

    /// Walks the record that has these bytes after its length.
    #[cold]
    fn take_any(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let index = self.index;
        let (timestamp_delta, has_key) =
            any_record(record, index).map_err(|reason| RecordError::Invalid { index, reason })?;
        self.take(timestamp_delta, has_key)
    }

    /// Checks timestamp and key of the next record, whose fields have been walked.
    #[inline(always)]
    pub(crate) fn take(&mut self, timestamp_delta: i64, has_key: bool) -> Result<(), RecordError> {
        self.check_timestamp(timestamp_delta)?;
        if self.rules.need_keys && !has_key {
            return Err(RecordError::Invalid { index: self.index, reason: NO_KEY });
        }
        self.index += 1;
        Ok(())
    }

    #[inline(always)]
    fn check_timestamp(&mut self, timestamp_delta: i64) -> Result<(), RecordError> {
        let timestamp = self.rules.base_timestamp.wrapping_add(timestamp_delta);
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.index_of_max = self.index;
        }
        self.rules.check_timestamp(self.index, timestamp)
    }

    /// Walks records below `until` that are like the one before, which is at the start of `before`.
    #[inline(never)]
    fn walk_run(
        &mut self,
        at: &mut Cursor<'_>,
        (before, size): (&[u8], usize),
        until: i32,
    ) -> Result<(), RecordError> {
        let Some(shape) = RecordShape::of(before, size, self.index) else { return Ok(()) };
        let most = usize::try_from(until - self.index).unwrap_or(0);
        let (mut expected, mut timestamp) = (shape.expected, shape.timestamp);
        let mut walked = 0;
        for record in at.rest.chunks_exact(size).take(most) {
            let Some(fields) = shape.fields(record, expected) else { break };
            expected = (expected + shape.step) | shape.more;
            if fields & shape.timestamp_mask != timestamp {
                timestamp = fields & shape.timestamp_mask;
                let delta = short_varint(fields >> 8).map_or(0, |varint| varint.0);
                self.check_timestamp(zigzag64(u64::from(delta)))?;
            }
            self.index += 1;
            walked += size;
        }
        at.rest = at.rest.get(walked..).unwrap_or_default();
        Ok(())
    }
}

/// The shape that the records of a run have in common.
struct RecordShape {
    length_size: usize,
    length: u64,
    length_mask: u64,
    /// The eight bytes after the length, without attributes and the timestamp's value.
    expected: u64,
    mask: u64,
    /// What is added to `expected` for the next offset.
    step: u64,
    /// Bits that are set after that addition.
    more: u64,
    timestamp: u64,
    timestamp_mask: u64,
    value_at: usize,
    value: u64,
    value_mask: u64,
}

impl RecordShape {
    /// The shape of the short record of `size` bytes at the start of `bytes`; the walk compares it
    /// with the records from `index` on. `None`: it is too small, or the next offset's varint is
    /// longer.
    #[inline(always)]
    fn of(bytes: &[u8], size: usize, index: i32) -> Option<Self> {
        let head = bytes.get(..size)?.first_chunk::<HEAD>()?;
        let mut offset = OffsetVarint::of(index - 1);
        if offset.until == index {
            return None;
        }
        offset.advance(index);
        let length_bits = short_varint(first_four(head)?)?.1;
        let length_size = (length_bits / 8) as usize;
        let fields = first_eight(head.get(length_size..)?)?;
        let timestamp_bits = short_varint(fields >> 8)?.1;
        let (offset_at, key_at) = (8 + timestamp_bits, 8 + timestamp_bits + offset.bits);
        let key = (fields >> key_at & 0xff) as usize;
        let value_at = length_size + 2 + ((timestamp_bits + offset.bits) / 8) as usize + key / 2;
        let value = first_four(bytes.get(value_at..)?)?;
        let value_mask = ones(short_varint(value)?.1);
        let timestamp_mask = ones(timestamp_bits) << 8;
        let fixed = timestamp_mask & MORE << 8 | 0xff << key_at;
        Some(Self {
            length_size,
            length: first_four(head)? & ones(length_bits),
            length_mask: ones(length_bits),
            expected: fields & fixed | offset.bytes << offset_at,
            mask: fixed | ones(offset.bits) << offset_at,
            step: 2 << offset_at,
            more: offset.more << offset_at,
            timestamp: fields & timestamp_mask,
            timestamp_mask,
            value_at,
            value: value & value_mask,
            value_mask,
        })
    }

    /// The eight bytes after a record's length, if the record has the shape.
    #[inline(always)]
    fn fields(&self, record: &[u8], expected: u64) -> Option<u64> {
        let head = record.first_chunk::<HEAD>()?;
        let fields = first_eight(head.get(self.length_size..)?)?;
        let value = first_four(record.get(self.value_at..)?)?;
        let is_like = first_four(head)? & self.length_mask == self.length
            && fields & self.mask == expected
            && value & self.value_mask == self.value
            && record.last() == Some(&0);
        is_like.then_some(fields)
    }
}

impl OffsetVarint {
    /// The varint of an index.
    #[inline(always)]
    const fn of(index: i32) -> Self {
        let (bits, more, until) = match index {
            ..=63 => (8, 0, 64),
            64..=8191 => (16, 0x80, 8192),
            8192..=0xf_ffff => (24, 0x8080, 1 << 20),
            // No short varint has this bit.
            _ => return Self { bytes: 1 << 63, more: 1 << 63, bits: 24, until: i32::MAX },
        };
        let raw = index as u64 * 2;
        let bytes = raw & 0x7f | raw << 1 & 0x7f00 | raw << 2 & 0x7f_0000 | more;
        Self { bytes, more, bits, until }
    }

    /// Moves to the next index, which is `index`.
    #[inline(always)]
    fn advance(&mut self, index: i32) {
        // A carry passes over the bits that say that another byte follows, and clears them.
        self.bytes = (self.bytes + 2) | self.more;
        if index == self.until {
            *self = Self::of(index);
        }
    }
}

/// The bits of a varint that say that another byte follows, if it has three bytes.
const MORE: u64 = 0x80_8080;

/// The first four bytes, little-endian.
#[inline(always)]
fn first_four(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|four| u64::from(u32::from_le_bytes(*four)))
}

/// The first eight bytes, little-endian.
#[inline(always)]
fn first_eight(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

/// The mask of the lowest `bits` bits.
#[inline(always)]
const fn ones(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The raw value of a varint of at most three bytes, and its bits.
#[inline(always)]
const fn short_varint(bytes: u64) -> Option<(u32, u32)> {
    if bytes & 0x80 == 0 {
        Some(((bytes & 0x7f) as u32, 8))
    } else if bytes & 0x8000 == 0 {
        Some(((bytes & 0x7f | bytes >> 1 & 0x3f80) as u32, 16))
    } else if bytes & 0x80_0000 == 0 {
        Some(((bytes & 0x7f | bytes >> 1 & 0x3f80 | bytes >> 2 & 0x1f_c000) as u32, 24))
    } else {
        None
    }
}

/// Walks the record at the start of `rest`, if it is short and has this offset.
#[inline(always)]
fn short_record(rest: &[u8], offset: &OffsetVarint) -> Option<ShortRecord> {
    let head = rest.first_chunk::<HEAD>()?;
    let number = u64::from_le_bytes;
    let (length, length_size, fields) = match *head {
        [one @ ..0x80, a, b, c, d, e, f, g, h, ..] => {
            (u64::from(one), 1, number([a, b, c, d, e, f, g, h]))
        }
        [one, two @ ..0x80, a, b, c, d, e, f, g, h, ..] => {
            let length = u64::from(one & 0x7f) | u64::from(two) << 7;
            (length, 2, number([a, b, c, d, e, f, g, h]))
        }
        [one, two, three @ ..0x80, a, b, c, d, e, f, g, h, ..] => {
            let length = u64::from(one & 0x7f) | u64::from(two & 0x7f) << 7;
            (length | u64::from(three) << 14, 3, number([a, b, c, d, e, f, g, h]))
        }
        _ => return None,
    };
    let (timestamp, timestamp_bits) = short_varint(fields >> 8)?;
    let after = fields >> (8 + timestamp_bits);
    let key = (after >> offset.bits & 0xff) as usize;
    if length & 1 != 0 || after & ones(offset.bits) != offset.bytes || key >= 0x80 {
        return None;
    }
    let value_at = length_size + 2 + ((timestamp_bits + offset.bits) / 8) as usize + key / 2;
    let (value, value_bits) = short_varint(first_four(rest.get(value_at..)?)?)?;
    let size = length_size + (length / 2) as usize;
    // A null is -1, whose raw value is 1; its half is 0. No other length is odd.
    let is_whole = value_at + (value_bits / 8) as usize + (value / 2) as usize + 1 == size;
    let is_refused = (key & 1 != 0 && key != 1) || (value & 1 != 0 && value != 1);
    if is_refused || !is_whole || rest.get(size - 1) != Some(&0) {
        return None;
    }
    let timestamp_delta = zigzag64(u64::from(timestamp));
    Some(ShortRecord { timestamp_delta, has_key: key & 1 == 0, size })
}

/// Walks the fields of any record. Returns its timestamp delta and whether it has a key, or what is
/// wrong.
fn any_record(record: &[u8], index: i32) -> Result<(i64, bool), &'static str> {
    let mut at = Cursor::new(record);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::cursor::{put_nullable, put_varint};

    use proptest::prelude::*;

    const COUNT: usize = 200;

    /// The fields of a record, but for its offset delta.
    #[derive(Clone, Debug)]
    struct Fields {
        attributes: u8,
        timestamp_delta: i64,
        key: Option<usize>,
        value: Option<usize>,
        headers: usize,
    }

    /// What a walk says of bytes that should hold `count` records: the index of the next record,
    /// the bytes that are left, the largest timestamp and whose it is; or the error.
    type Walked = Result<(i32, usize, i64, i32), RecordError>;

    fn result(walk: &RecordWalk, at: Cursor<'_>) -> Walked {
        Ok((walk.index, at.rest.len(), walk.max_timestamp, walk.index_of_max))
    }

    fn walked(rules: RecordRules, bytes: &[u8], count: i32) -> Walked {
        let (mut walk, mut at) = (RecordWalk::new(rules), Cursor::new(bytes));
        walk.walk(&mut at, count)?;
        result(&walk, at)
    }

    /// The same, by the walk that takes any record.
    fn walked_one_by_one(rules: RecordRules, bytes: &[u8], count: i32) -> Walked {
        let (mut walk, mut at) = (RecordWalk::new(rules), Cursor::new(bytes));
        while walk.index < count && body(&mut Cursor::new(at.rest)).is_ok() {
            walk.walk_any(&mut at)?;
        }
        result(&walk, at)
    }

    fn put(bytes: &mut Vec<u8>, index: i64, fields: &Fields) {
        let some = |size: Option<usize>| size.map(|size| vec![0x80 | size as u8; size]);
        let mut record = vec![fields.attributes];
        put_varint(&mut record, fields.timestamp_delta);
        put_varint(&mut record, index);
        put_nullable(&mut record, some(fields.key).as_deref());
        put_nullable(&mut record, some(fields.value).as_deref());
        put_varint(&mut record, fields.headers as i64);
        for _ in 0..fields.headers {
            put_nullable(&mut record, Some(b"k"));
            put_nullable(&mut record, None);
        }
        put_varint(bytes, record.len() as i64);
        bytes.extend(record);
    }

    fn timestamp() -> impl Strategy<Value = i64> {
        prop_oneof![6 => 0..70i64, 2 => -3_000_000..3_000_000i64, 1 => any::<i64>()]
    }

    fn field() -> impl Strategy<Value = Option<usize>> {
        let size = prop_oneof![4 => 0..12usize, 3 => 55..75usize, 1 => 8_180..8_200usize];
        prop::option::weighted(0.8, size)
    }

    fn some_fields() -> impl Strategy<Value = Fields> {
        let headers = prop_oneof![9 => Just(0usize), 1 => 1..3usize];
        (any::<u8>(), timestamp(), field(), field(), headers).prop_map(
            |(attributes, timestamp_delta, key, value, headers)| Fields {
                attributes,
                timestamp_delta,
                key,
                value,
                headers,
            },
        )
    }

    /// Records in runs: many are like the one before, some but for the timestamp.
    fn some_records() -> impl Strategy<Value = Vec<Fields>> {
        let run = (some_fields(), prop::collection::vec(prop::option::of(timestamp()), 1..40));
        prop::collection::vec(run, 1..8).prop_map(|runs| {
            let records = runs.into_iter().flat_map(|(fields, timestamps)| {
                timestamps.into_iter().map(move |other| Fields {
                    timestamp_delta: other.unwrap_or(fields.timestamp_delta),
                    ..fields.clone()
                })
            });
            records.take(COUNT).collect()
        })
    }

    fn some_rules() -> impl Strategy<Value = RecordRules> {
        let bounds = prop_oneof![Just((i64::MIN, i64::MAX)), Just((900, 1_060)), Just((-5, 3_000))];
        (any::<bool>(), bounds, prop_oneof![Just(1_000i64), Just(i64::MAX - 3), Just(-30)])
            .prop_map(|(need_keys, (earliest, latest), base_timestamp)| RecordRules {
                need_keys,
                earliest,
                latest,
                base_timestamp,
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_walk_says_the_same_of_the_same_bytes(
            records in some_records(),
            rules in some_rules(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        ) {
            let mut bytes = Vec::new();
            (0..).zip(&records).for_each(|(index, fields)| put(&mut bytes, index, fields));
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            let count = records.len() as i32;
            for count in [count, count - 1, count + 1] {
                let (one, other) =
                    (walked(rules, &bytes, count), walked_one_by_one(rules, &bytes, count));
                prop_assert_eq!(one, other);
            }
        }
    }

    const ANY: RecordRules =
        RecordRules { need_keys: false, earliest: i64::MIN, latest: i64::MAX, base_timestamp: 0 };

    #[test]
    fn each_byte_of_a_run_is_checked_where_offsets_grow() {
        let fields =
            Fields { attributes: 0, timestamp_delta: 3, key: Some(2), value: Some(9), headers: 0 };
        let places = [
            4, 60, 62, 63, 64, 65, 66, 67, 127, 128, 8_190, 8_191, 8_192, 8_193, 8_195, 1_048_574,
            1_048_575, 1_048_576, 1_048_577,
        ];
        for index in places {
            // From a record before, so that a run has begun, to some behind.
            let (from, count) = (index - 4, index + 4);
            let (mut bytes, mut starts) = (Vec::new(), Vec::new());
            for index in from..count {
                starts.push(bytes.len());
                put(&mut bytes, index.into(), &fields);
            }
            let walk = |bytes: &[u8], any: bool| {
                let (mut at, mut walk) = (Cursor::new(bytes), RecordWalk::new(ANY));
                walk.index = from;
                while any && walk.index < count && body(&mut { at }).is_ok() {
                    walk.walk_any(&mut at)?;
                }
                if !any {
                    walk.walk(&mut at, count)?;
                }
                result(&walk, at)
            };
            assert_eq!(walk(&bytes, false), Ok((count, 0, 3, from)));
            for place in starts[4]..starts[5] {
                let mut changed = bytes.clone();
                for byte in [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff] {
                    changed[place] = byte;
                    let (one, other) = (walk(&changed, false), walk(&changed, true));
                    assert_eq!(one, other, "record {index}, byte {place} is {byte}");
                }
            }
        }
    }

    #[test]
    fn an_offset_delta_beyond_three_bytes_is_not_taken_for_a_short_one() {
        for (index, offset) in [(1 << 20, &[0x80, 0x80, 0x00][..]), (1 << 21, &[0x80, 0x80, 0x00])]
        {
            let mut record = vec![0, 0];
            record.extend(offset);
            record.extend([1, 20]);
            record.extend([b'x'; 10]);
            record.push(0);
            let mut bytes = Vec::new();
            put_varint(&mut bytes, record.len() as i64);
            bytes.extend(record);
            let mut walk = RecordWalk { index, ..RecordWalk::new(ANY) };
            let error = walk.walk(&mut Cursor::new(&bytes), index + 1).unwrap_err();
            let reason = "offset delta out of sequence";
            assert_eq!(error, RecordError::Invalid { index, reason });
        }
    }
}
