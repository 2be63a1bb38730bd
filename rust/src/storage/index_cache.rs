//! A bounded cache of the parts of index files that were read, for all logs together.
//!
//! No file is mapped, because a bad sector would end the process with SIGBUS. Indexes are read with
//! `pread`, in pages (see `pages`), and stay here until others need the memory.
//! Limit: `krust.index.cache.bytes` for all logs. A lookup that gets no memory uses the bytes it
//! read and keeps nothing. Only outlines of indexes (12 bytes for each page) may exceed the limit:
//! one for each thread, and the growth of those of active segments.
//! Eviction gives a second chance: a segment that was used since the last visit stays; otherwise
//! its pages are dropped, and at the next visit its outline.
//! Threads: a lookup that finds its page needs no lock of the cache; one mutex for those that read.
//! A thread that holds the lock of an index must not ask for memory.
//! Not promised: an order among segments that were all used since the last visit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The default limit for all indexes: the offset indexes of 16 GiB of logs.
pub const INDEX_CACHE_BYTES: usize = 32 << 20;

/// A segment some of whose indexes are in memory.
pub(crate) trait CachedIndexes: Send + Sync {
    /// Frees some of the memory of its indexes, unless they were used since the last call;
    /// `at_once`: all of it. True if none is left.
    fn let_go(&self, at_once: bool) -> bool;
}

/// The memory of all indexes, and the segments that use it.
pub struct IndexCache {
    limit: usize,
    held: AtomicUsize,
    ring: Mutex<SegmentRing>,
}

#[derive(Default)]
struct SegmentRing {
    segments: VecDeque<Weak<dyn CachedIndexes>>,
    /// With this many, segments that no longer exist are removed.
    sweep_at: usize,
}

/// Bytes of the cache. They are returned when this is dropped.
#[derive(Debug)]
pub(crate) struct CacheCharge {
    cache: Arc<IndexCache>,
    bytes: usize,
}

impl std::fmt::Debug for IndexCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexCache {{ {} of {} bytes }}", self.held(), self.limit)
    }
}

impl CacheCharge {
    /// Takes `bytes` more, even above the limit.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.cache.held.fetch_add(bytes, Ordering::AcqRel);
        self.bytes += bytes;
    }
}

impl Drop for CacheCharge {
    fn drop(&mut self) {
        self.cache.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl IndexCache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), ring: Mutex::default() })
    }

    /// The bytes in use.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Reserves `bytes`; other segments' indexes are evicted if necessary. `None`: there is no
    /// room.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<CacheCharge> {
        while !self.take(bytes) {
            if bytes > self.limit || !self.make_room(bytes) {
                return None;
            }
        }
        Some(CacheCharge { cache: Arc::clone(self), bytes })
    }

    /// Reserves `bytes`, even above the limit.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> CacheCharge {
        self.reserve(bytes).unwrap_or_else(|| {
            self.make_room(bytes);
            self.held.fetch_add(bytes, Ordering::AcqRel);
            CacheCharge { cache: Arc::clone(self), bytes }
        })
    }

    /// Registers a segment that has indexes in memory.
    pub(crate) fn enter(&self, segment: Weak<dyn CachedIndexes>) {
        let mut ring = self.ring.lock();
        if ring.segments.len() >= ring.sweep_at {
            ring.segments.retain(|segment| segment.strong_count() > 0);
            ring.sweep_at = ring.segments.len() * 2 + 64;
        }
        ring.segments.push_back(segment);
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
    }

    /// Evicts other segments' indexes until there is room; false if none is left to evict.
    fn make_room(&self, bytes: usize) -> bool {
        let mut ring = self.ring.lock();
        let mut patience = ring.segments.len() * 3;
        while self.held().saturating_add(bytes) > self.limit {
            let Some(oldest) = ring.segments.pop_front() else { return false };
            let at_once = patience == 0;
            patience = patience.saturating_sub(1);
            if oldest.upgrade().is_some_and(|segment| !segment.let_go(at_once)) {
                ring.segments.push_back(oldest);
            }
        }
        true
    }
}
