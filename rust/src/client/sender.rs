//! A producer with its own thread, as Kafka's KafkaProducer and Sender: callers append records, the
//! thread sends them.
//!
//! A caller appends a record to the open batch of its partition under one short lock. A batch is
//! closed when the next record does not fit, or when `linger` has passed and fewer batches of the
//! partition are unreported than may be in flight: a partition that cannot be written to fast, or
//! at all, gets few large batches instead of many small ones. The thread builds the batch
//! (compression, checksum), sends it and takes the response. The thread also looks up new topics.
//! While a topic is looked up or the buffer is full, [`Sender::try_append`] returns
//! [`AppendResult::Wait`]; [`Sender::wait_for`] waits.
//! ```text
//! append --full, linger, flush--> closed --thread: build, send--> reported -->
//! take_delivery_reports
//! ```
//! Invariant: `held_bytes` = uncompressed bytes of all batches that are not delivered. A record is
//!     appended while `held_bytes` is below `buffer_bytes`, so it exceeds that by one record at
//!     most.
//! Threads: any caller. Each Sender has one thread, from its creation to [`Sender::close`]. The
//!     lock is never held while anything waits, so callers may hold other locks.
//! Not promised: that open batches are sent if a Sender is dropped without [`Sender::flush`].

mod open_batches;
mod state;
mod thread;
mod transaction_calls;
mod transactions;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::cluster::Cluster;
use super::error::{Error, Result};
use super::options::{ClientOptions, Wait};
use super::partitioner::{StickyPartitioner, by_key};
use super::producer::{DeliveryReport, Producer, ProducerConfig};
use crate::record::batch::NewRecord;
pub use open_batches::MetadataTimes;
use open_batches::{TopicLookup, TopicState};
use state::{AbortInterrupt, SenderShared, SenderState, close, closed, drain};
use thread::{PanicNotice, SenderThread};
use transaction_calls::TransactionCalls;

/// The most bytes that a record's lengths, deltas and attributes take.
const RECORD_OVERHEAD: usize = 36;

/// The result of [`Sender::try_append`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendResult {
    /// The record is number `index` of batch `ticket`.
    Appended {
        /// The number of the batch in its [`DeliveryReport`].
        ticket: u64,
        /// The record's number in the batch, from 0.
        index: i32,
    },
    /// Not appended: the topic is not known yet, or the buffer is full.
    Wait,
}

/// A producer with its own thread (see the module).
pub struct Sender {
    shared: Arc<SenderShared>,
    options: ClientOptions,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The thread writes to the other end when there are reports; `None` after `close`.
    notified: Mutex<Option<UnixStream>>,
    /// Held by the caller of a call on the transaction.
    transaction_caller: Mutex<()>,
    pid: u32,
}

impl Sender {
    /// A sender to the cluster of `options`. Their interrupt ends the waits of callers.
    pub fn new(
        options: ClientOptions,
        config: ProducerConfig,
        times: MetadataTimes,
    ) -> Result<Self> {
        let (wake, woken) = pair()?;
        let (notifier, notified) = pair()?;
        let seed = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9);
        let state = SenderState {
            topics: HashMap::new(),
            open: VecDeque::new(),
            closed: Vec::new(),
            pending: HashMap::new(),
            delivery_reports: Vec::new(),
            unwatched: 0,
            spare: Vec::new(),
            sticky: StickyPartitioner::new(seed),
            next_ticket: 1,
            held_bytes: 0,
            flushing: false,
            asleep: None,
            ending: false,
            transaction: TransactionCalls::of(&config),
            failed: false,
            wake: Some(wake),
        };
        let shared = Arc::new(SenderShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            linger: config.linger,
            delay_max: config.delay_max(),
            batch_bytes: config.batch_bytes,
            buffer_bytes: config.buffer_bytes,
            times,
            abort: AtomicBool::new(false),
        });
        let interrupt = Arc::new(AbortInterrupt(Arc::clone(&shared)));
        let cluster = Cluster::new(ClientOptions { interrupt, ..options.clone() });
        let (shared_too, backoff) = (Arc::clone(&shared), options.retry_backoff);
        let producer = Producer::new(cluster, config)?;
        let work = SenderThread { shared: shared_too, producer, woken, notifier, backoff };
        let thread = std::thread::Builder::new()
            .name("krust-sender".to_owned())
            .spawn(move || {
                let _ended = PanicNotice(Arc::clone(&work.shared));
                work.run();
            })
            .map_err(|error| Error::Invalid(format!("no thread can be started: {error}")))?;
        let (thread, notified) = (Mutex::new(Some(thread)), Mutex::new(Some(notified)));
        let (transaction_caller, pid) = (Mutex::new(()), std::process::id());
        Ok(Self { shared, options, thread, notified, transaction_caller, pid })
    }

    /// Appends a record if that is possible without waiting. Without a partition, the key decides.
    /// With `watch`, the batch's report is kept even if it is a success.
    pub fn try_append(
        &self,
        topic: &str,
        partition: Option<i32>,
        (entry, watch): (&NewRecord<'_>, bool),
    ) -> Result<AppendResult> {
        let shared = &*self.shared;
        let mut guard = shared.state.lock();
        let Some(name) = shared.ready_topic(&mut guard, topic)? else {
            return Ok(AppendResult::Wait);
        };
        let state = &mut *guard;
        let Some(TopicState::Known(partitions)) = state.topics.get_mut(topic) else {
            return Ok(AppendResult::Wait);
        };
        let is_sticky = partition.is_none() && entry.key.is_none();
        let partition = match (partition, entry.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => by_key(key, partitions.count),
            (None, None) => state.sticky.current(partitions.count),
        };
        let Some(batch) = partitions.open_batch(partition) else {
            partitions.await_partition(topic, partition)?;
            shared.wake(&mut guard);
            return Ok(AppendResult::Wait);
        };
        let size = size(entry);
        let (mut wake, mut opened) = (false, None);
        let is_full = batch.builder.size() + size > shared.batch_bytes;
        if batch.opened.is_some_and(|at| is_full || batch.has_waited(at, shared.delay_max)) {
            let spare = state.spare.pop().unwrap_or_default();
            close(batch, (&name, partition), spare, (&mut state.closed, &mut state.pending));
            state.sticky.next();
            wake = true;
        }
        if batch.opened.is_none() {
            let now = Instant::now();
            (batch.opened, opened) = (Some(now), Some(now));
            (batch.ticket, batch.watched) = (state.next_ticket, false);
            state.next_ticket += 1;
            let due = now + shared.linger;
            state.open.push_back((name, partition, batch.ticket, due));
            wake |= matches!(state.asleep, Some(until) if until.is_none_or(|until| due < until));
        }
        let before = batch.builder.size();
        batch.builder.add(entry);
        batch.watched |= watch;
        if batch.is_delayed && is_sticky {
            state.sticky.next(); // the next record goes to a partition that may take it
        }
        let (ticket, index) = (batch.ticket, batch.builder.count() - 1);
        state.held_bytes += batch.builder.size() - before;
        wake |= opened.is_some_and(|now| {
            partitions.begin_refresh_if_stale(now, shared.times.metadata_max_age)
        });
        if wake {
            shared.wake(&mut guard);
        }
        Ok(AppendResult::Appended { ticket, index })
    }

    /// Waits until `try_append` to this topic may succeed, for `max_block` at most.
    pub fn wait_for(&self, topic: &str) -> Result<()> {
        let wait = self.options.wait(self.shared.times.max_block + Duration::from_secs(1));
        let mut state = self.shared.state.lock();
        loop {
            let waits = state.topics.get(topic).is_some_and(TopicState::blocks_callers)
                || state.held_bytes >= self.shared.buffer_bytes;
            if !waits || state.ending || state.transaction.refusal.is_some() {
                return Ok(());
            }
            self.pause(&mut state, &wait)?;
        }
    }

    /// The number of a topic's partitions. `None`: it is unknown; the thread looks it up.
    pub fn partitions(&self, topic: &str) -> Result<Option<i32>> {
        let mut state = self.shared.state.lock();
        match state.topics.get(topic) {
            Some(TopicState::Known(partitions)) => Ok(Some(partitions.count)),
            Some(TopicState::Failed(error)) => {
                let error = error.clone();
                state.topics.remove(topic);
                Err(error)
            }
            Some(TopicState::LookingUp(..)) => Ok(None),
            None => {
                state.topics.insert(Arc::from(topic), TopicState::LookingUp(TopicLookup::now()));
                self.shared.wake(&mut state);
                Ok(None)
            }
        }
    }

    /// Closes every open batch and waits until all are delivered or `time` is over (zero: does not
    /// wait). Returns how many batches are left.
    pub fn flush(&self, time: Duration) -> Result<usize> {
        let wait = self.options.wait(time);
        let mut state = self.shared.state.lock();
        loop {
            // Where a batch is delayed, others are pending.
            let left = state.open.len() + state.pending.len();
            if left == 0 {
                return Ok(0);
            }
            if state.failed {
                return Err(Error::Invalid(
                    "the producer's thread ended by a bug: what it holds is lost".to_owned(),
                ));
            }
            state.flushing = true;
            self.shared.wake(&mut state);
            if wait.left().is_zero() {
                return Ok(left + state.topics.values().map(TopicState::delayed).sum::<usize>());
            }
            match self.pause(&mut state, &wait) {
                Err(Error::Timeout { .. }) => {}
                other => other?,
            }
        }
    }

    /// Ends the thread within 100 ms, and its connections. Batches that are not delivered yet are
    /// not reported any more.
    pub fn close(&self) {
        self.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join()); // the panic hook has printed a panic of that thread
        }
        self.shared.state.lock().wake = None;
        self.notified.lock().take();
    }

    /// The reports since the last call: on batches with a callback, and on failed ones.
    pub fn take_delivery_reports(&self) -> Vec<DeliveryReport> {
        if let Some(notified) = &mut *self.notified.lock() {
            drain(notified);
        }
        let mut state = self.shared.state.lock();
        state.unwatched = 0;
        std::mem::take(&mut state.delivery_reports)
    }

    /// A descriptor that is readable when there are delivery reports, or when `try_append` may
    /// succeed again. It is valid until `close`.
    pub fn notification_fd(&self) -> Result<RawFd> {
        self.notified.lock().as_ref().map(AsRawFd::as_raw_fd).ok_or_else(closed)
    }

    /// Bytes of records that are not delivered.
    pub fn held_bytes(&self) -> usize {
        self.shared.state.lock().held_bytes
    }

    fn pause(&self, state: &mut MutexGuard<'_, SenderState>, wait: &Wait) -> Result<()> {
        // The caller's interrupt may need other locks.
        let slice = MutexGuard::unlocked(state, || wait.slice(&"the producer's buffer"))?;
        self.shared.changed.wait_for(state, slice);
        Ok(())
    }

    fn end(&self) {
        self.shared.abort.store(true, Ordering::Relaxed);
        let mut state = self.shared.state.lock();
        state.ending = true;
        self.shared.wake(&mut state);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // A forked child does not have the thread, and another thread may have held the lock.
        if std::process::id() == self.pid {
            self.end();
        }
    }
}

/// The most bytes that a record takes.
fn size(entry: &NewRecord<'_>) -> usize {
    let headers =
        entry.headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 10);
    RECORD_OVERHEAD
        + entry.key.map_or(0, <[u8]>::len)
        + entry.value.map_or(0, <[u8]>::len)
        + headers.sum::<usize>()
}

/// A pair of non-blocking sockets.
fn pair() -> Result<(UnixStream, UnixStream)> {
    let failed = |error: std::io::Error| Error::Invalid(format!("no descriptor is left: {error}"));
    let (one, two) = UnixStream::pair().map_err(failed)?;
    one.set_nonblocking(true).map_err(failed)?;
    two.set_nonblocking(true).map_err(failed)?;
    Ok((one, two))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::batch::BatchBuilder;

    #[test]
    fn a_record_takes_at_most_its_estimated_size() {
        let long = vec![7; 3 << 20];
        let mut builder = BatchBuilder::new();
        for timestamp in [0, i64::MAX, i64::MIN] {
            for some in [None, Some(&[][..]), Some(&long[..])] {
                let headers = [("", None), ("name", some)];
                let entry = NewRecord { timestamp, key: some, value: some, headers: &headers };
                let before = builder.size();
                builder.add(&entry);
                let took = builder.size() - before;
                assert!(took <= size(&entry), "{took} > {}", size(&entry));
            }
        }
    }
}
