//! One limit on the memory that all requests may take together: decoded requests, events for the
//! policy, decompressed records, delayed requests and responses.
//!
//! Code that needs memory for a request leases it *before* it allocates: the most bytes that the
//! allocation may take. Dropping the lease returns the bytes to the pool. A request that gets no
//! lease waits (its connection is read again later) or is refused. Read buffers are outside of this
//! pool: each network thread has its own (`net/read_buffer.rs`). The name MemoryPool is KIP-81's.
//! Invariant: `used` = sum of all leases. A lease may exceed the limit only if `used` was 0 before,
//!     so that one large request can always make progress.
//! Threads: any. A lease costs two atomic additions and takes no lock.
//! Not promised: that `used` equals the allocator's figure. A lease is an upper bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The memory that all requests may take together.
#[derive(Debug)]
pub struct MemoryPool {
    limit: AtomicUsize,
    used: AtomicUsize,
    peak: AtomicUsize,
    refused: AtomicU64,
}

/// Memory taken from a pool; dropping it gives it back.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<MemoryPool>,
    bytes: usize,
}

/// How much of a pool is used, and how much was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// The most bytes that may be leased.
    pub limit: usize,
    /// The bytes that are leased now.
    pub used: usize,
    /// The most bytes that were leased at once, since the start or the last reset.
    pub peak: usize,
    /// How many leases were refused.
    pub refused: u64,
}

impl MemoryPool {
    /// A pool of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Leases `bytes`; `None` if the pool does not have that much left.
    pub fn lease(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        self.take(bytes).then(|| Lease { pool: Arc::clone(self), bytes })
    }

    /// Changes the limit; leases that exist are kept.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// How much of the pool is used, and how much was.
    pub fn usage(&self) -> PoolUse {
        PoolUse {
            limit: self.limit.load(Ordering::Relaxed),
            used: self.used.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Sets the peak to the bytes that are leased now.
    pub fn reset_peak(&self) {
        self.peak.store(self.used.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let after = before.saturating_add(bytes);
        if before > 0 && after > limit && bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.peak.fetch_max(after, Ordering::Relaxed);
        true
    }
}

impl Lease {
    /// Leases `more` bytes in addition. Returns false, and changes nothing, if the pool has fewer
    /// left.
    pub fn grow(&mut self, more: usize) -> bool {
        let is_taken = self.pool.take(more);
        if is_taken {
            self.bytes += more;
        }
        is_taken
    }

    /// Keeps `bytes` of what is leased and gives the rest back.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        self.pool.used.fetch_sub(rest, Ordering::Relaxed);
    }

    /// How many bytes are leased.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_leases_stays_below_the_limit_and_dropped_leases_return() {
        let pool = MemoryPool::new(100);
        let mut first = pool.lease(60).unwrap();
        assert!(pool.lease(41).is_none());
        let second = pool.lease(40).unwrap();
        assert!(!first.grow(1));
        first.shrink_to(20);
        assert!(first.grow(40));
        drop((first, second));
        let usage = pool.usage();
        assert_eq!((usage.used, usage.peak, usage.refused), (0, 100, 2));
    }

    #[test]
    fn a_single_request_above_the_limit_gets_its_lease() {
        let pool = MemoryPool::new(100);
        let large = pool.lease(1000).unwrap();
        assert!(pool.lease(1).is_none());
        drop(large);
        assert!(pool.lease(1).is_some());
    }
}
