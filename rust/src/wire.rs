//! Readers and writers of Kafka's primitives: big-endian integers, varints, strings, bytes, array
//! counts, tagged fields. Knows no message by name.
//!
//! Format: numbers are big-endian. A *classic* length is an i16 (strings) or i32 (bytes, arrays),
//!     -1 = null; a *compact* one is an unsigned varint of length + 1, 0 = null. Varints hold 7
//!     bits a byte, lowest first; signed ones are zigzag. Tagged fields: varint count, then per
//!     field varint tag, varint size, bytes.
//! Invariants of [`Reader`]: no byte outside the frame is read; an array is refused unless
//!     count x smallest element <= bytes left; the memory that decoded arrays take
//!     (sum of count x size_of element) <= [`BUDGET_BASE`] + [`BUDGET_FACTOR`] x frame length, and
//!     both hold before anything is reserved. Tags: at most [`MAX_TAGS`] a struct, ascending,
//!     unique.
//! Threads: the caller owns the values; nothing is shared.
//! Not promised: that a varint is in its shortest form (Kafka does not require it either); that a
//!     boolean is 0 or 1 (every value but 0 is true).

use crate::ids::TopicId;

/// Decoded memory that every frame may take, however short it is.
pub const BUDGET_BASE: usize = 1 << 20;
/// Decoded memory that each byte of a frame may take on top of [`BUDGET_BASE`].
pub const BUDGET_FACTOR: usize = 8;
/// Tagged fields in one struct; Kafka itself has never used more than a handful.
pub const MAX_TAGS: u32 = 64;

/// Why bytes are not the message they should be. All of these are the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The frame ends before the value does.
    #[error("the frame ends inside a value")]
    Truncated,
    /// Bytes follow the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// A varint is longer than its type, or has bits beyond it.
    #[error("a varint is too long")]
    Varint,
    /// A length or count is below -1.
    #[error("a length is {0}")]
    Length(i32),
    /// A null in a version that has no null there.
    #[error("null where it is not allowed")]
    Null,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// The marker of a nullable struct is neither -1 nor 1.
    #[error("the marker of a nullable struct is {0}")]
    Marker(i8),
    /// More tagged fields than [`MAX_TAGS`].
    #[error("{0} tagged fields in one struct")]
    TooManyTags(u32),
    /// Tag numbers do not ascend.
    #[error("tag {0} does not ascend")]
    TagOrder(u32),
    /// The decoded arrays would take more memory than the frame is allowed.
    #[error("the decoded message is too large")]
    Memory,
    /// No such API, or not in this version.
    #[error("API {key} has no version {version}")]
    Unsupported {
        /// The API's key.
        key: i16,
        /// The version asked for.
        version: i16,
    },
}

/// Reads primitives from the front of a byte slice. Strings and bytes are views into it.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    budget: usize,
}

macro_rules! big_endian {
    ($($name:ident -> $kind:ident),*) => {$(
        #[doc = concat!("Reads a big-endian `", stringify!($kind), "`.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$kind, DecodeError> {
            Ok($kind::from_be_bytes(self.fixed()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Reads `frame`. The length of the frame sets the memory budget.
    pub fn new(frame: &'a [u8]) -> Self {
        let budget = frame.len().saturating_mul(BUDGET_FACTOR).saturating_add(BUDGET_BASE);
        Self { rest: frame, budget }
    }

    /// The bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes are not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Refuses bytes after the message.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }

    /// Reads `len` bytes as they are.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    big_endian!(i8 -> i8, i16 -> i16, i32 -> i32, i64 -> i64, u8 -> u8, u16 -> u16, u32 -> u32,
        f64 -> f64);

    /// Reads a boolean: one byte, all but 0 is true.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.u8()? != 0)
    }

    /// Reads a UUID; all zero stands for none.
    #[inline]
    pub fn uuid(&mut self) -> Result<TopicId, DecodeError> {
        Ok(TopicId(self.fixed()?))
    }

    /// Reads an unsigned varint of at most 5 bytes.
    #[inline]
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint_bits(5)?).map_err(|_| DecodeError::Varint)
    }

    /// Reads a zigzag varint of at most 5 bytes.
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        let raw = self.unsigned_varint()?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    /// Reads a zigzag varint of at most 10 bytes.
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let raw = self.varint_bits(10)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    #[inline]
    fn varint_bits(&mut self, max_bytes: u32) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for i in 0..max_bytes {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * i);
            if shifted >> (7 * i) != bits {
                return Err(DecodeError::Varint);
            }
            value |= shifted;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint)
    }

    /// Reads the length of a string: `None` is null.
    #[inline]
    pub fn string_len(&mut self, compact: bool) -> Result<Option<usize>, DecodeError> {
        if compact { self.compact_len() } else { plain_len(i32::from(self.i16()?)) }
    }

    /// Reads the length of bytes or records, or the count of an array: `None` is null.
    #[inline]
    pub fn long_len(&mut self, compact: bool) -> Result<Option<usize>, DecodeError> {
        if compact { self.compact_len() } else { plain_len(self.i32()?) }
    }

    #[inline]
    fn compact_len(&mut self) -> Result<Option<usize>, DecodeError> {
        // A u32 fits a usize on all that krust runs on; the bytes left bound it in the next step.
        Ok(self.unsigned_varint()?.checked_sub(1).map(|len| len as usize))
    }

    /// Reads a string or null.
    #[inline]
    pub fn nullable_string(&mut self, compact: bool) -> Result<Option<&'a str>, DecodeError> {
        let Some(len) = self.string_len(compact)? else { return Ok(None) };
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| DecodeError::Utf8)
    }

    /// Reads a string.
    #[inline]
    pub fn string(&mut self, compact: bool) -> Result<&'a str, DecodeError> {
        self.nullable_string(compact)?.ok_or(DecodeError::Null)
    }

    /// Reads bytes or null.
    #[inline]
    pub fn nullable_bytes(&mut self, compact: bool) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.long_len(compact)? {
            Some(len) => self.take(len).map(Some),
            None => Ok(None),
        }
    }

    /// Reads bytes.
    #[inline]
    pub fn bytes(&mut self, compact: bool) -> Result<&'a [u8], DecodeError> {
        self.nullable_bytes(compact)?.ok_or(DecodeError::Null)
    }

    /// Reads an array's count, and refuses it unless `count` elements of at least `min_size` bytes
    /// each can follow. `None` is null.
    #[inline]
    pub fn count(&mut self, compact: bool, min_size: usize) -> Result<Option<usize>, DecodeError> {
        let Some(count) = self.long_len(compact)? else { return Ok(None) };
        match count.checked_mul(min_size.max(1)) {
            Some(least) if least <= self.rest.len() => Ok(Some(count)),
            _ => Err(DecodeError::Truncated),
        }
    }

    /// An empty vector for `count` elements; its memory counts against the frame's budget.
    #[inline]
    pub fn allocate<T>(&mut self, count: usize) -> Result<Vec<T>, DecodeError> {
        let size = count.checked_mul(size_of::<T>()).ok_or(DecodeError::Memory)?;
        self.budget = self.budget.checked_sub(size).ok_or(DecodeError::Memory)?;
        Ok(Vec::with_capacity(count))
    }

    /// Reads the tagged fields of a struct. `known` is called for each with its tag, and this
    /// reader narrowed to the field's bytes: it decodes the field (all of it) and says true, or
    /// says false and the field is skipped by its length.
    pub fn tagged(
        &mut self,
        mut known: impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let count = self.unsigned_varint()?;
        if count > MAX_TAGS {
            return Err(DecodeError::TooManyTags(count));
        }
        let mut previous = None;
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            if previous >= Some(tag) {
                return Err(DecodeError::TagOrder(tag));
            }
            previous = Some(tag);
            let size = self.unsigned_varint()? as usize;
            let field = self.take(size)?;
            let after = std::mem::replace(&mut self.rest, field);
            if known(tag, self)? {
                self.finish()?;
            }
            self.rest = after;
        }
        Ok(())
    }

    /// Skips the tagged fields of a struct.
    pub fn skip_tagged(&mut self) -> Result<(), DecodeError> {
        self.tagged(|_, _| Ok(false))
    }
}

#[inline]
fn plain_len(len: i32) -> Result<Option<usize>, DecodeError> {
    match len {
        -1 => Ok(None),
        len => usize::try_from(len).map(Some).map_err(|_| DecodeError::Length(len)),
    }
}

/// Receives encoded bytes: a [`Writer`] keeps them, a [`Counter`] only counts them. Every message
/// is encoded through this trait, so its size always equals the number of its bytes.
pub trait Sink {
    /// Appends `bytes` as they are.
    fn raw(&mut self, bytes: &[u8]);
    /// Leaves a hole of `len` bytes, which the connection fills from a file.
    fn hole(&mut self, len: usize);

    /// Appends a boolean.
    #[inline]
    fn bool(&mut self, value: bool) {
        self.raw(&[u8::from(value)]);
    }

    /// Appends an i8.
    #[inline]
    fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends an i16.
    #[inline]
    fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends an i32.
    #[inline]
    fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends an i64.
    #[inline]
    fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends a u16.
    #[inline]
    fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends an f64.
    #[inline]
    fn f64(&mut self, value: f64) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends a UUID.
    #[inline]
    fn uuid(&mut self, value: TopicId) {
        self.raw(&value.0);
    }

    /// Appends an unsigned varint.
    #[inline]
    fn unsigned_varint(&mut self, value: u32) {
        self.unsigned_varlong(u64::from(value));
    }

    /// Appends an unsigned varint of up to 64 bits.
    #[inline]
    fn unsigned_varlong(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.raw(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.raw(&[value as u8]);
    }

    /// Appends a zigzag varint.
    fn varint(&mut self, value: i32) {
        self.unsigned_varint(((value << 1) ^ (value >> 31)) as u32);
    }

    /// Appends a zigzag varint of up to 64 bits.
    fn varlong(&mut self, value: i64) {
        self.unsigned_varlong(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Appends the length of bytes or records, or the count of an array; `None` is null.
    ///
    /// # Panics
    /// Above 2^31 - 1: our own bug.
    #[inline]
    fn long_len(&mut self, compact: bool, len: Option<usize>) {
        if compact {
            return self.compact_len(len);
        }
        let len = len.map_or(Some(-1), |len| i32::try_from(len).ok());
        assert!(len.is_some(), "a length above 2^31 - 1");
        self.i32(len.unwrap_or_default());
    }

    /// Appends a length + 1 as an unsigned varint; `None` is null.
    ///
    /// # Panics
    /// Above 2^32 - 2: our own bug.
    #[inline]
    fn compact_len(&mut self, len: Option<usize>) {
        let len = len.map_or(Some(0), |len| u32::try_from(len).ok()?.checked_add(1));
        assert!(len.is_some(), "a length above 2^32 - 2");
        self.unsigned_varint(len.unwrap_or_default());
    }

    /// Appends a string; `None` is null. The classic form ends at 32767 bytes: a longer string
    /// (a setting's value, a member's metadata, kept from a compact request) is cut there.
    #[inline]
    fn string(&mut self, compact: bool, value: Option<&str>) {
        let Some(text) = value else {
            return if compact { self.compact_len(None) } else { self.i16(-1) };
        };
        if compact {
            self.compact_len(Some(text.len()));
            return self.raw(text.as_bytes());
        }
        match i16::try_from(text.len()) {
            Ok(len) => {
                self.i16(len);
                self.raw(text.as_bytes());
            }
            Err(_) => self.string(false, Some(classic_prefix(text))),
        }
    }

    /// Appends bytes; `None` is null.
    #[inline]
    fn bytes(&mut self, compact: bool, value: Option<&[u8]>) {
        self.long_len(compact, value.map(<[u8]>::len));
        self.raw(value.unwrap_or_default());
    }
}

/// As much of a string as the classic form can hold, up to a character's end.
fn classic_prefix(text: &str) -> &str {
    let longest = (0..=i16::MAX as usize).rev().find(|end| text.is_char_boundary(*end));
    longest.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// Collects encoded bytes, and the positions of holes that a file will fill.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The encoded bytes, without those of the holes.
    pub buf: Vec<u8>,
    /// For each hole, in order, the position in `buf` before which its bytes belong.
    pub holes: Vec<usize>,
}

impl Writer {
    /// A writer that starts empty.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Sink for Writer {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    #[inline]
    fn hole(&mut self, _len: usize) {
        self.holes.push(self.buf.len());
    }
}

/// Counts the bytes that a [`Writer`] would hold, holes included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter(pub usize);

impl Sink for Counter {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn hole(&mut self, len: usize) {
        self.0 += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_a_varint_of_six_bytes_and_one_with_bits_beyond_32() {
        let overlong = [0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(Reader::new(&overlong).unsigned_varint(), Err(DecodeError::Varint));
        let beyond = [0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(Reader::new(&beyond).unsigned_varint(), Err(DecodeError::Varint));
        let largest = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(Reader::new(&largest).unsigned_varint(), Ok(u32::MAX));
    }

    #[test]
    fn refuses_a_count_that_the_bytes_left_cannot_hold() {
        let frame = [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Reader::new(&frame).count(false, 4), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&frame).count(false, 2), Ok(Some(3)));
    }

    #[test]
    fn pays_for_arrays_from_one_budget() {
        let mut reader = Reader::new(&[]);
        assert!(reader.allocate::<u8>(BUDGET_BASE - 8).is_ok());
        assert!(reader.allocate::<u64>(1).is_ok());
        assert_eq!(reader.allocate::<u8>(1), Err(DecodeError::Memory));
        assert_eq!(reader.allocate::<u64>(usize::MAX), Err(DecodeError::Memory));
    }

    #[test]
    fn refuses_tags_that_do_not_ascend_and_more_than_64() {
        assert_eq!(Reader::new(&[2, 1, 0, 1, 0]).skip_tagged(), Err(DecodeError::TagOrder(1)));
        assert_eq!(Reader::new(&[2, 1, 0, 0, 0]).skip_tagged(), Err(DecodeError::TagOrder(0)));
        assert_eq!(Reader::new(&[65]).skip_tagged(), Err(DecodeError::TooManyTags(65)));
        assert_eq!(Reader::new(&[2, 0, 0, 7, 1, 9]).skip_tagged(), Ok(()));
    }

    #[test]
    fn refuses_a_tagged_field_that_is_longer_than_its_value() {
        let mut reader = Reader::new(&[1, 0, 3, 0, 0, 0]);
        let read = reader.tagged(|_, field| field.i16().map(|_| true));
        assert_eq!(read, Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn cuts_a_string_that_the_classic_form_cannot_hold_at_a_character() {
        let mut writer = Writer::new();
        writer.string(false, Some(&"ß".repeat(20_000)));
        let read = Reader::new(&writer.buf).string(false).map(str::len);
        assert_eq!(read, Ok(32_766));
        let mut writer = Writer::new();
        writer.string(true, Some(&"ß".repeat(20_000)));
        assert_eq!(Reader::new(&writer.buf).string(true).map(str::len), Ok(40_000));
    }

    proptest! {
        #[test]
        fn varints_round_trip(short: i32, long: i64, plain: u32) {
            let mut writer = Writer::new();
            writer.varint(short);
            writer.varlong(long);
            writer.unsigned_varint(plain);
            let mut reader = Reader::new(&writer.buf);
            prop_assert_eq!(reader.varint(), Ok(short));
            prop_assert_eq!(reader.varlong(), Ok(long));
            prop_assert_eq!(reader.unsigned_varint(), Ok(plain));
            prop_assert_eq!(reader.finish(), Ok(()));
        }
    }
}
