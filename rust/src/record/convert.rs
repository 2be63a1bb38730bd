//! From message sets to batches, where an old producer writes; from one codec to another; and, in
//! [`down`](super::down), from batches to message sets, where an old consumer reads.
//! Behaviour of [`to_v2`]: each message goes by its own magic. A run of plain messages of one
//!     magic becomes one batch, a wrapper one batch of the same codec, a batch stays as it is; the
//!     cut message that may end a set is dropped. Offsets start at 0 in each batch, since a
//!     producer's mean nothing. Magic 0 gives no times (-1).
//! Memory: compressed records pass through as a stream; beside the output, one record is held
//!     ([`Skim`]: 32 KiB, more only for a record that is larger).
//! Source: Kafka's `LogValidator`. Kafka takes one wrapper a set ([`check_alone`]), [`to_v2`] any
//!     number.

pub use super::down::{Target, run_to_legacy, to_legacy};

use std::io::Read;

use super::RecordError;
use super::batch::{self, Batch, Entry, Fields, Origin, Record, TimestampType};
use super::build::{Tally, put_record};
use super::compression::{Codec, Deflate, Framing, Inflate, failed};
use super::header::{CODEC_BITS, HEADER_SIZE};
use super::legacy::Message;
use super::skim::Skim;

const MAGIC_AT: usize = 16;
/// Small writes are gathered up to this before a codec sees them.
const GATHER: usize = 32 * 1024;

/// Refuses a set in which something compressed is not alone, as Kafka does: what a set costs to
/// inflate is bounded by the size of one wrapper. A cut message at the end does not count. Whether
/// something is compressed.
pub fn check_alone(set: &[u8]) -> Result<bool, RecordError> {
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

/// Appends the batches that a producer's message set becomes to `out`, at most `limit` bytes.
///
/// Errors: `Corrupt`; `Invalid`; `Magic` above 2; `Timestamp` where a producer claims log append
/// time; `UnsupportedCodec`; `TooLarge`. `out` is then of no use.
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
            match produced(rest) {
                Ok(message) if message.codec == Codec::None => run(rest, message.magic, out)?,
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

/// Views the message that a producer's `set` begins with, and checks it.
#[inline]
fn produced(set: &[u8]) -> Result<Message<'_>, RecordError> {
    let message = Message::parse(set)?;
    if !message.crc_ok() {
        return Err(RecordError::Corrupt("checksum"));
    }
    if message.timestamp_type() == TimestampType::LogAppendTime {
        return Err(RecordError::Timestamp { index: -1, timestamp: message.timestamp });
    }
    Ok(message)
}

/// Writes the plain messages of `magic` that `set` begins with as one batch; gives their size.
fn run(set: &[u8], magic: i8, out: &mut Vec<u8>) -> Result<usize, RecordError> {
    let mut taken = 0;
    assemble(&Fields::default(), out, |batch| {
        while let Some(rest) = set.get(taken..).filter(|rest| !rest.is_empty()) {
            match produced(rest) {
                Ok(message) if message.codec == Codec::None && message.magic == magic => {
                    batch.add(&entry(&message))?;
                    taken += message.size();
                }
                // Another kind of message, a cut one, or an error: the caller's loop sees to it.
                _ => break,
            }
        }
        Ok(())
    })?;
    Ok(taken)
}

fn wrapper_to_v2(wrapper: &Message<'_>, out: &mut Vec<u8>) -> Result<usize, RecordError> {
    let fields = Fields { codec: wrapper.codec, ..Fields::default() };
    let count =
        assemble(&fields, out, |batch| each_inside(wrapper, |message| batch.add(&entry(message))))?;
    if count == 0 {
        return Err(RecordError::batch("an empty wrapper"));
    }
    Ok(wrapper.size())
}

/// Hands each message inside of `wrapper` to `sink`, as it stands.
pub(crate) fn each_inside(
    wrapper: &Message<'_>,
    mut sink: impl FnMut(&Message<'_>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let mut inside = Skim::new(wrapper.codec, wrapper.value.unwrap_or_default())?;
    while !inside.at_end()? {
        let message = Message::parse(inside.take_message()?)?;
        message.check_inside(wrapper)?;
        sink(&message)?;
    }
    Ok(())
}

#[inline]
const fn entry<'a>(message: &Message<'a>) -> Entry<'a> {
    Entry { timestamp: message.timestamp, key: message.key, value: message.value, headers: &[] }
}

/// Writes a batch as a stream of records: header, `feed`, checksum. Gives the record count.
fn assemble(
    fields: &Fields,
    out: &mut Vec<u8>,
    feed: impl FnOnce(&mut Assembly<'_>) -> Result<(), RecordError>,
) -> Result<i32, RecordError> {
    let start = out.len();
    out.resize(start + HEADER_SIZE, 0);
    let tally = {
        let records = Gather::new((fields.codec, fields.level), Framing::Standard, out)?;
        let mut assembly = Assembly { records, tally: Tally::default() };
        feed(&mut assembly)?;
        assembly.records.finish()?;
        assembly.tally
    };
    tally.header(fields).seal_into(out, start)?;
    Ok(tally.count)
}

struct Assembly<'o> {
    records: Gather<'o>,
    tally: Tally,
}

impl Assembly<'_> {
    #[inline]
    fn add(&mut self, entry: &Entry<'_>) -> Result<(), RecordError> {
        let offset_delta = self.tally.next_delta;
        let deltas = self.tally.record(offset_delta, entry.timestamp);
        self.records.write(|out| put_record(out, deltas, entry))
    }
}

/// A codec's stream with small writes gathered before it; without a codec, the output itself.
pub(crate) struct Gather<'o> {
    deflate: Deflate<'o>,
    held: Vec<u8>,
}

impl<'o> Gather<'o> {
    pub(crate) fn new(
        codec: (Codec, Option<i32>),
        framing: Framing,
        out: &'o mut Vec<u8>,
    ) -> Result<Self, RecordError> {
        let deflate = Deflate::new(codec, framing, out).map_err(unwritable)?;
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

/// A codec writing to memory fails only on a level it does not have.
fn unwritable(_: std::io::Error) -> RecordError {
    RecordError::batch("records cannot be compressed as asked")
}

/// Hands each record of `batch` to `sink`, compressed or not.
///
/// Errors: those of `sink`; `Invalid` where the records are not as many or as long as they should
/// be; `TooLarge` for one above 32 MiB in a compressed batch.
pub fn each_record(
    batch: &Batch<'_>,
    mut sink: impl FnMut(&Record<'_>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    if batch.codec() == Codec::None {
        return batch.records().try_for_each(|record| sink(&record?));
    }
    let origin = Origin::of(batch.header());
    let mut records = Skim::new(batch.codec(), batch.payload())?;
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

/// Appends `batch` to `out` with its records compressed by `codec` instead, for a topic whose
/// `compression.type` says so; all else stays.
///
/// Errors: `Invalid` where the records cannot be inflated; `TooLarge` past `limit` bytes. `out` is
/// then as it was.
pub fn recompress(
    batch: &Batch<'_>,
    (codec, level): (Codec, Option<i32>),
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let start = out.len();
    let written = rewrite(batch, (codec, level), out);
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
    codec: (Codec, Option<i32>),
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let start = out.len();
    out.resize(start + HEADER_SIZE, 0);
    let mut source = Inflate::new(batch.codec(), batch.payload()).map_err(failed)?;
    let mut deflate = Deflate::new(codec, Framing::Standard, out).map_err(unwritable)?;
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
    header.attributes = (header.attributes & !CODEC_BITS) | codec.0.bits();
    header.seal_into(out, start)
}

#[cfg(test)]
mod tests {
    use super::super::batch::Builder;
    use super::super::batch::Rules;
    use super::super::down::write_wrapper;
    use super::super::legacy::{self, Plain};
    use super::*;

    const CODECS: [Codec; 4] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4];

    /// A batch of `count` records at offsets 100 .., with nulls among them.
    fn batch_of(count: usize, codec: Codec) -> Vec<u8> {
        let mut builder = Builder::new();
        for index in 0..count {
            let key = format!("key-{index}");
            let value = vec![b'v'; index * 37 % 5000];
            builder.add(&Entry {
                timestamp: 1_700_000_000_000 + index as i64 * 7 % 1000,
                key: (index % 3 != 0).then_some(key.as_bytes()),
                value: (index % 5 != 0).then_some(&value),
                headers: &[("dropped", None)],
            });
        }
        builder.to_bytes(&Fields { base_offset: 100, codec, ..Fields::default() }).unwrap()
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

    fn down(bytes: &[u8], magic: i8) -> Vec<u8> {
        let mut out = Vec::new();
        let target = Target { magic, first_offset: 0 };
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
            assert_eq!(rows_of_set(&down(&bytes, 1)), rows, "{codec:?}");
            assert_eq!(rows_of_set(&down(&bytes, 0)), without_times(rows.clone()), "{codec:?}");
            for magic in [0, 1] {
                let mut up = Vec::new();
                to_v2(&down(&bytes, magic), usize::MAX, &mut up).unwrap();
                let batch = Batch::parse(&up).unwrap();
                assert_eq!((batch.size(), batch.codec()), (up.len(), codec));
                batch::check(&batch, &Rules::default()).unwrap();
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
            set.extend(down(&batch_of(3, codec), magic));
        }
        set.extend(batch_of(2, Codec::Zstd));
        set.extend(down(&batch_of(4, Codec::None), 1));
        set.extend(&down(&batch_of(1, Codec::None), 1)[..20]);
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
        let target = Target { magic: 1, first_offset: 110 };
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
        let target = Target { magic: 1, first_offset: 0 };
        let mut out = Vec::new();
        let answer = to_legacy(&Batch::parse(&bytes).unwrap(), &target, &mut 100, &mut out);
        assert_eq!(answer, Err(RecordError::UnsupportedCodec(4)));
        let marker = super::super::control::Marker {
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
            let set = down(&bytes, 1);
            let mut out = Vec::new();
            let target = Target { magic: 0, first_offset: 0 };
            let taken = run_to_legacy(&set, &target, &mut usize::MAX.clone(), &mut out);
            assert_eq!(taken, Ok(set.len()));
            assert!(legacy::iter(&out).all(|message| message.unwrap().magic == 0));
            assert_eq!(rows_of_set(&out), without_times(rows_of_batch(&bytes)));
        }
    }

    #[test]
    fn a_wrapper_in_a_wrapper_and_a_false_clock_are_refused() {
        let inner = down(&batch_of(3, Codec::Gzip), 1);
        let mut wrapper = Plain { magic: 1, attributes: 1, ..Plain::default() };
        let mut set = Vec::new();
        write_wrapper(&mut wrapper, Codec::Gzip, &mut set, |_, gather| {
            gather.write(|out| out.extend_from_slice(&inner))
        })
        .unwrap();
        let nested = to_v2(&set, usize::MAX, &mut Vec::new());
        assert_eq!(nested, Err(RecordError::batch("a wrapper inside of a wrapper")));
        let mut set = Vec::new();
        legacy::put(&mut set, &Plain { magic: 1, attributes: 8, timestamp: 5, ..wrapper });
        let false_clock = to_v2(&set, usize::MAX, &mut Vec::new());
        assert_eq!(false_clock, Err(RecordError::Timestamp { index: -1, timestamp: 5 }));
    }

    #[test]
    fn another_codec_leaves_all_else_as_it_was() {
        let bytes = batch_of(60, Codec::Zstd);
        let mut out = Vec::new();
        let batch = Batch::parse(&bytes).unwrap();
        recompress(&batch, (Codec::Gzip, Some(1)), usize::MAX, &mut out).unwrap();
        let rewritten = Batch::parse(&out).unwrap();
        assert!(rewritten.crc_ok());
        assert_eq!((rewritten.codec(), rows_of_batch(&out)), (Codec::Gzip, rows_of_batch(&bytes)));
        let refused = recompress(&batch, (Codec::None, None), 10, &mut out);
        assert!(matches!(refused, Err(RecordError::TooLarge { .. })));
    }
}
