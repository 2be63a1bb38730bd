//! The header of a batch of magic 2 (61 bytes): reading, writing and patching it.
//! ```text
//! base_offset int64, batch_length int32 (of what follows), leader_epoch int32, magic int8 = 2,
//! crc uint32 (CRC-32C of what follows), attributes int16, last_offset_delta int32,
//! base_timestamp int64, max_timestamp int64, producer_id int64, producer_epoch int16,
//! base_sequence int32, record_count int32
//! ```
//! Attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon (the
//! base timestamp is then the time from which compaction may remove tombstones).
//! Invariant: the broker may set base_offset and leader_epoch without touching the checksum.

use super::RecordError;
use super::batch::Batch;
use super::crc::Crc32c;
use super::cursor::Cursor;

/// Bytes of a batch before its records.
pub const HEADER_SIZE: usize = 61;
/// Bytes of a batch that its `batch_length` does not count.
pub const PREFIX_SIZE: usize = 12;
/// Position of the checksum; it covers all bytes after it.
pub(crate) const CRC_AT: usize = 17;

pub(crate) const CODEC_BITS: i16 = 0x07;
pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
pub(crate) const TRANSACTIONAL: i16 = 0x10;
pub(crate) const CONTROL: i16 = 0x20;
pub(crate) const DELETE_HORIZON: i16 = 0x40;

/// The header of a batch, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the batch after this field.
    pub batch_length: i32,
    /// Epoch of the leader that appended it; -1 from a producer.
    pub leader_epoch: i32,
    /// The format: 2.
    pub magic: i8,
    /// CRC-32C of everything after this field.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: i16,
    /// Offset of the last record, less the base offset.
    pub last_offset_delta: i32,
    /// Time that the records' deltas are added to, in milliseconds.
    pub base_timestamp: i64,
    /// The largest time of any record; with log append time, the time of each.
    pub max_timestamp: i64,
    /// Id of an idempotent or transactional producer; -1: none.
    pub producer_id: i64,
    /// Epoch of that producer; -1: none.
    pub producer_epoch: i16,
    /// Sequence number of the first record; -1: none.
    pub base_sequence: i32,
    /// Number of records; compaction makes it smaller than the range of offsets.
    pub record_count: i32,
}

/// The fields that the broker sets in a batch before it stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderPatch {
    /// Offset of the first record.
    pub base_offset: i64,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The largest time of any record, as [`check`](super::batch::check) found it.
    pub max_timestamp: i64,
    /// The broker's time in milliseconds, for topics with log append time.
    pub log_append_time: Option<i64>,
}

impl Header {
    /// Reads a header without checking its fields; `None` if there are fewer than 61 bytes.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut at = Cursor::new(bytes.first_chunk::<HEADER_SIZE>()?);
        Some(Self {
            base_offset: at.int64()?,
            batch_length: at.int32()?,
            leader_epoch: at.int32()?,
            magic: at.int8()?,
            crc: at.array().map(u32::from_be_bytes)?,
            attributes: at.int16()?,
            last_offset_delta: at.int32()?,
            base_timestamp: at.int64()?,
            max_timestamp: at.int64()?,
            producer_id: at.int64()?,
            producer_epoch: at.int16()?,
            base_sequence: at.int32()?,
            record_count: at.int32()?,
        })
    }

    /// The header's bytes; the checksum is the value of the field.
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let mut rest: &mut [u8] = &mut bytes;
        put(&mut rest, self.base_offset.to_be_bytes());
        put(&mut rest, self.batch_length.to_be_bytes());
        put(&mut rest, self.leader_epoch.to_be_bytes());
        put(&mut rest, self.magic.to_be_bytes());
        put(&mut rest, self.crc.to_be_bytes());
        put(&mut rest, self.attributes.to_be_bytes());
        put(&mut rest, self.last_offset_delta.to_be_bytes());
        put(&mut rest, self.base_timestamp.to_be_bytes());
        put(&mut rest, self.max_timestamp.to_be_bytes());
        put(&mut rest, self.producer_id.to_be_bytes());
        put(&mut rest, self.producer_epoch.to_be_bytes());
        put(&mut rest, self.base_sequence.to_be_bytes());
        put(&mut rest, self.record_count.to_be_bytes());
        bytes
    }

    /// The header's bytes; the checksum is computed over the header and `records`.
    pub fn seal(&self, records: &[u8]) -> [u8; HEADER_SIZE] {
        let bytes = self.to_bytes();
        let mut crc = Crc32c::new();
        crc.update(bytes.split_at(CRC_AT + 4).1);
        crc.update(records);
        Self { crc: crc.value(), ..*self }.to_bytes()
    }

    /// Writes the header at `start` of `out`, where the caller left room; the records follow it up
    /// to the end of `out`. Sets length and checksum.
    pub(crate) fn seal_into(mut self, out: &mut [u8], start: usize) -> Result<(), RecordError> {
        let batch = out.get_mut(start..).unwrap_or_default();
        let size = batch.len();
        self.batch_length = size
            .checked_sub(PREFIX_SIZE)
            .and_then(|length| i32::try_from(length).ok())
            .ok_or(RecordError::TooLarge { size, limit: i32::MAX as usize })?;
        if let Some((head, records)) = batch.split_first_chunk_mut::<HEADER_SIZE>() {
            *head = self.seal(records);
        }
        Ok(())
    }

    /// Whether the batch belongs to a transaction.
    pub const fn is_transactional(&self) -> bool {
        self.has(TRANSACTIONAL)
    }

    /// Whether the batch holds control records instead of data.
    pub const fn is_control(&self) -> bool {
        self.has(CONTROL)
    }

    /// Whether `bit` of the attributes is set.
    pub(crate) const fn has(&self, bit: i16) -> bool {
        self.attributes & bit != 0
    }
}

/// The header to store in front of `batch`'s records. The checksum is computed again only if a
/// field under it changes: log append time, or a wrong largest timestamp of the producer.
pub fn patch_header(batch: &Batch<'_>, patch: &HeaderPatch) -> [u8; HEADER_SIZE] {
    let mut header = *batch.header();
    header.base_offset = patch.base_offset;
    header.leader_epoch = patch.leader_epoch;
    header.max_timestamp = patch.max_timestamp;
    if let Some(now_ms) = patch.log_append_time {
        header.attributes |= LOG_APPEND_TIME;
        header.max_timestamp = now_ms;
    }
    let old = batch.header();
    if header.attributes == old.attributes && header.max_timestamp == old.max_timestamp {
        header.to_bytes()
    } else {
        header.seal(batch.payload())
    }
}

#[inline(always)]
fn put<const N: usize>(out: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((head, rest)) = std::mem::take(out).split_first_chunk_mut::<N>() {
        *head = bytes;
        *out = rest;
    }
}
