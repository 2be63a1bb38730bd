//! The fetcher of a consumer: it reads assigned partitions from given offsets, from all their
//! leaders at once, or from followers of the consumer's rack.
//!
//! Each broker has at most one Fetch in flight. [`Consumer::poll`] sends a Fetch to each broker
//! that has none and returns what has come. A Fetch names only what changed since the one before
//! (see `fetch_session`). A [`Chunk`] is the answer for one partition: whole batches, which are
//! decoded when they are visited. A partition that has reached its `end` offset is not fetched any
//! more. Control batches are never shown. With `read_committed`, records of aborted transactions
//! are hidden as well. The answer for a partition counts only if the partition is still at the
//! offset that the Fetch named. A partition that was moved, removed or paused meanwhile is fetched
//! again.
//! Racks (KIP-392): a leader may name another replica to read, if the consumer said in which rack
//! it is. The consumer reads that replica until it fails, lacks the offset, or is no longer in the
//! cluster's metadata, or until the metadata is old; then it fetches from the leader again. If the
//! metadata lacks the named replica, it is requested again first.
//! A partition whose broker or metadata cannot be reached does not delay the others, nor the end of
//! a poll: connections and metadata arrive in the background.
//! Memory: one response per broker, `max_bytes` each (a larger single batch comes whole).
//! Threads: one at a time. Not promised: groups, commits.

mod config;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use config::ConsumerConfig;
use rustix::event::{PollFd, PollFlags};

use super::aborted::AbortedRanges;
use super::chunk::{Chunk, ChunkParts};
use super::cluster::{Cluster, Target};
use super::connection::{ApiRequest, ApiResponse, BrokerConnection, newest};
use super::error::{Error, Result};
use super::fetch_session::{FetchPosition, FetchSessionHandler};
use super::metadata::PartitionKey;
use super::options::Wait;
use super::socket;
use crate::ids::TopicId;
use crate::protocol::error::ErrorCode;
use crate::protocol::fetch::{FetchResponse, PartitionData};
use crate::record::batch;
use crate::wire::Writer;

const FETCH: i16 = 1;
/// The last version with topics by name.
const BY_NAME: i16 = 12;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OFFSET_NOT_AVAILABLE: i16 = 78;
/// The longest sleep while a partition is not being fetched.
const NAP: Duration = Duration::from_millis(20);

/// A partition to read.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The first offset to read.
    pub offset: i64,
    /// The first offset that is no longer read.
    pub end: Option<i64>,
}

/// The position of one partition.
#[derive(Debug)]
struct PartitionPosition {
    offset: i64,
    end: Option<i64>,
    /// The broker of the last Fetch; -1: none.
    node: i32,
    /// The replica to read instead of the leader, and the end of that time.
    preferred: Option<(i32, Instant)>,
    paused: bool,
    out_of_range: bool,
    max_bytes: i32,
    high_watermark: i64,
    /// It is not fetched before.
    retry_at: Option<Instant>,
    /// When its broker was found to be gone. The next Fetch waits for newer metadata.
    failed_at: Option<Instant>,
}

/// A consumer's assigned partitions and the Fetch requests in flight (see the module).
pub struct Consumer {
    cluster: Cluster,
    config: ConsumerConfig,
    positions: BTreeMap<PartitionKey, PartitionPosition>,
    /// The nodes with a Fetch in flight, and how long to wait for each response.
    in_flight: BTreeMap<i32, Wait>,
    sessions: HashMap<i32, FetchSessionHandler>,
    ids: HashMap<TopicId, Arc<str>>,
    /// A partition waits for metadata, a connection or the end of its pause.
    is_waiting: bool,
    /// Why no broker has got a Fetch since this happened.
    unreachable: Option<Error>,
    /// An error that followed records; the next poll returns it.
    deferred_error: Option<Error>,
}

impl Consumer {
    /// A consumer without assigned partitions.
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Self {
        Self {
            cluster,
            config,
            positions: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sessions: HashMap::new(),
            ids: HashMap::new(),
            is_waiting: false,
            unreachable: None,
            deferred_error: None,
        }
    }

    /// The cluster it reads from, for other requests.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Replaces the assigned partitions.
    pub fn assign(&mut self, assignments: &[Assignment]) {
        for node in std::mem::take(&mut self.in_flight).into_keys() {
            self.disconnect(node);
        }
        self.positions.clear();
        self.add(assignments);
    }

    /// Assigns more partitions. One that is assigned already continues from the offset given here.
    pub fn add(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            let key = (Arc::from(assignment.topic.as_str()), assignment.partition);
            let before = self.positions.get(&key);
            let position = PartitionPosition {
                offset: assignment.offset,
                end: assignment.end,
                node: before.map_or(-1, |position| position.node),
                preferred: before.and_then(|position| position.preferred),
                paused: false,
                out_of_range: false,
                max_bytes: self.config.partition_max_bytes,
                high_watermark: -1,
                retry_at: None,
                failed_at: None,
            };
            self.positions.insert(key, position);
        }
    }

    /// Removes a partition.
    pub fn remove(&mut self, topic: &str, partition: i32) {
        self.positions.remove(&(Arc::from(topic), partition));
    }

    /// Continues from another offset; `false`: the partition is not assigned.
    pub fn seek(&mut self, topic: &str, partition: i32, offset: i64) -> bool {
        let position = self.positions.get_mut(&(Arc::from(topic), partition));
        position.is_some_and(|position| {
            (position.offset, position.out_of_range) = (offset, false);
            true
        })
    }

    /// Pauses or resumes a partition; `false`: the partition is not assigned.
    pub fn pause(&mut self, topic: &str, partition: i32, paused: bool) -> bool {
        let position = self.positions.get_mut(&(Arc::from(topic), partition));
        position.is_some_and(|position| {
            position.paused = paused;
            true
        })
    }

    /// The partitions whose offset is out of range. Each waits until `seek`.
    pub fn out_of_range(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        let out_of_range = self.positions.iter().filter(|(_, position)| position.out_of_range);
        out_of_range.map(|((topic, partition), position)| (&**topic, *partition, position.offset))
    }

    /// Whether every partition has reached its end.
    pub fn is_done(&self) -> bool {
        self.positions.values().all(PartitionPosition::is_done)
    }

    /// The next offset of each partition, and its high watermark when that is known.
    pub fn positions(&self) -> impl Iterator<Item = (&str, i32, i64, i64)> {
        let row = |(key, position): (&'_ PartitionKey, &'_ PartitionPosition)| {
            (key.1, position.offset, position.high_watermark)
        };
        self.positions.iter().map(move |(key, position)| {
            let (partition, offset, high_watermark) = row((key, position));
            (&*key.0, partition, offset, high_watermark)
        })
    }

    /// Returns the chunks that have arrived; waits up to `time` for the first. When this returns,
    /// the next Fetch is in flight, so that the leaders work while the caller does.
    pub fn poll(&mut self, time: Duration) -> Result<Vec<Chunk>> {
        if let Some(error) = self.deferred_error.take() {
            return Err(error);
        }
        let wait = self.cluster.options().wait(time);
        loop {
            self.send_fetches()?;
            let ready = self.ready()?;
            let mut chunks = Vec::new();
            for node in ready {
                chunks.extend(self.receive(node)?);
            }
            if !chunks.is_empty() {
                self.deferred_error = self.send_fetches().err();
                return Ok(chunks);
            }
            if self.is_done() {
                return Ok(chunks);
            }
            match self.sleep(&wait) {
                Err(Error::Timeout { .. }) if wait.left().is_zero() => return Ok(Vec::new()),
                Err(Error::Timeout { .. }) => {}
                other => other?,
            }
        }
    }

    /// Closes the connections. It asks each leader to close the fetch session (KIP-227), if that is
    /// possible without waiting.
    pub fn close(&mut self) {
        let now = self.cluster.options().wait(Duration::ZERO);
        for (node, session) in std::mem::take(&mut self.sessions) {
            let Some(data) = session.close_request() else { continue };
            let Some(connection) = self.cluster.open_connection(node) else { continue };
            let Ok(version) = connection.version(FETCH, newest(FETCH)) else { continue };
            let encode = |writer: &mut Writer| self.config.request(&data).encode(writer, version);
            drop(connection.send_only(&ApiRequest { key: FETCH, version, encode: &encode }, &now));
        }
        self.cluster.close();
        self.positions.clear();
        self.in_flight.clear();
    }

    /// Sends a Fetch to each broker that has none in flight. A broker that cannot be reached is an
    /// error only if no other Fetch is in flight.
    fn send_fetches(&mut self) -> Result<()> {
        for (node, wanted) in self.wanted()? {
            let options = self.cluster.options();
            let answer = options.wait(options.request_timeout + self.config.max_wait);
            match self.send(node, wanted) {
                Ok(()) => {
                    self.in_flight.insert(node, answer);
                    self.unreachable = None;
                }
                Err(error @ (Error::Closed { .. } | Error::Timeout { .. })) => {
                    self.handle_disconnect(node, &error);
                }
                Err(error @ Error::Connect { .. }) => {
                    self.handle_disconnect(node, &error);
                    self.unreachable = Some(error);
                }
                Err(error) => {
                    self.disconnect(node);
                    return Err(error);
                }
            }
        }
        match &self.unreachable {
            Some(error) if self.in_flight.is_empty() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The partitions to fetch now, by broker.
    fn wanted(&mut self) -> Result<BTreeMap<i32, Vec<(PartitionKey, FetchPosition)>>> {
        let (now, backoff) = (Instant::now(), self.cluster.options().retry_backoff);
        let mut by_node: BTreeMap<i32, Vec<(PartitionKey, FetchPosition)>> = BTreeMap::new();
        self.is_waiting = false;
        for (key, position) in &mut self.positions {
            if position.is_resting() || self.in_flight.contains_key(&position.node) {
                continue;
            }
            let since = position.failed_at;
            let cached = match self.cluster.topic_in_background(&key.0, false, since) {
                Ok(cached) => cached,
                Err(Error::Refused { code, .. })
                    if code != UNKNOWN_TOPIC_OR_PARTITION
                        && ErrorCode::from(code).is_retriable() =>
                {
                    None
                }
                Err(error) if error.retriable() && !matches!(error, Error::Refused { .. }) => {
                    self.unreachable = Some(error);
                    None
                }
                Err(error) => return Err(error),
            };
            let Some(cached) = cached.filter(|cached| cached.serves(since)) else {
                self.is_waiting = true;
                continue;
            };
            let topic = cached.topic;
            let topic_id = topic.topic_id;
            if topic_id != TopicId::ZERO {
                self.ids.insert(topic_id, Arc::clone(&key.0));
            }
            let Some(partition) = topic.partition(key.1) else {
                if since.is_some_and(|at| cached.requested_at >= at) {
                    let subject = format!("{}:{}", key.0, key.1);
                    return Err(Error::refused(UNKNOWN_TOPIC_OR_PARTITION, subject));
                }
                position.failed_at = since.or(Some(now)); // the topic may have grown
                self.is_waiting = true;
                continue;
            };
            position
                .preferred
                .take_if(|(node, until)| *until <= now || !partition.has_online(*node));
            position.node = position.preferred.map_or(partition.leader, |(node, _)| node);
            let is_known = self.cluster.knows(position.node);
            if !is_known {
                self.unreachable = None;
            }
            if position.node >= 0 && !is_known {
                position.fail(now, backoff);
            }
            if self.in_flight.contains_key(&position.node) {
                continue;
            }
            let is_due = position.retry_at.is_none_or(|at| at <= now);
            if !is_known || !is_due || !self.cluster.prepare_connection(position.node) {
                self.is_waiting = true;
                continue;
            }
            let requested = FetchPosition {
                topic_id,
                offset: position.offset,
                leader_epoch: partition.leader_epoch,
                max_bytes: position.max_bytes,
            };
            by_node.entry(position.node).or_default().push((key.clone(), requested));
        }
        Ok(by_node)
    }

    fn send(&mut self, node: i32, wanted: Vec<(PartitionKey, FetchPosition)>) -> Result<()> {
        let wait = &self.cluster.wait();
        let named = wanted.iter().any(|(_, requested)| requested.topic_id == TopicId::ZERO);
        let connection = self.cluster.connection(Target::Broker(node), wait)?;
        let version = connection.version(FETCH, if named { BY_NAME } else { newest(FETCH) })?;
        let data = self.sessions.entry(node).or_default().build_request(wanted, version > BY_NAME);
        let encode = |writer: &mut Writer| self.config.request(&data).encode(writer, version);
        connection.send(&ApiRequest { key: FETCH, version, encode: &encode }, wait)
    }

    /// The nodes whose response has arrived or is late, or whose connection is lost.
    fn ready(&mut self) -> Result<Vec<i32>> {
        let mut ready = Vec::new();
        for (node, wait) in &self.in_flight {
            match self.cluster.open_connection(*node).map(BrokerConnection::ready) {
                Some(Ok(false)) if !wait.left().is_zero() => {}
                Some(Err(error @ Error::Protocol { .. })) => return Err(error),
                _ => ready.push(*node),
            }
        }
        Ok(ready)
    }

    fn sleep(&mut self, wait: &Wait) -> Result<()> {
        let streams: Vec<_> = self.in_flight.keys().filter_map(|n| self.cluster.peek(*n)).collect();
        if streams.is_empty() {
            return wait.pause(NAP, &"fetch");
        }
        let wait = &if self.is_waiting { wait.at_most(NAP) } else { wait.clone() };
        let mut fds: Vec<_> =
            streams.iter().map(|c| PollFd::new(c.socket(), PollFlags::IN)).collect();
        socket::await_any(&mut fds, wait)
    }

    fn receive(&mut self, node: i32) -> Result<Vec<Chunk>> {
        let Some(wait) = self.in_flight.remove(&node) else { return Ok(Vec::new()) };
        let reply = match self.cluster.open_connection(node) {
            Some(connection) => connection.receive(&wait),
            None => Err(Error::Closed { address: format!("broker {node}") }),
        };
        match reply {
            Ok(reply) => self.handle_response(node, &reply),
            Err(error @ (Error::Closed { .. } | Error::Timeout { .. })) => {
                self.handle_disconnect(node, &error);
                Ok(Vec::new())
            }
            Err(error) => {
                self.disconnect(node);
                Err(error)
            }
        }
    }

    /// The connection to a broker is lost: look up the leaders of its partitions again.
    fn handle_disconnect(&mut self, node: i32, error: &Error) {
        self.disconnect(node);
        let (now, backoff) = (Instant::now(), self.cluster.options().retry_backoff);
        for ((topic, _), position) in &mut self.positions {
            if position.node == node {
                position.fail(now, backoff);
                if error.stale_metadata() {
                    self.cluster.doubt(topic);
                }
            }
        }
    }

    fn disconnect(&mut self, node: i32) {
        self.cluster.disconnect(Target::Broker(node));
        if let Some(session) = self.sessions.get_mut(&node) {
            session.reset();
        }
    }

    fn handle_response(&mut self, node: i32, reply: &ApiResponse) -> Result<Vec<Chunk>> {
        let response = FetchResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| self.cluster.bad(Target::Broker(node), error))?;
        let session = self.sessions.entry(node).or_default();
        if response.error_code != 0 {
            if session.handle_error(response.error_code) {
                return Ok(Vec::new());
            }
            return Err(Error::refused(response.error_code, "Fetch"));
        }
        session.handle_response(response.session_id);
        let mut chunks = Vec::new();
        let (now, backoff) = (Instant::now(), self.cluster.options().retry_backoff);
        for topic in &response.responses {
            let name = match self.ids.get(&topic.topic_id) {
                Some(name) if reply.version > BY_NAME => Arc::clone(name),
                _ => Arc::from(topic.topic),
            };
            for data in &topic.partitions {
                let key = (Arc::clone(&name), data.partition_index);
                let requested = self.sessions.get(&node).and_then(|session| session.offset(&key));
                let Some(position) = self.positions.get_mut(&key) else { continue };
                if requested != Some(position.offset) || position.paused {
                    continue;
                }
                match data.error_code {
                    0 if data.preferred_read_replica >= 0 => {
                        let replica = data.preferred_read_replica;
                        let topic = self.cluster.cached_topic(&key.0);
                        let partition = topic.and_then(|topic| topic.partition(key.1));
                        if partition.is_some_and(|partition| partition.has_online(replica)) {
                            let until = Instant::now() + self.config.metadata_max_age;
                            position.preferred = Some((replica, until));
                        } else {
                            position.fail(now, backoff);
                        }
                    }
                    OFFSET_OUT_OF_RANGE if position.preferred.take().is_some() => {
                        position.retry_at = Some(now + backoff);
                    }
                    OFFSET_OUT_OF_RANGE if self.config.report_out_of_range => {
                        position.out_of_range = true
                    }
                    OFFSET_NOT_AVAILABLE => {
                        position.preferred = None;
                        position.retry_at = Some(now + backoff);
                    }
                    0 => chunks.extend(self.advance(&key, data, reply)?),
                    code => {
                        let subject = format!("{}:{}", key.0, key.1);
                        let refused = Error::refused(code, subject);
                        if !refused.stale_metadata() {
                            return Err(refused);
                        }
                        position.fail(now, backoff);
                        self.cluster.doubt(&key.0);
                    }
                }
            }
        }
        Ok(chunks)
    }

    /// Advances a partition past the received records, and returns them as a chunk.
    fn advance(
        &mut self,
        key: &PartitionKey,
        data: &PartitionData<'_>,
        reply: &ApiResponse,
    ) -> Result<Option<Chunk>> {
        let Some(position) = self.positions.get_mut(key) else { return Ok(None) };
        position.high_watermark = data.high_watermark;
        let bytes = data.records.bytes().unwrap_or_default();
        if bytes.is_empty() {
            return Ok(None);
        }
        let magic = bytes.get(16).map_or(2, |magic| magic.cast_signed());
        let mut bytes = match magic {
            0 | 1 => super::legacy::upgrade(bytes, key)?.into(),
            _ => reply.part(bytes),
        };
        let (first, end) = (position.offset, position.end);
        let mut hidden = HashSet::new();
        let list = data.aborted_transactions.as_deref().unwrap_or_default();
        let mut aborted = AbortedRanges::of(list.iter().map(|a| (a.first_offset, a.producer_id)));
        let mut whole = 0;
        for batch in batch::iter(&bytes) {
            let Ok(batch) = batch else { break };
            if self.config.read_committed && aborted.hides(&batch) {
                hidden.insert(batch.base_offset());
            }
            position.offset = position.offset.max(batch.last_offset() + 1);
            whole += batch.size();
        }
        if position.offset == first {
            // Before version 3 a broker cuts a batch that does not fit.
            position.max_bytes = position.max_bytes.saturating_mul(2).min(1 << 30);
            let is_whole = whole > 0 && whole == bytes.len();
            if is_whole || position.max_bytes == 1 << 30 {
                let message = Some("a batch cannot be read".to_owned());
                return Err(Error::Refused {
                    code: 2,
                    subject: format!("{}:{}", key.0, key.1),
                    message,
                });
            }
            return Ok(None);
        }
        bytes.truncate(whole);
        let (topic, partition) = key.clone();
        let parts = ChunkParts { topic, partition, first, end, magic, bytes, hidden };
        Ok(Some(Chunk::new(parts, data.high_watermark)))
    }
}

impl PartitionPosition {
    /// Its broker is gone: the next Fetch waits for newer metadata.
    fn fail(&mut self, now: Instant, backoff: Duration) {
        self.preferred = None;
        self.failed_at = Some(now);
        self.retry_at = Some(now + backoff);
    }

    fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.offset >= end)
    }

    fn is_resting(&self) -> bool {
        self.is_done() || self.paused || self.out_of_range
    }
}
