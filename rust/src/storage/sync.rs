//! The threads that make logs durable, so that no network thread waits for a disk.
//!
//! A log requests a sync, at once or within a time. A thread takes the log with the earliest
//! deadline, syncs it, raises its flushed offset and calls the [`FlushCallback`]. Requests that
//! arrive during a sync share the next one. The threads also reserve disk for busy partitions and
//! write checkpoints.
//! Limits: only the most urgent entry of a log counts; a log makes one request until its sync
//! begins. One thread at a time syncs a log. If all threads are busy, one more starts, up to
//! [`THREADS`], because a file system commits for several callers at once.
//! Threads: its own; a request takes a short lock.
//! If a sync panics, the state of the disk is unknown: the log's directory goes offline, and
//! requests that wait get an error. Any other panic ends the thread: see [`Syncer::has_failed`].
//! Errors are not returned; the log directory is then offline.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::descriptors::{Descriptors, FileHolder};
use super::dirs::LogDir;
use super::errors::StorageError;
use super::panics::caught;
use crate::ids::{Offset, TopicPartition};

/// Called after a log's flushed offset has moved, or its directory went offline.
pub type FlushCallback = Box<dyn Fn(&TopicPartition) + Send + Sync>;

/// Most logs that are synced at the same time.
const THREADS: usize = 4;

/// A log, as the sync threads see it.
pub(super) trait SyncedLog: Send + Sync {
    /// The partition.
    fn name(&self) -> &TopicPartition;
    /// The syncs that the log has requested since its last sync began.
    fn asked(&self) -> &SyncRequest;
    /// Makes the committed appends durable.
    fn flush(&self) -> Result<Offset, StorageError>;
    /// Reserves disk in the active segment up to `to`.
    fn allocate(&self, to: u64);
    /// Takes the log's directory offline.
    fn take_dir_offline(&self, why: &str);
}

/// The sync threads.
pub struct Syncer {
    queue: Mutex<SyncQueue>,
    changed: Condvar,
    waker: FlushCallback,
    failed: AtomicBool,
    me: Weak<Self>,
}

#[derive(Default)]
struct SyncQueue {
    due: BTreeMap<(Instant, usize), Weak<dyn SyncedLog>>,
    /// The addresses of the logs that are being synced.
    busy: Vec<usize>,
    allocations: Vec<(Weak<dyn SyncedLog>, u64)>,
    /// Files that must be synced before they can be closed.
    holders: Vec<Weak<dyn FileHolder>>,
    checkpoints: Vec<Arc<LogDir>>,
    count: usize,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    stopped: bool,
}

/// How soon a log is to be synced.
#[derive(Clone, Copy, Debug)]
pub(super) enum Urgency {
    /// Within this many milliseconds, by a setting.
    Later(i64),
    /// Within a part of the time that a sync takes: a request waits.
    Soon(Duration),
    /// At once.
    Now,
}

/// The requests of a log since its last sync began: the urgency, and the queue entry that counts.
#[derive(Debug, Default)]
pub(super) struct SyncRequest {
    urgency: AtomicU8,
    entry: AtomicUsize,
}

enum SyncTask {
    Sync(Arc<dyn SyncedLog>),
    Allocate(Weak<dyn SyncedLog>, u64),
    Checkpoint(Arc<LogDir>),
    Holder(Weak<dyn FileHolder>),
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Syncer {{ waiting: {} }}", self.queue.lock().due.len())
    }
}

impl Syncer {
    /// Starts the first thread. `waker` runs on any of them and must not block.
    pub fn start(waker: FlushCallback) -> std::io::Result<Arc<Self>> {
        let syncer = Arc::new_cyclic(|me| Self {
            queue: Mutex::new(SyncQueue::default()),
            changed: Condvar::new(),
            waker,
            failed: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        syncer.start_thread(&mut syncer.queue.lock())?;
        Ok(syncer)
    }

    /// Syncs the files that `descriptors` cannot close before, from now on.
    pub fn sync_files_of(self: &Arc<Self>, descriptors: &Descriptors) {
        let syncer = Arc::downgrade(self);
        descriptors.sync_with(move |holder| {
            if let Some(syncer) = syncer.upgrade() {
                syncer.sync_holder(holder);
            }
        });
    }

    /// Lets the threads finish their work and waits for them. Later requests are ignored.
    pub fn stop(&self) {
        let threads = {
            let mut queue = self.queue.lock();
            queue.stopped = true;
            std::mem::take(&mut queue.threads)
        };
        self.changed.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a sync thread had panicked");
            }
        }
    }

    /// Whether a thread ended by a panic: then appends may wait for the disk for ever.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Requests a sync of the log.
    pub(super) fn ask(&self, log: &Weak<impl SyncedLog + 'static>, urgency: Urgency) {
        let Some(strong) = log.upgrade() else { return };
        let (rank, within) = urgency.rank();
        if strong.asked().urgency.load(Ordering::Acquire) >= rank {
            return;
        }
        let mut queue = self.queue.lock();
        if strong.asked().urgency.fetch_max(rank, Ordering::AcqRel) >= rank {
            return;
        }
        queue.count += 1;
        let key = (Instant::now() + within, queue.count);
        strong.asked().entry.store(key.1, Ordering::Release);
        let log: Weak<dyn SyncedLog> = log.clone();
        queue.due.insert(key, log);
        self.wake(queue);
    }

    /// Requests disk for the log's active segment up to `to`.
    pub(super) fn allocate(&self, log: &Weak<impl SyncedLog + 'static>, to: u64) {
        let log: Weak<dyn SyncedLog> = log.clone();
        let mut queue = self.queue.lock();
        queue.allocations.push((log, to));
        self.wake(queue);
    }

    /// Requests a sync of a file, so that it can be closed for others.
    pub(super) fn sync_holder(&self, holder: Weak<dyn FileHolder>) {
        let mut queue = self.queue.lock();
        if !queue.holders.iter().any(|waiting| waiting.ptr_eq(&holder)) {
            queue.holders.push(holder);
        }
        self.wake(queue);
    }

    /// Requests a write of the directory's checkpoints.
    pub(super) fn checkpoint(&self, dir: &Arc<LogDir>) {
        let mut queue = self.queue.lock();
        if !queue.checkpoints.iter().any(|waiting| Arc::ptr_eq(waiting, dir)) {
            queue.checkpoints.push(Arc::clone(dir));
        }
        self.wake(queue);
    }

    /// Wakes a thread for new work, or starts one if all are busy.
    fn wake(&self, mut queue: parking_lot::MutexGuard<'_, SyncQueue>) {
        if queue.idle == 0
            && queue.threads.len() < THREADS
            && let Err(error) = self.start_thread(&mut queue)
        {
            tracing::warn!("no more threads to sync with: {error}");
        }
        drop(queue);
        self.changed.notify_one();
    }

    fn start_thread(&self, queue: &mut SyncQueue) -> std::io::Result<()> {
        let Some(me) = self.me.upgrade().filter(|_| !queue.stopped) else { return Ok(()) };
        let thread = std::thread::Builder::new().name("krust-sync".into());
        queue.threads.push(thread.spawn(move || me.run())?);
        Ok(())
    }

    fn run(&self) {
        let work = || {
            while let Some(work) = self.next() {
                self.perform(work);
            }
        };
        if caught(&"a sync thread", work).is_none() {
            self.failed.store(true, Ordering::Release);
        }
    }

    fn perform(&self, work: SyncTask) {
        match work {
            SyncTask::Allocate(log, to) => {
                let allocate = || log.upgrade().iter().for_each(|log| log.allocate(to));
                caught(&"reserving disk", allocate).unwrap_or_default();
            }
            SyncTask::Holder(holder) => {
                let sync = || holder.upgrade().into_iter().for_each(|it| it.sync_now());
                caught(&"the sync of a file to be closed", sync).unwrap_or_default();
            }
            SyncTask::Checkpoint(dir) => {
                if let Some(Err(error)) = caught(&"a checkpoint", || dir.checkpoint()) {
                    tracing::error!(dir = %dir.path().display(), "checkpoint failed: {error}");
                }
            }
            SyncTask::Sync(log) => {
                match caught(&format_args!("the sync of {}", log.name()), || log.flush()) {
                    Some(Err(error)) => tracing::error!(log = %log.name(), "sync failed: {error}"),
                    Some(Ok(_)) => {}
                    None => log.take_dir_offline("a sync panicked"),
                }
                (self.waker)(log.name());
                self.done(&*log);
            }
        }
    }

    /// Lets another thread sync the log, which may have made a request meanwhile.
    fn done(&self, log: &dyn SyncedLog) {
        let mut queue = self.queue.lock();
        let address = address(log);
        queue.busy.retain(|busy| *busy != address);
        drop(queue);
        self.changed.notify_one();
    }

    /// Waits for work; `None` when stopped.
    fn next(&self) -> Option<SyncTask> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some((log, to)) = queue.allocations.pop() {
                return Some(SyncTask::Allocate(log, to));
            }
            if let Some(holder) = queue.holders.pop() {
                return Some(SyncTask::Holder(holder));
            }
            if let Some(dir) = queue.checkpoints.pop() {
                return Some(SyncTask::Checkpoint(dir));
            }
            let until = match queue.take(Instant::now()) {
                Ok(log) => return Some(SyncTask::Sync(log)),
                Err(until) => until,
            };
            queue.idle += 1;
            match until {
                Some(at) => {
                    self.changed.wait_until(&mut queue, at);
                }
                None => self.changed.wait(&mut queue),
            }
            queue.idle -= 1;
        }
    }
}

impl SyncQueue {
    /// The log that must be synced now, marked as busy; else the time when to check again.
    fn take(&mut self, now: Instant) -> Result<Arc<dyn SyncedLog>, Option<Instant>> {
        let mut gone = Vec::new();
        let mut found = None;
        let mut until = None;
        for (key, log) in &self.due {
            let log = log.upgrade();
            let Some(log) = log.filter(|it| it.asked().entry.load(Ordering::Acquire) == key.1)
            else {
                gone.push(*key);
                continue;
            };
            if self.busy.contains(&address(&*log)) {
                continue;
            }
            if key.0 > now {
                until = Some(key.0);
            } else {
                gone.push(*key);
                found = Some(log);
            }
            break;
        }
        for key in gone {
            self.due.remove(&key);
        }
        let log = found.ok_or(until)?;
        log.asked().urgency.store(0, Ordering::Release);
        self.busy.push(address(&*log));
        Ok(log)
    }
}

/// Identifies a log while it is synced.
fn address(log: &dyn SyncedLog) -> usize {
    std::ptr::from_ref(log).addr()
}

impl Urgency {
    /// The rank, and the time within which to sync.
    fn rank(self) -> (u8, Duration) {
        match self {
            Self::Later(ms) if ms > 0 => (1, Duration::from_millis(ms.unsigned_abs())),
            Self::Soon(within) if !within.is_zero() => (2, within),
            _ => (3, Duration::ZERO),
        }
    }
}
