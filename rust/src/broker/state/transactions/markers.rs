//! The markers that the transaction thread is to write, and the transactions that they end.
//!
//! A transaction has one task for each partition, and is complete when the last of them is done:
//! its marker is committed, or the partition exists no longer. A task whose leader cannot take the
//! marker now comes back after [`RETRY_MS`].
//! Threads: any adds tasks; the transaction thread takes them.
//! Limits: as many tasks as there are partitions in the transactions that this broker coordinates.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::transactions::shard::TransactionShard;
use crate::broker::state::waking::DelayedId;
use crate::broker::transactions::transaction::{
    ClientTransactionVersion, ProducerIdentity, Transaction,
};
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;

/// After this time a marker that could not be written is tried again.
pub(crate) const RETRY_MS: u64 = 20;

/// A transaction whose markers are being written.
#[derive(Debug)]
pub(crate) struct EndingTransaction {
    pub(crate) id: Arc<str>,
    pub(crate) shard: Arc<TransactionShard>,
    /// The producer in the markers.
    pub(crate) producer: ProducerIdentity,
    pub(crate) commit: bool,
    pub(crate) client_version: ClientTransactionVersion,
    pub(crate) partitions: Vec<TopicPartition>,
    /// How many partitions have no committed marker yet.
    left: AtomicUsize,
    waiter: Mutex<EndWaiter>,
}

/// Who waits for the end of a transaction: the request that decided it.
#[derive(Debug)]
enum EndWaiter {
    Nobody,
    /// A request and its network thread.
    Request(usize, DelayedId),
    /// It has ended, or is left to another coordinator.
    Over,
}

/// What the transaction thread is to do.
#[derive(Clone, Debug)]
pub(crate) enum MarkerTask {
    /// Begin to write markers once the decision to end the transaction is committed.
    Begin(Arc<EndingTransaction>, AppendedAt),
    /// Write the marker of a partition.
    Write(Arc<EndingTransaction>, TopicPartition),
    /// Count the marker of a partition once it is committed.
    Count(Arc<EndingTransaction>, TopicPartition, AppendedAt),
    /// Take the answer of another broker that leads a partition.
    Answered(Arc<EndingTransaction>, TopicPartition, ErrorCode),
    /// All partitions have their marker: append that the transaction is complete.
    Complete(Arc<EndingTransaction>),
}

/// The tasks. See the module.
#[derive(Debug, Default)]
pub(crate) struct MarkerQueue {
    state: Mutex<QueuedMarkers>,
    changed: Condvar,
    /// Requests whose transaction is over, which have not been woken.
    answered: Mutex<Vec<(usize, DelayedId)>>,
}

#[derive(Debug, Default)]
struct QueuedMarkers {
    now: VecDeque<MarkerTask>,
    /// In the order of their times.
    later: VecDeque<(Instant, MarkerTask)>,
    thread: Option<JoinHandle<()>>,
    is_stopping: bool,
}

impl EndingTransaction {
    /// A transaction that ends.
    pub(crate) fn new(
        (id, shard): (Arc<str>, Arc<TransactionShard>),
        transaction: &Transaction,
        commit: bool,
    ) -> Self {
        let partitions: Vec<TopicPartition> = transaction.partitions.iter().cloned().collect();
        let left = AtomicUsize::new(partitions.len());
        let (producer, client_version) = (transaction.producer, transaction.client_version);
        let waiter = Mutex::new(EndWaiter::Nobody);
        Self { id, shard, producer, commit, client_version, partitions, left, waiter }
    }

    /// Whether a transaction is still this one.
    pub(crate) fn is(&self, transaction: Option<&Transaction>) -> bool {
        transaction.is_some_and(|now| {
            now.producer == self.producer && now.state.marker() == Some(self.commit)
        })
    }

    /// A partition has its marker. True: it was the last one.
    pub(crate) fn count(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Has the request `id` of a network thread retried at the end. True: it is over already.
    pub(crate) fn wait(&self, thread: usize, id: DelayedId) -> bool {
        let mut waiter = self.waiter.lock();
        let is_over = matches!(*waiter, EndWaiter::Over);
        if !is_over {
            *waiter = EndWaiter::Request(thread, id);
        }
        is_over
    }

    /// Whether it has ended, or is left to another coordinator.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.waiter.lock(), EndWaiter::Over)
    }

    /// Notes that it is over. Returns the request that waited, and its thread.
    fn end(&self) -> Option<(usize, DelayedId)> {
        match std::mem::replace(&mut *self.waiter.lock(), EndWaiter::Over) {
            EndWaiter::Request(thread, id) => Some((thread, id)),
            EndWaiter::Nobody | EndWaiter::Over => None,
        }
    }
}

impl MarkerTask {
    /// The transaction.
    pub(crate) fn ending(&self) -> &Arc<EndingTransaction> {
        match self {
            Self::Begin(ending, _)
            | Self::Write(ending, _)
            | Self::Count(ending, ..)
            | Self::Answered(ending, ..)
            | Self::Complete(ending) => ending,
        }
    }
}

impl MarkerQueue {
    /// Adds a task.
    pub(crate) fn add(&self, task: MarkerTask) {
        self.state.lock().now.push_back(task);
        self.changed.notify_one();
    }

    /// Adds a task that could not be done now.
    pub(crate) fn retry(&self, task: MarkerTask) {
        let due = Instant::now() + Duration::from_millis(RETRY_MS);
        self.state.lock().later.push_back((due, task));
        self.changed.notify_one();
    }

    /// A transaction is over: its request is woken with the next ones.
    pub(crate) fn over(&self, ending: &EndingTransaction) {
        self.answered.lock().extend(ending.end());
    }

    /// The requests to wake.
    pub(crate) fn take_answered(&self) -> Vec<(usize, DelayedId)> {
        std::mem::take(&mut self.answered.lock())
    }

    /// Takes all tasks that are due, and waits for the first; `None` at the end.
    pub(crate) fn next(&self) -> Option<VecDeque<MarkerTask>> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let now = Instant::now();
            while state.later.front().is_some_and(|(due, _)| *due <= now)
                && let Some((_, task)) = state.later.pop_front()
            {
                state.now.push_back(task);
            }
            if !state.now.is_empty() {
                return Some(std::mem::take(&mut state.now));
            }
            match state.later.front().map(|(due, _)| *due) {
                Some(due) => drop(self.changed.wait_until(&mut state, due)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Has `start` start the thread, unless it runs or has ended.
    pub(crate) fn start(&self, start: impl FnOnce() -> std::io::Result<JoinHandle<()>>) {
        let mut state = self.state.lock();
        if state.is_stopping || state.thread.is_some() {
            return;
        }
        match start() {
            Ok(thread) => state.thread = Some(thread),
            Err(error) => {
                tracing::error!("cannot start the transaction thread (ulimit -u): {error}");
            }
        }
    }

    /// Whether the thread must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Ends the thread, and waits for it.
    pub(crate) fn stop(&self) {
        if let Some(thread) = self.end() {
            // A panic was caught and logged in the thread.
            let _ = thread.join();
        }
    }

    /// Tells the thread to end.
    pub(crate) fn end(&self) -> Option<JoinHandle<()>> {
        let mut state = self.state.lock();
        state.is_stopping = true;
        self.changed.notify_all();
        state.thread.take()
    }
}
