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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::errors::StorageError;
use super::scan::{BatchAt, Step, Walker};
use super::segment::{LOG, Segment};

/// What was walked of a segment.
#[derive(Debug)]
pub(crate) struct Order {
    /// Bytes from here on are this process's own.
    old: AtomicU64,
    walked: Mutex<Walked>,
    /// Somebody was told of the damage.
    told: AtomicBool,
}

/// The bytes that were walked, and the least offset that may come behind them.
#[derive(Clone, Copy, Debug, Default)]
struct Walked {
    from: u64,
    to: u64,
    due: i64,
}

impl Order {
    /// Of a segment whose first `old` bytes were there before.
    pub(crate) const fn of(old: u64) -> Self {
        let walked = Mutex::new(Walked { from: 0, to: 0, due: i64::MIN });
        Self { old: AtomicU64::new(old), walked, told: AtomicBool::new(false) }
    }

    /// Recovery has read every batch.
    pub(crate) fn trust(&self) {
        self.old.store(0, Ordering::Release);
    }
}

impl Segment {
    /// Up to where the batches of `from..to` may be shown; `from` is where a batch begins. All
    /// offsets are below `limit`, the base offset of the next segment.
    pub(crate) fn in_order(
        self: &Arc<Self>,
        (from, to): (u64, u64),
        limit: i64,
    ) -> Result<u64, StorageError> {
        let old = self.order.old.load(Ordering::Acquire).min(self.size());
        if from >= old {
            return Ok(to);
        }
        let known = *self.order.walked.lock();
        let goes_on = known.from <= from && from <= known.to;
        if goes_on && to.min(old) <= known.to {
            return Ok(to);
        }
        let start = if goes_on { known.to } else { from };
        let due = match (goes_on, start) {
            (_, 0) => self.base_offset,
            (true, _) => known.due,
            _ => i64::MIN,
        };
        let walk = Walk { start, to: to.min(old), due, limit };
        let (good, due) = self.walk(&walk)?;
        let mut walked = self.order.walked.lock();
        if goes_on && walked.to == known.to {
            (walked.to, walked.due) = (good, due);
        } else if !goes_on {
            *walked = Walked { from, to: good, due };
        }
        Ok(if good >= to.min(old) { to } else { good.max(from) })
    }

    /// Whether the whole segment is in order; it is walked once.
    pub(crate) fn is_in_order(self: &Arc<Self>, limit: i64) -> Result<bool, StorageError> {
        let size = self.size();
        Ok(self.in_order((0, size), limit)? >= size)
    }

    /// Where the first batch lies that is not in order, or one past the last walked; and the least
    /// offset due there.
    fn walk(self: &Arc<Self>, walk: &Walk) -> Result<(u64, i64), StorageError> {
        let file = self.file()?;
        let fail = |error| StorageError::io("read", &self.path(LOG), error);
        let mut walker = Walker::new(&file, walk.start, self.size());
        let (mut due, mut before) = (walk.due, None::<(BatchAt, i64)>);
        loop {
            let at = walker.position();
            let batch = match walker.step().map_err(fail)? {
                Step::Batch(batch) => batch,
                Step::End => return Ok((at, due)),
                Step::Bad(reason) => return Ok(self.ends_order((at, due), reason)),
            };
            if batch.magic == 2 && batch.base_offset < due {
                // One of two is wrong: the one before, unless it began where it should.
                let (place, due) = match before {
                    Some((before, due)) if before.base_offset != due => (before.position, due),
                    _ => (at, due),
                };
                return Ok(self.ends_order((place, due), "an offset falls"));
            }
            if batch.last_offset >= walk.limit {
                return Ok(self.ends_order((at, due), "an offset lies in the next segment"));
            }
            if at >= walk.to {
                return Ok((at, due)); // the batch behind says that the last one is right
            }
            before = Some((batch, due));
            due = batch.last_offset.saturating_add(1);
        }
    }

    fn ends_order(&self, (place, due): (u64, i64), reason: &str) -> (u64, i64) {
        if !self.order.told.swap(true, Ordering::Relaxed) {
            let file = self.path(LOG);
            tracing::error!(
                log = %self.log_name(), from = due.max(self.base_offset),
                "{reason} at byte {place} of {}: records from there to the next good batch are not \
                 served; see krust log verify, fetch the partition from a replica, or cut it with \
                 krust log repair",
                file.display()
            );
        }
        (place, due)
    }
}

struct Walk {
    start: u64,
    to: u64,
    due: i64,
    limit: i64,
}
