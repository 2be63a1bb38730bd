//! The memory that connections hold before their login is complete, all together.
//!
//! Counted are the unhandled bytes, the records of TLS and the answers that a connection keeps from
//! one turn to the next. The state of a connection is not counted; limits on connections bound it.
//! When they hold more than the limit, each connection that holds more than half of an even share
//! is closed. A good client sends each step of its login as a whole, so it holds nothing between
//! two turns unless a step is under way just then. What is closed frees at least half of the limit,
//! so a peer has to send so much again before the connections are looked through another time.
//! Invariant: after that, `held <= limit / 2`.
//! Not promised: a limit that holds within a turn. Each thread may read one frame beyond it.
//! Threads: all.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct LoginMemory {
    limit: usize,
    held: AtomicUsize,
    connections: AtomicUsize,
}

impl LoginMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0), connections: AtomicUsize::new(0) }
    }

    /// A connection begins to log in.
    pub(super) fn begin(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection that held `before` bytes holds `now`.
    pub(super) fn change(&self, before: usize, now: usize) {
        if now >= before {
            self.held.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.held.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// A connection that held `before` bytes has logged in or is closed.
    pub(super) fn end(&self, before: usize) {
        self.held.fetch_sub(before, Ordering::Relaxed);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether more is held than may be.
    pub(super) fn is_exceeded(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit
    }

    /// What one connection may hold while the limit is exceeded.
    pub(super) fn share(&self) -> usize {
        self.limit / 2 / self.connections.load(Ordering::Relaxed).max(1)
    }

    /// What is held.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_what_is_above_the_share_frees_half_of_the_limit() {
        let memory = LoginMemory::new(1_000);
        let held: Vec<usize> = (1..=50).collect();
        for bytes in &held {
            memory.begin();
            memory.change(0, *bytes);
        }
        assert!(memory.is_exceeded());
        let share = memory.share();
        assert_eq!(share, 10);
        for bytes in held.iter().filter(|bytes| **bytes > share) {
            memory.end(*bytes);
        }
        assert!(memory.held() <= 500 && !memory.is_exceeded());
    }

    #[test]
    fn a_connection_that_sheds_bytes_gives_them_back() {
        let memory = LoginMemory::new(100);
        memory.begin();
        memory.change(0, 120);
        assert!(memory.is_exceeded());
        memory.change(120, 20);
        assert!(!memory.is_exceeded());
        memory.end(20);
        assert_eq!(memory.held(), 0);
    }
}
