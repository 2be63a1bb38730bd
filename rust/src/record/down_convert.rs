//! Down-conversion: from batches to message sets, for old consumers. [`convert`](super::convert) is
//! the opposite direction.
//! Behaviour: an uncompressed batch becomes one message per record. A compressed batch becomes one
//!     wrapper of the same codec, with offsets as in [`legacy`]. Headers and control batches are
//!     dropped; magic 0 drops timestamps. Message sets have no zstd: `UnsupportedCodec`.
//! Memory: compressed records are converted as a stream; beside the output, one record is held.
//! Source: Kafka's `RecordsUtil`.

use super::RecordError;
use super::batch::{self, Batch, Record, TimestampType};
use super::compression::{Codec, Framing};
use super::convert::{BufferedDeflate, each_inner_message, each_record};
use super::legacy::{self, Message, NewMessage};
use crate::work;

const MAGIC_AT: usize = 16;

/// The format and the offset that an old consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyTarget {
    /// The format: 0 (Fetch v0, v1) or 1 (Fetch v2, v3).
    pub magic: i8,
    /// The fetch offset. Uncompressed records below it are dropped. Those of a compressed batch
    /// stay, as in Kafka; clients skip them.
    pub first_offset: i64,
}

/// Converts `batch` for an old consumer and appends it to `out`. Returns whether it was completed.
///
/// The conversion subtracts from `limit` the bytes written, or a quarter of the bytes inflated if
/// that is more. At 0 it begins nothing more, so that at most one message or wrapper exceeds the
/// limit. The consumer fetches the rest of an incomplete batch from its next offset.
/// Errors: `UnsupportedCodec` for zstd; `Invalid` or `TooLarge` for bad records. `out` is then
/// unchanged.
pub fn to_legacy(
    batch: &Batch<'_>,
    target: &LegacyTarget,
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

/// What a conversion subtracts from its limit: the bytes it wrote, or a quarter of the bytes that
/// this thread inflated since `before` if that is more.
fn cost(written: usize, before: u64) -> usize {
    written.max(usize::try_from(work::since(before) / 4).unwrap_or(usize::MAX))
}

fn plain_to_legacy(
    batch: &Batch<'_>,
    target: &LegacyTarget,
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
const fn plain<'a>(record: &Record<'a>, magic: i8, attributes: i8) -> NewMessage<'a> {
    let Record { offset, timestamp, key, value, .. } = *record;
    NewMessage { magic, attributes, offset, timestamp, key, value }
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
    let mut wrapper = NewMessage {
        magic,
        attributes: flags | codec as i8,
        timestamp: -1,
        ..NewMessage::default()
    };
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

/// Writes a wrapper: the fields before its value, the messages of `feed`, then sizes and checksum.
pub(crate) fn write_wrapper(
    wrapper: &mut NewMessage<'_>,
    codec: Codec,
    out: &mut Vec<u8>,
    feed: impl FnOnce(&mut NewMessage<'_>, &mut BufferedDeflate<'_>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let framing = if wrapper.magic == 0 { Framing::Old } else { Framing::Standard };
    let start = legacy::begin_wrapper(out, wrapper);
    let mut inside = BufferedDeflate::new(codec.into(), framing, out)?;
    feed(wrapper, &mut inside)?;
    inside.finish()?;
    legacy::end_wrapper(out, start, wrapper);
    Ok(())
}

/// Converts consecutive stored batches and messages of any magic for an old consumer and appends
/// them to `out`. Returns how many bytes of `run` were converted. Fewer than all: `limit` is used
/// up (see [`to_legacy`]), or `run` ends in a cut batch. An uncompressed batch of which only the
/// first messages were written is not counted; the next fetch starts behind those messages.
///
/// Errors: those of [`to_legacy`] for the first batch. Errors of a later batch appear at the next
/// call.
pub fn run_to_legacy(
    run: &[u8],
    target: &LegacyTarget,
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

/// Converts the batch or message at the start of `rest`; `None` if the limit ended it early.
fn one_to_legacy(
    rest: &[u8],
    target: &LegacyTarget,
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
        legacy::put(out, &NewMessage { offset, key, value, ..NewMessage::default() });
    } else if let Err(error) = wrapper_to_v0(&message, out) {
        out.truncate(start);
        return Err(error);
    }
    *limit = limit.saturating_sub(cost(out.len() - start, before));
    Ok(Some(message.size()))
}

/// Writes a wrapper of magic 1 as one of magic 0. Inner offsets become absolute, so the last inner
/// offset is read first.
fn wrapper_to_v0(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), RecordError> {
    let mut last = 0;
    each_inner_message(message, |inside| {
        last = inside.offset;
        Ok(())
    })?;
    let base = message.offset.wrapping_sub(last);
    let (codec, offset) = (message.codec, message.offset);
    let mut wrapper = NewMessage { offset, attributes: codec as i8, ..NewMessage::default() };
    write_wrapper(&mut wrapper, codec, out, |_, gather| {
        each_inner_message(message, |inside| {
            let Message { key, value, .. } = *inside;
            let offset = base.wrapping_add(inside.offset);
            gather.write(|out| {
                legacy::put(out, &NewMessage { offset, key, value, ..NewMessage::default() })
            })
        })
    })
}
