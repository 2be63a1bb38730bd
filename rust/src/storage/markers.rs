//! Checks whether a list of aborted transactions agrees with its segment. The file has no checksum,
//! and read_committed consumers rely on it.
//!
//! An entry is right if a marker of its producer is at its last offset and none between its first
//! and last offset; if its transaction begins with a batch of that producer, or, in an earlier
//! segment, if the snapshot has it open; and if its last stable offset, which bounds a search, is
//! not beyond the next transaction. Cost: two searches an entry and a walk over the headers of the
//! transactions, each time that a list is read.
//! Threads: as the segment.
//! Not promised: that a missing entry is noticed, or an entry that begins with a later batch of its
//! transaction. `krust log verify` replays all markers.

use std::collections::HashMap;
use std::sync::Arc;

use super::errors::StorageError;
use super::file_names::{LOG, SNAPSHOT};
use super::producers::Producers;
use super::scan::{WalkStep, Walker};
use super::segment::Segment;
use super::txnindex::AbortedTxn;
use crate::record::batch::Header;

/// The offsets of markers, by producer.
type MarkerOffsets = HashMap<i64, Vec<i64>>;

impl Segment {
    /// Whether the segment has the markers of a list.
    pub(crate) fn has_markers(self: &Arc<Self>, list: &[AbortedTxn]) -> Result<bool, StorageError> {
        let rises = list.is_sorted_by(|one, other| one.last_offset < other.last_offset);
        if !rises {
            return Ok(false);
        }
        let crosses = list.iter().any(|entry| entry.first_offset < self.base_offset);
        let before = if crosses { self.producers_before() } else { None };
        for entry in list {
            let is_its = |header: &Header| header.producer_id == entry.producer_id;
            let ends = self.begins(entry.last_offset, |it| it.is_control() && is_its(it))?;
            let begins = if entry.first_offset < self.base_offset {
                let open = before.as_ref().map(|it| it.open_since(entry.producer_id));
                open.is_none_or(|first| first == Some(entry.first_offset))
            } else {
                self.begins(entry.first_offset, |it| it.is_transactional() && is_its(it))?
            };
            let stable = 0..=entry.last_offset.saturating_add(1);
            if !(ends && begins && stable.contains(&entry.last_stable_offset)) {
                return Ok(false);
            }
        }
        self.has_no_marker_within(list)
    }

    /// The producers at the segment's start, if there is a snapshot of them.
    fn producers_before(&self) -> Option<Producers> {
        let bytes = std::fs::read(self.path(SNAPSHOT)).ok()?;
        Producers::from_snapshot(&bytes)
    }

    /// Whether no transaction of a list contains another marker of its producer. Overlapping
    /// transactions are walked once.
    fn has_no_marker_within(self: &Arc<Self>, list: &[AbortedTxn]) -> Result<bool, StorageError> {
        let first = |entry: &AbortedTxn| entry.first_offset.max(self.base_offset);
        let mut by_begin: Vec<&AbortedTxn> = list.iter().collect();
        by_begin.sort_unstable_by_key(|entry| first(entry));
        let mut rest = by_begin.as_slice();
        while let Some(begin) = rest.first().map(|entry| first(entry)) {
            let (mut end, mut count) = (begin, 0);
            while let Some(entry) = rest.get(count).filter(|entry| first(entry) <= end) {
                end = end.max(entry.last_offset);
                count += 1;
            }
            let Some((group, others)) = rest.split_at_checked(count) else { break };
            rest = others;
            let markers = self.markers(begin, end)?;
            let is_alone = |entry: &&AbortedTxn| {
                let its = markers.get(&entry.producer_id).map_or(&[][..], Vec::as_slice);
                let within = its.partition_point(|offset| *offset < first(entry));
                its.get(within).is_none_or(|next| *next >= entry.last_offset)
            };
            if !group.iter().all(is_alone) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The markers from `begin` to `end`, or up to the first unreadable batch.
    fn markers(self: &Arc<Self>, begin: i64, end: i64) -> Result<MarkerOffsets, StorageError> {
        let mut markers = MarkerOffsets::new();
        let Some(from) = self.find(begin, self.size())? else { return Ok(markers) };
        let file = self.file()?;
        let mut walker = Walker::new(&file, from.position, self.size());
        let fail = |error| StorageError::io("read", &self.path(LOG), error);
        while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
            if batch.base_offset > end {
                break;
            }
            if let Some(header) = batch.header.filter(Header::is_control) {
                markers.entry(header.producer_id).or_default().push(batch.base_offset);
            }
        }
        Ok(markers)
    }

    /// Whether a batch whose header `fits` begins at an offset; true if a cleaner removed the
    /// batch.
    fn begins(
        self: &Arc<Self>,
        offset: i64,
        fits: impl Fn(&Header) -> bool,
    ) -> Result<bool, StorageError> {
        if offset < self.base_offset {
            return Ok(false);
        }
        let Some(batch) = self.find(offset, self.size())? else { return Ok(false) };
        let is_gone = batch.base_offset > offset;
        Ok(is_gone || batch.header.is_some_and(|it| it.base_offset == offset && fits(&it)))
    }
}
