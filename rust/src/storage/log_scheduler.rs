//! The log scheduler: a thread that runs retention, checkpoints, checks of free disk space, and the
//! tasks of higher layers, each at its interval. It also runs jobs once, such as the deletion
//! of files.
//!
//! Threads: one thread runs all; it takes a partition's mutex briefly. Intervals are monotonic
//! time, ages of records are wall time.
//! Panics: a task that panics runs again at its next time. After three panics of one task in a row
//! the thread ends: see [`LogScheduler::has_failed`].
//! Not promised: that a task runs on time; one that takes long delays the others. Errors are
//! logged; a failed disk takes its directory offline by itself. Jobs that have not begun when
//! it stops are dropped.

use std::collections::VecDeque;
use std::fmt;
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

/// How often the free disk space is checked, in milliseconds.
const SPACE_MS: u64 = 10_000;
/// After this many panics of one task in a row the thread ends.
const PANICS: u32 = 3;

/// The intervals of storage's own tasks, in milliseconds, and when to warn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub checkpoint_ms: u64,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_ms: u64,
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

/// Work that runs once. It should end early when [`LogScheduler::is_stopping`].
pub type SchedulerJob = Box<dyn FnOnce(&LogScheduler) + Send>;

/// The thread that runs the tasks, and the jobs that it has not begun.
pub struct LogScheduler {
    jobs: Mutex<VecDeque<SchedulerJob>>,
    stopping: AtomicBool,
    failed: AtomicBool,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for LogScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("LogScheduler");
        out.field("jobs", &self.jobs.lock().len()).finish_non_exhaustive()
    }
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            checkpoint_ms: 60_000,
            high_watermark_ms: 5000,
            retention_ms: 300_000,
            reserve_bytes: 0,
        }
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
            jobs: Mutex::default(),
            stopping: AtomicBool::new(false),
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

    /// Runs `job` as soon as the thread is free.
    pub fn submit(&self, job: SchedulerJob) {
        self.jobs.lock().push_back(job);
        self.changed.notify_all();
    }

    /// Whether the thread is to end soon.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Stops after the running task or job, and waits for the thread.
    pub fn stop(&self) {
        {
            let _jobs = self.jobs.lock();
            self.stopping.store(true, Ordering::Release);
        }
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the log scheduler had panicked");
        }
        self.jobs.lock().clear();
    }

    /// Whether the thread ended by a panic: then retention no longer runs.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Waits for the next job; `None` when a task is due, or when the thread must end.
    fn next_job(&self, until: Instant) -> Option<SchedulerJob> {
        let mut jobs = self.jobs.lock();
        while jobs.is_empty()
            && !self.is_stopping()
            && !self.changed.wait_until(&mut jobs, until).timed_out()
        {}
        if self.is_stopping() { None } else { jobs.pop_front() }
    }

    /// Runs tasks until stopped. False: one task panicked too often.
    fn run(&self, tasks: &[ScheduledTask]) -> bool {
        let next =
            |task: &ScheduledTask| Instant::now() + Duration::from_millis(task.interval_ms.max(1));
        let mut due: Vec<Instant> = tasks.iter().map(next).collect();
        let mut panics = vec![0; tasks.len()];
        loop {
            let Some(until) = due.iter().min() else { return true };
            if let Some(job) = self.next_job(*until) {
                caught(&"a job of the log scheduler", || job(self)).unwrap_or_default();
            }
            if self.is_stopping() {
                return true;
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
    let (logs, disks, watermarks) = (dirs.clone(), dirs.clone(), dirs.clone());
    let look = move || {
        for dir in disks.iter().filter(|dir| !dir.is_offline() && intervals.reserve_bytes > 0) {
            report(dir, dir.is_low(intervals.reserve_bytes).map(|_| ()));
        }
    };
    look();
    let retain = move || logs.iter().for_each(|dir| dir.retain(clock.wall_ms()));
    let note_watermarks = move || {
        for dir in watermarks.iter().filter(|dir| !dir.is_offline()) {
            report(dir, dir.checkpoint_high_watermarks());
        }
    };
    let checkpoint = move || {
        for dir in dirs.iter().filter(|dir| !dir.is_offline()) {
            report(dir, dir.checkpoint());
        }
    };
    let mut tasks = vec![
        ScheduledTask { interval_ms: intervals.retention_ms, run: Box::new(retain) },
        ScheduledTask { interval_ms: intervals.checkpoint_ms, run: Box::new(checkpoint) },
        ScheduledTask { interval_ms: intervals.high_watermark_ms, run: Box::new(note_watermarks) },
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
