//! A bounded cache of what is read of index files, for all logs together.
//!
//! No file is mapped, because a bad sector would end the process with SIGBUS. Indexes are read with
//! `pread`, in pages (see `pages`), and stay here until others need the memory.
//! Limit: `krust.index.cache.bytes` for all logs. A lookup that gets no memory uses the bytes it
//! read and keeps nothing. Only outlines of indexes (12 bytes a page) may exceed the limit: one a
//! thread, and what those of active segments grow.
//! Eviction gives a second chance: a segment that was used since the last visit stays; otherwise
//! its pages are dropped, and at the next visit its outline.
//! Threads: a lookup that finds its page needs no lock of the cache; one mutex for those that read.
//! A thread that holds the lock of an index must not ask for memory.
//! Not promised: an order among segments that were all used since the last visit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What all indexes may hold by default: the offset indexes of 16 GiB of logs.
pub const INDEX_CACHE_BYTES: usize = 32 << 20;

/// A segment some of whose indexes are in memory.
pub(crate) trait Cached: Send + Sync {
    /// Lets go of some of it, unless it was asked since the last call; all of it, `at_once`. True
    /// if nothing is held any more.
    fn let_go(&self, at_once: bool) -> bool;
}

/// The bookkeeping: how much is held, by whom.
pub struct IndexCache {
    limit: usize,
    held: AtomicUsize,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    segments: VecDeque<Weak<dyn Cached>>,
    /// With so many, those that are gone are looked for.
    sweep_at: usize,
}

/// Bytes of the cache that are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    cache: Arc<IndexCache>,
    bytes: usize,
}

impl std::fmt::Debug for IndexCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexCache {{ {} of {} bytes }}", self.held(), self.limit)
    }
}

impl Charge {
    /// Takes so many bytes more, above the limit where there is no room.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.cache.held.fetch_add(bytes, Ordering::AcqRel);
        self.bytes += bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.cache.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl IndexCache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), ring: Mutex::default() })
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Room for so many bytes, which others give up; `None`: there is none.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        while !self.take(bytes) {
            if bytes > self.limit || !self.make_room(bytes) {
                return None;
            }
        }
        Some(Charge { cache: Arc::clone(self), bytes })
    }

    /// The same, and above the limit where there is no room.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.reserve(bytes).unwrap_or_else(|| {
            self.make_room(bytes);
            self.held.fetch_add(bytes, Ordering::AcqRel);
            Charge { cache: Arc::clone(self), bytes }
        })
    }

    /// Takes note of a segment that holds something from now on.
    pub(crate) fn enter(&self, segment: Weak<dyn Cached>) {
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

    /// Frees other segments' indexes until there is room; false if none is left to free.
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
