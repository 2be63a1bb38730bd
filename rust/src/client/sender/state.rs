//! What the callers of a `Sender` and its thread share: the batches, open and closed, the call on
//! the transaction, and the wake-up.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::open_batches::{MetadataTimes, OpenBatch, TopicLookup, TopicState};
use super::transaction_calls::TransactionCalls;
use crate::client::options::Interrupt;
use crate::client::partitioner::StickyPartitioner;
use crate::client::producer::{AccumulatedBatch, DeliveryReport};
use crate::client::{Error, Result};
use crate::record::batch::BatchBuilder;

/// A closed batch that is not reported yet.
pub(super) struct PendingBatch {
    pub(super) size: usize,
    pub(super) watched: bool,
}

pub(super) struct SenderState {
    pub(super) topics: HashMap<Arc<str>, TopicState>,
    /// Open batches in the order of opening: topic, partition, ticket, when `linger` is over.
    pub(super) open: VecDeque<(Arc<str>, i32, u64, Instant)>,
    pub(super) closed: Vec<AccumulatedBatch>,
    pub(super) pending: HashMap<u64, PendingBatch>,
    pub(super) delivery_reports: Vec<DeliveryReport>,
    /// How many of those reports have no callback.
    pub(super) unwatched: usize,
    pub(super) spare: Vec<BatchBuilder>,
    pub(super) sticky: StickyPartitioner,
    pub(super) next_ticket: u64,
    pub(super) held_bytes: usize,
    /// A caller flushes: the thread closes all open batches, those of busy partitions later.
    pub(super) flushing: bool,
    pub(super) asleep: Option<Option<Instant>>,
    pub(super) ending: bool,
    pub(super) transaction: TransactionCalls,
    /// The thread panicked: no batch is delivered any more.
    pub(super) failed: bool,
    /// Wakes the thread; `None` after it has ended.
    pub(super) wake: Option<UnixStream>,
}

pub(super) struct SenderShared {
    pub(super) state: Mutex<SenderState>,
    pub(super) changed: Condvar,
    pub(super) linger: Duration,
    /// How long a delayed batch takes records, which share the delivery time of its first one.
    pub(super) delay_max: Duration,
    pub(super) batch_bytes: usize,
    pub(super) buffer_bytes: usize,
    pub(super) times: MetadataTimes,
    /// Ends every wait of the thread.
    pub(super) abort: AtomicBool,
}

/// Ends the waits of the thread when the Sender is closed or dropped.
pub(super) struct AbortInterrupt(pub(super) Arc<SenderShared>);

impl Interrupt for AbortInterrupt {
    fn interrupted(&self) -> bool {
        self.0.abort.load(Ordering::Relaxed)
    }
}

impl SenderShared {
    /// The topic's name if records of it can be appended now; `None`: not yet.
    pub(super) fn ready_topic(
        &self,
        guard: &mut MutexGuard<'_, SenderState>,
        topic: &str,
    ) -> Result<Option<Arc<str>>> {
        let state = &mut **guard;
        if state.ending {
            return Err(closed());
        }
        if let Some(refusal) = &state.transaction.refusal {
            return Err(refusal.clone());
        }
        let full = state.held_bytes >= self.buffer_bytes;
        match state.topics.get_key_value(topic) {
            Some((name, TopicState::Known(_))) if !full => return Ok(Some(Arc::clone(name))),
            Some((_, TopicState::Failed(error))) => {
                let error = error.clone();
                state.topics.remove(topic);
                return Err(error);
            }
            Some((_, TopicState::LookingUp(..))) => return Ok(None),
            Some((_, TopicState::Known(_))) => {
                // The buffer is full: open batches are sent early if nothing else makes room.
                state.flushing |= state.closed.is_empty() && state.pending.is_empty();
            }
            None => {
                state.topics.insert(Arc::from(topic), TopicState::LookingUp(TopicLookup::now()));
            }
        }
        self.wake(guard);
        Ok(None)
    }

    pub(super) fn wake(&self, state: &mut MutexGuard<'_, SenderState>) {
        if state.asleep.take().is_some()
            && let Some(wake) = &mut state.wake
        {
            drop(wake.write(&[1])); // full: it is awake
        }
    }
}

/// Closes an open batch.
pub(super) fn close(
    batch: &mut OpenBatch,
    (topic, partition): (&Arc<str>, i32),
    spare: BatchBuilder,
    (closed, pending): (&mut Vec<AccumulatedBatch>, &mut HashMap<u64, PendingBatch>),
) {
    let Some(opened) = batch.opened.take() else { return };
    batch.is_delayed = false;
    batch.unreported += 1;
    let builder = std::mem::replace(&mut batch.builder, spare);
    let size = builder.size() - batch.builder.size();
    pending.insert(batch.ticket, PendingBatch { size, watched: batch.watched });
    let (topic, ticket) = (Arc::clone(topic), batch.ticket);
    closed.push(AccumulatedBatch { topic, partition, builder, opened, ticket });
}

/// Reads everything from a non-blocking socket.
pub(super) fn drain(end: &mut UnixStream) {
    let mut rest = [0; 64];
    while matches!(end.read(&mut rest), Ok(count) if count == rest.len()) {}
}

pub(super) fn closed() -> Error {
    Error::Invalid("this producer is closed".to_owned())
}
