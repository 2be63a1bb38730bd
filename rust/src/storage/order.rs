//! Whether the batches of a segment that lay there before this process are in order.
//!
//! A batch's base offset and length are not under its checksum: a bit that flips there would show
//! records at offsets where others were written. In a whole segment offsets rise, and end below the
//! next segment, so that any such bit makes an offset fall: at the batch itself, or at the next.
//! The headers are walked before the bytes are first read, once for each byte in a process's life:
//! what the process wrote itself, or recovery has read, is not walked.
//! Cost: of the first read of old bytes, one small read a batch. Threads: one short lock a segment,
//! taken only for bytes that were there before; the walk itself holds none.
//! Not promised: on compacted topics an offset may rise into a gap unnoticed.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::scan::{BatchAt, WalkStep, Walker};

/// What was walked of a segment.
#[derive(Debug)]
pub(crate) struct BatchOrder {
    /// Bytes from here on are this process's own.
    old: AtomicU64,
    walked: Mutex<WalkedRange>,
    /// Somebody was told of the damage.
    told: AtomicBool,
}

/// The bytes that were walked, and the least offset that may come behind them.
#[derive(Clone, Copy, Debug, Default)]
struct WalkedRange {
    from: u64,
    to: u64,
    due: i64,
}

impl BatchOrder {
    /// Of a segment whose first `old` bytes were there before.
    pub(crate) const fn of(old: u64) -> Self {
        let walked = Mutex::new(WalkedRange { from: 0, to: 0, due: i64::MIN });
        Self { old: AtomicU64::new(old), walked, told: AtomicBool::new(false) }
    }

    /// Recovery has read every batch.
    pub(crate) fn trust(&self) {
        self.old.store(0, Ordering::Release);
    }

    /// The walk that tells whether `from..to` is in order; `None`: it is.
    pub(crate) fn walk_of(
        &self,
        (from, to): (u64, u64),
        size: u64,
        base_offset: i64,
    ) -> Option<OrderWalk> {
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

    /// Takes note of a walk that is over.
    pub(crate) fn note(&self, walk: &OrderWalk, end: &OrderWalkEnd) {
        let mut walked = self.walked.lock();
        if walk.goes_on && walked.to == walk.start {
            (walked.to, walked.due) = (end.good, end.due);
        } else if !walk.goes_on {
            *walked = WalkedRange { from: walk.from, to: end.good, due: end.due };
        }
    }

    /// Whether damage of this segment is reported for the first time.
    pub(crate) fn is_first_report(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

/// A walk over the headers of a segment.
pub(crate) struct OrderWalk {
    from: u64,
    start: u64,
    /// Up to where batches are looked at.
    pub to: u64,
    due: i64,
    /// It begins where the last walk ended.
    goes_on: bool,
}

/// Where a walk ended.
pub(crate) struct OrderWalkEnd {
    /// Where the first batch lies that is not in order, or one past the last walked.
    pub good: u64,
    /// The least offset due there.
    pub due: i64,
    /// Why the batch there is not in order.
    pub reason: Option<&'static str>,
}

impl OrderWalk {
    /// Walks over a segment of `size` bytes whose offsets are all below `limit`.
    pub(crate) fn run(&self, file: &File, (size, limit): (u64, i64)) -> io::Result<OrderWalkEnd> {
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
                // One of two is wrong: the one before, unless it began where it should.
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
                return end(at, due, None); // the batch behind says that the last one is right
            }
            before = Some((batch, due));
            due = batch.last_offset.saturating_add(1);
        }
    }
}
