//! The thread that keeps house: retention, checkpoints, a look at the disk's room, and what the
//! rooms above ask for, each at its interval.
//!
//! Threads: one of its own; it takes a partition's mutex for short. Time between rounds is
//! monotonic, ages of records are wall time.
//! Not promised: a round is late where the one before took long; errors are logged, a failed disk
//! takes its directory offline by itself. A chore that panics is tried again at its next time, and
//! the thread ends at the third panic in a row: see [`Keeper::has_failed`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::dirs::LogDir;
use super::errors::StorageError;
use super::log::Log;
use super::panics::caught;
use crate::clock::Clock;

/// So often room on the disk is looked at.
const SPACE_MS: u64 = 10_000;
/// A chore that panics so often, time after time, will not do better.
const PANICS: u32 = 3;

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
    failed: AtomicBool,
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
            failed: AtomicBool::new(false),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let me = Arc::clone(&keeper);
        let thread = std::thread::Builder::new().name("krust-keeper".into()).spawn(move || {
            let run = || me.run(&all(dirs, intervals, clock, chores));
            if caught(&"the keeper thread", run) != Some(true) {
                me.failed.store(true, Ordering::Release);
            }
        })?;
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

    /// Whether the thread ended by a panic: nothing is deleted for its age any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// False: a chore panics, and will go on to.
    fn run(&self, chores: &[Chore]) -> bool {
        let next = |chore: &Chore| Instant::now() + Duration::from_millis(chore.interval_ms.max(1));
        let mut due: Vec<Instant> = chores.iter().map(next).collect();
        let mut panics = vec![0; chores.len()];
        loop {
            {
                let mut stopped = self.stopped.lock();
                let Some(until) = due.iter().min() else { return true };
                while !*stopped && !self.changed.wait_until(&mut stopped, *until).timed_out() {}
                if *stopped {
                    return true;
                }
            }
            let now = Instant::now();
            let all = chores.iter().zip(due.iter_mut().zip(&mut panics));
            for (chore, (due, panics)) in all.filter(|(_, (due, _))| now >= **due) {
                match caught(&"keeping house", || (chore.run)()) {
                    Some(()) => *panics = 0,
                    None => *panics += 1,
                }
                if *panics == PANICS {
                    return false;
                }
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
        for log in Log::all_in(self) {
            if self.is_offline() {
                return;
            }
            let retain = || report(self, log.retain(now_ms).map(|_| ()));
            caught(&format_args!("the retention of {}", log.name()), retain).unwrap_or_default();
        }
    }
}

fn report(dir: &LogDir, outcome: Result<(), StorageError>) {
    if let Err(error) = outcome {
        tracing::warn!(dir = %dir.path().display(), "keeping house: {error}");
    }
}
