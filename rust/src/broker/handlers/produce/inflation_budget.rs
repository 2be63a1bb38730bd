//! The inflation budget of a Produce: the bytes that may be inflated to check it, in total and on a
//! network thread.
//!
//! A small request may inflate to very many bytes. The limit for the network thread is smaller,
//! because it serves other clients; a worker takes over what exceeds it. Ordinary producers stay
//! below it.
//! Threads: one at a time; the budget moves with the request.

use std::cell::Cell;

use crate::broker::handlers::produce::faults::LISTED;
use crate::record::RecordError;
use crate::record::batch::Batch;
use crate::record::compression::{self, Codec};

/// The bytes that any request may inflate, and how many more for each of its own bytes.
const INFLATED: u64 = 64 << 20;
const INFLATED_PER_BYTE: u64 = 64;

/// The bytes that a network thread inflates for one request; that takes some milliseconds.
const INFLATED_HERE: u64 = 2 << 20;
/// A larger compressed batch goes to a worker at once.
const BATCH_HERE: usize = 256 << 10;
/// The inflated bytes that a network thread recompresses.
const RECOMPRESSED_HERE: u64 = 64 << 10;
/// The bytes that a network thread converts from an old format. Compressed bytes inflate to some
/// megabytes at most.
const OLD_HERE: usize = 128 << 10;
const OLD_COMPRESSED_HERE: usize = 4 << 10;

/// How many bytes a request may still inflate.
#[derive(Debug)]
pub(crate) struct InflationBudget {
    left: Cell<u64>,
    left_here: Cell<u64>,
    /// How many bad records its answer may still name.
    nameable: Cell<usize>,
    is_worker: bool,
}

impl InflationBudget {
    /// The budget of a request of `size` bytes on a network thread.
    pub(crate) fn of(size: usize) -> Self {
        let left = INFLATED + INFLATED_PER_BYTE * size as u64;
        Self {
            left: left.into(),
            left_here: INFLATED_HERE.into(),
            nameable: LISTED.into(),
            is_worker: false,
        }
    }

    /// The budget of the same request on a worker.
    pub(crate) fn on_a_worker(self) -> Self {
        Self { left_here: Cell::new(u64::MAX), is_worker: true, ..self }
    }

    /// Whether the request has inflated all that it may.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left.get() == 0
    }

    /// How many bytes may be inflated on this thread.
    pub(crate) fn inflatable(&self) -> u64 {
        self.left.get().min(self.left_here.get())
    }

    /// Counts inflated bytes.
    pub(crate) fn inflated(&self, bytes: u64) {
        for left in [&self.left, &self.left_here] {
            left.set(left.get().saturating_sub(bytes));
        }
    }

    /// Whether the request is on a network thread.
    pub(crate) const fn is_here(&self) -> bool {
        !self.is_worker
    }

    /// How many bad records may be named in the answer.
    pub(crate) fn nameable(&self) -> usize {
        self.nameable.get()
    }

    /// Counts bad records that the reply names.
    pub(crate) fn named(&self, records: usize) {
        self.nameable.set(self.nameable().saturating_sub(records));
    }

    /// Whether a worker must inflate the batch to check its records.
    #[inline]
    pub(crate) fn is_large(&self, batch: &Batch<'_>) -> bool {
        !self.is_worker
            && batch.codec() != Codec::None
            && (batch.size() > BATCH_HERE || self.left_here.get() == 0)
    }

    /// Whether a batch was refused only because it used up the network thread's budget.
    pub(crate) fn ended(&self, error: &RecordError) -> bool {
        self.left_here.get() < self.left.get() && compression::exceeds_inflation_limit(error)
    }

    /// Whether a worker must recompress a batch.
    pub(crate) fn is_long_to_recompress(&self, batch: &Batch<'_>, inflated: u64) -> bool {
        !self.is_worker && inflated.max(batch.size() as u64) > RECOMPRESSED_HERE
    }

    /// Whether a worker must convert a set of an old format.
    pub(crate) fn is_long_to_convert(&self, set: &[u8], is_compressed: bool) -> bool {
        let here = if is_compressed { OLD_COMPRESSED_HERE } else { OLD_HERE };
        !self.is_worker && set.len() > here
    }
}
