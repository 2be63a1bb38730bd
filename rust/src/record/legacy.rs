//! Messages of magic 0 and 1, and message sets: the formats before record batches.
//! ```text
//! set: consecutive messages; the last one may be cut
//! message: offset int64, size int32 (of what follows), crc uint32 (CRC-32 of what follows),
//!          magic int8, attributes int8, timestamp int64 (magic 1 only),
//!          key (int32 length, -1 null), value (likewise)
//! ```
//! Attributes: bits 0-2 codec (no zstd), 3 (magic 1) log append time. A message with a codec is a
//!     *wrapper*: its value is a compressed set of inner messages of the same magic. Wrappers do
//!     not nest.
//! Offsets of inner messages: absolute in magic 0; relative in magic 1, where the wrapper's offset
//!     is that of the last inner message. Only offsets that a broker assigned have a meaning.
//! Timestamps: magic 0 has none (-1). The timestamp of a wrapper with log append time applies to
//!     all its inner messages.
//! Threads: borrowed values.
//! Checksums: [`Message::parse`] leaves the check to its caller ([`Message::crc_ok`]); [`records`]
//!     checks those of inner messages.

use super::RecordError;
use super::batch::{Headers, Record, TimestampType};
use super::compression::{Codec, Inflate, failed};
use super::crc::crc32;
use super::cursor::Cursor;

/// Bytes of a message that its `size` does not count.
pub const PREFIX_SIZE: usize = 12;
/// Where the bytes begin that the checksum covers.
const COVERED_AT: usize = 16;
const MAGIC_AT: usize = 16;
/// The attribute bit of log append time.
pub(crate) const LOG_APPEND_TIME: i8 = 0x08;

/// A view of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a [u8],
    crc: u32,
    attributes: i8,
    /// The format: 0 or 1.
    pub magic: i8,
    /// The offset field; the module's contract explains those of inner messages.
    pub offset: i64,
    /// Its time in milliseconds; -1: none.
    pub timestamp: i64,
    /// The codec of the value. If it is not `None`, the message is a wrapper.
    pub codec: Codec,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Views the message at the start of `bytes`; more bytes may follow it.
    ///
    /// Errors: `Truncated` if bytes are missing, `Magic` if it is neither 0 nor 1, `Corrupt` if its
    /// sizes contradict each other, `UnsupportedCodec`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let present = bytes.len();
        match bytes.get(MAGIC_AT).map(|&magic| magic as i8) {
            Some(0 | 1) | None => {}
            Some(magic) => return Err(RecordError::Magic(magic)),
        }
        let mut at = Cursor::new(bytes);
        let cut = RecordError::Truncated { needed: COVERED_AT + 1, present };
        let offset = at.int64().ok_or(cut)?;
        let size = at.int32().ok_or(cut)?;
        let size = usize::try_from(size).map_err(|_| RecordError::Corrupt("message size"))?;
        let needed = PREFIX_SIZE + size;
        let bytes = bytes.get(..needed).ok_or(RecordError::Truncated { needed, present })?;
        Self::fields(bytes, offset).ok_or(RecordError::Corrupt("message sizes"))?
    }

    fn fields(bytes: &'a [u8], offset: i64) -> Option<Result<Self, RecordError>> {
        let mut at = Cursor::new(bytes.get(PREFIX_SIZE..)?);
        let crc = at.array().map(u32::from_be_bytes)?;
        let magic = at.int8()?;
        let attributes = at.int8()?;
        let timestamp = if magic == 0 { -1 } else { at.int64()? };
        let key = at.nullable32()?;
        let value = at.nullable32()?;
        if !at.rest.is_empty() {
            return None;
        }
        let codec = match Codec::from_bits(i16::from(attributes)) {
            Ok(Codec::Zstd) => return Some(Err(RecordError::UnsupportedCodec(4))),
            Ok(codec) => codec,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Self { bytes, crc, attributes, magic, offset, timestamp, codec, key, value }))
    }

    /// The whole message, offset and size included.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Size of the whole message in bytes.
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the checksum is right.
    pub fn crc_ok(&self) -> bool {
        crc32(self.bytes.get(COVERED_AT..).unwrap_or_default()) == self.crc
    }

    /// Which clock set the timestamp.
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.magic == 1 && self.attributes & LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Checks an inner message of `wrapper`.
    pub(crate) fn check_inner(&self, wrapper: &Self) -> Result<(), RecordError> {
        if !self.crc_ok() {
            return Err(RecordError::Corrupt("checksum of an inner message"));
        }
        if self.magic != wrapper.magic {
            return Err(RecordError::batch("a wrapper holds messages of another magic"));
        }
        if self.codec != Codec::None {
            return Err(RecordError::batch("a wrapper inside of a wrapper"));
        }
        Ok(())
    }

    fn record(&self, base: i64, time: Option<i64>) -> Record<'a> {
        Record {
            offset: base.wrapping_add(self.offset),
            timestamp: time.unwrap_or(self.timestamp),
            key: self.key,
            value: self.value,
            headers: Headers::default(),
        }
    }

    /// The timestamp that replaces those of the inner messages, if this is log append time.
    pub(crate) fn wrapper_timestamp(&self) -> Option<i64> {
        (self.timestamp_type() == TimestampType::LogAppendTime).then_some(self.timestamp)
    }
}

/// Views each message of a set; wrappers are not unpacked. A cut or bad tail yields one last error.
/// A set may end in a cut message, so `Truncated` is not always damage.
pub const fn iter(set: &[u8]) -> Messages<'_> {
    Messages { rest: set }
}

/// See [`iter`].
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = Message::parse(self.rest);
        self.rest = match &message {
            Ok(message) => self.rest.get(message.size()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(message)
    }
}

/// The records of a stored message, with offsets and timestamps as consumers see them: the message
/// itself, or the inner messages of a wrapper, which are inflated into `inflated` (at most `limit`
/// bytes; see [`Inflate`]).
///
/// Errors: `Corrupt` and `Invalid` if the inner set is cut, damaged, empty, or holds a wrapper;
/// `TooLarge`.
pub fn records<'a>(
    message: &Message<'a>,
    limit: usize,
    inflated: &'a mut Vec<u8>,
) -> Result<MessageRecords<'a>, RecordError> {
    if message.codec == Codec::None {
        return Ok(MessageRecords { set: iter(message.bytes), base: 0, time: None });
    }
    inflated.clear();
    Inflate::new(message.codec, message.value.unwrap_or_default())
        .map_err(failed)?
        .read_all(limit, inflated)?;
    let mut last = None;
    for inside in iter(inflated) {
        let inside = inside?;
        inside.check_inner(message)?;
        last = Some(inside.offset);
    }
    let last = last.ok_or(RecordError::batch("an empty wrapper"))?;
    let base = if message.magic == 0 { 0 } else { message.offset.wrapping_sub(last) };
    Ok(MessageRecords { set: iter(inflated), base, time: message.wrapper_timestamp() })
}

/// See [`records`].
#[derive(Clone, Copy, Debug)]
pub struct MessageRecords<'a> {
    set: Messages<'a>,
    base: i64,
    time: Option<i64>,
}

impl<'a> Iterator for MessageRecords<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        self.set.next()?.ok().map(|message| message.record(self.base, self.time))
    }
}

/// A message to add to a set.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewMessage<'a> {
    /// The format: 0 or 1.
    pub magic: i8,
    /// Codec and flags.
    pub attributes: i8,
    /// Its offset.
    pub offset: i64,
    /// Its time in milliseconds; not written in magic 0.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
}

/// Appends a message to a set.
pub fn put(out: &mut Vec<u8>, message: &NewMessage<'_>) {
    let start = out.len();
    let length = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| int32(bytes.len()));
    let (key, value) = (message.key.unwrap_or_default(), message.value.unwrap_or_default());
    out.reserve(COVERED_AT + 18 + key.len() + value.len());
    let [a, b, c, d, e, f, g, h] = message.offset.to_be_bytes();
    out.extend_from_slice(&[a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]);
    put_fields(out, message);
    out.extend_from_slice(&length(message.key).to_be_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(&length(message.value).to_be_bytes());
    out.extend_from_slice(value);
    seal(out, start);
}

/// Begins a wrapper: writes everything before its value; the caller appends the value. Returns the
/// wrapper's position.
pub(crate) fn begin_wrapper(out: &mut Vec<u8>, wrapper: &NewMessage<'_>) -> usize {
    let start = out.len();
    out.extend_from_slice(&wrapper.offset.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    put_fields(out, wrapper);
    put_nullable32(out, None);
    put_nullable32(out, None);
    start
}

/// Ends the wrapper that began at `start`: sets its offset, timestamp, sizes and checksum.
pub(crate) fn end_wrapper(out: &mut [u8], start: usize, wrapper: &NewMessage<'_>) {
    let head = COVERED_AT + if wrapper.magic == 0 { 10 } else { 18 };
    let value = int32(out.len().saturating_sub(start + head));
    overwrite(out, start, wrapper.offset.to_be_bytes());
    if wrapper.magic != 0 {
        overwrite(out, start + COVERED_AT + 2, wrapper.timestamp.to_be_bytes());
    }
    overwrite(out, start + head - 4, value.to_be_bytes());
    seal(out, start);
}

#[inline]
fn put_fields(out: &mut Vec<u8>, message: &NewMessage<'_>) {
    out.extend_from_slice(&message.magic.to_be_bytes());
    out.extend_from_slice(&message.attributes.to_be_bytes());
    if message.magic != 0 {
        out.extend_from_slice(&message.timestamp.to_be_bytes());
    }
}

#[inline]
fn put_nullable32(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.extend_from_slice(&bytes.map_or(-1, |bytes| int32(bytes.len())).to_be_bytes());
    out.extend_from_slice(bytes.unwrap_or_default());
}

/// Sets size and checksum of the message that begins at `start` and ends with `out`.
#[inline]
fn seal(out: &mut [u8], start: usize) {
    let size = int32(out.len().saturating_sub(start + PREFIX_SIZE));
    let crc = crc32(out.get(start + COVERED_AT..).unwrap_or_default());
    overwrite(out, start + 8, size.to_be_bytes());
    overwrite(out, start + PREFIX_SIZE, crc.to_be_bytes());
}

#[inline]
fn overwrite<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = out.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

/// A length as int32; every input came in a frame whose length is an int32.
#[inline]
fn int32(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
