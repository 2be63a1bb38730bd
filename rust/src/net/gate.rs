//! The gate that network threads pass in every turn: shut, the server hangs as a stopped process.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(super) struct Gate {
    shut: AtomicBool,
    /// Threads that stand before it.
    standing: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    /// Lets nobody pass until `open`; `wake` brings the threads here. Returns when all stand, or
    /// when they have `ended`.
    pub(super) fn shut(&self, threads: usize, wake: impl Fn(), ended: impl Fn() -> bool) {
        self.shut.store(true, Ordering::Release);
        wake();
        let mut standing = self.standing.lock();
        while *standing < threads && self.is_shut() && !ended() {
            self.changed.wait(&mut standing);
        }
    }

    /// Lets all pass.
    pub(super) fn open(&self) {
        let _standing = self.standing.lock();
        self.shut.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Stands while it is shut.
    #[inline]
    pub(super) fn pass(&self) {
        if self.is_shut() {
            self.stand();
        }
    }

    fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    #[cold]
    fn stand(&self) {
        let mut standing = self.standing.lock();
        *standing += 1;
        self.changed.notify_all();
        while self.is_shut() {
            self.changed.wait(&mut standing);
        }
        *standing -= 1;
    }
}
