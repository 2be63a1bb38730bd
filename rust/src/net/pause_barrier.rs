//! The barrier that makes all network threads wait while the server is paused. Every thread checks
//! it once a turn. A paused server behaves like a stopped process (SIGSTOP).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(super) struct PauseBarrier {
    paused: AtomicBool,
    /// How many threads wait here.
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl PauseBarrier {
    /// Makes all threads wait until `resume`. `wake` wakes the threads. Returns when all of them
    /// wait, or when `ended` says that they have ended.
    pub(super) fn pause(&self, threads: usize, wake: impl Fn(), ended: impl Fn() -> bool) {
        self.paused.store(true, Ordering::Release);
        wake();
        let mut waiting = self.waiting.lock();
        while *waiting < threads && self.is_paused() && !ended() {
            self.changed.wait(&mut waiting);
        }
    }

    /// Lets all threads continue.
    pub(super) fn resume(&self) {
        let _waiting = self.waiting.lock();
        self.paused.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits while the server is paused.
    #[inline]
    pub(super) fn wait_while_paused(&self) {
        if self.is_paused() {
            self.wait();
        }
    }

    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    #[cold]
    fn wait(&self) {
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.changed.notify_all();
        while self.is_paused() {
            self.changed.wait(&mut waiting);
        }
        *waiting -= 1;
    }
}
