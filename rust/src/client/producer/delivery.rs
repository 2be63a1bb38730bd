//! The outcome of each batch: it is reported, or returns to its position in the queue.
//!
//! OUT_OF_ORDER_SEQUENCE_NUMBER means that the leader lacks an earlier batch. If that batch waits
//! to be sent again, this one does so too. Otherwise the leader has lost an acknowledged batch, or
//! an earlier batch failed for good: the batch fails, so that the caller notices the gap. (Kafka's
//! client takes a new epoch and sends the batch again.)

use std::collections::VecDeque;
use std::time::Instant;

use super::Producer;
use super::batches::{DeliveryReport, PartitionBatches, ProducerBatch};
use super::coordinator::{CONCURRENT_BACKOFF, CONCURRENT_TRANSACTIONS};
use super::transaction::TransactionManager;
use crate::client::metadata::PartitionKey;
use crate::client::{Error, Result};

const MESSAGE_TOO_LARGE: i16 = 10;
const OUT_OF_ORDER_SEQUENCE: i16 = 45;
const DUPLICATE_SEQUENCE: i16 = 46;

impl Producer {
    /// Handles the outcome of one batch: reports it, or puts it back in its place in the queue.
    pub(super) fn complete_batch(
        &mut self,
        key: &PartitionKey,
        batch: ProducerBatch,
        outcome: Result<i64>,
    ) {
        let Some(partition_batches) = self.accumulator.get_mut(key) else { return };
        partition_batches.in_flight = partition_batches.in_flight.saturating_sub(1);
        let is_current = batch.identity.is_some() && self.identity == batch.identity;
        partition_batches.first_acknowledged |= is_current && outcome.is_ok();
        partition_batches.last_error.take_if(|_| outcome.is_ok());
        let may_retry = self.transaction.as_ref().is_none_or(TransactionManager::may_retry);
        let again = match &outcome {
            Ok(_) | Err(Error::Refused { code: DUPLICATE_SEQUENCE, .. }) => false,
            // An earlier batch was refused; this one only reached the broker before the retry.
            Err(Error::Refused { code: OUT_OF_ORDER_SEQUENCE, .. }) => partition_batches.muted,
            // The previous transaction is still being ended.
            Err(Error::Refused { code: CONCURRENT_TRANSACTIONS, .. }) => true,
            Err(error) => error.retriable() || *error == Error::Interrupted,
        };
        if again && may_retry {
            let at = partition_batches.queue.partition_point(|other| other.number < batch.number);
            partition_batches.queue.insert(at, batch);
            partition_batches.muted = true;
            partition_batches.last_error = outcome.as_ref().err().cloned();
            let (now, backoff) = (Instant::now(), self.cluster.options().retry_backoff);
            partition_batches.retry_at = Some(now + backoff);
            match outcome {
                Err(Error::Refused { code: CONCURRENT_TRANSACTIONS, .. }) => {
                    partition_batches.retry_at = Some(now + backoff.min(CONCURRENT_BACKOFF));
                }
                Err(error) if error.stale_metadata() => {
                    partition_batches.fail(now, backoff);
                    self.cluster.doubt(&key.0);
                }
                _ => {}
            }
        } else {
            let error = outcome.as_ref().err().filter(|error| error.code() != DUPLICATE_SEQUENCE);
            let leader = partition_batches.leader;
            let error = error.cloned().map(|error| with_details(error, leader, &batch));
            self.report_delivery(key, &batch, (outcome.unwrap_or(-1), error.clone()));
            if let Some(error) = error {
                self.abandon_sequences(key, batch.identity, &error);
            }
        }
        if let Some(partition_batches) = self
            .accumulator
            .get_mut(key)
            .filter(|partition_batches| partition_batches.in_flight == 0)
        {
            partition_batches.muted = false;
        }
    }

    pub(super) fn report_delivery(
        &mut self,
        key: &PartitionKey,
        batch: &ProducerBatch,
        (base_offset, error): (i64, Option<Error>),
    ) {
        self.held_bytes = self.held_bytes.saturating_sub(batch.bytes.len());
        let ((topic, partition), count, ticket) = (key.clone(), batch.count, batch.ticket);
        if error.is_none() {
            self.note_written(key, base_offset, count);
        }
        self.delivery_reports.push(DeliveryReport {
            topic,
            partition,
            ticket,
            base_offset,
            count,
            error,
        });
    }

    /// Gives up an identity after one of its batches failed for good. The batch's sequence numbers
    /// are a gap that the broker does not accept, so the batches behind it that were sent before
    /// fail too: they may be written. All others get a new producer id. An identity that is given
    /// up already has no effect on the next one. `None`: the batch had no sequence number.
    pub(super) fn abandon_sequences(
        &mut self,
        key: &PartitionKey,
        identity: Option<(i64, i16)>,
        error: &Error,
    ) {
        if !self.config.idempotent {
            return;
        }
        if self.transaction.is_some() {
            self.fail_transaction(error);
            return;
        }
        if identity.is_none() {
            return;
        }
        if self.identity == identity {
            self.identity = None;
            for partition_batches in self.accumulator.values_mut() {
                partition_batches.next_sequence = 0;
                partition_batches.first_acknowledged = false;
            }
        }
        let Some(partition_batches) = self.accumulator.get_mut(key) else { return };
        let queue = std::mem::take(&mut partition_batches.queue);
        let (behind, others): (VecDeque<_>, VecDeque<_>) =
            queue.into_iter().partition(|batch| batch.identity == identity);
        partition_batches.queue = others;
        for batch in behind {
            self.report_delivery(key, &batch, (-1, Some(error.clone())));
        }
    }

    /// Fails queued batches whose delivery time is over.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        let due = |partition_batches: &PartitionBatches| {
            partition_batches.queue.front().is_some_and(|head| head.expires <= now)
        };
        let late: Vec<PartitionKey> = self
            .accumulator
            .iter()
            .filter(|(_, partition_batches)| due(partition_batches))
            .map(|(key, _)| key.clone())
            .collect();
        for key in late {
            let last = self.accumulator.get_mut(&key).and_then(|it| it.last_error.take());
            let place = match &last {
                Some(refused @ Error::Refused { .. }) => refused.to_string(),
                _ => format!("{}:{}", key.0, key.1),
            };
            let subject = match (self.cluster.options().reachability.unreachable(), last) {
                (Some((address, Some(why))), _) => {
                    format!("{place} (cannot connect to {address}: {why})")
                }
                (_, Some(last)) if !matches!(last, Error::Refused { .. }) => {
                    format!("{place} ({last})")
                }
                _ => place,
            };
            let error = Error::Timeout { subject };
            while let Some(partition_batches) =
                self.accumulator.get_mut(&key).filter(|partition_batches| due(partition_batches))
            {
                let Some(head) = partition_batches.queue.pop_front() else { break };
                self.report_delivery(&key, &head, (-1, Some(error.clone())));
                self.abandon_sequences(&key, head.identity, &error);
            }
        }
    }
}

/// Adds to a refusal what the broker leaves out: the size of a batch that is too large, or which
/// sequence number of which producer does not follow on which broker.
fn with_details(error: Error, leader: i32, batch: &ProducerBatch) -> Error {
    match error {
        Error::Refused { code: MESSAGE_TOO_LARGE, subject, message: None } => {
            let (bytes, records) = (batch.bytes.len(), batch.count);
            let plural = if records == 1 { "" } else { "s" };
            let what = format!("a batch of {bytes} bytes ({records} record{plural})");
            let message = Some(format!("{what} is larger than max.message.bytes of the topic"));
            Error::Refused { code: MESSAGE_TOO_LARGE, subject, message }
        }
        Error::Refused { code: OUT_OF_ORDER_SEQUENCE, subject, message: None } => {
            let (first, (id, epoch)) = (batch.base_sequence, batch.identity.unwrap_or((-1, -1)));
            let message = Some(format!(
                "broker {leader} does not have the record before sequence number {first} of \
                 producer {id} in epoch {epoch}"
            ));
            Error::Refused { code: OUT_OF_ORDER_SEQUENCE, subject, message }
        }
        other => other,
    }
}
