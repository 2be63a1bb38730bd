//! One batch of columns, filled from chunks of records.
//!
//! Keys and values are copied once, from the fetched or decompressed batch to the column. Values
//! that all records of a chunk share (topic, partition, timestamp type) are written as runs.
//! Invariant: every column has `rows` entries, so every record is complete.
//! Memory: the record that reaches [`ScanLimits`] closes the batch, so it exceeds `bytes` by one
//!     record at most.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use super::buffer_pool::PooledBuffer;
use super::{Column, Projection, header_fields};
use crate::client::chunk::Chunk;
use crate::client::{Error, Result};
use crate::record::batch::{Headers, Record};

/// The most rows of a batch: as many as keep the column of the longest topic name below 2 GiB.
const ROWS_MAX: usize = 1 << 22;
/// The most bytes before a batch is closed.
const BYTES_MAX: usize = 1 << 30;

/// How many times a topic's name is written at once.
const BLOCK: usize = 64;

/// The size at which a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// The number of its records.
    pub rows: usize,
    /// The bytes of keys, values and headers in it.
    pub bytes: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { rows: 65_536, bytes: 8 << 20 }
    }
}

/// The batch of columns that is being filled (see the module).
pub struct ColumnsBuilder {
    projection: Projection,
    requested: ScanLimits,
    limits: ScanLimits,
    rows: usize,
    bytes: usize,
    key: Option<BytesColumn>,
    value: Option<BytesColumn>,
    headers: Option<HeadersColumn>,
    offset: Option<PooledBuffer>,
    timestamp: Option<PooledBuffer>,
    topic: Option<BytesColumn>,
    partition: Option<PooledBuffer>,
    timestamp_type: Option<PooledBuffer>,
}

impl ColumnsBuilder {
    /// An empty batch of these columns.
    pub fn new(projection: Projection, requested: ScanLimits) -> Self {
        let limits = ScanLimits {
            rows: requested.rows.clamp(1, ROWS_MAX),
            bytes: requested.bytes.clamp(1, BYTES_MAX),
        };
        let texts = |column| projection.has(column).then(BytesColumn::new);
        let plain = |column| projection.has(column).then(PooledBuffer::default);
        Self {
            requested,
            limits,
            rows: 0,
            bytes: 0,
            key: texts(Column::Key),
            value: texts(Column::Value),
            headers: projection.has(Column::Headers).then(HeadersColumn::new),
            offset: plain(Column::Offset),
            timestamp: plain(Column::Timestamp),
            topic: texts(Column::Topic),
            partition: plain(Column::Partition),
            timestamp_type: plain(Column::TimestampType),
            projection,
        }
    }

    /// The columns.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The limits as they were requested.
    pub fn requested_limits(&self) -> &ScanLimits {
        &self.requested
    }

    /// Records in the batch so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the batch takes no more records.
    pub fn is_full(&self) -> bool {
        self.rows >= self.limits.rows || self.bytes >= self.limits.bytes
    }

    /// Adds records of a chunk until the chunk ends or the batch is full; `false`: it is full. The
    /// records before one that cannot be read are added.
    pub fn take(&mut self, chunk: &mut Chunk) -> Result<bool> {
        while !self.is_full() {
            if !chunk.open()? {
                return Ok(true);
            }
            let (topic, partition) = (Arc::clone(&chunk.topic), chunk.partition);
            let (before, mut timestamp_type) = (self.rows, 0);
            let shown = chunk.visit(|record, origin| {
                timestamp_type = origin.timestamp_type;
                self.add(record);
                !self.is_full()
            });
            let added = self.rows - before;
            if let Some(column) = &mut self.topic {
                column.repeat(topic.as_bytes(), added);
            }
            repeat(self.partition.as_mut(), partition, added);
            repeat(self.timestamp_type.as_mut(), i32::from(timestamp_type), added);
            shown?;
        }
        Ok(false)
    }

    #[inline(always)]
    fn add(&mut self, record: &Record<'_>) {
        if let Some(column) = &mut self.key {
            self.bytes += column.add(record.key);
        }
        if let Some(column) = &mut self.value {
            self.bytes += column.add(record.value);
        }
        if let Some(column) = &mut self.offset {
            column.buffer.push(record.offset);
        }
        if let Some(column) = &mut self.timestamp {
            column.buffer.push(record.timestamp.saturating_mul(1000));
        }
        if let Some(column) = &mut self.headers {
            self.bytes += column.add(&record.headers);
        }
        self.rows += 1;
    }

    /// Returns the batch and starts an empty one; `None`: the batch has no record.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows == 0 {
            return Ok(None);
        }
        let columns = self.projection.columns().to_vec();
        let arrays = columns.into_iter().map(|column| self.array(column, rows));
        let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>().map_err(invalid)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.projection.schema(), arrays, &options)
            .map(Some)
            .map_err(invalid)
    }

    fn array(&mut self, column: Column, rows: usize) -> std::result::Result<ArrayRef, ArrowError> {
        Ok(match column {
            Column::Key => Arc::new(binary(&mut self.key)?),
            Column::Value => Arc::new(binary(&mut self.value)?),
            Column::Topic => Arc::new(utf8(&mut self.topic)?),
            Column::Partition => {
                Arc::new(Int32Array::try_new(plain(&mut self.partition, rows), None)?)
            }
            Column::TimestampType => {
                Arc::new(Int32Array::try_new(plain(&mut self.timestamp_type, rows), None)?)
            }
            Column::Offset => Arc::new(Int64Array::try_new(plain(&mut self.offset, rows), None)?),
            Column::Timestamp => {
                let times = plain(&mut self.timestamp, rows);
                let times = TimestampMicrosecondArray::try_new(times, None)?;
                Arc::new(times.with_timezone_opt(Some("UTC")))
            }
            Column::Headers => Arc::new(lists(&mut self.headers)?),
        })
    }
}

/// A batch that Arrow refuses is a fault of this file.
fn invalid(error: ArrowError) -> Error {
    Error::Invalid(format!("a batch of columns: {error}"))
}

/// The rows that have a value. It is empty while all rows have one.
#[derive(Default)]
struct Validity {
    rows: usize,
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    #[inline(always)]
    fn add(&mut self, valid: bool) {
        if !valid && self.bits.is_none() {
            let mut bits = BooleanBufferBuilder::new(self.rows + 1024);
            bits.append_n(self.rows, true);
            self.bits = Some(bits);
        }
        if let Some(bits) = &mut self.bits {
            bits.append(valid);
        }
        self.rows += 1;
    }

    fn finish(&mut self) -> Option<NullBuffer> {
        self.rows = 0;
        self.bits.take().map(|mut bits| NullBuffer::new(bits.finish()))
    }
}

/// Bytes of any length, one after the other.
struct BytesColumn {
    offsets: PooledBuffer,
    bytes: PooledBuffer,
    validity: Validity,
}

impl BytesColumn {
    fn new() -> Self {
        let mut texts = Self {
            offsets: PooledBuffer::default(),
            bytes: PooledBuffer::default(),
            validity: Validity::default(),
        };
        texts.offsets.buffer.push(0i32);
        texts
    }

    /// Returns how many bytes were added.
    #[inline(always)]
    fn add(&mut self, text: Option<&[u8]>) -> usize {
        self.validity.add(text.is_some());
        let text = text.unwrap_or_default();
        self.bytes.buffer.extend_from_slice(text);
        self.offsets.buffer.push(offset(self.bytes.buffer.len()));
        text.len()
    }

    fn repeat(&mut self, text: &[u8], count: usize) {
        self.validity.rows += count;
        self.bytes.buffer.reserve(text.len() * count);
        let start = self.bytes.buffer.len();
        let block = text.repeat(count.min(BLOCK));
        for _ in 0..count / BLOCK {
            self.bytes.buffer.extend_from_slice(&block);
        }
        let rest = block.get(..text.len() * (count % BLOCK)).unwrap_or_default();
        self.bytes.buffer.extend_from_slice(rest);
        let ends = (1..=count).map(|number| offset(start + number * text.len()));
        self.offsets.buffer.extend(ends);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, arrow_buffer::Buffer, Option<NullBuffer>) {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets.lend()));
        self.offsets.buffer.push(0i32);
        (offsets, self.bytes.lend(), self.validity.finish())
    }
}

/// Headers of each record.
struct HeadersColumn {
    offsets: PooledBuffer,
    count: usize,
    keys: BytesColumn,
    values: BytesColumn,
    validity: Validity,
}

impl HeadersColumn {
    fn new() -> Self {
        let (keys, values) = (BytesColumn::new(), BytesColumn::new());
        let (offsets, validity) = (PooledBuffer::default(), Validity::default());
        let mut lists = Self { offsets, count: 0, keys, values, validity };
        lists.offsets.buffer.push(0i32);
        lists
    }

    /// Returns how many bytes were added. Each header also counts the size of its entries in the
    /// columns.
    #[inline(always)]
    fn add(&mut self, headers: &Headers<'_>) -> usize {
        self.validity.add(!headers.is_empty());
        let mut bytes = 0;
        if !headers.is_empty() {
            for (key, value) in headers.iter() {
                let key = String::from_utf8_lossy(key);
                bytes += 8 + self.keys.add(Some(key.as_bytes())) + self.values.add(value);
            }
            self.count += headers.len();
        }
        self.offsets.buffer.push(offset(self.count));
        bytes
    }
}

/// A column's length as Arrow writes it: the limits keep it far below 2 GiB.
#[inline(always)]
fn offset(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

fn repeat(column: Option<&mut PooledBuffer>, value: i32, count: usize) {
    if let Some(column) = column {
        column.buffer.extend(std::iter::repeat_n(value, count));
    }
}

fn plain<T: arrow_buffer::ArrowNativeType>(
    column: &mut Option<PooledBuffer>,
    rows: usize,
) -> ScalarBuffer<T> {
    match column {
        Some(column) => ScalarBuffer::from(column.lend()),
        None => ScalarBuffer::from(vec![T::default(); rows]),
    }
}

fn binary(column: &mut Option<BytesColumn>) -> std::result::Result<BinaryArray, ArrowError> {
    let (offsets, bytes, nulls) = column.get_or_insert_with(BytesColumn::new).finish();
    BinaryArray::try_new(offsets, bytes, nulls)
}

fn utf8(column: &mut Option<BytesColumn>) -> std::result::Result<StringArray, ArrowError> {
    let (offsets, bytes, nulls) = column.get_or_insert_with(BytesColumn::new).finish();
    StringArray::try_new(offsets, bytes, nulls)
}

fn lists(column: &mut Option<HeadersColumn>) -> std::result::Result<ListArray, ArrowError> {
    let column = column.get_or_insert_with(HeadersColumn::new);
    let (offsets, bytes, _) = column.keys.finish();
    let keys: ArrayRef = Arc::new(StringArray::try_new(offsets, bytes, None)?);
    let (offsets, bytes, nulls) = column.values.finish();
    let values: ArrayRef = Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?);
    let pairs = StructArray::try_new(header_fields(), vec![keys, values], None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(column.offsets.lend()));
    column.offsets.buffer.push(0i32);
    column.count = 0;
    let DataType::List(field) = Column::Headers.data_type() else {
        return Err(ArrowError::SchemaError("headers are a list".to_owned()));
    };
    ListArray::try_new(field, offsets, Arc::new(pairs), column.validity.finish())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};

    use super::*;
    use crate::client::chunk::ChunkParts;
    use crate::record::batch::{BatchBuilder, BatchFields, NewRecord};
    use crate::record::compression::Codec;
    use crate::record::crc::crc32c;

    const NAMES: [&str; 8] =
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"];

    fn builder(names: &[&str], rows: usize) -> ColumnsBuilder {
        let limits = ScanLimits { rows, ..ScanLimits::default() };
        ColumnsBuilder::new(Projection::of(names).unwrap(), limits)
    }

    fn chunk(bytes: Vec<u8>, first: i64, end: Option<i64>) -> Chunk {
        let (topic, hidden, bytes) = ("t".into(), HashSet::new(), bytes.into());
        Chunk::new(ChunkParts { topic, partition: 7, first, end, magic: 2, bytes, hidden }, -1)
    }

    fn batch(offsets: std::ops::Range<i64>, fields: &BatchFields) -> Vec<u8> {
        let mut batches = BatchBuilder::new();
        let base_offset = offsets.start;
        for offset in offsets {
            let text = offset.to_string();
            let headers: &[(&str, Option<&[u8]>)] = &[("a", Some(b"1")), ("b", None)];
            batches.add(&NewRecord {
                timestamp: 1000 + offset,
                key: (offset % 2 == 0).then_some(text.as_bytes()),
                value: (offset % 3 > 0).then_some(text.as_bytes()),
                headers: if offset % 5 == 0 { headers } else { &[] },
            });
        }
        batches.to_bytes(&BatchFields { base_offset, ..*fields }).unwrap()
    }

    fn offsets(batch: &RecordBatch) -> Vec<i64> {
        let at = batch.schema().index_of("offset").unwrap();
        batch.column(at).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn every_field_of_a_record_is_in_its_column() {
        let fields = BatchFields { log_append_time: Some(5), ..BatchFields::default() };
        let bytes = [batch(10..12, &BatchFields::default()), batch(12..14, &fields)].concat();
        let mut builder = builder(&NAMES, 100);
        assert!(builder.take(&mut chunk(bytes, 0, None)).unwrap());
        let batch = builder.finish().unwrap().unwrap();
        assert_eq!(batch.schema(), builder.projection().schema());
        let binary = |at: usize, row: usize| {
            let array = batch.column(at).as_binary::<i32>();
            array.is_valid(row).then(|| array.value(row).to_vec())
        };
        assert_eq!(
            (0..4).map(|row| binary(0, row)).collect::<Vec<_>>(),
            [Some(b"10".to_vec()), None, Some(b"12".to_vec()), None]
        );
        assert_eq!((binary(1, 1), binary(1, 2)), (Some(b"11".to_vec()), None));
        assert!(batch.column(2).as_string::<i32>().iter().all(|topic| topic == Some("t")));
        assert_eq!(batch.column(3).as_primitive::<Int32Type>().values(), &[7; 4]);
        assert_eq!(offsets(&batch), [10, 11, 12, 13]);
        let times = batch.column(5).as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.values(), &[1_010_000, 1_011_000, 5000, 5000]);
        assert_eq!(batch.column(6).as_primitive::<Int32Type>().values(), &[0, 0, 1, 1]);
        let headers = batch.column(7).as_list::<i32>();
        assert_eq!((headers.is_valid(0), headers.is_valid(1)), (true, false));
        let first = headers.value(0);
        let values = first.as_struct().column(1).as_binary::<i32>();
        assert_eq!((values.value(0), values.is_valid(1)), (&b"1"[..], false));
    }

    #[test]
    fn a_column_without_nulls_has_no_bitmap() {
        let mut batches = BatchBuilder::new();
        batches.add(&NewRecord { key: Some(b"k"), value: Some(b"v"), ..NewRecord::default() });
        let bytes = batches.to_bytes(&BatchFields::default()).unwrap();
        let mut builder = builder(&NAMES[..7], 100);
        builder.take(&mut chunk(bytes, 0, None)).unwrap();
        let batch = builder.finish().unwrap().unwrap();
        assert!(batch.columns().iter().all(|column| column.nulls().is_none()));
    }

    #[test]
    fn every_codec_continues_in_the_next_batch_after_the_row_limit() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let fields = BatchFields { codec, ..BatchFields::default() };
            let bytes = [batch(0..10, &fields), batch(10..25, &fields)].concat();
            for rows in [1, 3, 10, 24] {
                let mut builder = builder(&["offset"], rows);
                let mut chunk = chunk(bytes.clone(), 2, Some(23));
                let mut seen = Vec::new();
                loop {
                    let used_up = builder.take(&mut chunk).unwrap();
                    let Some(batch) = builder.finish().unwrap() else { break };
                    assert!(used_up || batch.num_rows() == rows);
                    seen.extend(offsets(&batch));
                    assert_eq!(chunk.position(), seen.last().unwrap() + 1);
                }
                assert_eq!(seen, (2..23).collect::<Vec<_>>(), "{codec:?} {rows}");
            }
        }
    }

    #[test]
    fn a_batch_closes_with_the_record_that_reaches_the_bytes() {
        let limits = ScanLimits { rows: 100, bytes: 10 };
        let mut builder = ColumnsBuilder::new(Projection::of(&["value"]).unwrap(), limits);
        let mut batches = BatchBuilder::new();
        for _ in 0..5 {
            batches.add(&NewRecord { value: Some(b"1234"), ..NewRecord::default() });
        }
        let mut chunk = chunk(batches.to_bytes(&BatchFields::default()).unwrap(), 0, None);
        let mut sizes = Vec::new();
        loop {
            builder.take(&mut chunk).unwrap();
            let Some(batch) = builder.finish().unwrap() else { break };
            sizes.push(batch.num_rows());
        }
        assert_eq!(sizes, [3, 2]);
    }

    #[test]
    fn a_header_name_that_is_not_utf8_has_replacement_characters() {
        let mut raw = b"\x00\x00\x00\x01\x01\x02\x04\xff\x66\x01".to_vec();
        raw.insert(0, u8::try_from(raw.len() * 2).unwrap());
        let mut bytes = batch(0..1, &BatchFields::default());
        bytes.truncate(61);
        bytes.extend(&raw);
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let mut builder = builder(&["headers"], 10);
        builder.take(&mut chunk(bytes, 0, None)).unwrap();
        let batch = builder.finish().unwrap().unwrap();
        let first = batch.column(0).as_list::<i32>().value(0);
        assert_eq!(first.as_struct().column(0).as_string::<i32>().value(0), "\u{fffd}f");
    }

    #[test]
    fn records_before_a_corrupt_one_are_returned_and_the_error_follows() {
        let mut bytes = batch(2..5, &BatchFields::default());
        let last = bytes.len() - 1;
        bytes[last] = 0xff; // of the last record
        let crc = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let mut builder = builder(&NAMES, 10);
        let bytes = [batch(0..2, &BatchFields::default()), bytes].concat();
        let mut chunk = chunk(bytes, 0, None);
        let failed = builder.take(&mut chunk);
        assert!(matches!(failed, Err(Error::Refused { code: 2, .. })), "{failed:?}");
        assert_eq!(chunk.position(), 4);
        assert_eq!(offsets(&builder.finish().unwrap().unwrap()), [0, 1, 2, 3]);
    }

    /// Reads what came, whatever it is, and makes columns of it.
    fn read_any(bytes: Vec<u8>, magic: i8) {
        let topic: Arc<str> = "t".into();
        let bytes = match magic {
            2 => Ok(bytes),
            _ => crate::client::legacy::upgrade(&bytes, &(topic, 0)),
        };
        let Ok(bytes) = bytes else { return };
        let mut builder = builder(&NAMES, 2);
        let mut chunk = chunk(bytes, 0, Some(9));
        for _ in 0..20 {
            let taken = builder.take(&mut chunk);
            if let Some(batch) = builder.finish().unwrap() {
                for column in batch.columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
            if !matches!(taken, Ok(false)) {
                return;
            }
        }
    }

    #[test]
    fn any_bytes_with_a_valid_checksum_become_columns_or_an_error() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let whole = batch(0..6, &BatchFields { codec, ..BatchFields::default() });
            for place in 0..whole.len() {
                for flip in [0x01, 0x80, 0xff, 0x7e] {
                    let mut bytes = whole.clone();
                    bytes[place] ^= flip;
                    let crc = crc32c(&bytes[21..]);
                    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
                    read_any(bytes, 2);
                }
            }
        }
    }

    #[test]
    fn any_bytes_of_older_formats_become_columns_or_an_error() {
        use crate::record::convert::{LegacyTarget, to_legacy};
        use crate::record::crc::crc32;
        for (magic, codec) in
            [(0, Codec::None), (1, Codec::None), (0, Codec::Gzip), (1, Codec::Lz4)]
        {
            let whole = batch(3..6, &BatchFields { codec, ..BatchFields::default() });
            let parsed = crate::record::batch::Batch::parse(&whole).unwrap();
            let (mut set, mut limit) = (Vec::new(), usize::MAX);
            let target = LegacyTarget { magic, first_offset: 3 };
            to_legacy(&parsed, &target, &mut limit, &mut set).unwrap();
            for place in 0..set.len() {
                for flip in [0x01, 0x80, 0xff, 0x7e] {
                    let mut bytes = set.clone();
                    bytes[place] ^= flip;
                    let size = i32::from_be_bytes(bytes[8..12].try_into().unwrap());
                    let end = 12 + usize::try_from(size).unwrap_or(0);
                    if (17..=bytes.len()).contains(&end) {
                        let crc = crc32(&bytes[16..end]);
                        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
                    }
                    read_any(bytes, magic);
                }
            }
        }
    }

    #[test]
    fn unknown_and_repeated_columns_are_refused() {
        for names in [&["vlaue"][..], &["key", "offset", "key"]] {
            assert!(matches!(Projection::of(names), Err(Error::Invalid(_))), "{names:?}");
        }
        assert!(Projection::of(&[] as &[&str]).unwrap().columns().is_empty());
    }
}
