//! A view over the bytes of a batch of magic 2: the header (see [`Header`]), then `record_count`
//! records, which are compressed together or not at all.
//! ```text
//! record: length varint, attributes int8, timestamp_delta varlong, offset_delta varint,
//!         key (varint length, -1 null), value (likewise), header count varint,
//!         header: key (varint length), value (varint length, -1 null)
//! ```
//! Invariants of a [`Batch`]: bytes = 12 + batch_length >= 61; magic 2; 0 <= record_count <=
//!     last_offset_delta + 1; record_count * 7 <= bytes of the records when not compressed.
//!     [`check`] validates the checksum and the records; [`Batch::parse`] does not.
//! Threads: a borrowed value.
//! Not promised: that it inflates. Records are read in place; the caller inflates a compressed
//!     batch first.

pub use super::build::{BatchBuilder, BatchFields, NewRecord};
pub use super::check::{TimestampBounds, ValidationResult, ValidationRules, check};
pub use super::header::{HEADER_SIZE, Header, HeaderPatch, PREFIX_SIZE, patch_header};

use super::RecordError;
use super::compression::Codec;
use super::crc::crc32c;
use super::cursor::Cursor;
use super::header::{CODEC_BITS, CRC_AT, DELETE_HORIZON, LOG_APPEND_TIME};

/// The format of this module's batches.
pub const MAGIC: i8 = 2;
/// The smallest record: seven fields of one byte.
pub const MIN_RECORD_SIZE: usize = 7;
const MAGIC_AT: usize = 16;

/// Which clock sets a record's timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's, at append.
    LogAppendTime,
}

/// A view of one batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    bytes: &'a [u8],
    header: Header,
}

impl<'a> Batch<'a> {
    /// Views the batch at the start of `bytes`; more bytes may follow it.
    ///
    /// Errors: `Truncated` if bytes are missing, `Magic` if the format is older, `Corrupt` if sizes
    /// or counts contradict each other, `UnsupportedCodec`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let present = bytes.len();
        match bytes.get(MAGIC_AT).map(|&magic| magic as i8) {
            Some(MAGIC) | None => {}
            Some(magic) => return Err(RecordError::Magic(magic)),
        }
        let header =
            Header::read(bytes).ok_or(RecordError::Truncated { needed: HEADER_SIZE, present })?;
        let size = usize::try_from(header.batch_length)
            .ok()
            .map(|length| length + PREFIX_SIZE)
            .filter(|&size| size >= HEADER_SIZE)
            .ok_or(RecordError::Corrupt("batch length is below the header's"))?;
        let bytes = bytes.get(..size).ok_or(RecordError::Truncated { needed: size, present })?;
        let batch = Self { bytes, header };
        batch.check_sizes()?;
        Ok(batch)
    }

    fn check_sizes(&self) -> Result<(), RecordError> {
        let header = &self.header;
        if header.last_offset_delta < 0 {
            return Err(RecordError::Corrupt("last offset below the first"));
        }
        if header.base_offset.checked_add(i64::from(header.last_offset_delta)).is_none() {
            return Err(RecordError::Corrupt("offsets overflow"));
        }
        if i64::from(header.record_count) > i64::from(header.last_offset_delta) + 1 {
            return Err(RecordError::Corrupt("more records than offsets"));
        }
        let count = usize::try_from(header.record_count)
            .map_err(|_| RecordError::Corrupt("negative record count"))?;
        let codec = Codec::from_bits(header.attributes)?;
        if codec == Codec::None && count.saturating_mul(MIN_RECORD_SIZE) > self.payload().len() {
            return Err(RecordError::Corrupt("more records than bytes for them"));
        }
        Ok(())
    }

    /// The header's fields.
    #[inline]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The whole batch, header included.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of the records, compressed if the batch is.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_SIZE..).unwrap_or_default()
    }

    /// Size of the whole batch in bytes.
    #[inline]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the checksum is right.
    pub fn crc_ok(&self) -> bool {
        let covered = self.bytes.get(CRC_AT + 4..).unwrap_or_default();
        crc32c(covered) == self.header.crc
    }

    /// The codec of the records.
    pub fn codec(&self) -> Codec {
        Codec::from_bits(self.header.attributes & CODEC_BITS).unwrap_or_default()
    }

    /// Whether the batch belongs to a transaction.
    pub const fn is_transactional(&self) -> bool {
        self.header.is_transactional()
    }

    /// Whether the batch holds control records (see [`control`](super::control)) instead of data.
    pub const fn is_control(&self) -> bool {
        self.header.is_control()
    }

    /// Which clock set the timestamps.
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.header.has(LOG_APPEND_TIME) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether the base timestamp is the time from which compaction may remove its tombstones.
    pub const fn has_delete_horizon(&self) -> bool {
        self.header.has(DELETE_HORIZON)
    }

    /// Offset of the first record.
    #[inline]
    pub const fn base_offset(&self) -> i64 {
        self.header.base_offset
    }

    /// Offset of the last record that was produced; compaction may have removed that record.
    #[inline]
    pub const fn last_offset(&self) -> i64 {
        self.header.base_offset.saturating_add(self.header.last_offset_delta as i64)
    }

    /// The records of an uncompressed batch. If their count or size is wrong, the last result is an
    /// error. A compressed batch yields `UnsupportedCodec`: inflate it and call
    /// [`Batch::records_in`].
    pub fn records(&self) -> BatchRecords<'a> {
        match self.codec() {
            Codec::None => self.records_in(self.payload()),
            codec => BatchRecords {
                failed: Some(RecordError::UnsupportedCodec(codec as i8)),
                ..self.records_in(&[])
            },
        }
    }

    /// The records of this batch, read from its inflated payload.
    pub fn records_in<'p>(&self, payload: &'p [u8]) -> BatchRecords<'p> {
        BatchRecords {
            origin: DeltaOrigin::of(&self.header),
            at: Cursor::new(payload),
            index: 0,
            count: self.header.record_count,
            failed: None,
        }
    }

    /// The records from a mark on; [`BatchRecords::mark`] returned it for the same payload.
    #[inline]
    pub fn records_from<'p>(&self, payload: &'p [u8], mark: RecordMark) -> BatchRecords<'p> {
        let from = payload.len().saturating_sub(mark.left);
        let at = Cursor::new(payload.get(from..).unwrap_or_default());
        BatchRecords { at, index: mark.index, ..self.records_in(payload) }
    }
}

/// A position between two records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    index: i32,
    left: usize,
}

impl RecordMark {
    /// Before the first record.
    pub const START: Self = Self { index: 0, left: usize::MAX };
}

impl Default for RecordMark {
    fn default() -> Self {
        Self::START
    }
}

/// Views each of several consecutive batches. A cut or bad tail yields one last error.
pub fn iter(bytes: &[u8]) -> Batches<'_> {
    Batches { rest: bytes }
}

/// See [`iter`].
#[derive(Clone, Copy, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Batches<'a> {
    /// The bytes after the last batch that was returned.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = Batch::parse(self.rest);
        self.rest = match &batch {
            Ok(batch) => self.rest.get(batch.size()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(batch)
    }
}

/// The base values to which a record's deltas are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaOrigin {
    base_offset: i64,
    base_timestamp: i64,
    log_append_time: Option<i64>,
}

impl DeltaOrigin {
    pub(crate) const fn of(header: &Header) -> Self {
        Self {
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            log_append_time: if header.has(LOG_APPEND_TIME) {
                Some(header.max_timestamp)
            } else {
                None
            },
        }
    }
}

/// A view of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset in the partition.
    pub offset: i64,
    /// Its timestamp in milliseconds; the batch's timestamp type says which clock; -1: none.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// Reads the fields that follow a record's length; `body` has exactly that length.
    #[inline]
    pub(crate) fn read(body: &'a [u8], origin: &DeltaOrigin) -> Result<Self, &'static str> {
        let mut at = Cursor::new(body);
        at.int8().ok_or("empty record")?;
        let timestamp_delta = at.varlong().ok_or("bad timestamp delta")?;
        let offset_delta = at.varint().ok_or("bad offset delta")?;
        let key = at.nullable().ok_or("bad key length")?;
        let value = at.nullable().ok_or("bad value length")?;
        let headers = Headers::read(&mut at)?;
        Ok(Self {
            offset: origin.base_offset.wrapping_add(i64::from(offset_delta)),
            timestamp: origin
                .log_append_time
                .unwrap_or_else(|| origin.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            headers,
        })
    }
}

/// A record's headers; reading the record has checked them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// The number of headers.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the record has no header.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each header's key and value. The key should be UTF-8; that is not checked.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut at = Cursor::new(self.bytes);
        std::iter::from_fn(move || header(&mut at))
    }

    /// Reads the count and the headers; nothing may follow them.
    #[inline]
    fn read(at: &mut Cursor<'a>) -> Result<Self, &'static str> {
        let count = at.varint().ok_or("bad header count")?;
        if count == 0 && at.rest.is_empty() {
            return Ok(Self::default());
        }
        Self::read_some(at, count)
    }

    fn read_some(at: &mut Cursor<'a>, count: i32) -> Result<Self, &'static str> {
        let count = usize::try_from(count).map_err(|_| "negative header count")?;
        let bytes = at.rest;
        if count > bytes.len() {
            return Err("more headers than bytes");
        }
        for _ in 0..count {
            header(at).ok_or("bad header")?;
        }
        if at.rest.is_empty() {
            Ok(Self { count, bytes })
        } else {
            Err("bytes left over in a record")
        }
    }
}

#[inline]
fn header<'a>(at: &mut Cursor<'a>) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    Some((at.nullable()??, at.nullable()?))
}

/// Reads a record's length and takes that many bytes.
#[inline(always)]
pub(crate) fn body<'a>(at: &mut Cursor<'a>) -> Result<&'a [u8], &'static str> {
    let length = at.varint().ok_or("bad record length")?;
    usize::try_from(length)
        .ok()
        .and_then(|length| at.bytes(length))
        .ok_or("record reaches past the batch")
}

/// See [`Batch::records`].
#[derive(Clone, Debug)]
pub struct BatchRecords<'a> {
    origin: DeltaOrigin,
    at: Cursor<'a>,
    index: i32,
    count: i32,
    failed: Option<RecordError>,
}

impl BatchRecords<'_> {
    /// The position before the next record.
    #[inline]
    pub const fn mark(&self) -> RecordMark {
        RecordMark { index: self.index, left: self.at.rest.len() }
    }
}

impl<'a> Iterator for BatchRecords<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            self.count = self.index;
            self.at.rest = &[];
            return Some(Err(error));
        }
        if self.index == self.count {
            let left_over = !std::mem::take(&mut self.at.rest).is_empty();
            return left_over
                .then(|| Err(RecordError::batch("bytes left over after the last record")));
        }
        let index = self.index;
        match body(&mut self.at).and_then(|body| Record::read(body, &self.origin)) {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => {
                self.count = index;
                self.at.rest = &[];
                Some(Err(RecordError::Invalid { index, reason }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(timestamp: i64, key: &'a str, value: &'a str) -> NewRecord<'a> {
        NewRecord {
            timestamp,
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &[],
        }
    }

    fn three(fields: &BatchFields) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.add(&entry(1000, "a", "first"));
        builder
            .add(&NewRecord { headers: &[("h", Some(b"1")), ("n", None)], ..entry(1005, "b", "") });
        builder.add(&NewRecord { timestamp: 1002, ..NewRecord::default() });
        builder.to_bytes(fields).unwrap()
    }

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    #[test]
    fn a_built_batch_reads_back_in_every_codec() {
        for codec in CODECS {
            let bytes = three(&BatchFields { base_offset: 7, codec, ..BatchFields::default() });
            let batch = Batch::parse(&bytes).unwrap();
            assert!(batch.crc_ok());
            assert_eq!((batch.codec(), batch.last_offset()), (codec, 9));
            let mut payload = Vec::new();
            let inflate = super::super::compression::Inflate::new(codec, batch.payload()).unwrap();
            inflate.read_all(1 << 20, &mut payload).unwrap();
            let records: Vec<_> = batch.records_in(&payload).map(Result::unwrap).collect();
            assert_eq!(records.len(), 3);
            assert_eq!((records[1].offset, records[1].timestamp), (8, 1005));
            let headers: Vec<_> = records[1].headers.iter().collect();
            assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..])), (&b"n"[..], None)]);
            assert_eq!((records[2].key, records[2].value), (None, None));
        }
    }

    #[test]
    fn check_finds_the_largest_time_and_misses_no_key() {
        for codec in CODECS {
            let bytes = three(&BatchFields { codec, ..BatchFields::default() });
            let batch = Batch::parse(&bytes).unwrap();
            let validated = check(&batch, &ValidationRules::default()).unwrap();
            assert_eq!((validated.max_timestamp, validated.record_count), (1005, 3));
            let missing =
                check(&batch, &ValidationRules { need_keys: true, ..ValidationRules::default() });
            let reason = "a compacted topic takes no record without a key";
            assert_eq!(missing, Err(RecordError::Invalid { index: 2, reason }), "{codec:?}");
        }
    }

    #[test]
    fn a_patch_of_offset_and_epoch_leaves_the_checksum_alone() {
        let bytes = three(&BatchFields::default());
        let batch = Batch::parse(&bytes).unwrap();
        let max_timestamp = batch.header().max_timestamp;
        for log_append_time in [None, Some(9999)] {
            let patch =
                HeaderPatch { base_offset: 50, leader_epoch: 4, max_timestamp, log_append_time };
            let header = patch_header(&batch, &patch);
            let stored = [&header[..], batch.payload()].concat();
            let stored = Batch::parse(&stored).unwrap();
            assert!(stored.crc_ok());
            assert_eq!(stored.header().crc == batch.header().crc, log_append_time.is_none());
            let first = stored.records().next().unwrap().unwrap();
            assert_eq!((first.offset, first.timestamp), (50, log_append_time.unwrap_or(1000)));
        }
    }
}
