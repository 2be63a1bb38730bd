//! Opens the logs of a delta, several at a time if that is worth threads.
//!
//! Each log directory has up to `num.recovery.threads.per.data.dir` threads, which take the logs
//! with the most bytes to check first. If there is little to do, the caller opens the logs in the
//! delta's order.
//! Invariants: the result does not depend on the number of threads. Directories are chosen in the
//!     delta's order before any log is opened.
//! Memory: one window and one batch for each thread.
//! Panics: a panic while a log is opened is raised in the caller after the other threads have
//!     ended.
//! Threads: the caller waits; one delta at a time.
//! Not promised: the order in which logs are opened.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::{thread, vec};

use parking_lot::Mutex;

use crate::broker::requests::broker::Broker;
use crate::broker::state::partition::Partition;
use crate::ids::{TopicId, TopicPartition};
use crate::storage::{Log, LogCheck, LogDir, Open, StorageError, log_cuts};

/// With fewer bytes to check than this, threads cost more than they save.
const LITTLE: u64 = 8 << 20;
/// The fixed cost of opening a log, in bytes that could be checked in that time.
const A_LOG: u64 = 64 << 10;

/// A partition of a delta that could not be opened or removed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{partition}: {error}")]
pub struct ApplyError {
    /// The partition.
    pub partition: TopicPartition,
    /// Why.
    pub error: StorageError,
}

/// A log to open.
pub(crate) struct LogToOpen {
    pub name: TopicPartition,
    pub open: Open,
    /// The partition has no log yet.
    pub is_new: bool,
}

/// The opened logs and the errors.
pub(crate) type OpenedLogs = HashMap<TopicPartition, Result<Arc<Partition>, ApplyError>>;

/// A log to open, with its directory.
struct OpeningJob {
    name: TopicPartition,
    open: Open,
    dir: Arc<LogDir>,
    bytes: u64,
}

/// The logs of one directory that no thread has taken yet.
struct OpeningQueue {
    jobs: Mutex<vec::IntoIter<OpeningJob>>,
    threads: usize,
}

/// The results of the threads.
#[derive(Default)]
struct OpeningResults {
    opened: Mutex<OpenedLogs>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Broker {
    /// Opens all logs, unless the start is cancelled.
    pub(crate) fn open_all(&self, wanted: Vec<LogToOpen>) -> OpenedLogs {
        let outcome = OpeningResults::default();
        let (queues, work) = self.queues(wanted, &outcome);
        if work < LITTLE {
            queues.iter().for_each(|queue| queue.run(self, &outcome));
        } else {
            self.open_by_threads(&queues, &outcome);
        }
        log_cuts(&self.progress.take_cuts());
        if let Some(panic) = outcome.panic.into_inner() {
            resume_unwind(panic);
        }
        outcome.opened.into_inner()
    }

    /// Runs the threads. The caller is one of them.
    fn open_by_threads(&self, queues: &[OpeningQueue], outcome: &OpeningResults) {
        thread::scope(|scope| {
            let mut own = Vec::new();
            for (index, queue) in queues.iter().enumerate() {
                own.extend((index == 0).then_some(queue));
                for _ in usize::from(index == 0)..queue.threads {
                    let run = || queue.run(self, outcome);
                    let worker = thread::Builder::new().name("krust-recovery".into());
                    if let Err(error) = worker.spawn_scoped(scope, run) {
                        tracing::warn!("fewer threads open logs than should: {error}");
                        own.push(queue);
                    }
                }
            }
            own.iter().for_each(|queue| queue.run(self, outcome));
        });
    }

    /// The logs by directory, and the work in bytes to check.
    fn queues(&self, wanted: Vec<LogToOpen>, outcome: &OpeningResults) -> (Vec<OpeningQueue>, u64) {
        let dirs = self.log_manager.dirs();
        let mut queues: Vec<Vec<OpeningJob>> = dirs.iter().map(|_| Vec::new()).collect();
        let mut work = 0;
        for LogToOpen { name, open, is_new } in wanted {
            let place = self.log_manager.place(&name, is_new);
            let place = place.and_then(|at| Some((dirs.get(at)?, queues.get_mut(at)?)));
            let Some((dir, queue)) = place else {
                let error = StorageError::Offline("where it may lie".into());
                let failed = Err(ApplyError { partition: name.clone(), error });
                outcome.opened.lock().insert(name, failed);
                continue;
            };
            let bytes = dir.bytes_to_check(&name);
            let checking = self.progress.expect(name.to_string().into(), bytes);
            let open = Open { clean: dir.was_clean(), checking: Some(Arc::new(checking)), ..open };
            work += bytes + if is_new { 0 } else { A_LOG };
            queue.push(OpeningJob { name, open, dir: Arc::clone(dir), bytes });
        }
        let most = self.settings.load().recovery_threads_per_dir.max(1);
        let queue = |mut jobs: Vec<OpeningJob>| {
            jobs.sort_by_key(|job| Reverse(job.bytes));
            let threads = most.min(jobs.len());
            OpeningQueue { jobs: Mutex::new(jobs.into_iter()), threads }
        };
        let used = queues.into_iter().filter(|jobs| !jobs.is_empty());
        (used.map(queue).collect(), work)
    }

    fn open(
        &self,
        OpeningJob { name, open, dir, .. }: OpeningJob,
    ) -> Result<Arc<Partition>, ApplyError> {
        let fail = |error| ApplyError { partition: name.clone(), error };
        open.checking.as_deref().map_or(Ok(()), LogCheck::go_on).map_err(fail)?;
        if let Some(id) = open.topic_id.filter(|id| *id != TopicId::ZERO) {
            dir.mark_unopened_stray(&name, Some(id)).map_err(fail)?;
        }
        let id = open.topic_id.unwrap_or_default();
        let leader_epoch = open.leader_epoch;
        let log = Log::open(&dir, &name, open).map_err(fail)?;
        self.note_proven(&log, leader_epoch);
        let partition = Partition::new(name.clone(), id, (log, Arc::clone(&self.replication)));
        partition.settle().map_err(fail)?;
        self.move_on(&partition);
        Ok(Arc::new(partition))
    }
}

impl OpeningQueue {
    /// Opens one log after the other until none is left.
    fn run(&self, broker: &Broker, outcome: &OpeningResults) {
        while let Some(job) = self.next() {
            let name = job.name.clone();
            match catch_unwind(AssertUnwindSafe(|| broker.open(job))) {
                Ok(opened) => drop(outcome.opened.lock().insert(name, opened)),
                Err(panic) => *outcome.panic.lock() = Some(panic),
            }
            if outcome.panic.lock().is_some() {
                return;
            }
        }
    }

    fn next(&self) -> Option<OpeningJob> {
        self.jobs.lock().next()
    }
}
