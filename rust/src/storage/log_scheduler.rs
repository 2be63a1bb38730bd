//! The log scheduler: a thread that runs retention, checkpoints, checks of the room on the disk,
//! and the tasks of higher layers, each at its interval.
//!
//! Threads: one of its own; it takes a partition's mutex for a short time. Intervals are monotonic
//! time, ages of records are wall time.
//! Panics: a task that panics runs again at its next time. After three panics of one task in a row
//! the thread ends: see [`LogScheduler::has_failed`].
//! Not promised: a task runs late if the one before it took long. Errors are logged; a failed disk
//! takes its directory offline by itself.

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

/// How often the room on the disk is checked, in milliseconds.
const SPACE_MS: u64 = 10_000;
/// After so many panics of one task in a row the thread ends.
const PANICS: u32 = 3;

/// The intervals of storage's own tasks, in milliseconds, and when to warn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub checkpoint_ms: u64,
    /// `log.retention.check.interval.ms`.
    pub retention_ms: u64,
    /// `krust.disk.reserve.bytes`: with less free, a warning; 0: never.
    pub reserve_bytes: u64,
}

/// A task that runs at an interval.
pub struct ScheduledTask {
    /// The interval.
    pub interval_ms: u64,
    /// The task. While it runs, no other task does.
    pub run: Box<dyn Fn() + Send>,
}

/// The thread that runs the tasks.
#[derive(Debug)]
pub struct LogScheduler {
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

impl LogScheduler {
    /// Starts the thread for `dirs`.
    pub fn start(
        dirs: Vec<Arc<LogDir>>,
        intervals: Intervals,
        clock: Arc<dyn Clock>,
        tasks: Vec<ScheduledTask>,
    ) -> std::io::Result<Arc<Self>> {
        let log_scheduler = Arc::new(Self {
            stopped: Mutex::new(false),
            failed: AtomicBool::new(false),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let me = Arc::clone(&log_scheduler);
        let thread =
            std::thread::Builder::new().name("krust-log_scheduler".into()).spawn(move || {
                let run = || me.run(&all_tasks(dirs, intervals, clock, tasks));
                if caught(&"the log scheduler", run) != Some(true) {
                    me.failed.store(true, Ordering::Release);
                }
            })?;
        *log_scheduler.thread.lock() = Some(thread);
        Ok(log_scheduler)
    }

    /// Stops after the running task, and waits for the thread.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the log scheduler had panicked");
        }
    }

    /// Whether the thread ended by a panic: retention does not run any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Runs tasks until stopped. False: one task panicked too often.
    fn run(&self, tasks: &[ScheduledTask]) -> bool {
        let next =
            |task: &ScheduledTask| Instant::now() + Duration::from_millis(task.interval_ms.max(1));
        let mut due: Vec<Instant> = tasks.iter().map(next).collect();
        let mut panics = vec![0; tasks.len()];
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
            let all = tasks.iter().zip(due.iter_mut().zip(&mut panics));
            for (task, (due, panics)) in all.filter(|(_, (due, _))| now >= **due) {
                match caught(&"a scheduled task", || (task.run)()) {
                    Some(()) => *panics = 0,
                    None => *panics += 1,
                }
                if *panics == PANICS {
                    return false;
                }
                *due = next(task);
            }
        }
    }
}

/// Storage's own tasks, then those of higher layers.
fn all_tasks(
    dirs: Vec<Arc<LogDir>>,
    intervals: Intervals,
    clock: Arc<dyn Clock>,
    others: Vec<ScheduledTask>,
) -> Vec<ScheduledTask> {
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
    let mut tasks = vec![
        ScheduledTask { interval_ms: intervals.retention_ms, run: Box::new(retain) },
        ScheduledTask { interval_ms: intervals.checkpoint_ms, run: Box::new(checkpoint) },
        ScheduledTask { interval_ms: SPACE_MS, run: Box::new(look) },
    ];
    tasks.extend(others);
    tasks
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
        tracing::warn!(dir = %dir.path().display(), "a scheduled task failed: {error}");
    }
}
