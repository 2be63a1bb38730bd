//! The thread that keeps house: retention, checkpoints, a look at the disk's room, and what the
//! rooms above ask for, each at its interval.
//!
//! Threads: one of its own; it takes a partition's mutex for short. Time between rounds is
//! monotonic, ages of records are wall time.
//! Not promised: a round is late where the one before took long; errors are logged, a failed disk
//! takes its directory offline by itself.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::dirs::LogDir;
use super::errors::StorageError;
use crate::clock::Clock;

/// So often room on the disk is looked at.
const SPACE_MS: u64 = 10_000;

/// How often what is done, in milliseconds, and when to warn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub checkpoint_ms: u64,
    /// `log.retention.check.interval.ms`.
    pub retention_ms: u64,
    /// `krust.disk.reserve.bytes`: with less free, a warning; 0: never.
    pub reserve_bytes: u64,
}

/// Something to be done at an interval.
pub struct Chore {
    /// The interval.
    pub interval_ms: u64,
    /// What is done; it may take a while, everything else is late then.
    pub run: Box<dyn Fn() + Send>,
}

/// The thread.
#[derive(Debug)]
pub struct Keeper {
    stopped: Mutex<bool>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { checkpoint_ms: 60_000, retention_ms: 300_000, reserve_bytes: 0 }
    }
}

impl Keeper {
    /// Starts to keep house in `dirs`.
    pub fn start(
        dirs: Vec<Arc<LogDir>>,
        intervals: Intervals,
        clock: Arc<dyn Clock>,
        chores: Vec<Chore>,
    ) -> std::io::Result<Arc<Self>> {
        let keeper = Arc::new(Self {
            stopped: Mutex::new(false),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let me = Arc::clone(&keeper);
        let thread = std::thread::Builder::new()
            .name("krust-keeper".into())
            .spawn(move || me.run(&all(dirs, intervals, clock, chores)))?;
        *keeper.thread.lock() = Some(thread);
        Ok(keeper)
    }

    /// Lets the thread end what it does and waits for it.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the keeper thread had panicked");
        }
    }

    fn run(&self, chores: &[Chore]) {
        let next = |chore: &Chore| Instant::now() + Duration::from_millis(chore.interval_ms.max(1));
        let mut due: Vec<Instant> = chores.iter().map(next).collect();
        loop {
            {
                let mut stopped = self.stopped.lock();
                let Some(until) = due.iter().min() else { return };
                while !*stopped && !self.changed.wait_until(&mut stopped, *until).timed_out() {}
                if *stopped {
                    return;
                }
            }
            let now = Instant::now();
            for (chore, due) in chores.iter().zip(&mut due).filter(|(_, due)| now >= **due) {
                (chore.run)();
                *due = next(chore);
            }
        }
    }
}

/// The keeper's own chores, then those of others.
fn all(
    dirs: Vec<Arc<LogDir>>,
    intervals: Intervals,
    clock: Arc<dyn Clock>,
    others: Vec<Chore>,
) -> Vec<Chore> {
    let (logs, disks) = (dirs.clone(), dirs.clone());
    let look = move || {
        for dir in disks.iter().filter(|dir| !dir.is_offline() && intervals.reserve_bytes > 0) {
            report(dir, dir.is_low(intervals.reserve_bytes).map(|_| ()));
        }
    };
    look();
    let retain = move || logs.iter().for_each(|dir| dir.retain(clock.wall_ms()));
    let checkpoint = move || {
        for dir in dirs.iter().filter(|dir| !dir.is_offline()) {
            report(dir, dir.checkpoint());
        }
    };
    let mut chores = vec![
        Chore { interval_ms: intervals.retention_ms, run: Box::new(retain) },
        Chore { interval_ms: intervals.checkpoint_ms, run: Box::new(checkpoint) },
        Chore { interval_ms: SPACE_MS, run: Box::new(look) },
    ];
    chores.extend(others);
    chores
}

impl LogDir {
    /// Applies retention to all logs that are open.
    fn retain(&self, now_ms: i64) {
        for log in self.logs() {
            if self.is_offline() {
                return;
            }
            report(self, log.retain(now_ms).map(|_| ()));
        }
    }
}

fn report(dir: &LogDir, outcome: Result<(), StorageError>) {
    if let Err(error) = outcome {
        tracing::warn!(dir = %dir.path().display(), "keeping house: {error}");
    }
}
