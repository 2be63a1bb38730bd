//! The cleaner: threads that keep the last record of each key of compacted logs.
//!
//! ```text
//! choose        the log that is due, and its part    pass      one cleaning of one log
//! keymap        keys and their last offsets          source    a segment's batches, in order
//! verdicts      batches that need not be opened      output    the segment that is written
//! transactions  batches that may be dropped          throttle  bytes a second
//! ```
//!
//! Of the logs that are due, the one with the largest dirty part is next. A thread with nothing to
//! do waits for `log.cleaner.backoff.ms`. A log with unreadable records, or whose cleaning panics,
//! is not cleaned until the next start; after a full disk the cleaner tries again. A panic
//! elsewhere ends the thread: see [`Cleaner::has_failed`].
//! Threads: `log.cleaner.threads`; one at a time cleans a log.
//! Memory: the map is allocated when a cleaning begins and freed when it ends.

pub(super) mod choose;
mod keymap;
pub(super) mod output;
mod pass;
mod source;
mod throttle;
mod transactions;
mod verdicts;

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
use crate::ids::Offset;

pub use choose::DirtyRange;
use pass::CleaningPass;
use throttle::Throttle;

/// The states of a log's cleaning: not under way, under way, given up.
const IDLE: u8 = 0;
const BUSY: u8 = 1;
const GIVEN_UP: u8 = 2;

/// The settings `log.cleaner.*`.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerOptions {
    /// `log.cleaner.threads`.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: memory of the maps of all threads.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`: how full a map may get.
    pub load_factor: f64,
    /// `log.cleaner.io.buffer.size`: memory of the read buffers of all threads.
    pub io_buffer_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`, reads and writes together.
    pub io_bytes_per_second: f64,
    /// `log.cleaner.backoff.ms`.
    pub backoff_ms: u64,
}

/// The result of a cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningResult {
    /// The log is clean up to this offset.
    pub clean_to: Offset,
    /// Distinct keys of the dirty part.
    pub keys: usize,
    /// Bytes of batches read for the map.
    pub bytes_mapped: u64,
    /// Bytes of batches read for the rewrite.
    pub bytes_read: u64,
    /// Bytes of the segments that were written.
    pub bytes_written: u64,
    /// Records that were read.
    pub records_read: u64,
    /// Records that were kept.
    pub records_kept: u64,
}

/// The cleaner's threads.
pub struct Cleaner {
    dirs: Vec<Arc<LogDir>>,
    clock: Arc<dyn Clock>,
    state: Mutex<CleanerState>,
    failed: AtomicBool,
    changed: Condvar,
    throttle: Throttle,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct CleanerState {
    options: CleanerOptions,
    running: usize,
    stopped: bool,
}

/// The resources of a cleaning, and whether it must end.
struct CleanerWorker<'w> {
    options: CleanerOptions,
    cleaner: Option<&'w Cleaner>,
}

impl Default for CleanerOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            dedupe_buffer_bytes: 128 << 20,
            load_factor: 0.9,
            io_buffer_bytes: 512 << 10,
            io_bytes_per_second: f64::MAX,
            backoff_ms: 15_000,
        }
    }
}

impl std::fmt::Debug for Cleaner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cleaner {{ running: {} }}", self.state.lock().running)
    }
}

impl Cleaner {
    /// Starts the threads that clean the compacted logs in `dirs`.
    pub fn start(
        dirs: Vec<Arc<LogDir>>,
        options: CleanerOptions,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Arc<Self>> {
        let cleaner = Arc::new(Self {
            dirs,
            clock,
            state: Mutex::new(CleanerState { options, running: 0, stopped: false }),
            failed: AtomicBool::new(false),
            changed: Condvar::new(),
            throttle: Throttle::default(),
            threads: Mutex::default(),
        });
        cleaner.start_missing_threads()?;
        Ok(cleaner)
    }

    /// Replaces the settings. A cleaning under way keeps those it began with, except for the
    /// throttle.
    pub fn reconfigure(self: &Arc<Self>, options: CleanerOptions) -> std::io::Result<()> {
        self.state.lock().options = options;
        self.changed.notify_all();
        self.start_missing_threads()
    }

    /// Interrupts the threads and waits for their end.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a cleaner thread had panicked");
            }
        }
    }

    /// Whether a thread ended by a panic: then compacted logs may only grow.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Starts missing threads. Surplus threads end by themselves.
    fn start_missing_threads(self: &Arc<Self>) -> std::io::Result<()> {
        let mut state = self.state.lock();
        while !state.stopped && state.running < state.options.threads {
            let me = Arc::clone(self);
            let name = format!("krust-cleaner-{}", state.running);
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                if caught(&"a cleaner thread", || me.run()).is_none() {
                    me.failed.store(true, Ordering::Release);
                }
            })?;
            self.threads.lock().push(thread);
            state.running += 1;
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            let worked = self.clean_next();
            let mut state = self.state.lock();
            if state.stopped || state.running > state.options.threads {
                state.running -= 1;
                return;
            }
            if !worked {
                let backoff = Duration::from_millis(state.options.backoff_ms.max(1));
                self.changed.wait_for(&mut state, backoff);
            }
        }
    }

    /// Cleans the log that needs it most. Returns whether there was one.
    fn clean_next(&self) -> bool {
        let now_ms = self.clock.wall_ms();
        let mut best: Option<(Arc<Log>, f64)> = None;
        for log in self.dirs.iter().filter(|dir| !dir.is_offline()).flat_map(|dir| Log::all_in(dir))
        {
            let look = || log.due(now_ms);
            let due = caught(&format_args!("a look at what is dirty of {}", log.name()), look);
            let ratio = match due.unwrap_or_else(|| log.give_up()) {
                Ok(ratio) => ratio,
                Err(error) => {
                    tracing::warn!(log = %log.name(), "cannot tell what is dirty: {error}");
                    None
                }
            };
            if let Some(ratio) = ratio
                && best.as_ref().is_none_or(|(_, other)| ratio > *other)
            {
                best = Some((log, ratio));
            }
        }
        let Some((log, _)) = best else { return false };
        let worker =
            CleanerWorker { options: self.state.lock().options.clone(), cleaner: Some(self) };
        matches!(log.clean(now_ms, &worker), Ok(Some(_)))
    }

    /// Waits as long as the throttle requires after `bytes`. Returns whether the threads must stop.
    fn pause(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let limit = state.options.io_bytes_per_second;
        if state.stopped || bytes == 0 || limit >= f64::MAX {
            return state.stopped;
        }
        let now = Instant::now();
        let until = now + self.throttle.after(bytes, limit, now);
        while !state.stopped && !self.changed.wait_until(&mut state, until).timed_out() {}
        state.stopped
    }
}

impl CleanerWorker<'_> {
    fn pause(&self, bytes: u64) -> bool {
        bytes > 0 && self.cleaner.is_some_and(|cleaner| cleaner.pause(bytes))
    }

    /// Bytes to read at a time.
    fn piece(&self) -> usize {
        self.options.io_buffer_bytes / self.options.threads.max(1)
    }
}

impl Log {
    /// Cleans all that may be cleaned on this thread, even if the log is not due. `None` if there
    /// is nothing to clean, another thread cleans the log, or the log changed meanwhile.
    pub fn compact(
        &self,
        now_ms: i64,
        options: &CleanerOptions,
    ) -> Result<Option<CleaningResult>, StorageError> {
        self.clean(now_ms, &CleanerWorker { options: options.clone(), cleaner: None })
    }

    /// The dirty part of a compacted log that is due and that no thread cleans.
    fn due(&self, now_ms: i64) -> Result<Option<f64>, StorageError> {
        let config = self.config();
        if !config.compact
            || self.damage().is_some()
            || self.cleaning.load(Ordering::Acquire) != IDLE
        {
            return Ok(None);
        }
        let dirty = self.dirty(now_ms)?.filter(|dirty| dirty.is_due(&config));
        Ok(dirty.map(|dirty| dirty.ratio()))
    }

    /// Runs `f` while no cleaner works on the log; `None`: one does.
    pub(super) fn without_cleaner<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let before = self.cleaning.load(Ordering::Acquire);
        let (order, relaxed) = (Ordering::AcqRel, Ordering::Acquire);
        if before == BUSY || self.cleaning.compare_exchange(before, BUSY, order, relaxed).is_err() {
            return None;
        }
        let outcome = f();
        self.cleaning.store(before, Ordering::Release);
        Some(outcome)
    }

    fn clean(
        &self,
        now_ms: i64,
        worker: &CleanerWorker<'_>,
    ) -> Result<Option<CleaningResult>, StorageError> {
        if self.cleaning.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return Ok(None);
        }
        let truncations = self.truncations();
        let clean = || self.clean_dirty(now_ms, worker);
        let cleaned = caught(&format_args!("the cleaning of {}", self.name()), clean);
        let outcome = cleaned.unwrap_or_else(|| self.give_up());
        // If a file is cut while the cleaner reads it, the cleaner finds damage that the log does
        // not have.
        let hopeless = matches!(outcome, Err(StorageError::Damaged { .. } | StorageError::Meta(_)))
            && self.truncations() == truncations;
        self.cleaning.store(if hopeless { GIVEN_UP } else { IDLE }, Ordering::Release);
        match &outcome {
            Ok(Some(done)) => tracing::info!(log = %self.name(), ?done, "cleaned"),
            Ok(None) => {}
            Err(_) if !self.is_on_disk() => return Ok(None),
            Err(error) if hopeless => {
                tracing::error!(log = %self.name(), "not cleaned again before a restart: {error}");
            }
            Err(error) => tracing::warn!(log = %self.name(), "not cleaned: {error}"),
        }
        outcome
    }

    /// Gives up on the log after a panic.
    fn give_up<R>(&self) -> Result<R, StorageError> {
        self.cleaning.store(GIVEN_UP, Ordering::Release);
        Err(StorageError::Meta(format!("the cleaner panicked over {}", self.name()).into()))
    }

    fn clean_dirty(
        &self,
        now_ms: i64,
        worker: &CleanerWorker<'_>,
    ) -> Result<Option<CleaningResult>, StorageError> {
        match self.dirty(now_ms)? {
            Some(dirty) if dirty.dirty_bytes > 0 => {
                CleaningPass::new(self, now_ms, worker).run(&dirty)
            }
            _ => Ok(None),
        }
    }
}
