//! Whether a list of aborted transactions says what its segment says: the file bears no checksum,
//! and a reader of committed records believes it.
//!
//! An entry is right if a marker of its producer lies at its last offset, its transaction begins
//! with a batch of that producer, and its last stable offset is the next one, or another
//! transaction's first. Cost: a few searches an entry, once for each time that a list is read.
//! Threads: as the segment.
//! Not promised: entries that are missing are not noticed, nor a transaction that began in an
//! earlier segment; `krust log verify` replays all markers.

use std::sync::Arc;

use super::errors::StorageError;
use super::segment::Segment;
use super::txnindex::Aborted;
use crate::record::batch::Header;

impl Segment {
    /// Whether the segment has the markers of a list.
    pub(crate) fn has_markers(self: &Arc<Self>, list: &[Aborted]) -> Result<bool, StorageError> {
        let rises = list.is_sorted_by(|one, other| one.last_offset < other.last_offset);
        if !rises {
            return Ok(false);
        }
        for entry in list {
            let is_its = |header: &Header| header.producer_id == entry.producer_id;
            let ends = self.begins(entry.last_offset, |it| it.is_control() && is_its(it))?;
            let begins = entry.first_offset < self.base_offset
                || self.begins(entry.first_offset, |it| it.is_transactional() && is_its(it))?;
            let stable = entry.last_stable_offset;
            let next = stable == entry.last_offset.saturating_add(1)
                || (stable < self.base_offset && stable >= 0)
                || self.begins(stable, Header::is_transactional)?;
            if !(ends && begins && next) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a batch begins at an offset whose header `fits`; true where a cleaner took it away.
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
