//! The memory that holds the last batches of logs (see `recent`).
//!
//! Limits: [`LIMIT`] bytes a partition, [`ALL`] bytes in the process.
//! Threads: batches never change; other batches take their place.
//! Not promised: that the batches are still the end of the log; `recent` checks it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;

/// The most bytes of batches that a log keeps.
pub(super) const LIMIT: usize = 2 << 10;
/// The most bytes that all logs of the process keep.
const ALL: usize = 8 << 20;

/// Bytes that all logs keep now.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// What a log keeps of its end.
#[derive(Default)]
pub(super) struct Recent {
    pub batches: ArcSwapOption<RecentBatches>,
    /// A reader has come to the log's end since the last commit.
    pub is_wanted: AtomicBool,
    /// They are new, or were read, since the last [`Log::drop_idle_recent`].
    pub is_used: AtomicBool,
}

/// Whole batches at the end of the active segment.
#[derive(Debug)]
pub(super) struct RecentBatches {
    /// The count of truncations that they hold for.
    pub truncations: u32,
    /// Base offset of the segment.
    pub segment: i64,
    /// Offsets from here on, and below `end`, are in these batches or nowhere.
    pub from: i64,
    pub end: i64,
    pub bytes: Box<[u8]>,
}

/// Some of the bytes that a log keeps; they stay as long as this does.
#[derive(Clone, Debug)]
pub struct RecentBytes {
    pub(super) batches: Arc<RecentBatches>,
    pub(super) range: Range<usize>,
}

impl RecentBytes {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.batches.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl RecentBatches {
    /// Those of `bytes`; `None` where there is no room for them.
    pub(super) fn new(
        (truncations, segment): (u32, i64),
        (from, end): (i64, i64),
        bytes: Box<[u8]>,
    ) -> Option<Arc<Self>> {
        let take = |held: usize| held.checked_add(bytes.len()).filter(|sum| *sum <= ALL);
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Arc::new(Self { truncations, segment, from, end, bytes }))
    }
}

impl Drop for RecentBatches {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// What a commit keeps once it is written.
pub(super) struct KeptCommit(pub Arc<RecentBatches>);
