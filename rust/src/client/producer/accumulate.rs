//! The part of a producer that its sender thread calls: adding closed batches to the queues, and a
//! sleep that ends when there is work.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Producer;
use super::batches::{AccumulatedBatch, DeliveryReport, ProducerBatch};
use crate::client::metadata::PartitionKey;
use crate::client::options::Wait;
use crate::client::{Error, Result};
use crate::record::batch::{BatchBuilder, BatchFields};

/// The longest sleep while a batch is not acknowledged. Expired batches are searched for this
/// often.
const NAP: Duration = Duration::from_millis(50);

impl Producer {
    /// Adds a batch to its queue and returns the emptied builder. A batch that cannot be built is
    /// reported with an error.
    pub fn enqueue(&mut self, filled: AccumulatedBatch) -> BatchBuilder {
        let AccumulatedBatch { topic, partition, mut builder, opened, ticket } = filled;
        let count = builder.count();
        let key = (topic, partition);
        if let Err(error) = self.seal(&key, &mut builder, (opened, ticket)) {
            let ((topic, partition), error) = (key, Some(error));
            let base_offset = -1;
            self.delivery_reports.push(DeliveryReport {
                topic,
                partition,
                ticket,
                base_offset,
                count,
                error,
            });
        }
        builder.clear();
        builder
    }

    /// Builds a batch and adds it to the end of its queue.
    pub(super) fn seal(
        &mut self,
        key: &PartitionKey,
        builder: &mut BatchBuilder,
        (opened, ticket): (Instant, u64),
    ) -> Result<()> {
        if self.transaction.is_some() {
            self.transaction_identity()?;
        }
        let count = builder.count();
        let fields = BatchFields {
            codec: self.config.codec,
            level: self.config.level,
            transactional: self.transaction.is_some(),
            ..BatchFields::default()
        };
        let bytes = builder.to_bytes(&fields);
        builder.clear();
        let bytes = bytes.map_err(|error| Error::Invalid(error.to_string()))?;
        self.held_bytes += bytes.len();
        self.next_number += 1;
        let expires = opened + self.config.delivery_timeout;
        self.accumulator.entry(key.clone()).or_default().queue.push_back(ProducerBatch {
            bytes,
            count,
            number: self.next_number,
            identity: None,
            base_sequence: -1,
            expires,
            ticket,
        });
        Ok(())
    }

    /// The number of a topic's partitions by metadata that were requested after `since`; `None`:
    /// they have not arrived yet.
    pub fn partitions(&mut self, topic: &str, since: Instant) -> Result<Option<i32>> {
        let create = self.config.create_topics;
        let cached = self.cluster.topic_in_background(topic, create, Some(since))?;
        let new = cached.filter(|cached| cached.requested_at >= since);
        let count = |partitions: usize| i32::try_from(partitions).unwrap_or(i32::MAX);
        Ok(new.map(|cached| count(cached.topic.partitions.len())))
    }

    /// A wait that ends `time` from now, or when the producer is interrupted.
    pub fn wait(&self, time: Duration) -> Wait {
        self.cluster.options().wait(time)
    }

    /// Reports every queued batch as failed.
    pub fn fail(&mut self, error: &Error) {
        self.fail_queued(error, |_| true);
    }

    /// Reports every queued batch of these partitions as failed.
    pub(super) fn fail_queued(&mut self, error: &Error, of: impl Fn(&PartitionKey) -> bool) {
        let keys: Vec<_> = self.accumulator.keys().filter(|key| of(key)).cloned().collect();
        for key in keys {
            let queue: Vec<ProducerBatch> = match self.accumulator.get_mut(&key) {
                Some(partition_batches) => partition_batches.queue.drain(..).collect(),
                None => continue,
            };
            for batch in queue {
                self.report_delivery(&key, &batch, (-1, Some(error.clone())));
                self.abandon_sequences(&key, batch.identity, error);
            }
        }
    }

    /// Sleeps until a response comes, `wake` is readable, `until` has passed or a batch may expire.
    pub fn sleep(&self, wake: BorrowedFd<'_>, until: Option<Instant>) {
        let now = Instant::now();
        let waiting = self.accumulator.values().filter(|batches| !batches.queue.is_empty());
        let retries = waiting.filter_map(|batches| batches.retry_at).filter(|at| now < *at);
        let until = retries.chain(until).chain(self.retry_at).min();
        let mut time = until.map(|at| at.saturating_duration_since(now));
        if self.held_bytes > 0 {
            time = Some(time.map_or(NAP, |time| time.min(NAP)));
        }
        let busy = self
            .in_flight_requests
            .iter()
            .filter(|(_, in_flight_requests)| !in_flight_requests.is_empty());
        let mut fds: Vec<_> = busy
            .filter_map(|(node, _)| self.cluster.peek(*node))
            .map(|connection| PollFd::new(connection.socket(), PollFlags::IN))
            .collect();
        fds.push(PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let time = time.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        if poll(&mut fds, time.as_ref()).is_err() {
            // A signal: the caller checks for work and sleeps again.
        }
    }
}
