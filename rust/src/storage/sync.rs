//! The thread that makes logs durable, so that no reactor waits for a disk.
//!
//! Logs ask to be synced, now or within so many milliseconds; the thread takes all whose time has
//! come, syncs one after the other (asks that came meanwhile share the next sync), moves each
//! log's flushed offset and calls the waker. It also reserves disk ahead of hot partitions and
//! writes checkpoints that somebody waits for.
//! Limit: one entry a log and deadline; a log asks once until its sync began.
//! Threads: one thread of its own; asking takes a short lock.
//! Not promised: an error is not returned to anybody: the log directory is offline then.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::dirs::LogDir;
use super::log::Log;
use crate::ids::TopicPartition;

/// Called after a log's flushed offset has moved, or its directory went offline.
pub type Waker = Box<dyn Fn(&TopicPartition) + Send + Sync>;

/// The sync thread.
pub struct Syncer {
    queue: Mutex<Queue>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    due: BTreeMap<(Instant, usize), Weak<Log>>,
    allocations: Vec<(Weak<Log>, u64)>,
    checkpoints: Vec<Arc<LogDir>>,
    count: usize,
    stopped: bool,
}

/// What a log has asked for since its last sync began.
const LATER: u8 = 1;
const NOW: u8 = 2;

struct Work {
    logs: Vec<Arc<Log>>,
    allocations: Vec<(Weak<Log>, u64)>,
    checkpoints: Vec<Arc<LogDir>>,
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Syncer {{ waiting: {} }}", self.queue.lock().due.len())
    }
}

impl Syncer {
    /// Starts the thread. `waker` runs on it and must not block.
    pub fn start(waker: Waker) -> std::io::Result<Arc<Self>> {
        let syncer = Arc::new(Self {
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let me = Arc::clone(&syncer);
        let thread =
            std::thread::Builder::new().name("krust-sync".into()).spawn(move || me.run(&waker))?;
        *syncer.thread.lock() = Some(thread);
        Ok(syncer)
    }

    /// Lets the thread end what it does and waits for it. Later asks are ignored.
    pub fn stop(&self) {
        self.queue.lock().stopped = true;
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread had panicked");
        }
    }

    /// Has the log synced within `within_ms`.
    pub(super) fn ask(&self, log: &Weak<Log>, within_ms: i64) {
        let Some(strong) = log.upgrade() else { return };
        let wish = if within_ms > 0 { LATER } else { NOW };
        if strong.sync_asked.fetch_max(wish, Ordering::AcqRel) >= wish {
            return;
        }
        let within = Duration::from_millis(u64::try_from(within_ms).unwrap_or(0));
        let mut queue = self.queue.lock();
        let key = (Instant::now() + within, queue.count);
        queue.count += 1;
        queue.due.insert(key, Weak::clone(log));
        drop(queue);
        self.changed.notify_one();
    }

    /// Has disk reserved in the log's active segment up to `to`.
    pub(super) fn allocate(&self, log: &Weak<Log>, to: u64) {
        self.queue.lock().allocations.push((Weak::clone(log), to));
        self.changed.notify_one();
    }

    /// Has the directory's checkpoints written.
    pub(super) fn checkpoint(&self, dir: &Arc<LogDir>) {
        let mut queue = self.queue.lock();
        if !queue.checkpoints.iter().any(|waiting| Arc::ptr_eq(waiting, dir)) {
            queue.checkpoints.push(Arc::clone(dir));
        }
        drop(queue);
        self.changed.notify_one();
    }

    fn run(&self, waker: &Waker) {
        while let Some(work) = self.next() {
            for (log, to) in work.allocations {
                if let Some(log) = log.upgrade() {
                    log.allocate(to);
                }
            }
            for log in work.logs {
                log.sync_asked.store(0, Ordering::Release);
                if let Err(error) = log.flush() {
                    tracing::error!(log = %log.name(), "sync failed: {error}");
                }
                waker(log.name());
            }
            for dir in work.checkpoints {
                if let Err(error) = dir.checkpoint() {
                    tracing::error!(dir = %dir.path().display(), "checkpoint failed: {error}");
                }
            }
        }
    }

    /// Waits for work; `None` when stopped.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return None;
            }
            let now = Instant::now();
            let later = queue.due.split_off(&(now, usize::MAX));
            let due = std::mem::replace(&mut queue.due, later);
            let mut logs: Vec<Arc<Log>> = due.values().filter_map(Weak::upgrade).collect();
            logs.sort_by_key(Arc::as_ptr);
            logs.dedup_by(|a, b| Arc::ptr_eq(a, b));
            let work = Work {
                logs,
                allocations: std::mem::take(&mut queue.allocations),
                checkpoints: std::mem::take(&mut queue.checkpoints),
            };
            if !work.logs.is_empty() || !work.allocations.is_empty() || !work.checkpoints.is_empty()
            {
                return Some(work);
            }
            match queue.due.keys().next().map(|key| key.0) {
                Some(at) => {
                    self.changed.wait_until(&mut queue, at);
                }
                None => self.changed.wait(&mut queue),
            }
        }
    }
}
