//! What old consumers read: the batches of a slice as messages of magic 0 or 1.
//!
//! Invariant: an answer holds at most [`LIMIT`] bytes of converted records, plus one message; what
//!     was inflated for it counts a quarter, so that batches which hold a thousand times their size
//!     come one by one.
//! Behaviour: a slice in which nothing is for an old consumer (markers of transactions) is passed
//!     over, so that the consumer, who knows no offset but that of a message, gets on.
//! Threads: reads files on the reactor thread; the price of being old. Each thread keeps the
//!     buffers of its last conversion, at most [`KEEP`] bytes each: fresh memory costs more than
//!     converting.

use std::cell::RefCell;

use super::super::super::errors;
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::record::{batch, convert};
use crate::storage::{Log, Read, Slice};

/// Bytes of converted records in one answer.
pub(super) const LIMIT: usize = 4 << 20;

/// The largest buffer that is kept for the next conversion.
const KEEP: usize = 2 << 20;

/// What a thread keeps: for what is read, and for what it becomes.
#[derive(Default)]
struct Buffers {
    run: Vec<u8>,
    converted: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// Takes back what [`slice`] gave, once it was sent on.
pub(super) fn give_back(mut converted: Vec<u8>) {
    if converted.capacity() <= KEEP {
        converted.clear();
        BUFFERS.with_borrow_mut(|buffers| buffers.converted = converted);
    }
}

/// Converts `slice`, which `read` gave; reads on where nothing of it is for an old consumer.
pub(super) fn slice(
    log: &Log,
    (read, slice): (&Read, &mut Slice),
    (magic, limit): (i8, &mut usize),
) -> Result<Vec<u8>, ErrorCode> {
    let target = convert::Target { magic, first_offset: read.offset.0 };
    let Buffers { mut run, mut converted } = BUFFERS.take();
    converted.reserve(slice.size + slice.size / 4);
    let mut next = *read;
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
