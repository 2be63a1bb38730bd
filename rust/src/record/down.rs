//! From batches to message sets, where an old consumer reads; see [`convert`](super::convert) for
//! the other way.
//! Behaviour: an uncompressed batch becomes one message a record, a compressed one becomes one
//!     wrapper of the same codec, its offsets as in [`legacy`]. Headers are dropped, control
//!     batches left out, magic 0 drops times. zstd has no place there: `UnsupportedCodec`.
//! Memory: compressed records pass through as a stream; beside the output, one record is held.
//! Source: Kafka's `RecordsUtil`.

use super::RecordError;
use super::batch::{self, Batch, Record, TimestampType};
use super::compression::{Codec, Framing};
use super::convert::{Gather, each_inside, each_record};
use super::legacy::{self, Message, Plain};
use crate::work;

const MAGIC_AT: usize = 16;

/// What an old consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The format: 0 (Fetch v0, v1) or 1 (Fetch v2, v3).
    pub magic: i8,
    /// The offset fetched: plain records below it are left out. Those of a compressed batch stay,
    /// as with Kafka; clients skip them.
    pub first_offset: i64,
}

/// Appends what `batch` becomes for an old consumer to `out`; true if that is all of it.
///
/// What is written is taken off `limit`, or a quarter of what was inflated for it where that is
/// more; at 0 nothing more is begun, so that at most one message or wrapper goes beyond it. A batch
/// that was cut so is asked for again from its next offset.
/// Errors: `UnsupportedCodec` for zstd; `Invalid`, `TooLarge` as its records are. `out` is then as
/// it was.
pub fn to_legacy(
    batch: &Batch<'_>,
    target: &Target,
    limit: &mut usize,
    out: &mut Vec<u8>,
) -> Result<bool, RecordError> {
    if batch.is_control() || batch.header().record_count == 0 {
        return Ok(true);
    }
    if *limit == 0 {
        return Ok(false);
    }
    let (start, before) = (out.len(), work::done());
    let whole = match batch.codec() {
        Codec::None => plain_to_legacy(batch, target, *limit, out),
        Codec::Zstd => Err(RecordError::UnsupportedCodec(Codec::Zstd as i8)),
        codec => wrapper_of(codec, batch, target.magic, out).map(|()| true),
    };
    if whole.is_err() {
        out.truncate(start);
    }
    *limit = limit.saturating_sub(cost(out.len() - start, before));
    whole
}

/// What a conversion takes off its limit: the bytes it wrote, or a quarter of those that this
/// thread inflated since `before` where that is more.
fn cost(written: usize, before: u64) -> usize {
    written.max(usize::try_from(work::since(before) / 4).unwrap_or(usize::MAX))
}

fn plain_to_legacy(
    batch: &Batch<'_>,
    target: &Target,
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<bool, RecordError> {
    let end = out.len().saturating_add(limit);
    let attributes = flags(batch, target.magic);
    for record in batch.records() {
        let record = record?;
        if record.offset < target.first_offset {
            continue;
        }
        if out.len() >= end {
            return Ok(false);
        }
        legacy::put(out, &plain(&record, target.magic, attributes));
    }
    Ok(true)
}

#[inline]
const fn plain<'a>(record: &Record<'a>, magic: i8, attributes: i8) -> Plain<'a> {
    let Record { offset, timestamp, key, value, .. } = *record;
    Plain { magic, attributes, offset, timestamp, key, value }
}

fn flags(batch: &Batch<'_>, magic: i8) -> i8 {
    match batch.timestamp_type() {
        TimestampType::LogAppendTime if magic == 1 => legacy::LOG_APPEND_TIME,
        _ => 0,
    }
}

fn wrapper_of(
    codec: Codec,
    batch: &Batch<'_>,
    magic: i8,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let flags = flags(batch, magic);
    let mut wrapper =
        Plain { magic, attributes: flags | codec as i8, timestamp: -1, ..Plain::default() };
    write_wrapper(&mut wrapper, codec, out, |wrapper, inside| {
        each_record(batch, |record| {
            wrapper.offset = record.offset;
            wrapper.timestamp = wrapper.timestamp.max(record.timestamp);
            let mut message = plain(record, magic, flags);
            if magic != 0 {
                message.offset = record.offset.wrapping_sub(batch.base_offset());
            }
            inside.write(|out| legacy::put(out, &message))
        })
    })
}

/// Writes a wrapper: what comes before its value, `feed`, then sizes and checksum.
pub(crate) fn write_wrapper(
    wrapper: &mut Plain<'_>,
    codec: Codec,
    out: &mut Vec<u8>,
    feed: impl FnOnce(&mut Plain<'_>, &mut Gather<'_>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let framing = if wrapper.magic == 0 { Framing::Old } else { Framing::Standard };
    let start = legacy::begin_wrapper(out, wrapper);
    let mut inside = Gather::new((codec, None), framing, out)?;
    feed(wrapper, &mut inside)?;
    inside.finish()?;
    legacy::end_wrapper(out, start, wrapper);
    Ok(())
}

/// Appends what a run of stored bytes, of any magic, becomes for an old consumer; gives how many of
/// the run's bytes that took. Less than all: `limit` is used up (see [`to_legacy`]), or the run
/// ends in a cut batch. A plain batch that was begun and cut is not counted: its last messages are
/// there, and the next fetch starts behind them.
///
/// Errors: those of [`to_legacy`], if the first batch has them; later ones show at the next call.
pub fn run_to_legacy(
    run: &[u8],
    target: &Target,
    limit: &mut usize,
    out: &mut Vec<u8>,
) -> Result<usize, RecordError> {
    let mut taken = 0;
    while let Some(rest) = run.get(taken..).filter(|rest| rest.len() > MAGIC_AT) {
        match one_to_legacy(rest, target, limit, out) {
            Ok(Some(size)) => taken += size,
            Ok(None) | Err(RecordError::Truncated { .. }) => break,
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// Converts the batch or message that `rest` begins with; `None` if the limit cut it.
fn one_to_legacy(
    rest: &[u8],
    target: &Target,
    limit: &mut usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, RecordError> {
    let message = match Message::parse(rest) {
        Ok(message) => message,
        Err(RecordError::Magic(batch::MAGIC)) => {
            let batch = Batch::parse(rest)?;
            let whole = to_legacy(&batch, target, limit, out)?;
            return Ok(whole.then(|| batch.size()));
        }
        Err(error) => return Err(error),
    };
    if *limit == 0 {
        return Ok(None);
    }
    let (start, before) = (out.len(), work::done());
    if message.magic <= target.magic {
        out.extend_from_slice(message.bytes());
    } else if message.codec == Codec::None {
        let Message { offset, key, value, .. } = message;
        legacy::put(out, &Plain { offset, key, value, ..Plain::default() });
    } else if let Err(error) = wrapper_to_v0(&message, out) {
        out.truncate(start);
        return Err(error);
    }
    *limit = limit.saturating_sub(cost(out.len() - start, before));
    Ok(Some(message.size()))
}

/// Writes a wrapper of magic 1 as one of magic 0, whose offsets inside are absolute: the last one
/// is looked for first.
fn wrapper_to_v0(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    let mut last = 0;
    each_inside(message, |inside| {
        last = inside.offset;
        Ok(())
    })?;
    let base = message.offset.wrapping_sub(last);
    let (codec, offset) = (message.codec, message.offset);
    let mut wrapper = Plain { offset, attributes: codec as i8, ..Plain::default() };
    write_wrapper(&mut wrapper, codec, out, |_, gather| {
        each_inside(message, |inside| {
            let Message { key, value, .. } = *inside;
            let offset = base.wrapping_add(inside.offset);
            gather.write(|out| legacy::put(out, &Plain { offset, key, value, ..Plain::default() }))
        })
    })
}
