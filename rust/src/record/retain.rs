//! Compaction of one stored batch or message: keeps some records and drops the others.
//!
//! A batch of magic 2 keeps its base offset, last offset, producer and sequence, so that the
//! producer's state can still be read from it. It may become empty. Kept records are copied
//! unchanged. When a *delete horizon* is set for the first time, it becomes the base timestamp, and
//! each record gets a new timestamp delta (KIP-534). A wrapper of magic 0 or 1 is rewritten with
//! the kept messages; an uncompressed message is kept or dropped.
//! Invariants: spans ascend, lie inside the payload and do not overlap. If all records are kept and
//!     the horizon is unchanged, the caller writes the stored bytes and does not call `rewrite`.
//! Threads: buffers belong to their owner.
//! Not promised: a check of record headers; they are copied.

use std::ops::Range;

use super::RecordError;
use super::batch::{Batch, MAGIC, body};
use super::compression::{Codec, Inflate, budget, deflate, failed};
use super::cursor::{Cursor, length, put_varint, varint_size};
use super::down_convert::write_wrapper;
use super::header::{CODEC_BITS, CONTROL, DELETE_HORIZON, HEADER_SIZE, Header, LOG_APPEND_TIME};
use super::header::{PREFIX_SIZE, TRANSACTIONAL};
use super::legacy::{self, Message, NewMessage};

const MAGIC_AT: usize = 16;
/// Where the key of an older message begins, after the key's length.
const KEY_AT_MAGIC_0: u32 = 22;
const KEY_AT_MAGIC_1: u32 = 30;

/// A record's position in the inflated payload, and the fields that decide whether it is kept.
#[derive(Clone, Copy, Debug)]
struct RecordSpan {
    offset: i64,
    timestamp: i64,
    start: u32,
    /// Position after the timestamp delta.
    rest: u32,
    end: u32,
    key_at: u32,
    /// Without a key: `u32::MAX`.
    key_len: u32,
    has_value: bool,
}

/// The fields of a record that decide whether compaction keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSummary<'a> {
    /// Its offset.
    pub offset: i64,
    /// Its key, or null.
    pub key: Option<&'a [u8]>,
    /// Whether it has a value; a record without a value is a tombstone.
    pub has_value: bool,
}

/// Reads stored batches and messages; its buffers are reused for each of them.
#[derive(Debug, Default)]
pub struct StoredBatchReader {
    held: Vec<u8>,
    spans: Vec<RecordSpan>,
}

/// A stored batch or message with the positions of its records.
#[derive(Clone, Copy, Debug)]
pub struct DecodedBatch<'a> {
    stored: StoredForm<'a>,
    payload: &'a [u8],
    spans: &'a [RecordSpan],
}

#[derive(Clone, Copy, Debug)]
enum StoredForm<'a> {
    Batch(Batch<'a>),
    Message(Message<'a>),
}

impl StoredBatchReader {
    /// Reads the batch or message at the start of `bytes` and checks its checksum and sizes.
    ///
    /// Errors: `Corrupt`, `Invalid`, `Truncated`.
    pub fn open<'a>(&'a mut self, bytes: &'a [u8]) -> Result<DecodedBatch<'a>, RecordError> {
        self.spans.clear();
        if bytes.get(MAGIC_AT).is_some_and(|&magic| magic as i8 == MAGIC) {
            return self.open_batch(Batch::parse(bytes)?);
        }
        let message = Message::parse(bytes)?;
        if !message.crc_ok() {
            return Err(RecordError::Corrupt("checksum"));
        }
        self.open_message(message)
    }

    fn open_batch<'a>(&'a mut self, batch: Batch<'a>) -> Result<DecodedBatch<'a>, RecordError> {
        if !batch.crc_ok() {
            return Err(RecordError::Corrupt("checksum"));
        }
        let payload = match batch.codec() {
            _ if batch.header().record_count == 0 => &[],
            Codec::None => batch.payload(),
            codec => inflate(codec, batch.payload(), &mut self.held)?,
        };
        walk(&batch, payload, &mut self.spans)?;
        Ok(DecodedBatch { stored: StoredForm::Batch(batch), payload, spans: &self.spans })
    }

    fn open_message<'a>(
        &'a mut self,
        message: Message<'a>,
    ) -> Result<DecodedBatch<'a>, RecordError> {
        let stored = StoredForm::Message(message);
        if message.codec == Codec::None {
            self.spans.push(span_of(&message, 0));
            return Ok(DecodedBatch { stored, payload: message.bytes(), spans: &self.spans });
        }
        let value = message.value.unwrap_or_default();
        let payload = inflate(message.codec, value, &mut self.held)?;
        let mut at = 0;
        for inside in legacy::iter(payload) {
            let inside = inside?;
            inside.check_inner(&message)?;
            self.spans.push(span_of(&inside, at));
            at += inside.size() as u32;
        }
        let last = self.spans.last().ok_or(RecordError::batch("an empty wrapper"))?.offset;
        if message.magic != 0 {
            let base = message.offset.wrapping_sub(last);
            self.spans.iter_mut().for_each(|span| span.offset = span.offset.wrapping_add(base));
        }
        Ok(DecodedBatch { stored, payload, spans: &self.spans })
    }
}

impl<'a> DecodedBatch<'a> {
    /// Number of records.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no record is left.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The view of a batch of magic 2; `None` for an older message.
    pub const fn batch(&self) -> Option<&Batch<'a>> {
        match &self.stored {
            StoredForm::Batch(batch) => Some(batch),
            StoredForm::Message(_) => None,
        }
    }

    /// The summary of each record, in order.
    pub fn record_summaries(&self) -> impl Iterator<Item = RecordSummary<'a>> + use<'a> {
        let payload = self.payload;
        self.spans.iter().map(move |span| RecordSummary {
            offset: span.offset,
            key: key_of(span, payload),
            has_value: span.has_value,
        })
    }

    /// The first record's key; a control record's key holds its type.
    pub fn first_key(&self) -> Option<&'a [u8]> {
        self.spans.first().and_then(|span| key_of(span, self.payload))
    }

    /// Appends the batch or message to `out` with only the records that `keep` marks, at least one.
    /// `horizon`: the delete horizon to set (magic 2 only).
    ///
    /// Errors: `TooLarge` beyond 2 GiB; `out` is then unchanged.
    pub fn rewrite(
        &self,
        keep: &[bool],
        horizon: Option<i64>,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let start = out.len();
        let written = match &self.stored {
            StoredForm::Batch(batch) => self.rewrite_batch(batch, keep, horizon, out),
            StoredForm::Message(message) => self.rewrite_wrapper(message, keep, out),
        };
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn kept<'k>(&self, keep: &'k [bool]) -> impl Iterator<Item = &'a RecordSpan> + use<'a, 'k> {
        self.spans.iter().zip(keep).filter(|(_, keep)| **keep).map(|(span, _)| span)
    }

    fn rewrite_batch(
        &self,
        batch: &Batch<'_>,
        keep: &[bool],
        horizon: Option<i64>,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let mut header = *batch.header();
        let mut count = 0;
        let mut largest = i64::MIN;
        for span in self.kept(keep) {
            count += 1;
            largest = largest.max(span.timestamp);
        }
        header.record_count = count;
        if !header.has(LOG_APPEND_TIME) {
            header.max_timestamp = largest;
        }
        if let Some(horizon) = horizon {
            header.attributes |= DELETE_HORIZON;
            header.base_timestamp = horizon;
        }
        let start = out.len();
        out.resize(start + HEADER_SIZE, 0);
        let codec = batch.codec();
        if codec == Codec::None {
            self.put_records(keep, horizon, out);
        } else {
            let mut plain = Vec::with_capacity(self.payload.len());
            self.put_records(keep, horizon, &mut plain);
            deflate(codec, None, &plain, out)
                .map_err(|_| RecordError::batch("records cannot be compressed"))?;
        }
        header.seal_into(out, start)
    }

    /// Copies the kept records. With a new horizon each gets a new timestamp delta.
    fn put_records(&self, keep: &[bool], horizon: Option<i64>, out: &mut Vec<u8>) {
        let Some(horizon) = horizon else {
            let mut run: Option<Range<u32>> = None;
            for span in self.kept(keep) {
                run = match run {
                    Some(run) if run.end == span.start => Some(run.start..span.end),
                    Some(done) => {
                        out.extend_from_slice(slice(self.payload, done));
                        Some(span.start..span.end)
                    }
                    None => Some(span.start..span.end),
                };
            }
            out.extend_from_slice(run.map_or(&[][..], |run| slice(self.payload, run)));
            return;
        };
        for span in self.kept(keep) {
            let rest = slice(self.payload, span.rest..span.end);
            let delta = span.timestamp.wrapping_sub(horizon);
            put_varint(out, length(1 + varint_size(delta) + rest.len()));
            out.push(0);
            put_varint(out, delta);
            out.extend_from_slice(rest);
        }
    }

    fn rewrite_wrapper(
        &self,
        message: &Message<'_>,
        keep: &[bool],
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let Some(first) = self.kept(keep).next().map(|span| span.offset) else {
            return Err(RecordError::batch("a wrapper cannot be empty"));
        };
        let time = message.wrapper_timestamp();
        let flags = if time.is_some() { legacy::LOG_APPEND_TIME } else { 0 };
        let magic = message.magic;
        let attributes = flags | message.codec as i8;
        let mut wrapper = NewMessage { magic, attributes, timestamp: -1, ..NewMessage::default() };
        write_wrapper(&mut wrapper, message.codec, out, |wrapper, inside| {
            for span in self.kept(keep) {
                let stored = Message::parse(slice(self.payload, span.start..span.end))?;
                let relative = if magic == 0 { 0 } else { first };
                wrapper.offset = span.offset;
                wrapper.timestamp = wrapper.timestamp.max(span.timestamp);
                let plain = NewMessage {
                    magic,
                    attributes: flags,
                    offset: span.offset.wrapping_sub(relative),
                    timestamp: span.timestamp,
                    key: stored.key,
                    value: stored.value,
                };
                inside.write(|out| legacy::put(out, &plain))?;
            }
            wrapper.timestamp = time.unwrap_or(wrapper.timestamp);
            Ok(())
        })
    }
}

/// An empty batch that replaces `batch`: same offsets, producer, sequence and largest timestamp.
pub fn emptied(batch: &Batch<'_>) -> [u8; HEADER_SIZE] {
    let header = Header {
        batch_length: i32::try_from(HEADER_SIZE - PREFIX_SIZE).unwrap_or(i32::MAX),
        attributes: batch.header().attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        base_timestamp: -1,
        record_count: 0,
        ..*batch.header()
    };
    debug_assert_eq!(header.attributes & (CODEC_BITS | DELETE_HORIZON), 0);
    header.seal(&[])
}

fn inflate<'h>(codec: Codec, input: &[u8], held: &'h mut Vec<u8>) -> Result<&'h [u8], RecordError> {
    let limit = usize::try_from(budget(input.len())).unwrap_or(usize::MAX);
    Inflate::new(codec, input).map_err(failed)?.read_over(limit.min(u32::MAX as usize), held)
}

fn walk(batch: &Batch<'_>, payload: &[u8], spans: &mut Vec<RecordSpan>) -> Result<(), RecordError> {
    let header = batch.header();
    let time = header.has(LOG_APPEND_TIME).then_some(header.max_timestamp);
    let total = payload.len();
    if u32::try_from(total).is_err() {
        return Err(RecordError::TooLarge { size: total, limit: u32::MAX as usize });
    }
    let mut at = Cursor::new(payload);
    for index in 0..header.record_count {
        let start = total - at.rest.len();
        let span = body(&mut at).and_then(|body| {
            let end = total - at.rest.len();
            read_span(start..end, body, header).ok_or("bad record")
        });
        let span = span.map_err(|reason| RecordError::Invalid { index, reason })?;
        spans.push(RecordSpan { timestamp: time.unwrap_or(span.timestamp), ..span });
    }
    if at.rest.is_empty() {
        Ok(())
    } else {
        Err(RecordError::batch("bytes left over after the last record"))
    }
}

#[inline(always)]
fn read_span(bytes: Range<usize>, body: &[u8], header: &Header) -> Option<RecordSpan> {
    let Range { start, end } = bytes;
    let mut at = Cursor::new(body);
    at.int8()?;
    let timestamp = header.base_timestamp.wrapping_add(at.varlong()?);
    let rest = end - at.rest.len();
    let offset = header.base_offset.wrapping_add(i64::from(at.varint()?));
    let key = at.nullable()?;
    let behind_key = end - at.rest.len();
    let has_value = at.nullable()?.is_some();
    let key_len = key.map_or(u32::MAX, |key| key.len() as u32);
    let key_at = behind_key - key.map_or(0, <[u8]>::len);
    Some(RecordSpan {
        offset,
        timestamp,
        start: start as u32,
        rest: rest as u32,
        end: end as u32,
        key_at: key_at as u32,
        key_len,
        has_value,
    })
}

/// The span of a message at `start` of the payload.
fn span_of(message: &Message<'_>, start: u32) -> RecordSpan {
    let end = start + message.size() as u32;
    RecordSpan {
        offset: message.offset,
        timestamp: message.timestamp,
        start,
        rest: end,
        end,
        key_at: start + if message.magic == 0 { KEY_AT_MAGIC_0 } else { KEY_AT_MAGIC_1 },
        key_len: message.key.map_or(u32::MAX, |key| key.len() as u32),
        has_value: message.value.is_some(),
    }
}

#[inline]
fn key_of<'a>(span: &RecordSpan, payload: &'a [u8]) -> Option<&'a [u8]> {
    let key = || slice(payload, span.key_at..span.key_at + span.key_len);
    (span.key_len != u32::MAX).then(key)
}

#[inline]
fn slice(payload: &[u8], bytes: Range<u32>) -> &[u8] {
    payload.get(bytes.start as usize..bytes.end as usize).unwrap_or_default()
}
