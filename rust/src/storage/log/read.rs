//! Reading: from an offset to ranges of files.
//!
//! A read finds its segment in the list, a position near by in the index, and walks headers from
//! there. Where the last reads ended is remembered, so that who reads on needs neither.
//! Ranges begin with a whole batch and end at a batch's edge or where `max_bytes` cuts; what a cut
//! leaves of the last batch is for the reader to drop.
//! Invariant: a segment knows up to where its bytes were given away before the reader looks whether
//! the log was cut meanwhile. If it was, the reader reads again.
//! Threads: no lock but that of an index and, if it is free, of the read_positions.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::super::errors::{ReadError, StorageError};
use super::super::files::FileRange;
use super::super::scan::BatchAt;
use super::super::segment::Segment;
use super::Log;
use super::read_positions::{READ_POSITIONS, ReadPosition};
use super::read_result::{LogReadRequest, LogSlice};
use super::segments::Segments;
use super::tail::TailPosition;
use crate::ids::Offset;

/// A place in the list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SegmentPosition {
    index: usize,
    position: u64,
}

impl Log {
    /// The byte ranges of batches from `read.offset` on.
    /// Errors: out of range, or the storage's.
    pub fn read(&self, read: LogReadRequest) -> Result<LogSlice, ReadError> {
        self.usable()?;
        loop {
            let truncations = self.truncations();
            let end = self.tail.load();
            let log_start = self.log_start_offset().0;
            if read.offset.0 < log_start || read.offset.0 > end.end {
                return Err(ReadError::OutOfRange {
                    offset: read.offset.0,
                    log_start,
                    log_end: end.end,
                });
            }
            let segments = self.segments.load_full();
            let found = self.read_from(&segments, &end, &read);
            if self.truncations() != truncations {
                continue;
            }
            match found {
                Err(ReadError::Storage(error)) if error.is_not_found() => {
                    self.has_other_segments(&segments).ok_or(error)?;
                }
                other => return other,
            }
        }
    }

    /// Runs `f` over the segments, and again where one of them went away or was cut meanwhile.
    pub(super) fn steady<R>(
        &self,
        f: impl Fn(&[Arc<Segment>]) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        loop {
            let truncations = self.truncations();
            let segments = self.segments.load_full();
            let found = f(&segments);
            if self.truncations() != truncations {
                continue;
            }
            match found {
                Err(error) if error.is_not_found() => {
                    self.has_other_segments(&segments).ok_or(error)?;
                }
                other => return other,
            }
        }
    }

    /// How often the log was cut at its end.
    pub(in super::super) fn truncations(&self) -> u32 {
        self.truncations.load(Ordering::SeqCst)
    }

    /// Whether the log got another list of segments since `seen`; if one is on its way, waits.
    fn has_other_segments(&self, seen: &Arc<Segments>) -> Option<()> {
        let is_other = || !Arc::ptr_eq(seen, &self.segments.load());
        if !is_other() {
            drop(self.writer.lock());
        }
        self.usable().ok()?;
        is_other().then_some(())
    }

    fn read_from(
        &self,
        segments: &Segments,
        end: &TailPosition,
        read: &LogReadRequest,
    ) -> Result<LogSlice, ReadError> {
        let upper = read.upper.0.min(end.end);
        if read.offset.0 >= upper {
            if read.offset.0 == end.end {
                self.damage.get().map_or(Ok(()), |damage| Err(damage.clone()))?;
            }
            return Ok(LogSlice::default());
        }
        let Some(stop) = self.place_of_end(segments, end, upper)? else {
            return Ok(LogSlice::default());
        };
        let Some((from, first)) = self.place_of_start(segments, read.offset.0, stop)? else {
            return Ok(LogSlice::default());
        };
        let mut budget = read.max_bytes as u64;
        if read.min_one {
            budget = budget.max(first.size);
        }
        let shown = self.in_order(segments, (from, stop), (read.offset.0, budget))?;
        let (ranges, stopped) = collect(segments, (from, shown), budget)?;
        if stopped == stop
            && let Some(segment) = segments.get(stop.index)
        {
            self.remember(upper, segment, stop.position);
        }
        Ok(LogSlice {
            size: ranges.iter().map(|range| range.len).sum(),
            ranges,
            held: None,
            base_offset: Some(Offset(first.base_offset)),
            first_size: first.size,
        })
    }

    /// Where `upper` begins: the edge that a read stops at. `None` if nothing lies below.
    fn place_of_end(
        &self,
        segments: &Segments,
        end: &TailPosition,
        upper: i64,
    ) -> Result<Option<SegmentPosition>, StorageError> {
        if upper == end.end {
            let index = segments.iter().rposition(|segment| segment.base_offset == end.base);
            if let Some(index) = index {
                return Ok(Some(SegmentPosition { index, position: end.position }));
            }
        }
        if let Some(place) = self.recall(segments, upper) {
            return Ok(Some(place));
        }
        let Some(index) = segments.below(upper) else { return Ok(None) };
        let Some(segment) = segments.get(index) else { return Ok(None) };
        let size = segment.size();
        let position = segment.find(upper, size)?.map_or(size, |batch| batch.position);
        self.remember(upper, segment, position);
        Ok(Some(SegmentPosition { index, position }))
    }

    /// The first batch that holds `offset` or lies above it, before `stop`.
    fn place_of_start(
        &self,
        segments: &Segments,
        offset: i64,
        stop: SegmentPosition,
    ) -> Result<Option<(SegmentPosition, BatchAt)>, StorageError> {
        let recalled = self.recall(segments, offset);
        let mut index = recalled.map_or_else(|| segments.holding(offset), |place| place.index);
        while let Some(segment) = segments.get(index).filter(|_| index <= stop.index) {
            let end = if index == stop.index { stop.position } else { segment.size() };
            let found = match recalled.filter(|place| place.index == index) {
                Some(place) => segment.batch_at(place.position, end)?,
                None => segment.find(offset, end)?,
            };
            if let Some(batch) = found {
                if batch.base_offset > offset && !self.is_gap(segments, index, offset)? {
                    return Err(segment.unreadable(offset));
                }
                return Ok(Some((SegmentPosition { index, position: batch.position }, batch)));
            }
            index += 1;
        }
        Ok(None)
    }

    /// Up to where bytes may be shown from `from` on, so that no record is shown at an offset that
    /// is not its own (see `order`).
    fn in_order(
        &self,
        segments: &Segments,
        (from, stop): (SegmentPosition, SegmentPosition),
        (offset, mut budget): (i64, u64),
    ) -> Result<SegmentPosition, StorageError> {
        let mut at = from;
        while at < stop && budget > 0 {
            let Some(segment) = segments.get(at.index) else { break };
            let end = if at.index == stop.index { stop.position } else { segment.size() };
            let to = end.min(at.position.saturating_add(budget));
            let limit = segments.get(at.index + 1).map_or(i64::MAX, |next| next.base_offset);
            let good = segment.in_order((at.position, to), limit)?;
            if good < to {
                let shown = SegmentPosition { index: at.index, position: good };
                return if shown > from { Ok(shown) } else { Err(segment.unreadable(offset)) };
            }
            budget -= to.saturating_sub(at.position);
            at = SegmentPosition { index: at.index + 1, position: 0 };
        }
        Ok(stop)
    }

    /// Whether nothing lies between `offset` and the batch found for it because nothing ever did:
    /// where offsets are dense, the batch may be there and bear a wrong offset.
    fn is_gap(&self, segments: &Segments, to: usize, offset: i64) -> Result<bool, StorageError> {
        if self.config.load().compact || offset < self.log_start_offset().0 {
            return Ok(true);
        }
        for index in segments.holding(offset)..=to {
            let Some(segment) = segments.get(index) else { break };
            let limit = segments.get(index + 1).map_or(i64::MAX, |next| next.base_offset);
            if !segment.is_in_order(limit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn recall(&self, segments: &Segments, offset: i64) -> Option<SegmentPosition> {
        let read_positions = self.read_positions.try_lock()?;
        let truncations = self.truncations.load(Ordering::Acquire);
        let fits = |mark: &&ReadPosition| mark.offset == offset && mark.truncations == truncations;
        let mark = read_positions.0.iter().flatten().find(fits)?;
        let index = segments.beginning_at(mark.base)?;
        let is_same = Weak::as_ptr(&mark.segment) == Arc::as_ptr(segments.get(index)?);
        is_same.then_some(SegmentPosition { index, position: mark.position })
    }

    fn remember(&self, offset: i64, segment: &Arc<Segment>, position: u64) {
        let truncations = self.truncations.load(Ordering::Acquire);
        if let Some(mut read_positions) = self.read_positions.try_lock() {
            let known = read_positions
                .0
                .iter()
                .position(|mark| mark.as_ref().is_some_and(|mark| mark.offset == offset));
            if let Some(head) = read_positions.0.get_mut(..=known.unwrap_or(READ_POSITIONS - 1)) {
                head.rotate_right(1);
            }
            if let Some(first) = read_positions.0.first_mut() {
                let (segment, base) = (Arc::downgrade(segment), segment.base_offset);
                *first = Some(ReadPosition { truncations, offset, segment, base, position });
            }
        }
    }
}

fn collect(
    segments: &[Arc<Segment>],
    (from, stop): (SegmentPosition, SegmentPosition),
    mut budget: u64,
) -> Result<(Vec<FileRange>, SegmentPosition), StorageError> {
    let mut ranges = Vec::with_capacity(1);
    let mut at = from;
    while at < stop && budget > 0 {
        let Some(segment) = segments.get(at.index) else { break };
        let end = if at.index == stop.index { stop.position } else { segment.size() };
        let len = end.saturating_sub(at.position).min(budget);
        if len > 0 {
            let len_here = usize::try_from(len).unwrap_or(usize::MAX);
            ranges.push(FileRange { file: segment.file()?, position: at.position, len: len_here });
            segment.lend(at.position + len);
            budget -= len;
            at.position += len;
        }
        if at.position >= end && at.index < stop.index {
            at = SegmentPosition { index: at.index + 1, position: 0 };
        }
    }
    Ok((ranges, at))
}
