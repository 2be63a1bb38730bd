//! Writes records: collected into batches by partition, sent to the leaders, retried in order.
//!
//! Each partition has one open batch and a queue of closed ones. A request takes the head of the
//! queue of every partition of one broker. An idempotent producer has up to five batches of a
//! partition on their way (the broker keeps that many) once its first is acknowledged; else there
//! is one, so that a retry cannot overtake. A batch that failed for a passing reason goes back to
//! its place in the queue; nothing of its partition is sent until all that was on its way has come
//! home. A batch that is not acknowledged when its delivery time ends is reported as failed, as is
//! one refused for good.
//! Memory: [`Producer::send`] waits while more than `buffer_bytes` are not acknowledged.
//! Threads: one at a time. Nothing is sent between calls: there is no thread behind this; the one
//! that a [`Sender`](super::sender::Sender) has makes the calls for whoever wants that.
//! Not promised: transactions; that a batch whose fate is unknown was not written.

mod feed;
mod identity;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use feed::Filled;

use super::cluster::{Cluster, Target};
use super::connection::{Call, Reply, newest};
use super::error::{Error, Result};
use super::legacy;
use super::options::Wait;
use super::partitioner::{Sticky, by_key};
use crate::ids::TopicId;
use crate::protocol::Records;
use crate::protocol::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use crate::record::batch::{Builder, Entry};
use crate::record::compression::Codec;
use crate::wire::Writer;

const PRODUCE: i16 = 0;
const OUT_OF_ORDER_SEQUENCE: i16 = 45;
const MESSAGE_TOO_LARGE: i16 = 10;
const DUPLICATE_SEQUENCE: i16 = 46;
const IDEMPOTENT_WINDOW: usize = 5;
/// Requests on their way to one broker.
const MAX_IN_FLIGHT: usize = 5;

/// How a producer writes.
#[derive(Clone, Debug)]
pub struct Config {
    /// 0: no answer; 1: the leader has it; -1: all in sync have it.
    pub acks: i16,
    /// The codec of every batch.
    pub codec: Codec,
    /// Its level; `None`: the codec's default.
    pub level: Option<i32>,
    /// A batch is closed when it holds this much (`batch.size`).
    pub batch_bytes: usize,
    /// How long an open batch waits for company (`linger.ms`).
    pub linger: Duration,
    /// A request is no larger, unless one batch is (`max.request.size`).
    pub request_bytes: usize,
    /// What may be unacknowledged (`buffer.memory`).
    pub buffer_bytes: usize,
    /// From `send` to failure (`delivery.timeout.ms`).
    pub delivery_timeout: Duration,
    /// Exactly one copy of each record in spite of retries; needs acks -1.
    pub idempotent: bool,
    /// Whether a topic that does not exist may be made by the broker.
    pub create_topics: bool,
}

impl Default for Config {
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
            create_topics: true,
        }
    }
}

/// What became of one batch.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// What [`Producer::enqueue`] was told; 0 of a batch made by `send`.
    pub ticket: u64,
    /// The offset of its first record; -1 where the broker did not say.
    pub base_offset: i64,
    /// Its records.
    pub count: i32,
    /// Why it was not written.
    pub error: Option<Error>,
}

type Key = (Arc<str>, i32);

/// A closed batch.
struct Closed {
    bytes: Vec<u8>,
    count: i32,
    base_sequence: i32,
    expires: Instant,
    ticket: u64,
}

/// One partition's records.
#[derive(Default)]
struct Lane {
    builder: Builder,
    opened: Option<Instant>,
    queue: VecDeque<Closed>,
    in_flight: usize,
    /// A batch came back: wait until the others have, too.
    muted: bool,
    /// A batch of this identity was acknowledged: until then a broker takes any sequence for the
    /// first, so a second batch on its way could overtake the first one for ever.
    begun: bool,
    next_sequence: i32,
}

/// A request on its way.
struct Sent {
    batches: Vec<(Key, Closed)>,
    /// The ids it names topics by; metadata may have changed when the answer comes.
    ids: HashMap<Arc<str>, TopicId>,
    wait: Wait,
}

/// See the module.
pub struct Producer {
    cluster: Cluster,
    config: Config,
    lanes: BTreeMap<Key, Lane>,
    flights: HashMap<i32, VecDeque<Sent>>,
    sticky: Sticky,
    identity: Option<(i64, i16)>,
    held_bytes: usize,
    delivered: Vec<Delivered>,
    retry_at: Option<Instant>,
}

impl Producer {
    /// A producer on a cluster; nothing is sent yet.
    pub fn new(cluster: Cluster, config: Config) -> Result<Self> {
        if config.idempotent && config.acks != -1 {
            return Err(Error::Invalid("an idempotent producer needs acks=all".to_owned()));
        }
        let seed = u64::from(std::process::id()) ^ Instant::now().elapsed().subsec_nanos() as u64;
        Ok(Self {
            cluster,
            config,
            lanes: BTreeMap::new(),
            flights: HashMap::new(),
            sticky: Sticky::new(seed),
            identity: None,
            held_bytes: 0,
            delivered: Vec::new(),
            retry_at: None,
        })
    }

    /// Adds one record; without a partition, its key decides. Waits while the buffer is full.
    pub fn send(&mut self, topic: &str, partition: Option<i32>, entry: &Entry<'_>) -> Result<()> {
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
        let lane = self.lanes.entry(key.clone()).or_default();
        let before = lane.builder.size();
        lane.builder.add(entry);
        lane.opened.get_or_insert_with(Instant::now);
        let (after, full) = (lane.builder.size(), lane.builder.size() >= self.config.batch_bytes);
        self.held_bytes += after.saturating_sub(before);
        if full {
            self.close(&key)?;
            self.sticky.next();
            self.push(&wait)?;
            while self.held_bytes > self.config.buffer_bytes {
                self.step(&wait)?;
            }
        }
        Ok(())
    }

    /// Sends what has waited long enough and takes the answers that are here; waits for nothing.
    pub fn poll(&mut self) -> Result<()> {
        let now = Instant::now();
        let due: Vec<Key> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.opened.is_some_and(|at| now >= at + self.config.linger))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &due {
            self.close(key)?;
        }
        let wait = self.cluster.wait();
        self.push(&wait)?;
        let nodes: Vec<i32> = self.flights.keys().copied().collect();
        for node in nodes {
            while let Some(oldest) = self.flights.get(&node).and_then(VecDeque::front) {
                let late = oldest.wait.left().is_zero();
                let connection = self.cluster.open_connection(node);
                if !late && !connection.is_none_or(|c| c.ready().unwrap_or(true)) {
                    break;
                }
                self.land(node)?;
            }
        }
        Ok(())
    }

    /// Sends all, and waits until each batch is acknowledged or has failed.
    pub fn flush(&mut self) -> Result<()> {
        let wait = self.cluster.options().wait(self.config.delivery_timeout * 2);
        let open: Vec<Key> = self.lanes.keys().cloned().collect();
        for key in &open {
            self.close(key)?;
        }
        while self.held_bytes > 0 {
            self.step(&wait)?;
        }
        Ok(())
    }

    /// What became of the batches since the last call.
    pub fn take_delivered(&mut self) -> Vec<Delivered> {
        std::mem::take(&mut self.delivered)
    }

    /// Bytes of records that are not acknowledged.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Closes the open batch of a partition.
    fn close(&mut self, key: &Key) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(key) else { return Ok(()) };
        let Some(opened) = lane.opened else { return Ok(()) };
        let mut builder = std::mem::take(&mut lane.builder);
        let before = builder.size();
        let sealed = self.seal(key, &mut builder, (opened, 0));
        if sealed.is_err() && !builder.is_empty() {
            // No identity yet: the records stay where they are.
            if let Some(lane) = self.lanes.get_mut(key) {
                lane.builder = builder;
            }
            return sealed;
        }
        self.held_bytes = (self.held_bytes + builder.size()).saturating_sub(before);
        if let Some(lane) = self.lanes.get_mut(key) {
            (lane.builder, lane.opened) = (builder, None);
        }
        sealed
    }

    /// One step towards an empty buffer: send, then wait for the oldest answer of some broker.
    fn step(&mut self, wait: &Wait) -> Result<()> {
        self.push(wait)?;
        let busy = self.flights.iter().find(|(_, f)| !f.is_empty()).map(|(node, _)| *node);
        match busy {
            Some(node) => self.land(node),
            None if self.held_bytes == 0 => Ok(()),
            None => wait.pause(self.cluster.options().retry_backoff, &"delivery"),
        }
    }

    /// Sends what may go now, one request after the other.
    fn push(&mut self, wait: &Wait) -> Result<()> {
        self.expire();
        if let Some(at) = self.retry_at {
            if Instant::now() < at {
                return Ok(());
            }
            self.retry_at = None;
        }
        loop {
            let by_node = match self.sendable(wait) {
                Ok(by_node) => by_node,
                Err(error) if error.retriable() => {
                    self.retry_at = Some(Instant::now() + self.cluster.options().retry_backoff);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if by_node.is_empty() {
                return Ok(());
            }
            for (node, keys) in by_node {
                self.dispatch(node, keys, wait)?;
            }
        }
    }

    /// Partitions with a batch that may go, by the leader's node.
    fn sendable(&mut self, wait: &Wait) -> Result<BTreeMap<i32, Vec<(Key, TopicId)>>> {
        let mut by_node: BTreeMap<i32, Vec<(Key, TopicId)>> = BTreeMap::new();
        for (key, lane) in &self.lanes {
            let window = if lane.begun { IDEMPOTENT_WINDOW } else { 1 };
            if lane.queue.is_empty() || lane.muted || lane.in_flight >= window {
                continue;
            }
            let topic = self.cluster.topic(&key.0, self.config.create_topics, wait)?;
            let leader = topic.partition(key.1).map_or(-1, |partition| partition.leader);
            let busy = self.flights.get(&leader).map_or(0, VecDeque::len) >= MAX_IN_FLIGHT;
            if leader >= 0 && !busy {
                by_node.entry(leader).or_default().push((key.clone(), topic.topic_id));
            }
        }
        Ok(by_node)
    }

    /// Sends one request to `node` with the head of each queue that fits.
    fn dispatch(&mut self, node: i32, keys: Vec<(Key, TopicId)>, wait: &Wait) -> Result<()> {
        let mut batches = Vec::new();
        let mut ids = HashMap::new();
        let mut bytes = 0;
        for (key, id) in keys {
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            let fits = lane.queue.front().is_some_and(|head| {
                bytes == 0 || bytes + head.bytes.len() <= self.config.request_bytes
            });
            if let Some(head) = fits.then(|| lane.queue.pop_front()).flatten() {
                bytes += head.bytes.len();
                lane.in_flight += 1;
                ids.insert(Arc::clone(&key.0), id);
                batches.push((key, head));
            }
        }
        let timeout = self.cluster.options().request_timeout;
        let sent = Sent { batches, ids, wait: self.cluster.options().wait(timeout) };
        match self.transmit(node, &sent, wait) {
            Ok(()) if self.config.acks == 0 => {
                for (key, closed) in sent.batches {
                    self.settle(&key, closed, Ok(-1));
                }
            }
            Ok(()) => self.flights.entry(node).or_default().push_back(sent),
            Err(Error::Interrupted) => {
                self.come_back(sent, &Error::Interrupted);
                return Err(Error::Interrupted);
            }
            Err(error) => {
                self.cluster.disconnect(Target::Broker(node));
                self.come_back(sent, &error);
                self.lose(node, &error);
            }
        }
        Ok(())
    }

    fn transmit(&mut self, node: i32, sent: &Sent, wait: &Wait) -> Result<()> {
        let ids = &sent.ids;
        let connection = self.cluster.connection(Target::Broker(node), wait)?;
        let by_name = ids.values().any(|id| *id == TopicId::ZERO);
        let version = connection.version(PRODUCE, if by_name { 12 } else { newest(PRODUCE) })?;
        let mut old = Vec::new();
        if version < 3 {
            for (_, closed) in &sent.batches {
                old.push(legacy::downgrade(&closed.bytes, if version < 2 { 0 } else { 1 })?);
            }
        } else if version < 7 && self.config.codec == Codec::Zstd {
            return Err(Error::refused(76, "zstd"));
        }
        let mut topics: BTreeMap<&Arc<str>, Vec<PartitionProduceData<'_>>> = BTreeMap::new();
        for (at, ((topic, partition), closed)) in sent.batches.iter().enumerate() {
            let bytes = old.get(at).unwrap_or(&closed.bytes);
            let data = PartitionProduceData { index: *partition, records: Records::Bytes(bytes) };
            topics.entry(topic).or_default().push(data);
        }
        let topic_data = topics.into_iter().map(|(name, partition_data)| TopicProduceData {
            name,
            topic_id: ids.get(name).copied().unwrap_or_default(),
            partition_data,
        });
        let request = ProduceRequest {
            transactional_id: None,
            acks: self.config.acks,
            timeout_ms: i32::try_from(sent.wait.left().as_millis()).unwrap_or(i32::MAX),
            topic_data: topic_data.collect(),
        };
        let encode = |writer: &mut Writer| request.encode(writer, version);
        let call = Call { key: PRODUCE, version, encode: &encode };
        if self.config.acks == 0 {
            connection.send_only(&call, wait).map(drop)
        } else {
            connection.send(&call, wait)
        }
    }

    /// Takes the oldest answer of `node`.
    fn land(&mut self, node: i32) -> Result<()> {
        let Some(sent) = self.flights.get_mut(&node).and_then(VecDeque::pop_front) else {
            return Ok(());
        };
        let answer = match self.cluster.open_connection(node) {
            Some(connection) => connection.receive(&sent.wait),
            None => Err(Error::Closed { address: format!("broker {node}") }),
        };
        match answer.and_then(|reply| self.read(node, &reply, &sent.ids)) {
            Ok(mut outcomes) => {
                let missing = || Err(Error::refused(-1, "the answer leaves the partition out"));
                for (key, closed) in sent.batches {
                    let outcome = outcomes.remove(&key).unwrap_or_else(missing);
                    self.settle(&key, closed, outcome);
                }
                Ok(())
            }
            Err(error) => {
                self.cluster.disconnect(Target::Broker(node));
                self.come_back(sent, &error);
                self.lose(node, &error);
                if error == Error::Interrupted { Err(error) } else { Ok(()) }
            }
        }
    }

    fn read(
        &mut self,
        node: i32,
        reply: &Reply,
        ids: &HashMap<Arc<str>, TopicId>,
    ) -> Result<HashMap<Key, Result<i64>>> {
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

    /// All requests on their way to `node` are lost with its connection.
    fn lose(&mut self, node: i32, error: &Error) {
        for sent in self.flights.remove(&node).unwrap_or_default() {
            self.come_back(sent, error);
        }
    }

    fn come_back(&mut self, sent: Sent, error: &Error) {
        for (key, closed) in sent.batches {
            self.settle(&key, closed, Err(error.clone()));
        }
    }

    /// One batch's outcome: reported, or put back in its place.
    fn settle(&mut self, key: &Key, closed: Closed, outcome: Result<i64>) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        lane.begun |= self.config.idempotent && outcome.is_ok();
        let again = match &outcome {
            Ok(_) | Err(Error::Refused { code: DUPLICATE_SEQUENCE, .. }) => false,
            // An earlier batch came back; this one only arrived before it.
            Err(Error::Refused { code: OUT_OF_ORDER_SEQUENCE, .. }) => lane.muted,
            Err(error) => error.retriable() || *error == Error::Interrupted,
        };
        if again {
            let at = lane.queue.partition_point(|other| earlier(other, &closed));
            lane.queue.insert(at, closed);
            lane.muted = true;
            self.cluster.forget(&key.0);
            self.retry_at = Some(Instant::now() + self.cluster.options().retry_backoff);
        } else {
            let error = outcome.as_ref().err().filter(|error| error.code() != DUPLICATE_SEQUENCE);
            let error = error.cloned().map(|error| sized(error, &closed));
            self.report(key, &closed, (outcome.unwrap_or(-1), error.clone()));
            if let Some(error) = error {
                self.abandon(key, &error);
            }
        }
        if let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.in_flight == 0) {
            lane.muted = false;
        }
    }

    fn report(&mut self, key: &Key, closed: &Closed, (base_offset, error): (i64, Option<Error>)) {
        self.held_bytes = self.held_bytes.saturating_sub(closed.bytes.len());
        let ((topic, partition), count, ticket) = (key.clone(), closed.count, closed.ticket);
        self.delivered.push(Delivered { topic, partition, ticket, base_offset, count, error });
    }

    /// After an idempotent batch failed for good: its sequences are a gap that the broker will not
    /// accept, so what is queued behind it fails too, and later batches get a new identity.
    fn abandon(&mut self, key: &Key, error: &Error) {
        if !self.config.idempotent {
            return;
        }
        self.identity = None;
        for lane in self.lanes.values_mut() {
            (lane.next_sequence, lane.begun) = (0, false);
        }
        let queue = self.lanes.get_mut(key).map(|lane| std::mem::take(&mut lane.queue));
        for closed in queue.unwrap_or_default() {
            self.report(key, &closed, (-1, Some(error.clone())));
        }
    }

    /// Reports queued batches whose time is up.
    fn expire(&mut self) {
        let now = Instant::now();
        let due = |lane: &Lane| lane.queue.front().is_some_and(|head| head.expires <= now);
        let late: Vec<Key> =
            self.lanes.iter().filter(|(_, lane)| due(lane)).map(|(key, _)| key.clone()).collect();
        for key in late {
            let subject = match self.cluster.options().reach.failing() {
                Some((address, Some(why))) => {
                    format!("{}:{} (cannot connect to {address}: {why})", key.0, key.1)
                }
                _ => format!("{}:{}", key.0, key.1),
            };
            let error = Error::Timeout { subject };
            while let Some(lane) = self.lanes.get_mut(&key).filter(|lane| due(lane)) {
                let Some(head) = lane.queue.pop_front() else { break };
                self.report(&key, &head, (-1, Some(error.clone())));
                self.abandon(&key, &error);
            }
        }
    }
}

/// With the size of the batch, where that is what was refused.
fn sized(error: Error, closed: &Closed) -> Error {
    match error {
        Error::Refused { code: MESSAGE_TOO_LARGE, subject, message: None } => {
            let (bytes, records) = (closed.bytes.len(), closed.count);
            let plural = if records == 1 { "" } else { "s" };
            let what = format!("a batch of {bytes} bytes ({records} record{plural})");
            let message = Some(format!("{what} is larger than max.message.bytes of the topic"));
            Error::Refused { code: MESSAGE_TOO_LARGE, subject, message }
        }
        other => other,
    }
}

/// Whether `other` was closed before `this`: sequences ascend, and so do delivery deadlines.
fn earlier(other: &Closed, this: &Closed) -> bool {
    if this.base_sequence >= 0 && other.base_sequence >= 0 {
        return this.base_sequence.wrapping_sub(other.base_sequence) > 0;
    }
    other.expires < this.expires
}
