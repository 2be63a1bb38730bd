//! Open files as a bounded cache: 10,000 partitions with three files each do not fit into the
//! descriptors a process gets, so a file is opened when it is used and closed by the clock.
//!
//! Invariant: holders registered <= limit + 1. Eviction is by second chance: a hand goes round, who
//! was used since its last visit stays. What is leased stays open until the last lease is dropped.
//! Threads: hits never come here (the holder keeps its own file); one mutex for opens.
//! Not promised: a strict limit: leases that outlive their eviction come on top.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Something that keeps a file or map open and can let go of it.
pub(crate) trait Holder: Send + Sync {
    /// Lets go unless used since the last call; true if nothing is held any more.
    fn evict(&self) -> bool;
    /// Lets go, used or not.
    fn evict_now(&self);
}

/// The cache's bookkeeping: who holds something open.
pub struct Descriptors {
    limit: usize,
    ring: Mutex<VecDeque<Weak<dyn Holder>>>,
}

impl std::fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Descriptors {{ limit: {} }}", self.limit)
    }
}

impl Descriptors {
    /// A cache of at most `limit` segments that hold files open.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), ring: Mutex::new(VecDeque::new()) })
    }

    /// How many segments hold files open.
    pub fn len(&self) -> usize {
        self.ring.lock().len()
    }

    /// Whether no segment holds a file open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes note that `holder` opens something now, and makes room for it.
    pub(crate) fn enter(&self, holder: Weak<dyn Holder>) {
        let mut ring = self.ring.lock();
        let mut visits = ring.len() * 2;
        while ring.len() >= self.limit && visits > 0 {
            visits -= 1;
            let Some(oldest) = ring.pop_front() else { break };
            if oldest.upgrade().is_some_and(|held| !held.evict()) {
                ring.push_back(oldest);
            }
        }
        ring.push_back(holder);
    }

    /// Closes the oldest holder at once, for a caller that was refused a descriptor.
    pub(crate) fn make_room(&self) {
        let oldest = self.ring.lock().pop_front();
        if let Some(holder) = oldest.and_then(|weak| weak.upgrade()) {
            holder.evict_now();
        }
    }
}
