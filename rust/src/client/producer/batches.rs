//! The data of a producer: its configuration, the batches of each partition, the request for its
//! id, and the report on each batch. [`Producer`](super::Producer) decides what happens to a batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Error;
use crate::client::cluster::AnyBrokerCall;
use crate::record::batch::{BatchBuilder, Header};
use crate::record::compression::Codec;

/// Batches of one partition in flight; a broker remembers as many.
pub(in crate::client) const MAX_IN_FLIGHT_BATCHES: usize = 5;

/// The configuration of a producer.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// 0: no response; 1: after the leader has written the batch; -1: after all in-sync replicas
    /// have it.
    pub acks: i16,
    /// The codec of every batch.
    pub codec: Codec,
    /// Its level; `None`: the codec's default.
    pub level: Option<i32>,
    /// A batch of this size is closed (`batch.size`).
    pub batch_bytes: usize,
    /// How long an open batch waits for more records (`linger.ms`).
    pub linger: Duration,
    /// The largest request; a single larger batch is sent alone (`max.request.size`).
    pub request_bytes: usize,
    /// How many bytes of records may wait for their acknowledgement (`buffer.memory`).
    pub buffer_bytes: usize,
    /// How long a record may take from `send` to its acknowledgement (`delivery.timeout.ms`).
    pub delivery_timeout: Duration,
    /// Retries write no record twice (`enable.idempotence`); needs acks -1.
    pub idempotent: bool,
    /// The name of its transactions (`transactional.id`): one producer uses it at a time.
    pub transactional_id: Option<String>,
    /// After this time the coordinator aborts an open transaction (`transaction.timeout.ms`).
    pub transaction_timeout: Duration,
    /// Whether the broker may create a topic that does not exist.
    pub create_topics: bool,
}

impl ProducerConfig {
    /// How long an open batch takes records whose partition is busy. They share the delivery time
    /// of its first one.
    pub fn delay_max(&self) -> Duration {
        self.delivery_timeout / 10
    }
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            acks: -1,
            codec: Codec::None,
            level: None,
            batch_bytes: 256 << 10,
            linger: Duration::from_millis(5),
            request_bytes: 1 << 20,
            buffer_bytes: 32 << 20,
            delivery_timeout: Duration::from_secs(120),
            idempotent: false,
            transactional_id: None,
            transaction_timeout: Duration::from_secs(60),
            create_topics: true,
        }
    }
}

/// The InitProducerId request that is under way.
#[derive(Default)]
pub(super) struct IdentityRequest {
    pub(super) current: Option<AnyBrokerCall>,
    /// How many have failed one after the other.
    pub(super) failed: u32,
    /// None begins before.
    pub(super) retry_at: Option<Instant>,
}

/// The outcome of one batch.
#[derive(Clone, Debug)]
pub struct DeliveryReport {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// The ticket of its [`AccumulatedBatch`]; 0 for a batch of `send`.
    pub ticket: u64,
    /// The offset of its first record; -1 if the broker did not say.
    pub base_offset: i64,
    /// How many records it has.
    pub count: i32,
    /// Why it was not acknowledged.
    pub error: Option<Error>,
}

/// A closed batch.
pub(super) struct ProducerBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) count: i32,
    /// Ascends in the order in which batches are closed.
    pub(super) number: u64,
    /// Producer id and epoch, from the first time it is sent; `None` without idempotence.
    pub(super) identity: Option<(i64, i16)>,
    pub(super) base_sequence: i32,
    pub(super) expires: Instant,
    pub(super) ticket: u64,
}

impl ProducerBatch {
    /// Numbers the records: a broker accepts them once and in this order.
    fn set_sequence(&mut self, identity: (i64, i16), base_sequence: i32) {
        let (producer_id, producer_epoch) = identity;
        let built = Header::read(&self.bytes).unwrap_or_default();
        let header = Header { producer_id, producer_epoch, base_sequence, ..built };
        if header.seal_into(&mut self.bytes, 0).is_ok() {
            (self.identity, self.base_sequence) = (Some(identity), base_sequence);
        }
    }
}

/// The batches of one partition: the open one, and those that wait to be sent.
#[derive(Default)]
pub(super) struct PartitionBatches {
    pub(super) builder: BatchBuilder,
    pub(super) opened: Option<Instant>,
    pub(super) queue: VecDeque<ProducerBatch>,
    pub(super) in_flight: usize,
    /// The broker to which the last batch was sent.
    pub(super) leader: i32,
    /// Nothing is sent before.
    pub(super) retry_at: Option<Instant>,
    /// When the leader was found to be gone. The next request waits for newer metadata.
    pub(super) failed_at: Option<Instant>,
    /// Why the last batch came back that will be sent again, until one is acknowledged.
    pub(super) last_error: Option<Error>,
    /// A batch must be retried. The partition waits until its other batches in flight are answered.
    pub(super) muted: bool,
    /// A batch of the current producer id was acknowledged. Before that a broker accepts any
    /// sequence number as the first, so a second batch in flight could overtake the first one for
    /// ever.
    pub(super) first_acknowledged: bool,
    pub(super) next_sequence: i32,
}

impl PartitionBatches {
    /// Whether as many closed batches wait or are in flight as may be in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.queue.len() + self.in_flight >= MAX_IN_FLIGHT_BATCHES
    }

    /// Whether no closed batch waits or is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0
    }

    /// The next batch to send, with a sequence number if `identity` is given and it has none.
    pub(super) fn take_next(&mut self, identity: Option<(i64, i16)>) -> Option<ProducerBatch> {
        let mut head = self.queue.pop_front()?;
        if let (Some(identity), None) = (identity, head.identity) {
            head.set_sequence(identity, self.next_sequence);
            // Sequences wrap from 2^31 - 1 to 0.
            self.next_sequence = self.next_sequence.wrapping_add(head.count) & i32::MAX;
        }
        Some(head)
    }

    /// The leader is gone: the next request waits for newer metadata.
    pub(super) fn fail(&mut self, now: Instant, backoff: Duration) {
        self.failed_at = Some(now);
        self.retry_at = Some(now + backoff);
    }
}

/// A closed batch that a [`Sender`](crate::client::sender::Sender) passes to its producer.
pub struct AccumulatedBatch {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// At least one record.
    pub builder: BatchBuilder,
    /// When its first record was added. The delivery time starts here.
    pub opened: Instant,
    /// The number by which [`DeliveryReport`] names it.
    pub ticket: u64,
}
