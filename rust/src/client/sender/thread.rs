//! The thread of a `Sender`: it builds the closed batches, sends them, looks topics up, makes the
//! calls on the transaction, and publishes the reports.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::open_batches::TopicState;
use super::state::{SenderShared, close, drain};
use super::transaction_calls::CallState;
use crate::client::producer::{AccumulatedBatch, DeliveryReport, Producer};
use crate::record::batch::BatchBuilder;

/// How often the thread checks for metadata that are under way.
const LOOKUP_POLL: Duration = Duration::from_millis(10);
/// How many emptied builders are kept for the next batches.
const SPARE_BUILDERS: usize = 16;
/// How many failures of batches without a callback are kept for `Sender::take_delivery_reports`.
const UNWATCHED_FAILURES_MAX: usize = 1000;

/// A topic to look up.
struct DueLookup {
    topic: Arc<str>,
    /// Older metadata are of no use.
    since: Instant,
}

/// The state of the thread.
pub(super) struct SenderThread {
    pub(super) shared: Arc<SenderShared>,
    pub(super) producer: Producer,
    pub(super) woken: UnixStream,
    pub(super) notifier: UnixStream,
    pub(super) backoff: Duration,
}

/// Wakes the callers that wait for the thread if it panics.
pub(super) struct PanicNotice(pub(super) Arc<SenderShared>);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            (state.ending, state.failed) = (true, true);
            self.0.changed.notify_all();
        }
    }
}

impl SenderThread {
    pub(super) fn run(mut self) {
        loop {
            let Some((closed, lookups)) = self.take_work() else { return };
            let mut spare = Vec::with_capacity(closed.len());
            for batch in closed {
                spare.push(self.producer.enqueue(batch));
            }
            for lookup in lookups {
                self.look_up_topic(&lookup);
            }
            if let Err(error) = self.producer.poll()
                && !error.retriable()
            {
                self.producer.fail(&error);
            }
            self.make_transaction_call();
            let delivery_reports = self.producer.take_delivery_reports();
            let until = self.publish(delivery_reports, spare);
            if let Some(until) = until {
                self.producer.sleep(self.woken.as_fd(), until);
                drain(&mut self.woken);
            }
        }
    }

    /// The closed batches and the topics to look up; `None`: the Sender is closed.
    fn take_work(&self) -> Option<(Vec<AccumulatedBatch>, Vec<DueLookup>)> {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if state.ending {
            return None;
        }
        let now = Instant::now();
        while let Some((topic, partition, ticket, due)) = state.open.front() {
            let batch = state.topics.get_mut(topic).and_then(|known| known.batch(*partition));
            let batch = batch.filter(|batch| batch.opened.is_some() && batch.ticket == *ticket);
            if let Some(batch) = batch {
                if !state.flushing && *due > now {
                    break;
                }
                batch.is_delayed = batch.is_busy();
                if !batch.is_delayed {
                    let spare = state.spare.pop().unwrap_or_default();
                    let place = (topic, *partition);
                    close(batch, place, spare, (&mut state.closed, &mut state.pending));
                }
                state.sticky.next();
            }
            state.open.pop_front();
        }
        state.flushing = false;
        let due = |known: &TopicState| known.lookup().filter(|lookup| lookup.at <= now);
        let lookup = |(topic, known): (&Arc<str>, &TopicState)| {
            Some(DueLookup { topic: Arc::clone(topic), since: due(known)?.since })
        };
        let lookups = state.topics.iter().filter_map(lookup).collect();
        Some((std::mem::take(&mut state.closed), lookups))
    }

    fn look_up_topic(&mut self, DueLookup { topic, since }: &DueLookup) {
        let found = self.producer.partitions(topic, *since).transpose();
        let times = (self.backoff, self.shared.times.max_block);
        if let Some(known) = self.shared.state.lock().topics.get_mut(topic) {
            match found {
                Some(found) => known.complete_lookup(topic, found, times),
                None => known.await_lookup(topic, LOOKUP_POLL, times.1),
            }
        }
        self.notify();
    }

    /// Publishes the reports. Returns how long to sleep; `None`: there is more work.
    fn publish(
        &mut self,
        delivery_reports: Vec<DeliveryReport>,
        spare: Vec<BatchBuilder>,
    ) -> Option<Option<Instant>> {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let room = SPARE_BUILDERS.saturating_sub(state.spare.len());
        state.spare.extend(spare.into_iter().take(room));
        state.transaction.refusal = self.producer.refusal();
        let has_reports = !delivery_reports.is_empty();
        for one in delivery_reports {
            let Some(pending) = state.pending.remove(&one.ticket) else { continue };
            state.held_bytes = state.held_bytes.saturating_sub(pending.size);
            if let Some(batch) =
                state.topics.get_mut(&one.topic).and_then(|topic| topic.batch(one.partition))
            {
                batch.unreported = batch.unreported.saturating_sub(1);
                if batch.is_delayed && !batch.is_busy() {
                    let spare = state.spare.pop().unwrap_or_default();
                    let place = (&one.topic, one.partition);
                    close(batch, place, spare, (&mut state.closed, &mut state.pending));
                }
            }
            let failed =
                !pending.watched && one.error.is_some() && state.unwatched < UNWATCHED_FAILURES_MAX;
            state.unwatched += usize::from(failed);
            if pending.watched || failed {
                state.delivery_reports.push(one);
            }
        }
        let lookups = state.topics.values().filter_map(|known| Some(known.lookup()?.at));
        let due = state.open.front().map(|(_, _, _, due)| *due);
        let until = lookups.chain(due).min();
        let more = state.ending
            || state.flushing
            || !state.closed.is_empty()
            || state.transaction.is_requested();
        state.asleep = if more { None } else { Some(until) };
        drop(guard);
        if has_reports {
            self.notify();
        }
        (!more).then_some(until)
    }

    /// Makes the call that a caller has left, if there is one.
    fn make_transaction_call(&mut self) {
        let (call, time) = {
            let mut state = self.shared.state.lock();
            match std::mem::take(&mut state.transaction.call) {
                CallState::Requested(call, time) => {
                    state.transaction.call = CallState::Running;
                    (call, time)
                }
                other => {
                    state.transaction.call = other;
                    return;
                }
            }
        };
        let wait = self.producer.wait(time);
        let answer = call.make(&mut self.producer, &wait);
        let mut state = self.shared.state.lock();
        state.transaction.call = CallState::Answered(answer.map(|handed_over| {
            state.transaction.handed_over = handed_over;
        }));
        state.transaction.refusal = self.producer.refusal();
        state.transaction.is_open = self.producer.in_transaction();
        drop(state);
        self.notify();
    }

    /// Wakes the callers that wait for a report.
    fn notify(&mut self) {
        self.shared.changed.notify_all();
        drop(self.notifier.write(&[1])); // full: it is readable
    }
}
