//! Worker threads for requests that take long: records read from the disk, records converted for
//! old consumers, large batches inflated and checked, batches compressed anew.
//!
//! A network thread serves many connections, so it does such work only where there is little of it.
//! The rest becomes a [`Job`]: the request is delayed, and what its client sent behind it waits. A
//! worker runs the job and posts what became of it to the request's network thread.
//! Limits: a connection has one job at a time, so there are no more jobs than connections; a job
//! that waits for a worker is dropped when its connection closes, one that runs ends by itself.
//! Threads: none until the first job; then at most `krust.worker.threads`, until the end.
//! A panic in a job is logged and closes the connection that the request came from.
//! Not promised: an order between the jobs of two connections beyond the one they came in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::parked::Wait;
use super::quotas::Account;
use super::{Broker, Output, ParkedId, Wake};
use crate::storage::panics::caught;

/// What a worker does for one request.
pub(super) struct Job {
    /// The request's network thread, and its name there.
    thread: usize,
    parked: ParkedId,
    cancelled: Cancelled,
    /// Whose time it takes.
    account: Option<Arc<Account>>,
    run: Box<dyn FnOnce(&Broker) -> Worked + Send>,
}

/// What became of a request that a worker went on with.
pub(crate) enum Worked {
    /// It is answered.
    Answer(Output),
    /// It waits for something else.
    Waits(NowWaits),
    /// It cannot be answered: its connection goes.
    Fails,
}

impl Worked {
    /// It waits for something else until `deadline_ms`.
    pub(crate) fn wait(wait: Wait, deadline_ms: i64) -> Self {
        Self::Waits(NowWaits { wait, deadline_ms })
    }
}

/// What a request waits for after a worker has gone on with it, and until when (monotonic
/// milliseconds).
#[derive(Debug)]
pub struct NowWaits {
    pub(super) wait: Wait,
    pub(super) deadline_ms: i64,
}

/// Whether a job's connection has closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    /// The connection has closed.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The worker threads of a broker.
pub(super) struct Workers {
    most: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    is_stopping: bool,
}

impl Workers {
    /// At most so many threads, once there is work.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), shared: Arc::default() }
    }

    /// Has a worker run `job`.
    pub(super) fn submit(&self, broker: &Weak<Broker>, job: Job) {
        let mut queue = self.shared.queue.lock();
        if queue.is_stopping {
            return;
        }
        queue.jobs.push_back(job);
        if queue.idle < queue.jobs.len() && queue.threads.len() < self.most {
            let (shared, of) = (Arc::clone(&self.shared), Weak::clone(broker));
            let name = format!("krust-worker-{}", queue.threads.len());
            let thread = std::thread::Builder::new().name(name);
            match thread.spawn(move || shared.work(&of)) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    tracing::error!("cannot start a worker thread (ulimit -u): {error}");
                    let unserved = std::mem::take(&mut queue.jobs);
                    drop(queue);
                    let broker = broker.upgrade();
                    unserved.iter().for_each(|job| {
                        broker.iter().for_each(|it| it.post(job.thread, Wake::Fail(job.parked)));
                    });
                    return;
                }
                Err(_) => {}
            }
        }
        self.shared.changed.notify_one();
    }

    /// Ends the threads; jobs that did not begin are dropped.
    pub(super) fn stop(&self) {
        for thread in self.shared.end() {
            // A panic was caught and logged in the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    /// One of the threads may be who drops the broker, so none is waited for.
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    /// Tells the threads to end, and names them.
    fn end(&self) -> Vec<JoinHandle<()>> {
        let threads = {
            let mut queue = self.queue.lock();
            queue.is_stopping = true;
            queue.jobs.clear();
            std::mem::take(&mut queue.threads)
        };
        self.changed.notify_all();
        threads
    }

    /// A worker's life.
    fn work(&self, broker: &Weak<Broker>) {
        while let Some(job) = self.next() {
            let Some(broker) = broker.upgrade() else { return };
            if !job.cancelled.is_set() {
                broker.work_off(job);
            }
        }
    }

    /// The next job, when there is one; `None` at the end.
    fn next(&self) -> Option<Job> {
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

impl Broker {
    /// Has a worker go on with a delayed request of a network thread, for an account; what the
    /// request waits for meanwhile.
    pub(super) fn work_on(
        &self,
        (thread, parked): (usize, ParkedId),
        account: Option<Arc<Account>>,
        run: impl FnOnce(&Self) -> Worked + Send + 'static,
    ) -> Wait {
        let cancelled = Cancelled::default();
        let run = Box::new(run);
        let job = Job { thread, parked, cancelled: cancelled.clone(), account, run };
        self.workers.submit(&self.me, job);
        Wait::Worker(cancelled)
    }

    /// Runs a job and tells its network thread what became of it.
    fn work_off(&self, job: Job) {
        let Job { thread, parked, account, run, .. } = job;
        let began = self.clock.monotonic_nanos();
        let worked = caught(&"a worker's job", || run(self));
        if let Some(account) = account.filter(|it| it.is_timed()) {
            let nanos = self.clock.monotonic_nanos() - began;
            account.took(nanos, self.clock.monotonic_ms());
        }
        let wake = match worked {
            Some(Worked::Answer(output)) => Wake::Answer(parked, output),
            Some(Worked::Waits(now)) => Wake::Waits(parked, now),
            Some(Worked::Fails) | None => Wake::Fail(parked),
        };
        self.post(thread, wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::super::{Event, Mailbox, Policy, Settings, Store};
    use super::*;
    use crate::clock::SystemClock;

    struct Undecided;

    impl Policy for Undecided {
        fn submit(&self, _: Event) {}
        fn hurry(&self) {}
    }

    struct Mail(std::sync::mpsc::Sender<(u64, bool)>);

    impl Mailbox<Wake> for Mail {
        fn post(&self, _: usize, wake: Wake) {
            let _ = self.0.send(match wake {
                Wake::Answer(parked, _) => (parked.0, true),
                Wake::Fail(parked) => (parked.0, false),
                _ => return,
            });
        }
    }

    /// A broker with one worker, and the names of requests that were answered or failed.
    fn broker() -> (Arc<Broker>, Receiver<(u64, bool)>) {
        let settings = Settings { worker_threads: 1, ..Settings::default() };
        let store = Store::new(Vec::new());
        let broker = Broker::new(settings, store, Arc::new(Undecided), Arc::new(SystemClock));
        let (mail, wakes) = channel();
        broker.connect(Arc::new(Mail(mail)));
        (broker, wakes)
    }

    fn answers(_: &Broker) -> Worked {
        Worked::Answer(Output::default())
    }

    #[test]
    fn a_job_whose_connection_closed_is_dropped_unless_it_runs() {
        let (broker, wakes) = broker();
        let (go_on, blocked) = channel::<()>();
        let (began, begun) = channel();
        let running = broker.work_on((0, ParkedId(1)), None, move |broker| {
            began.send(()).unwrap();
            let _ = blocked.recv();
            answers(broker)
        });
        begun.recv().unwrap();
        let dropped = broker.work_on((0, ParkedId(2)), None, answers);
        broker.work_on((0, ParkedId(3)), None, answers);
        for wait in [running, dropped] {
            let Wait::Worker(cancelled) = wait else { unreachable!() };
            cancelled.cancel();
        }
        drop(go_on);
        assert_eq!([wakes.recv(), wakes.recv()], [Ok((1, true)), Ok((3, true))]);
        broker.close().unwrap();
        assert!(wakes.try_recv().is_err());
    }

    #[test]
    fn a_job_that_panics_costs_its_own_connection_only() {
        let (broker, wakes) = broker();
        broker.work_on((0, ParkedId(1)), None, |_| panic!("on purpose"));
        broker.work_on((0, ParkedId(2)), None, answers);
        assert_eq!([wakes.recv(), wakes.recv()], [Ok((1, false)), Ok((2, true))]);
    }

    #[test]
    fn at_the_end_what_did_not_begin_is_dropped() {
        let (broker, wakes) = broker();
        broker.close().unwrap();
        broker.work_on((0, ParkedId(1)), None, answers);
        assert!(wakes.try_recv().is_err());
    }
}
