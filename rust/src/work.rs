//! Counts the work that a thread does before it serves another connection. It measures no time.
//!
//! A network thread serves its connections one after the other. While it works for one, all others
//! wait. The work is counted in bytes: bytes of requests, of responses and of decompressed records,
//! plus a price per request. The count does not depend on how busy the machine is. So it can end a
//! turn ([`SHARE`]), and a test can assert the longest uninterrupted work ([`WorkMeter`]).
//! Threads: each thread has its own count. All threads of a broker share one meter.
//! Not promised: that equal counts take equal time. A byte costs 1 to 20 ns.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A connection that has done this much work in one turn continues in the next one.
pub const SHARE: u64 = 4 << 20;
/// The count of a request, in addition to its bytes.
pub const REQUEST: usize = 256;

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Counts work of this thread.
#[inline]
pub fn add(bytes: usize) {
    DONE.set(DONE.get().wrapping_add(bytes as u64));
}

/// The work of this thread since it began.
#[inline]
pub fn done() -> u64 {
    DONE.get()
}

/// The work of this thread since `done` returned `before`.
#[inline]
pub fn since(before: u64) -> u64 {
    DONE.get().wrapping_sub(before)
}

/// The most work that a thread did for one connection while its others waited.
#[derive(Debug, Default)]
pub struct WorkMeter {
    longest: AtomicU64,
}

impl WorkMeter {
    /// Notes that this thread turns to other connections, after work that began when `done`
    /// returned `before`.
    #[inline]
    pub fn note(&self, before: u64) {
        let stretch = since(before);
        if stretch > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(stretch, Ordering::Relaxed);
        }
    }

    /// Returns the most work since the last reset, and resets it.
    pub fn take_longest(&self) -> u64 {
        self.longest.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stretch_is_kept_until_it_is_taken() {
        let meter = WorkMeter::default();
        for bytes in [3, 7, 5] {
            let before = done();
            add(bytes);
            meter.note(before);
        }
        assert_eq!((meter.take_longest(), meter.take_longest()), (7, 0));
    }
}
