//! Number and duration of the syncs of a log directory.
//!
//! Threads: any; atomics that are read one after the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The cost of syncing files and directories since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncStats {
    /// Number of syncs.
    pub count: u64,
    /// Nanoseconds of all syncs.
    pub total_ns: u64,
    /// Nanoseconds of the longest sync.
    pub longest_ns: u64,
}

/// Counts syncs.
#[derive(Debug, Default)]
pub(super) struct SyncTimes {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl SyncTimes {
    /// Runs `sync` and counts its time.
    pub fn measured<R>(&self, sync: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let outcome = sync();
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(took, Ordering::Relaxed);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
        outcome
    }

    /// The sums so far.
    pub fn stats(&self) -> SyncStats {
        SyncStats {
            count: self.count.load(Ordering::Relaxed),
            total_ns: self.total_ns.load(Ordering::Relaxed),
            longest_ns: self.longest_ns.load(Ordering::Relaxed),
        }
    }
}
