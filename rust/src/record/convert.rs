//! Conversion of an old producer's message sets to batches, and recompression with another codec.
//! [`down_convert`](super::down_convert) converts batches to message sets.
//! Behaviour of [`to_v2`]: consecutive uncompressed messages of one magic become one batch. A
//!     wrapper becomes one batch of the same codec. A batch is copied unchanged. A cut message at
//!     the end of a set is dropped. Offsets start at 0 in each batch, because a producer's offsets
//!     have no meaning. Messages of magic 0 have no timestamp (-1).
//! Memory: compressed records are converted as a stream; beside the output, one record is held
//!     ([`RecordStream`]: 32 KiB, more only for a larger record).
//! Source: Kafka's `LogValidator`. Kafka accepts one wrapper per set ([`check_single_compressed`]);
//!     [`to_v2`] accepts any number.

pub use super::down_convert::{LegacyTarget, run_to_legacy, to_legacy};

use std::io::Read;

use super::RecordError;
use super::batch::{self, Batch, BatchFields, DeltaOrigin, NewRecord, Record, TimestampType};
use super::build::{RecordTotals, put_record};
use super::compression::{Codec, Compression, Deflate, Framing, Inflate, failed};
use super::header::{CODEC_BITS, HEADER_SIZE};
use super::legacy::Message;
use super::record_stream::RecordStream;

const MAGIC_AT: usize = 16;
/// Small writes are collected up to this many bytes before they are compressed.
const GATHER: usize = 32 * 1024;

/// Refuses a set with a compressed batch or wrapper beside another one, as Kafka does: the size of
/// one wrapper bounds the cost of inflating a set. A cut message at the end is ignored. Returns
/// whether the set is compressed.
pub fn check_single_compressed(set: &[u8]) -> Result<bool, RecordError> {
    let (mut entries, mut is_compressed) = (0, false);
    let mut rest = set;
    while let Some(&magic) = rest.get(MAGIC_AT) {
        let (size, codec) = match magic as i8 {
            batch::MAGIC => match Batch::parse(rest) {
                Ok(batch) => (batch.size(), batch.codec()),
                Err(_) => break,
            },
            _ => match Message::parse(rest) {
                Ok(message) => (message.size(), message.codec),
                Err(_) => break,
            },
        };
        entries += 1;
        is_compressed |= codec != Codec::None;
        if is_compressed && entries > 1 {
            return Err(RecordError::batch("compressed records must be alone in their set"));
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    Ok(is_compressed)
}

/// Converts a producer's message set to batches and appends them to `out`, at most `limit` bytes.
///
/// Errors: `Corrupt`; `Invalid`; `Magic` above 2; `Timestamp` if a producer sets log append time;
/// `UnsupportedCodec`; `TooLarge`. The contents of `out` are then undefined.
pub fn to_v2(set: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), RecordError> {
    let start = out.len();
    let mut rest = set;
    while let Some(&magic) = rest.get(MAGIC_AT) {
        let taken = if magic as i8 == batch::MAGIC {
            match Batch::parse(rest) {
                Ok(batch) if !batch.crc_ok() => return Err(RecordError::Corrupt("checksum")),
                Ok(batch) => {
                    out.extend_from_slice(batch.bytes());
                    batch.size()
                }
                Err(RecordError::Truncated { .. }) => break,
                Err(error) => return Err(error),
            }
        } else {
            match parse_produced(rest) {
                Ok(message) if message.codec == Codec::None => {
                    plain_run_to_v2(rest, message.magic, out)?
                }
                Ok(message) => wrapper_to_v2(&message, out)?,
                Err(RecordError::Truncated { .. }) => break,
                Err(error) => return Err(error),
            }
        };
        if out.len() - start > limit {
            return Err(RecordError::TooLarge { size: out.len() - start, limit });
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(())
}

/// Views and checks the message at the start of a producer's `set`.
#[inline]
fn parse_produced(set: &[u8]) -> Result<Message<'_>, RecordError> {
    let message = Message::parse(set)?;
    if !message.crc_ok() {
        return Err(RecordError::Corrupt("checksum"));
    }
    if message.timestamp_type() == TimestampType::LogAppendTime {
        return Err(RecordError::Timestamp { index: -1, timestamp: message.timestamp });
    }
    Ok(message)
}

/// Writes the uncompressed messages of `magic` at the start of `set` as one batch. Returns their
/// size in bytes.
fn plain_run_to_v2(set: &[u8], magic: i8, out: &mut Vec<u8>) -> Result<usize, RecordError> {
    let mut taken = 0;
    assemble(&BatchFields::default(), out, |batch| {
        while let Some(rest) = set.get(taken..).filter(|rest| !rest.is_empty()) {
            match parse_produced(rest) {
                Ok(message) if message.codec == Codec::None && message.magic == magic => {
                    batch.add(&new_record(&message))?;
                    taken += message.size();
                }
                // The caller's loop handles other messages, cut ones and errors.
                _ => break,
            }
        }
        Ok(())
    })?;
    Ok(taken)
}

fn wrapper_to_v2(wrapper: &Message<'_>, out: &mut Vec<u8>) -> Result<usize, RecordError> {
    let fields = BatchFields { codec: wrapper.codec, ..BatchFields::default() };
    let count = assemble(&fields, out, |batch| {
        each_inner_message(wrapper, |message| batch.add(&new_record(message)))
    })?;
    if count == 0 {
        return Err(RecordError::batch("an empty wrapper"));
    }
    Ok(wrapper.size())
}

/// Calls `sink` with each inner message of `wrapper`, unchanged.
pub(crate) fn each_inner_message(
    wrapper: &Message<'_>,
    mut sink: impl FnMut(&Message<'_>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let mut inside = RecordStream::new(wrapper.codec, wrapper.value.unwrap_or_default())?;
    while !inside.at_end()? {
        let message = Message::parse(inside.take_message()?)?;
        message.check_inner(wrapper)?;
        sink(&message)?;
    }
    Ok(())
}

#[inline]
const fn new_record<'a>(message: &Message<'a>) -> NewRecord<'a> {
    NewRecord { timestamp: message.timestamp, key: message.key, value: message.value, headers: &[] }
}

/// Writes a batch: the records of `feed`, then the header. Returns the record count.
fn assemble(
    fields: &BatchFields,
    out: &mut Vec<u8>,
    feed: impl FnOnce(&mut BatchAssembler<'_>) -> Result<(), RecordError>,
) -> Result<i32, RecordError> {
    let start = out.len();
    out.resize(start + HEADER_SIZE, 0);
    let tally = {
        let compression = Compression { codec: fields.codec, level: fields.level };
        let records = BufferedDeflate::new(compression, Framing::Standard, out)?;
        let mut assembly = BatchAssembler { records, tally: RecordTotals::default() };
        feed(&mut assembly)?;
        assembly.records.finish()?;
        assembly.tally
    };
    tally.header(fields).seal_into(out, start)?;
    Ok(tally.count)
}

struct BatchAssembler<'o> {
    records: BufferedDeflate<'o>,
    tally: RecordTotals,
}

impl BatchAssembler<'_> {
    #[inline]
    fn add(&mut self, entry: &NewRecord<'_>) -> Result<(), RecordError> {
        let offset_delta = self.tally.next_delta;
        let deltas = self.tally.record(offset_delta, entry.timestamp);
        self.records.write(|out| put_record(out, deltas, entry))
    }
}

/// Collects small writes before they are compressed. Without a codec it writes to the output.
pub(crate) struct BufferedDeflate<'o> {
    deflate: Deflate<'o>,
    held: Vec<u8>,
}

impl<'o> BufferedDeflate<'o> {
    pub(crate) fn new(
        compression: Compression,
        framing: Framing,
        out: &'o mut Vec<u8>,
    ) -> Result<Self, RecordError> {
        let deflate = Deflate::new(compression, framing, out).map_err(unwritable)?;
        Ok(Self { deflate, held: Vec::new() })
    }

    #[inline]
    pub(crate) fn write(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), RecordError> {
        if let Deflate::Plain(out) = &mut self.deflate {
            put(out);
            return Ok(());
        }
        put(&mut self.held);
        if self.held.len() >= GATHER {
            self.deflate.write(&self.held).map_err(unwritable)?;
            self.held.clear();
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<(), RecordError> {
        self.deflate.write(&self.held).map_err(unwritable)?;
        self.deflate.finish().map_err(unwritable)
    }
}

/// The error of a codec that writes to memory; only an unsupported level causes it.
fn unwritable(_: std::io::Error) -> RecordError {
    RecordError::batch("records cannot be compressed as asked")
}

/// Calls `sink` with each record of `batch`, compressed or not.
///
/// Errors: those of `sink`; `Invalid` if the records' count or size is wrong; `TooLarge` for a
/// record above 32 MiB in a compressed batch.
pub fn each_record(
    batch: &Batch<'_>,
    mut sink: impl FnMut(&Record<'_>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    if batch.codec() == Codec::None {
        return batch.records().try_for_each(|record| sink(&record?));
    }
    let origin = DeltaOrigin::of(batch.header());
    let mut records = RecordStream::new(batch.codec(), batch.payload())?;
    for index in 0..batch.header().record_count {
        let record = Record::read(records.take_record()?, &origin)
            .map_err(|reason| RecordError::Invalid { index, reason })?;
        sink(&record)?;
    }
    if records.at_end()? {
        Ok(())
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

/// Appends `batch` to `out` with its records compressed by another codec, as the topic's
/// `compression.type` requires. The other fields are unchanged.
///
/// Errors: `Invalid` if the records cannot be inflated; `TooLarge` beyond `limit` bytes. `out` is
/// then unchanged.
pub fn recompress(
    batch: &Batch<'_>,
    compression: Compression,
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let start = out.len();
    let written = rewrite(batch, compression, out);
    let size = out.len() - start;
    if written.is_err() || size > limit {
        out.truncate(start);
    }
    match written {
        Ok(()) if size > limit => Err(RecordError::TooLarge { size, limit }),
        other => other,
    }
}

fn rewrite(
    batch: &Batch<'_>,
    compression: Compression,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let start = out.len();
    out.resize(start + HEADER_SIZE, 0);
    let mut source = Inflate::new(batch.codec(), batch.payload()).map_err(failed)?;
    let mut deflate = Deflate::new(compression, Framing::Standard, out).map_err(unwritable)?;
    let mut held = vec![0; GATHER];
    loop {
        let filled = source.read(&mut held).map_err(failed)?;
        if filled == 0 {
            break;
        }
        deflate.write(held.get(..filled).unwrap_or_default()).map_err(unwritable)?;
    }
    deflate.finish().map_err(unwritable)?;
    let mut header = *batch.header();
    header.attributes = (header.attributes & !CODEC_BITS) | compression.codec.bits();
    header.seal_into(out, start)
}

#[cfg(test)]
mod tests {
    use super::super::batch::BatchBuilder;
    use super::super::batch::ValidationRules;
    use super::super::down_convert::write_wrapper;
    use super::super::legacy::{self, NewMessage};
    use super::*;

    const CODECS: [Codec; 4] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4];

    /// A batch of `count` records at offsets 100 .., with nulls among them.
    fn batch_of(count: usize, codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for index in 0..count {
            let key = format!("key-{index}");
            let value = vec![b'v'; index * 37 % 5000];
            builder.add(&NewRecord {
                timestamp: 1_700_000_000_000 + index as i64 * 7 % 1000,
                key: (index % 3 != 0).then_some(key.as_bytes()),
                value: (index % 5 != 0).then_some(&value),
                headers: &[("dropped", None)],
            });
        }
        builder
            .to_bytes(&BatchFields { base_offset: 100, codec, ..BatchFields::default() })
            .unwrap()
    }

    type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn row(record: &Record<'_>) -> Row {
        let Record { offset, timestamp, key, value, .. } = *record;
        (offset, timestamp, key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec))
    }

    fn rows_of_batch(bytes: &[u8]) -> Vec<Row> {
        let mut rows = Vec::new();
        each_record(&Batch::parse(bytes).unwrap(), |record| {
            rows.push(row(record));
            Ok(())
        })
        .unwrap();
        rows
    }

    fn rows_of_set(set: &[u8]) -> Vec<Row> {
        let mut held = Vec::new();
        let mut rows = Vec::new();
        for message in legacy::iter(set) {
            let message = message.unwrap();
            assert!(message.crc_ok());
            rows.extend(
                legacy::records(&message, 1 << 24, &mut held).unwrap().map(|record| row(&record)),
            );
        }
        rows
    }

    fn down_convert(bytes: &[u8], magic: i8) -> Vec<u8> {
        let mut out = Vec::new();
        let target = LegacyTarget { magic, first_offset: 0 };
        let batch = Batch::parse(bytes).unwrap();
        assert_eq!(to_legacy(&batch, &target, &mut usize::MAX.clone(), &mut out), Ok(true));
        out
    }

    fn without_times(mut rows: Vec<Row>) -> Vec<Row> {
        rows.iter_mut().for_each(|row| row.1 = -1);
        rows
    }

    #[test]
    fn records_survive_the_way_down_and_up_in_every_codec() {
        for codec in CODECS {
            let bytes = batch_of(400, codec);
            let rows = rows_of_batch(&bytes);
            assert_eq!(rows_of_set(&down_convert(&bytes, 1)), rows, "{codec:?}");
            assert_eq!(
                rows_of_set(&down_convert(&bytes, 0)),
                without_times(rows.clone()),
                "{codec:?}"
            );
            for magic in [0, 1] {
                let mut up = Vec::new();
                to_v2(&down_convert(&bytes, magic), usize::MAX, &mut up).unwrap();
                let batch = Batch::parse(&up).unwrap();
                assert_eq!((batch.size(), batch.codec()), (up.len(), codec));
                batch::check(&batch, &ValidationRules::default()).unwrap();
                let expected = if magic == 1 { rows.clone() } else { without_times(rows.clone()) };
                let expected: Vec<Row> =
                    expected.into_iter().map(|row| (row.0 - 100, row.1, row.2, row.3)).collect();
                assert_eq!(rows_of_batch(&up), expected);
            }
        }
    }

    #[test]
    fn a_mixed_set_goes_by_the_magic_of_each_message() {
        let mut set = Vec::new();
        for (magic, codec) in [(0, Codec::None), (1, Codec::None), (1, Codec::Gzip)] {
            set.extend(down_convert(&batch_of(3, codec), magic));
        }
        set.extend(batch_of(2, Codec::Zstd));
        set.extend(down_convert(&batch_of(4, Codec::None), 1));
        set.extend(&down_convert(&batch_of(1, Codec::None), 1)[..20]);
        let mut out = Vec::new();
        to_v2(&set, usize::MAX, &mut out).unwrap();
        let kinds: Vec<_> = batch::iter(&out)
            .map(|batch| batch.map(|batch| (batch.header().record_count, batch.codec())).unwrap())
            .collect();
        let none = Codec::None;
        assert_eq!(kinds, [(3, none), (3, none), (3, Codec::Gzip), (2, Codec::Zstd), (4, none)]);
    }

    #[test]
    fn a_limit_cuts_plain_messages_between_two_and_wrappers_not_at_all() {
        let bytes = batch_of(50, Codec::None);
        let batch = Batch::parse(&bytes).unwrap();
        let target = LegacyTarget { magic: 1, first_offset: 110 };
        let (mut out, mut limit) = (Vec::new(), 1000);
        assert_eq!(to_legacy(&batch, &target, &mut limit, &mut out), Ok(false));
        assert_eq!(limit, 0);
        let rows = rows_of_set(&out);
        assert_eq!(rows[0].0, 110);
        assert_eq!(to_legacy(&batch, &target, &mut limit, &mut out), Ok(false));
        assert_eq!(rows_of_set(&out), rows);
        let bytes = batch_of(50, Codec::Lz4);
        let (mut out, mut limit) = (Vec::new(), 1);
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(to_legacy(&batch, &target, &mut limit, &mut out), Ok(true));
        assert_eq!((limit, rows_of_set(&out).len()), (0, 50));
    }

    #[test]
    fn zstd_and_control_batches_have_no_old_form() {
        let bytes = batch_of(5, Codec::Zstd);
        let target = LegacyTarget { magic: 1, first_offset: 0 };
        let mut out = Vec::new();
        let answer = to_legacy(&Batch::parse(&bytes).unwrap(), &target, &mut 100, &mut out);
        assert_eq!(answer, Err(RecordError::UnsupportedCodec(4)));
        let marker = super::super::control::EndTransactionMarker {
            producer_id: 1,
            producer_epoch: 0,
            coordinator_epoch: 0,
            commit: true,
        };
        let run = [marker.to_batch(5).unwrap(), batch_of(2, Codec::None), bytes].concat();
        let taken = run_to_legacy(&run, &target, &mut usize::MAX.clone(), &mut out).unwrap();
        assert_eq!(rows_of_set(&out).len(), 2);
        let rest = run_to_legacy(&run[taken..], &target, &mut usize::MAX.clone(), &mut out);
        assert_eq!(rest, Err(RecordError::UnsupportedCodec(4)));
    }

    #[test]
    fn stored_messages_of_magic_1_go_down_to_magic_0() {
        for codec in CODECS {
            let bytes = batch_of(30, codec);
            let set = down_convert(&bytes, 1);
            let mut out = Vec::new();
            let target = LegacyTarget { magic: 0, first_offset: 0 };
            let taken = run_to_legacy(&set, &target, &mut usize::MAX.clone(), &mut out);
            assert_eq!(taken, Ok(set.len()));
            assert!(legacy::iter(&out).all(|message| message.unwrap().magic == 0));
            assert_eq!(rows_of_set(&out), without_times(rows_of_batch(&bytes)));
        }
    }

    #[test]
    fn a_wrapper_in_a_wrapper_and_a_false_clock_are_refused() {
        let inner = down_convert(&batch_of(3, Codec::Gzip), 1);
        let mut wrapper = NewMessage { magic: 1, attributes: 1, ..NewMessage::default() };
        let mut set = Vec::new();
        write_wrapper(&mut wrapper, Codec::Gzip, &mut set, |_, gather| {
            gather.write(|out| out.extend_from_slice(&inner))
        })
        .unwrap();
        let nested = to_v2(&set, usize::MAX, &mut Vec::new());
        assert_eq!(nested, Err(RecordError::batch("a wrapper inside of a wrapper")));
        let mut set = Vec::new();
        legacy::put(&mut set, &NewMessage { magic: 1, attributes: 8, timestamp: 5, ..wrapper });
        let false_clock = to_v2(&set, usize::MAX, &mut Vec::new());
        assert_eq!(false_clock, Err(RecordError::Timestamp { index: -1, timestamp: 5 }));
    }

    #[test]
    fn another_codec_leaves_all_else_as_it_was() {
        let bytes = batch_of(60, Codec::Zstd);
        let mut out = Vec::new();
        let batch = Batch::parse(&bytes).unwrap();
        recompress(
            &batch,
            Compression { codec: Codec::Gzip, level: Some(1) },
            usize::MAX,
            &mut out,
        )
        .unwrap();
        let rewritten = Batch::parse(&out).unwrap();
        assert!(rewritten.crc_ok());
        assert_eq!((rewritten.codec(), rows_of_batch(&out)), (Codec::Gzip, rows_of_batch(&bytes)));
        let refused = recompress(&batch, Codec::None.into(), 10, &mut out);
        assert!(matches!(refused, Err(RecordError::TooLarge { .. })));
    }
}
