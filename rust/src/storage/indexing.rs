//! Rebuilds the indexes of a segment from its batches, with the same entries as appends write.
//!
//! Threads: plain values.
//!     The caller writes the files.

use super::index::{IndexEntry, OffsetEntry, TimeEntry};
use super::scan::BatchAt;

/// Collects index entries from a walk: the same that appends would have written.
pub(crate) struct IndexBuilder {
    base_offset: i64,
    interval: u64,
    since_entry: u64,
    max: (i64, i64),
    first: Option<i64>,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
}

/// The complete indexes of a segment.
pub(crate) struct BuiltIndexes {
    pub offsets: Vec<OffsetEntry>,
    pub times: Vec<TimeEntry>,
    /// The largest timestamp and the last offset of its batch; (-1, -1) without any.
    pub max: (i64, i64),
    /// The largest timestamp of the first batch.
    pub first: Option<i64>,
}

impl IndexBuilder {
    pub(crate) const fn new(base_offset: i64, interval: u64) -> Self {
        Self {
            base_offset,
            interval,
            since_entry: 0,
            max: (-1, -1),
            first: None,
            offsets: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Adds the next batch.
    pub(crate) fn add(&mut self, batch: &BatchAt) {
        self.first.get_or_insert(batch.max_timestamp);
        if batch.max_timestamp > self.max.0 {
            self.max = (batch.max_timestamp, batch.last_offset);
        }
        let (Ok(delta), Ok(position)) =
            (i32::try_from(batch.last_offset - self.base_offset), i32::try_from(batch.position))
        else {
            return;
        };
        if self.since_entry > self.interval {
            self.offsets.push(OffsetEntry { delta, position });
            self.push_time();
            self.since_entry = 0;
        }
        self.since_entry += batch.size;
    }

    /// Bytes since the last entry.
    pub(crate) const fn since_entry(&self) -> u64 {
        self.since_entry
    }

    /// The indexes of all added batches.
    pub(crate) fn finish(mut self) -> BuiltIndexes {
        self.push_time();
        let Self { offsets, times, max, first, .. } = self;
        BuiltIndexes { offsets, times, max, first }
    }

    /// The bytes of `.index` and `.timeindex`.
    pub(crate) fn into_bytes(mut self) -> (Vec<u8>, Vec<u8>) {
        self.push_time();
        let (mut offsets, mut times) = (Vec::new(), Vec::new());
        self.offsets.iter().for_each(|entry| entry.write(&mut offsets));
        self.times.iter().for_each(|entry| entry.write(&mut times));
        (offsets, times)
    }

    fn push_time(&mut self) {
        let (timestamp, offset) = self.max;
        let Ok(delta) = i32::try_from(offset - self.base_offset) else { return };
        if self.times.last().is_none_or(|last| last.timestamp < timestamp) && timestamp >= 0 {
            self.times.push(TimeEntry { timestamp, delta });
        }
    }
}
