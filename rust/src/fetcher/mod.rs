//! The fetchers: threads that copy partitions from their leaders.
//!
//! ```text
//! mod         which thread fetches which partition; threads begin and end
//! thread      the loop of one thread: connect, ask, wait, append
//! partitions  the partitions of a thread, and which of them may have something to ask
//! session     the fetch session of a thread with its leader (KIP-227)
//! request     what is asked of a leader: Fetch, OffsetForLeaderEpoch, ListOffsets
//! response    what the leader's answers mean, partition by partition
//! ```
//! There are `num.replica.fetchers` threads for each leader, and a partition's name chooses one of
//! them. So a leader that does not answer holds up its own partitions alone. A thread without
//! partitions ends.
//! Threads: any thread may call [`Fetchers`]; its lock is held for a short time.
//! Promised: [`ReplicaFetchers::stop`] returns within the time of one append and 100 ms.
//! Not promised: that a partition is fetched. Its leader may be away.

mod partitions;
mod request;
mod response;
mod session;
mod thread;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use self::thread::{FetcherThread, Inbox, PartitionChange};
use crate::broker::fetching::{FetcherAssignment, ReplicaFetchers};
use crate::broker::image::PeerAddress;
use crate::broker::{Broker, Partition};
use crate::ids::{Epoch, TopicPartition};
use crate::storage::panics::caught;

/// A leader, and which of its threads.
type ThreadKey = (PeerAddress, usize);

/// The fetchers of a broker.
pub struct Fetchers {
    broker: Weak<Broker>,
    failed: Arc<AtomicBool>,
    state: Mutex<FetcherState>,
}

#[derive(Default)]
struct FetcherState {
    threads: HashMap<ThreadKey, RunningThread>,
    assigned: HashMap<TopicPartition, AssignedPartition>,
    /// Threads that were asked to end.
    ending: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

struct RunningThread {
    inbox: Arc<Inbox>,
    handle: JoinHandle<()>,
    /// How many partitions it has.
    partitions: usize,
}

struct AssignedPartition {
    partition: Arc<Partition>,
    leader_epoch: Epoch,
    thread: ThreadKey,
}

/// What is to be sent to each thread.
type Changes = HashMap<ThreadKey, Vec<PartitionChange>>;

impl Fetchers {
    /// Has `broker` fetch from its leaders from now on.
    pub fn start(broker: &Arc<Broker>) -> Arc<Self> {
        let fetchers = Arc::new(Self {
            broker: Arc::downgrade(broker),
            failed: Arc::default(),
            state: Mutex::default(),
        });
        broker.set_fetchers(Arc::clone(&fetchers) as _);
        fetchers
    }

    /// How many threads run.
    pub fn threads(&self) -> usize {
        self.state.lock().threads.len()
    }

    fn threads_per_leader(&self) -> usize {
        let settings = self.broker.upgrade().map(|broker| broker.settings());
        settings.map_or(1, |settings| settings.fetchers.threads.max(1))
    }

    /// Sends the changes, starts the threads that are missing, and ends those that have nothing to
    /// fetch any more.
    fn perform(&self, state: &mut FetcherState, changes: Changes) {
        for (key, changes) in changes {
            if let Some(thread) = state.threads.get(&key) {
                thread.inbox.post(changes);
            }
        }
        let idle = state.threads.extract_if(|_, thread| thread.partitions == 0);
        let ended: Vec<_> = idle.map(|(_, thread)| thread).collect();
        ended.iter().for_each(|thread| thread.inbox.stop());
        state.ending.extend(ended.into_iter().map(|thread| thread.handle));
        state.ending.retain(|handle| !handle.is_finished());
    }

    /// The thread of `key`, started if there is none.
    fn thread<'s>(
        &self,
        state: &'s mut FetcherState,
        key: &ThreadKey,
    ) -> Option<&'s mut RunningThread> {
        if !state.threads.contains_key(key) {
            let thread = self.spawn(key).inspect_err(|error| {
                tracing::error!("a fetcher of broker {} cannot start: {error}", key.0.broker);
                self.failed.store(true, Ordering::Release);
            });
            state.threads.insert(key.clone(), thread.ok()?);
        }
        state.threads.get_mut(key)
    }

    fn spawn(&self, (source, index): &ThreadKey) -> std::io::Result<RunningThread> {
        let inbox = Arc::<Inbox>::default();
        let name = format!("krust-fetch-{}-{index}", source.broker);
        let mut fetcher = FetcherThread::new(
            Weak::clone(&self.broker),
            (source.clone(), *index),
            Arc::clone(&inbox),
        );
        let failed = Arc::clone(&self.failed);
        let handle = std::thread::Builder::new().name(name.clone()).spawn(move || {
            if caught(&name, || fetcher.run()).is_none() {
                failed.store(true, Ordering::Release);
            }
        })?;
        Ok(RunningThread { inbox, handle, partitions: 0 })
    }

    /// Notes a change in the table, and what it means for threads.
    fn change(&self, state: &mut FetcherState, change: FetcherAssignment, changes: &mut Changes) {
        let FetcherAssignment { partition, source, leader_epoch } = change;
        let name = partition.name.clone();
        let threads = self.threads_per_leader();
        let thread = source.map(|source| (source, thread_index(&name, threads)));
        let before = state.assigned.get(&name);
        if let Some(before) = before {
            let is_same = Arc::ptr_eq(&before.partition, &partition);
            if is_same && before.leader_epoch > leader_epoch {
                return;
            }
            if is_same
                && before.leader_epoch == leader_epoch
                && Some(&before.thread) == thread.as_ref()
            {
                return;
            }
        }
        if let Some(before) = state.assigned.remove(&name) {
            if let Some(old) = state.threads.get_mut(&before.thread) {
                old.partitions -= 1;
            }
            if Some(&before.thread) != thread.as_ref() {
                let ends = PartitionChange::End(Arc::clone(&before.partition));
                changes.entry(before.thread).or_default().push(ends);
            }
        }
        let Some(thread) = thread else { return };
        let Some(running) = self.thread(state, &thread) else { return };
        running.partitions += 1;
        let begins = PartitionChange::Begin(Arc::clone(&partition), leader_epoch);
        changes.entry(thread.clone()).or_default().push(begins);
        state.assigned.insert(name, AssignedPartition { partition, leader_epoch, thread });
    }
}

impl ReplicaFetchers for Fetchers {
    fn assign(&self, changes: Vec<FetcherAssignment>) {
        let mut state = self.state.lock();
        if state.is_stopped {
            return;
        }
        let mut by_thread = Changes::new();
        for change in changes {
            self.change(&mut state, change, &mut by_thread);
        }
        self.perform(&mut state, by_thread);
    }

    fn reconfigure(&self) {
        let again: Vec<_> = {
            let state = self.state.lock();
            let of = |assigned: &AssignedPartition| FetcherAssignment {
                partition: Arc::clone(&assigned.partition),
                source: Some(assigned.thread.0.clone()),
                leader_epoch: assigned.leader_epoch,
            };
            state.assigned.values().map(of).collect()
        };
        self.assign(again);
    }

    fn stop(&self) {
        let handles = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            state.assigned.clear();
            let threads = std::mem::take(&mut state.threads);
            threads.values().for_each(|thread| thread.inbox.stop());
            let mut handles = std::mem::take(&mut state.ending);
            handles.extend(threads.into_values().map(|thread| thread.handle));
            handles
        };
        // A fetcher that drops the broker as the last one comes here itself.
        let here = std::thread::current().id();
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != here) {
            if handle.join().is_err() {
                tracing::error!("a fetcher panicked while it ended");
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl Drop for Fetchers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Which of a leader's threads fetches a partition.
fn thread_index(name: &TopicPartition, threads: usize) -> usize {
    let bytes = name
        .topic
        .bytes()
        .fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    bytes.wrapping_mul(31).wrapping_add(name.partition.unsigned_abs()) as usize % threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_of_a_topic_are_spread_over_the_threads() {
        let index = |partition| thread_index(&TopicPartition::new("orders", partition), 4);
        let mut seen: Vec<_> = (0..8).map(index).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 0, 1, 1, 2, 2, 3, 3]);
    }
}
