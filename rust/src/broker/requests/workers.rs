//! A pool of worker threads for long work.
//!
//! Threads: none before the first job, then at most `krust.worker.threads` until the end.
//! Limits: callers bound the number of jobs; [`Workers`] accepts all.
//! Not promised: the order in which jobs end. They begin in the order of submission.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// A worker's job. It must not panic. A job that never starts is dropped.
pub(crate) type WorkerJob = Box<dyn FnOnce(JobStart) + Send>;

/// How a job is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobStart {
    /// A worker runs it.
    Runs,
    /// There is no thread for it.
    HasNoThread,
}

/// Whether a job's connection has closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// The connection has closed.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The worker threads of a broker.
pub(crate) struct Workers {
    most: usize,
    shared: Arc<WorkerShared>,
}

#[derive(Default)]
struct WorkerShared {
    queue: Mutex<WorkerQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct WorkerQueue {
    jobs: VecDeque<WorkerJob>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    is_stopping: bool,
}

impl Workers {
    /// A pool of at most `most` threads. They start with the first jobs.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), shared: Arc::default() }
    }

    /// Passes `job` to a worker.
    pub(crate) fn submit(&self, job: WorkerJob) {
        let mut queue = self.shared.queue.lock();
        if queue.is_stopping {
            return;
        }
        queue.jobs.push_back(job);
        if queue.idle < queue.jobs.len() && queue.threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            let name = format!("krust-worker-{}", queue.threads.len());
            let thread = std::thread::Builder::new().name(name);
            match thread.spawn(move || shared.work()) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    tracing::error!("cannot start a worker thread (ulimit -u): {error}");
                    let unserved = std::mem::take(&mut queue.jobs);
                    drop(queue);
                    unserved.into_iter().for_each(|job| job(JobStart::HasNoThread));
                    return;
                }
                Err(_) => {}
            }
        }
        self.shared.changed.notify_one();
    }

    /// Ends the threads; jobs that did not begin are dropped.
    pub(crate) fn stop(&self) {
        for thread in self.shared.end() {
            // A panic was caught and logged in the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    /// Does not wait for the threads, because one of them may drop the broker.
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl WorkerShared {
    /// Tells the threads to end, and names them.
    fn end(&self) -> Vec<JoinHandle<()>> {
        let (threads, dropped) = {
            let mut queue = self.queue.lock();
            queue.is_stopping = true;
            (std::mem::take(&mut queue.threads), std::mem::take(&mut queue.jobs))
        };
        drop(dropped);
        self.changed.notify_all();
        threads
    }

    /// Runs jobs until the end.
    fn work(&self) {
        while let Some(job) = self.next() {
            job(JobStart::Runs);
        }
    }

    /// The next job, when there is one; `None` at the end.
    fn next(&self) -> Option<WorkerJob> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_stopping {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            self.changed.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}
