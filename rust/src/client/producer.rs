//! The producer: it collects records into batches by partition (Kafka's RecordAccumulator), sends
//! the batches to the leaders and retries them in order.
//!
//! Each partition has one open batch and a queue of closed batches. A batch is closed when it is
//! full, or when its `linger` is over and the queue is short: while a partition cannot be written
//! to, its records gather in large batches. A Produce request takes the first queued batch of
//! every partition that the broker leads. An idempotent producer may have five batches of a
//! partition in flight, as many as a broker remembers, once the first one is acknowledged. Any
//! other producer has one in flight, so that a retry cannot overtake. A batch gets its sequence
//! number when it is first sent, and keeps it. All batches of a partition in flight are at one
//! broker: a new leader gets none before the old one has answered, because it would refuse a batch
//! when it lacks the one before.
//! A batch that failed with a retriable error returns to its position in the queue. The partition
//! is then muted: none of its batches is sent until all its batches in flight are answered. A batch
//! fails if it is refused for good, or if it is not acknowledged within its delivery time.
//! A partition whose broker or metadata cannot be reached does not delay the others: connections,
//! metadata and the producer id arrive in the background.
//! Memory: [`Producer::send`] waits while more than `buffer_bytes` are not acknowledged.
//! Threads: one at a time. The producer has no thread and sends only during calls. A
//! [`Sender`](super::sender::Sender) has a thread that makes these calls.
//! With a `transactional.id` every record belongs to a transaction (see `transaction`).
//! Not promised: a batch that is reported as failed may have been written.

mod accumulate;
mod add_to_transaction;
mod batches;
mod coordinator;
mod delivery;
mod handover;
mod identity;
mod transaction;
mod written;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

pub use add_to_transaction::GroupOffsets;
pub(super) use batches::MAX_IN_FLIGHT_BATCHES;
pub use batches::{AccumulatedBatch, DeliveryReport, ProducerConfig};
use batches::{IdentityRequest, PartitionBatches, ProducerBatch};
use transaction::TransactionManager;
pub use written::{PreparedTransaction, WrittenRange};

use super::cluster::{Cluster, Target};
use super::connection::{ApiRequest, ApiResponse, newest};
use super::error::{Error, Result};
use super::legacy;
use super::metadata::PartitionKey;
use super::options::Wait;
use super::partitioner::{StickyPartitioner, by_key};
use crate::ids::TopicId;
use crate::protocol::RecordsField;
use crate::protocol::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use crate::record::batch::NewRecord;
use crate::record::compression::Codec;
use crate::wire::Writer;

const PRODUCE: i16 = 0;
/// Requests in flight to one broker (`max.in.flight.requests.per.connection`).
const MAX_IN_FLIGHT_REQUESTS: usize = 5;

/// A Produce request whose response has not arrived.
struct ProduceInFlight {
    batches: Vec<(PartitionKey, ProducerBatch)>,
    /// The topic ids in it. The metadata may have changed when the response arrives.
    ids: HashMap<Arc<str>, TopicId>,
    wait: Wait,
}

/// A producer's batches and the Produce requests in flight (see the module).
pub struct Producer {
    cluster: Cluster,
    config: ProducerConfig,
    accumulator: BTreeMap<PartitionKey, PartitionBatches>,
    in_flight_requests: HashMap<i32, VecDeque<ProduceInFlight>>,
    sticky: StickyPartitioner,
    identity: Option<(i64, i16)>,
    identity_request: IdentityRequest,
    transaction: Option<TransactionManager>,
    held_bytes: usize,
    delivery_reports: Vec<DeliveryReport>,
    next_number: u64,
    retry_at: Option<Instant>,
}

impl Producer {
    /// A producer for a cluster. It sends nothing yet.
    pub fn new(cluster: Cluster, config: ProducerConfig) -> Result<Self> {
        if config.idempotent && config.acks != -1 {
            return Err(Error::Invalid("an idempotent producer needs acks=all".to_owned()));
        }
        if config.transactional_id.is_some() && !config.idempotent {
            let text = "a producer with a transactional.id is idempotent: it needs acks=all and \
                        enable.idempotence=true";
            return Err(Error::Invalid(text.to_owned()));
        }
        let transaction = TransactionManager::of(cluster.options(), &config);
        let seed = u64::from(std::process::id()) ^ Instant::now().elapsed().subsec_nanos() as u64;
        Ok(Self {
            cluster,
            config,
            accumulator: BTreeMap::new(),
            in_flight_requests: HashMap::new(),
            sticky: StickyPartitioner::new(seed),
            identity: None,
            identity_request: IdentityRequest::default(),
            transaction,
            held_bytes: 0,
            delivery_reports: Vec::new(),
            next_number: 0,
            retry_at: None,
        })
    }

    /// Adds one record. Without a partition, the key decides. Waits while the buffer is full.
    pub fn send(
        &mut self,
        topic: &str,
        partition: Option<i32>,
        entry: &NewRecord<'_>,
    ) -> Result<()> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let wait = self.cluster.options().wait(self.config.delivery_timeout);
        let mut known = self.cluster.topic(topic, self.config.create_topics, &wait)?;
        if partition.is_some_and(|partition| known.partition(partition).is_none()) {
            self.cluster.forget(topic); // it may have grown
            known = self.cluster.topic(topic, self.config.create_topics, &wait)?;
        }
        let count = i32::try_from(known.partitions.len()).unwrap_or(i32::MAX);
        let partition = match (partition, entry.key) {
            (Some(partition), _) if known.partition(partition).is_some() => partition,
            (Some(partition), _) => {
                let subject = format!("topic {topic:?} has no partition {partition}");
                return Err(Error::refused(3, subject));
            }
            (None, Some(key)) => by_key(key, count),
            (None, None) => self.sticky.current(count),
        };
        let key = (Arc::clone(&known.name), partition);
        let partition_batches = self.accumulator.entry(key.clone()).or_default();
        let before = partition_batches.builder.size();
        partition_batches.builder.add(entry);
        partition_batches.opened.get_or_insert_with(Instant::now);
        let (after, full) = (
            partition_batches.builder.size(),
            partition_batches.builder.size() >= self.config.batch_bytes,
        );
        self.held_bytes += after.saturating_sub(before);
        if full {
            self.close(&key)?;
            self.sticky.next();
            self.send_ready()?;
            while self.held_bytes > self.config.buffer_bytes {
                if self.accumulator.values().all(PartitionBatches::is_idle) {
                    self.close_open()?;
                }
                self.send_and_receive(&wait)?;
            }
        }
        Ok(())
    }

    /// Sends the batches whose `linger` is over, unless as many as may be in flight are before
    /// them, and handles the responses that have arrived. It never waits.
    pub fn poll(&mut self) -> Result<()> {
        let now = Instant::now();
        let (linger, delay_max) = (self.config.linger, self.config.delay_max());
        let due: Vec<PartitionKey> = self
            .accumulator
            .iter()
            .filter(|(_, partition_batches)| {
                let delay = if partition_batches.is_busy() { delay_max } else { linger };
                partition_batches.opened.is_some_and(|at| now >= at + delay)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in &due {
            self.close(key)?;
        }
        self.send_ready()?;
        let nodes: Vec<i32> = self.in_flight_requests.keys().copied().collect();
        for node in nodes {
            while let Some(oldest) = self.in_flight_requests.get(&node).and_then(VecDeque::front) {
                let late = oldest.wait.left().is_zero();
                let connection = self.cluster.open_connection(node);
                if !late && !connection.is_none_or(|c| c.ready().unwrap_or(true)) {
                    break;
                }
                self.receive_response(node)?;
            }
        }
        Ok(())
    }

    /// Sends all batches and waits until each one is acknowledged or has failed.
    pub fn flush(&mut self) -> Result<()> {
        let wait = self.cluster.options().wait(self.config.delivery_timeout * 2);
        self.close_open()?;
        while self.held_bytes > 0 {
            self.send_and_receive(&wait)?;
        }
        Ok(())
    }

    /// The reports on batches since the last call.
    pub fn take_delivery_reports(&mut self) -> Vec<DeliveryReport> {
        std::mem::take(&mut self.delivery_reports)
    }

    /// Bytes of records that are not acknowledged.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Closes every open batch.
    fn close_open(&mut self) -> Result<()> {
        let open: Vec<PartitionKey> = self.accumulator.keys().cloned().collect();
        open.iter().try_for_each(|key| self.close(key))
    }

    /// Closes the open batch of a partition.
    fn close(&mut self, key: &PartitionKey) -> Result<()> {
        let Some(partition_batches) = self.accumulator.get_mut(key) else { return Ok(()) };
        let Some(opened) = partition_batches.opened else { return Ok(()) };
        let mut builder = std::mem::take(&mut partition_batches.builder);
        let before = builder.size();
        let sealed = self.seal(key, &mut builder, (opened, 0));
        if sealed.is_err() && !builder.is_empty() {
            // The transaction takes no more records: they stay in the open batch.
            if let Some(partition_batches) = self.accumulator.get_mut(key) {
                partition_batches.builder = builder;
            }
            return sealed;
        }
        self.held_bytes = (self.held_bytes + builder.size()).saturating_sub(before);
        if let Some(partition_batches) = self.accumulator.get_mut(key) {
            (partition_batches.builder, partition_batches.opened) = (builder, None);
        }
        sealed
    }

    /// Sends the batches that may be sent, then waits for the oldest response of one broker.
    fn send_and_receive(&mut self, wait: &Wait) -> Result<()> {
        self.send_ready()?;
        let busy =
            self.in_flight_requests.iter().find(|(_, f)| !f.is_empty()).map(|(node, _)| *node);
        match busy {
            Some(node) => self.receive_response(node),
            None if self.held_bytes == 0 => Ok(()),
            None => wait.pause(self.cluster.options().retry_backoff, &"delivery"),
        }
    }

    /// Sends every batch that may be sent now, one request after the other.
    fn send_ready(&mut self) -> Result<()> {
        self.expire();
        self.prepare_identity();
        if let Some(at) = self.retry_at {
            if Instant::now() < at {
                return Ok(());
            }
            self.retry_at = None;
        }
        if !self.add_partitions(&self.cluster.wait())? {
            return Ok(());
        }
        loop {
            let by_node = self.ready_partitions();
            if by_node.is_empty() {
                return Ok(());
            }
            for (node, keys) in by_node {
                self.send_request(node, keys)?;
            }
        }
    }

    /// The partitions with a batch that may be sent, by their leader.
    fn ready_partitions(&mut self) -> BTreeMap<i32, Vec<(PartitionKey, TopicId)>> {
        let now = Instant::now();
        let mut refused = Vec::new();
        let mut by_node: BTreeMap<i32, Vec<(PartitionKey, TopicId)>> = BTreeMap::new();
        for (key, partition_batches) in &mut self.accumulator {
            let window =
                if partition_batches.first_acknowledged { MAX_IN_FLIGHT_BATCHES } else { 1 };
            let is_without_identity = self.config.idempotent && self.identity.is_none();
            let head = partition_batches.queue.front();
            if head.is_none_or(|head| is_without_identity && head.identity.is_none())
                || partition_batches.muted
                || partition_batches.in_flight >= window
                || partition_batches.retry_at.is_some_and(|at| now < at)
            {
                continue;
            }
            let since = partition_batches.failed_at;
            let cached =
                match self.cluster.topic_in_background(&key.0, self.config.create_topics, since) {
                    Ok(Some(cached)) if cached.serves(since) => cached,
                    Ok(_) => continue,
                    Err(error) if error.retriable() => continue,
                    Err(error) => {
                        refused.push((Arc::clone(&key.0), error));
                        continue;
                    }
                };
            let topic = cached.topic;
            let leader = topic.partition(key.1).map_or(-1, |partition| partition.leader);
            if leader >= 0 && !self.cluster.knows(leader) {
                partition_batches.fail(now, self.cluster.options().retry_backoff);
                continue;
            }
            let busy = self.in_flight_requests.get(&leader).map_or(0, VecDeque::len)
                >= MAX_IN_FLIGHT_REQUESTS;
            let has_moved = partition_batches.in_flight > 0 && partition_batches.leader != leader;
            if leader >= 0 && !busy && !has_moved && self.cluster.prepare_connection(leader) {
                by_node.entry(leader).or_default().push((key.clone(), topic.topic_id));
            }
        }
        for (topic, error) in refused {
            self.fail_queued(&error, |key| key.0 == topic);
        }
        by_node
    }

    /// Sends one request to `node` with the first batch of each queue, as far as they fit.
    fn send_request(&mut self, node: i32, keys: Vec<(PartitionKey, TopicId)>) -> Result<()> {
        let wait = self.cluster.wait();
        if let Err(error) = self.cluster.connection(Target::Broker(node), &wait) {
            return self.fail_to_connect(keys, error);
        }
        let mut batches = Vec::new();
        let mut ids = HashMap::new();
        let mut bytes = 0;
        for (key, id) in keys {
            let Some(partition_batches) = self.accumulator.get_mut(&key) else { continue };
            let identity = self.identity;
            // The identity is lost if a batch of another broker has failed meanwhile.
            let fits = partition_batches.queue.front().is_some_and(|head| {
                (bytes == 0 || bytes + head.bytes.len() <= self.config.request_bytes)
                    && (!self.config.idempotent || identity.or(head.identity).is_some())
            });
            if let Some(head) = fits.then(|| partition_batches.take_next(identity)).flatten() {
                bytes += head.bytes.len();
                partition_batches.in_flight += 1;
                partition_batches.leader = node;
                ids.insert(Arc::clone(&key.0), id);
                batches.push((key, head));
            }
        }
        if batches.is_empty() {
            return Ok(());
        }
        let request = ProduceInFlight { batches, ids, wait };
        if let Some(transaction) = &mut self.transaction {
            transaction.started = true;
        }
        match self.write_request(node, &request) {
            Ok(()) if self.config.acks == 0 => {
                for (key, batch) in request.batches {
                    self.complete_batch(&key, batch, Ok(-1));
                }
            }
            Ok(()) => self.in_flight_requests.entry(node).or_default().push_back(request),
            Err(Error::Interrupted) => {
                self.fail_request(request, &Error::Interrupted);
                return Err(Error::Interrupted);
            }
            Err(error) => {
                self.cluster.disconnect(Target::Broker(node));
                self.fail_request(request, &error);
                self.handle_disconnect(node, &error);
            }
        }
        Ok(())
    }

    /// A broker could not be reached: its batches wait for newer metadata, or fail if it never can
    /// be. Those that were not sent before get no sequence number, so they may expire alone.
    fn fail_to_connect(&mut self, keys: Vec<(PartitionKey, TopicId)>, error: Error) -> Result<()> {
        if error == Error::Interrupted {
            return Err(error);
        }
        if !error.retriable() {
            self.fail_queued(&error, |key| keys.iter().any(|(failed, _)| failed == key));
            return Ok(());
        }
        let (now, backoff) = (Instant::now(), self.cluster.options().retry_backoff);
        for (key, _) in keys {
            let Some(partition_batches) = self.accumulator.get_mut(&key) else { continue };
            partition_batches.last_error = Some(error.clone());
            partition_batches.fail(now, backoff);
            self.cluster.doubt(&key.0);
        }
        Ok(())
    }

    fn write_request(&mut self, node: i32, request: &ProduceInFlight) -> Result<()> {
        let (ids, wait) = (&request.ids, &request.wait);
        let connection = self.cluster.connection(Target::Broker(node), wait)?;
        let by_name = ids.values().any(|id| *id == TopicId::ZERO);
        let transaction = self.transaction.as_ref();
        let last = transaction.map_or_else(|| newest(PRODUCE), TransactionManager::produce_version);
        let version = connection.version(PRODUCE, if by_name { last.min(12) } else { last })?;
        let mut old = Vec::new();
        if version < 3 {
            for (_, batch) in &request.batches {
                old.push(legacy::downgrade(&batch.bytes, if version < 2 { 0 } else { 1 })?);
            }
        } else if version < 7 && self.config.codec == Codec::Zstd {
            return Err(Error::refused(76, "zstd"));
        }
        let mut topics: BTreeMap<&Arc<str>, Vec<PartitionProduceData<'_>>> = BTreeMap::new();
        for (at, ((topic, partition), batch)) in request.batches.iter().enumerate() {
            let bytes = old.get(at).unwrap_or(&batch.bytes);
            let data =
                PartitionProduceData { index: *partition, records: RecordsField::Bytes(bytes) };
            topics.entry(topic).or_default().push(data);
        }
        let topic_data = topics.into_iter().map(|(name, partition_data)| TopicProduceData {
            name,
            topic_id: ids.get(name).copied().unwrap_or_default(),
            partition_data,
        });
        let request = ProduceRequest {
            transactional_id: transaction.map(|transaction| transaction.id.as_str()),
            acks: self.config.acks,
            timeout_ms: i32::try_from(request.wait.left().as_millis()).unwrap_or(i32::MAX),
            topic_data: topic_data.collect(),
        };
        let encode = |writer: &mut Writer| request.encode(writer, version);
        let call = ApiRequest { key: PRODUCE, version, encode: &encode };
        if self.config.acks == 0 {
            connection.send_only(&call, wait).map(drop)
        } else {
            connection.send(&call, wait)
        }
    }

    /// Takes the oldest response of `node`.
    fn receive_response(&mut self, node: i32) -> Result<()> {
        let Some(request) = self.in_flight_requests.get_mut(&node).and_then(VecDeque::pop_front)
        else {
            return Ok(());
        };
        let answer = match self.cluster.open_connection(node) {
            Some(connection) => connection.receive(&request.wait),
            None => Err(Error::Closed { address: format!("broker {node}") }),
        };
        match answer.and_then(|reply| self.handle_response(node, &reply, &request.ids)) {
            Ok(mut outcomes) => {
                let missing = || Err(Error::refused(-1, "the answer leaves the partition out"));
                for (key, batch) in request.batches {
                    let outcome = outcomes.remove(&key).unwrap_or_else(missing);
                    self.complete_batch(&key, batch, outcome);
                }
                Ok(())
            }
            Err(error) => {
                self.cluster.disconnect(Target::Broker(node));
                self.fail_request(request, &error);
                self.handle_disconnect(node, &error);
                if error == Error::Interrupted { Err(error) } else { Ok(()) }
            }
        }
    }

    fn handle_response(
        &mut self,
        node: i32,
        reply: &ApiResponse,
        ids: &HashMap<Arc<str>, TopicId>,
    ) -> Result<HashMap<PartitionKey, Result<i64>>> {
        let response = ProduceResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| self.cluster.bad(Target::Broker(node), error))?;
        let mut outcomes = HashMap::new();
        for topic in &response.responses {
            let by_id = ids.iter().find(|(_, id)| reply.version >= 13 && **id == topic.topic_id);
            let name: Arc<str> = match by_id {
                Some((name, _)) => Arc::clone(name),
                None => topic.name.into(),
            };
            for partition in &topic.partition_responses {
                let outcome = match partition.error_code {
                    0 => Ok(partition.base_offset),
                    code => Err(Error::Refused {
                        code,
                        subject: format!("{name}:{}", partition.index),
                        message: partition.error_message.map(str::to_owned),
                    }),
                };
                outcomes.insert((Arc::clone(&name), partition.index), outcome);
            }
        }
        Ok(outcomes)
    }

    /// Fails all requests in flight to `node`, whose connection is lost.
    fn handle_disconnect(&mut self, node: i32, error: &Error) {
        for request in self.in_flight_requests.remove(&node).unwrap_or_default() {
            self.fail_request(request, error);
        }
    }

    fn fail_request(&mut self, request: ProduceInFlight, error: &Error) {
        for (key, batch) in request.batches {
            self.complete_batch(&key, batch, Err(error.clone()));
        }
    }
}
