//! Down-conversion: the batches of a read result become messages of magic 0 or 1 for old consumers.
//!
//! Invariant: a reply holds at most [`LIMIT`] bytes of converted records, plus one message. Bytes
//!     that were only inflated count a quarter, so that highly compressed batches are converted one
//!     at a time.
//! Behaviour: a range without records for the consumer (transaction markers) is skipped. An old
//!     consumer learns offsets from messages only and would otherwise never move on.
//! Threads: the network thread for short conversions (see [`is_long`]), else a worker. Each thread
//!     keeps the buffers of its last conversion, at most [`KEEP`] bytes each, because fresh memory
//!     costs more than converting.
//! Memory: a reply that a worker converts takes its bytes from one pool until it is sent
//!     ([`allotment`]). The emptier the pool, the smaller the replies.

use std::cell::RefCell;

use std::sync::Arc;

use crate::broker::errors;
use crate::broker::handlers::fetch::ReadResult;
use crate::broker::state::fetch_sessions::FetchContext;
use crate::ids::Offset;
use crate::memory::{Lease, MemoryPool};
use crate::protocol::ErrorCode;
use crate::record::{batch, convert};
use crate::storage::{Log, LogReadRequest, LogSlice};

/// Bytes of converted records in one reply.
pub(crate) const LIMIT: usize = 4 << 20;

/// The smallest limit of a reply, when little memory is left.
const LEAST: usize = 64 << 10;
/// A reply may take this share of the memory left.
const PART: usize = 8;
/// The largest growth of an uncompressed stored byte: a message has 34 bytes of overhead where a
/// record has 7.
const EXPANDS: usize = 5;
/// Stored bytes that a network thread converts itself. If they are compressed, they inflate to a
/// megabyte at most.
const SHORT: usize = 1 << 10;

/// The largest buffer that is kept for the next conversion.
const KEEP: usize = 2 << 20;

/// A thread's buffers: for stored bytes and for converted ones.
#[derive(Default)]
struct ConversionBuffers {
    run: Vec<u8>,
    converted: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<ConversionBuffers> = RefCell::default();
}

/// Keeps a buffer that [`slice`] returned for the next conversion. Call it after the bytes were
/// sent.
pub(crate) fn give_back(mut converted: Vec<u8>) {
    if converted.capacity() <= KEEP {
        converted.clear();
        BUFFERS.with_borrow_mut(|buffers| buffers.converted = converted);
    }
}

/// Whether the conversion is too long for a network thread.
pub(crate) fn is_long(found: &[ReadResult]) -> bool {
    found.iter().map(to_convert).sum::<usize>() > SHORT
}

/// The number of stored bytes to convert.
fn to_convert(found: &ReadResult) -> usize {
    found.read.map_or(0, |_| found.slice.size)
}

/// The most converted bytes that a reply may hold, and the lease for them and for the stored bytes.
/// `None` if the pool has too few bytes left.
pub(crate) fn allotment(pool: &Arc<MemoryPool>, found: &[ReadResult]) -> Option<(usize, Lease)> {
    let usage = pool.usage();
    let left = usage.limit.saturating_sub(usage.used);
    let limit = (left / PART).clamp(LEAST, LIMIT);
    let first = found.iter().map(|found| found.slice.first_size).max().unwrap_or_default();
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let stored = found.iter().map(to_convert).sum::<usize>().min(limit.max(first));
    let becomes = stored.saturating_mul(EXPANDS).min(limit.max(stored));
    Some((limit, pool.lease(stored.saturating_add(becomes))?))
}

/// Converts all read results, to at most `limit` bytes and one message.
pub(crate) fn all(context: &FetchContext, found: &mut [ReadResult], magic: i8, mut limit: usize) {
    for found in found {
        let entry = context.entries.get(found.number as usize).and_then(Option::as_ref);
        let (Some(entry), Some(read)) = (entry, found.read.take()) else { continue };
        let Ok((partition, _)) = &entry.local else { continue };
        match slice(&partition.log, (&read, &mut found.slice), (magic, &mut limit)) {
            Ok(converted) => found.converted = Some(converted),
            Err(error) => *found = ReadResult::failed(found.number, error),
        }
    }
}

/// Converts `slice`, the result of `read`. If it has no record for an old consumer, the range after
/// it is read.
fn slice(
    log: &Log,
    (read, slice): (&LogReadRequest, &mut LogSlice),
    (magic, limit): (i8, &mut usize),
) -> Result<Vec<u8>, ErrorCode> {
    let target = convert::LegacyTarget { magic, first_offset: read.offset.0 };
    let ConversionBuffers { mut run, mut converted } = BUFFERS.take();
    let mut next = LogReadRequest { max_bytes: read.max_bytes.min(*limit), ..*read };
    if slice.size > *limit {
        *slice = log.read(next).map_err(|error| errors::of_read(&error))?;
    }
    converted.reserve(slice.size + slice.size / 4);
    let broken = |_: std::io::Error| ErrorCode::KafkaStorageError;
    while slice.size > 0 && *limit > 0 {
        run.clear();
        slice.read_into(&mut run).map_err(broken)?;
        let taken = convert::run_to_legacy(&run, &target, limit, &mut converted)
            .map_err(|error| errors::of_record(&error))?;
        if !converted.is_empty() || taken == 0 {
            break;
        }
        let passed = run.get(..taken).unwrap_or_default();
        let last = batch::iter(passed).filter_map(Result::ok).last();
        let Some(last) = last else { break };
        next.offset = Offset(last.last_offset() + 1);
        *slice = log.read(next).map_err(|error| errors::of_read(&error))?;
    }
    if run.capacity() <= KEEP {
        BUFFERS.with_borrow_mut(|buffers| buffers.run = run);
    }
    Ok(converted)
}
