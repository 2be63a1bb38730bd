//! Clocks: wall time for records, monotonic time for waiting. Code that decides never asks the
//! system. It gets a [`Clock`], or the milliseconds themselves, so that a test can set the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time. Threads: shared by all.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970, as record timestamps count them; may jump.
    fn wall_ms(&self) -> i64;
    /// Milliseconds since an arbitrary start; never falls.
    fn monotonic_ms(&self) -> i64;
    /// The same in nanoseconds, for measuring work.
    fn monotonic_nanos(&self) -> i64;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> i64 {
        self.monotonic_nanos() / 1_000_000
    }

    fn monotonic_nanos(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        i64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}

/// A clock that moves only when its methods are called. Clones share one time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    wall_ms: Arc<AtomicI64>,
    monotonic_ms: Arc<AtomicI64>,
    /// The time that passes between two measurements, and the sum of it.
    step_nanos: Arc<AtomicI64>,
    stepped_nanos: Arc<AtomicI64>,
    /// How much time passes at each read of the monotonic milliseconds.
    tick_ms: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that shows `wall_ms`, and 0 as monotonic time.
    pub fn at(wall_ms: i64) -> Self {
        let clock = Self::default();
        clock.wall_ms.store(wall_ms, Ordering::SeqCst);
        clock
    }

    /// Moves both times by `ms`.
    pub fn advance(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// From now on `nanos` pass at each read of the monotonic nanoseconds, and at no other call.
    pub fn step(&self, nanos: i64) {
        self.step_nanos.store(nanos, Ordering::SeqCst);
    }

    /// From now on `ms` pass at each read of the monotonic milliseconds.
    pub fn tick(&self, ms: i64) {
        self.tick_ms.store(ms, Ordering::SeqCst);
    }

    /// Sets the wall time only, as when a system's clock jumps.
    pub fn jump(&self, wall_ms: i64) {
        self.wall_ms.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        let tick_ms = self.tick_ms.load(Ordering::SeqCst);
        self.monotonic_ms.fetch_add(tick_ms, Ordering::SeqCst)
    }

    fn monotonic_nanos(&self) -> i64 {
        let step = self.step_nanos.load(Ordering::SeqCst);
        let stepped = self.stepped_nanos.fetch_add(step, Ordering::SeqCst);
        self.monotonic_ms() * 1_000_000 + stepped
    }
}
