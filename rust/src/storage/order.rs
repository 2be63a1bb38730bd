//! Checks whether the batches of a segment are in order, for bytes older than this process.
//!
//! The checksum of a batch does not cover its base offset and length. A flipped bit there would
//! show records at wrong offsets. In a valid segment offsets rise and end below the next segment,
//! so a flipped bit makes an offset fall: at the batch itself, or at the next one. The headers are
//! walked once, before the first read of the bytes. Bytes that this process wrote, or that recovery
//! has read, are not walked.
//! Cost: the first read of old bytes makes one small read for each batch. Threads: one short lock
//! for each segment, taken only for old bytes; the walk itself holds no lock.
//! Not promised: that an offset that rises into a gap of a compacted log is noticed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::scan::{BatchAt, WalkStep, Walker};

/// The state of the check of one segment.
#[derive(Debug)]
pub(crate) struct BatchOrder {
    /// This process wrote the bytes from here on.
    old: AtomicU64,
    walked: Mutex<WalkedRange>,
    /// The damage was reported.
    is_reported: AtomicBool,
}

/// The bytes that were walked, and the least valid offset after them.
#[derive(Clone, Copy, Debug, Default)]
struct WalkedRange {
    from: u64,
    to: u64,
    due: i64,
}

impl BatchOrder {
    /// The state for a segment whose first `old` bytes are older than this process.
    pub(crate) const fn of(old: u64) -> Self {
        let walked = Mutex::new(WalkedRange { from: 0, to: 0, due: i64::MIN });
        Self { old: AtomicU64::new(old), walked, is_reported: AtomicBool::new(false) }
    }

    /// The state for the first `size` bytes of the segment, which is cut there.
    pub(crate) fn cut_at(&self, size: u64) -> Self {
        Self::of(self.old.load(Ordering::Acquire).min(size))
    }

    /// Marks all bytes as checked, because recovery has read every batch.
    pub(crate) fn trust(&self) {
        self.old.store(0, Ordering::Release);
    }

    /// The walk that checks the order of these bytes; `None`: they are known to be in order.
    pub(crate) fn walk_of(
        &self,
        bytes: Range<u64>,
        size: u64,
        base_offset: i64,
    ) -> Option<OrderWalk> {
        let Range { start: from, end: to } = bytes;
        let old = self.old.load(Ordering::Acquire).min(size);
        if from >= old {
            return None;
        }
        let known = *self.walked.lock();
        let goes_on = known.from <= from && from <= known.to;
        if goes_on && to.min(old) <= known.to {
            return None;
        }
        let start = if goes_on { known.to } else { from };
        let due = match (goes_on, start) {
            (_, 0) => base_offset,
            (true, _) => known.due,
            _ => i64::MIN,
        };
        Some(OrderWalk { from, start, to: to.min(old), due, goes_on })
    }

    /// Records the result of a walk.
    pub(crate) fn note(&self, walk: &OrderWalk, end: &OrderWalkEnd) {
        let mut walked = self.walked.lock();
        if walk.goes_on && walked.to == walk.start {
            (walked.to, walked.due) = (end.good, end.due);
        } else if !walk.goes_on {
            *walked = WalkedRange { from: walk.from, to: end.good, due: end.due };
        }
    }

    /// Whether this is the first report of damage in this segment.
    pub(crate) fn is_first_report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }
}

/// A walk over the headers of a segment.
pub(crate) struct OrderWalk {
    from: u64,
    start: u64,
    /// The position up to which batches are checked.
    pub to: u64,
    due: i64,
    /// The walk begins where the last one ended.
    goes_on: bool,
}

/// Where a walk ended.
pub(crate) struct OrderWalkEnd {
    /// Position of the first batch that is not in order, or the end of the walk.
    pub good: u64,
    /// The least valid offset at that position.
    pub due: i64,
    /// Why the batch there is not in order.
    pub reason: Option<&'static str>,
}

impl OrderWalk {
    /// Walks over a segment of `size` bytes whose offsets are all below `limit`.
    pub(crate) fn run(&self, file: &File, size: u64, limit: i64) -> io::Result<OrderWalkEnd> {
        let end = |good, due, reason| Ok(OrderWalkEnd { good, due, reason });
        let mut walker = Walker::new(file, self.start, size);
        let (mut due, mut before) = (self.due, None::<(BatchAt, i64)>);
        loop {
            let at = walker.position();
            let batch = match walker.step()? {
                WalkStep::Batch(batch) => batch,
                WalkStep::End => return end(at, due, None),
                WalkStep::Bad(reason) => return end(at, due, Some(reason)),
            };
            if batch.magic == 2 && batch.base_offset < due {
                // One of the two is wrong: the batch before, unless it has the offset that is due.
                let (place, due) = match before {
                    Some((before, due)) if before.base_offset != due => (before.position, due),
                    _ => (at, due),
                };
                return end(place, due, Some("an offset falls"));
            }
            if batch.last_offset >= limit {
                return end(at, due, Some("an offset lies in the next segment"));
            }
            if at >= self.to {
                return end(at, due, None); // this batch confirms the offsets of the last one
            }
            before = Some((batch, due));
            due = batch.last_offset.saturating_add(1);
        }
    }
}
