//! Reads assigned partitions from given offsets, from all their leaders at once.
//!
//! Each leader has at most one Fetch on its way; [`Consumer::poll`] sends where none is, and takes
//! what has come. A Fetch names what changed since the one before it (see `fetch_session`).
//! A [`Chunk`] is one partition's answer: whole batches, decoded when they are walked. A partition
//! ends at its `end` offset where it has one, and is then asked no more.
//! Control batches are never shown; with `read_committed`, nor are records of aborted transactions.
//! An answer counts for a partition only while that still stands where it was asked for: what was
//! moved, taken away or paused in the meantime is asked for again.
//! Memory: one answer a leader, `max_bytes` each (a larger single batch comes whole).
//! Threads: one at a time. Not promised: groups, commits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::aborted::Aborted;
use super::chunk::{Chunk, Parts};
use super::cluster::{Cluster, Target};
use super::connection::{Call, Connection, Reply, newest};
use super::error::{Error, Result};
use super::fetch_session::{Asked, Key, Said, Session};
use super::options::Wait;
use super::socket;
use crate::ids::TopicId;
use crate::protocol::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData,
};
use crate::record::batch;
use crate::wire::Writer;

const FETCH: i16 = 1;
/// The last version with topics by name.
const BY_NAME: i16 = 12;
const OFFSET_OUT_OF_RANGE: i16 = 1;

/// How a consumer reads.
#[derive(Clone, Debug)]
pub struct Config {
    /// The broker answers when it has this much (`fetch.min.bytes`).
    pub min_bytes: i32,
    /// The broker answers after this time at the latest (`fetch.max.wait.ms`).
    pub max_wait: Duration,
    /// One answer's limit (`fetch.max.bytes`).
    pub max_bytes: i32,
    /// One partition's share of it (`max.partition.fetch.bytes`).
    pub partition_max_bytes: i32,
    /// Hide what is not committed (`isolation.level`).
    pub read_committed: bool,
    /// A partition whose offset is not there any more rests and is told by [`Consumer::strayed`];
    /// otherwise it is an error.
    pub tell_strayed: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            min_bytes: 1,
            max_wait: Duration::from_millis(500),
            max_bytes: 50 << 20,
            partition_max_bytes: 1 << 20,
            read_committed: false,
            tell_strayed: false,
        }
    }
}

impl Config {
    /// The Fetch that says this.
    fn request<'a>(&self, said: &'a Said) -> FetchRequest<'a> {
        FetchRequest {
            max_wait_ms: i32::try_from(self.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            isolation_level: i8::from(self.read_committed),
            session_id: said.session_id,
            session_epoch: said.session_epoch,
            topics: topics(said),
            forgotten_topics_data: forgotten(said),
            ..Default::default()
        }
    }
}

/// A partition to read.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The first offset wanted.
    pub offset: i64,
    /// The first offset not wanted any more.
    pub end: Option<i64>,
}

/// Where the reading of one partition stands.
#[derive(Debug)]
struct Place {
    offset: i64,
    end: Option<i64>,
    /// The node it was asked of last; -1: none.
    leader: i32,
    paused: bool,
    strayed: bool,
    max_bytes: i32,
    high_watermark: i64,
}

/// See the module.
pub struct Consumer {
    cluster: Cluster,
    config: Config,
    places: BTreeMap<Key, Place>,
    /// Nodes with a Fetch on its way, and how long its answer is waited for.
    asked: BTreeMap<i32, Wait>,
    sessions: HashMap<i32, Session>,
    ids: HashMap<TopicId, Arc<str>>,
    /// What went wrong after records had come; told by the next poll.
    late: Option<Error>,
}

impl Consumer {
    /// A reader of nothing yet.
    pub fn new(cluster: Cluster, config: Config) -> Self {
        let (places, asked) = (BTreeMap::new(), BTreeMap::new());
        let (sessions, ids) = (HashMap::new(), HashMap::new());
        Self { cluster, config, places, asked, sessions, ids, late: None }
    }

    /// The cluster it reads from, for other questions.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Replaces what is read.
    pub fn assign(&mut self, assignments: &[Assignment]) {
        for node in std::mem::take(&mut self.asked).into_keys() {
            self.disconnect(node);
        }
        self.places.clear();
        self.add(assignments);
    }

    /// Reads these as well; one that is read already goes on from the offset given here.
    pub fn add(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            let key = (Arc::from(assignment.topic.as_str()), assignment.partition);
            let place = Place {
                offset: assignment.offset,
                end: assignment.end,
                leader: self.places.get(&key).map_or(-1, |place| place.leader),
                paused: false,
                strayed: false,
                max_bytes: self.config.partition_max_bytes,
                high_watermark: -1,
            };
            self.places.insert(key, place);
        }
    }

    /// Reads these no more.
    pub fn remove(&mut self, topic: &str, partition: i32) {
        self.places.remove(&(Arc::from(topic), partition));
    }

    /// Goes on from another offset; `false`: that partition is not read.
    pub fn seek(&mut self, topic: &str, partition: i32, offset: i64) -> bool {
        let place = self.places.get_mut(&(Arc::from(topic), partition));
        place.is_some_and(|place| {
            (place.offset, place.strayed) = (offset, false);
            true
        })
    }

    /// Asks nothing of a partition for a while, or asks again; `false`: that one is not read.
    pub fn pause(&mut self, topic: &str, partition: i32, paused: bool) -> bool {
        let place = self.places.get_mut(&(Arc::from(topic), partition));
        place.is_some_and(|place| {
            place.paused = paused;
            true
        })
    }

    /// Partitions that rest because their offset is not there any more; `seek` wakes them.
    pub fn strayed(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        let strayed = self.places.iter().filter(|(_, place)| place.strayed);
        strayed.map(|((topic, partition), place)| (&**topic, *partition, place.offset))
    }

    /// Whether every partition has reached its end.
    pub fn done(&self) -> bool {
        self.places.values().all(Place::done)
    }

    /// The next offset of each partition, and its high watermark when that is known.
    pub fn positions(&self) -> impl Iterator<Item = (&str, i32, i64, i64)> {
        let position =
            |(key, place): (&'_ Key, &'_ Place)| (key.1, place.offset, place.high_watermark);
        self.places.iter().map(move |(key, place)| {
            let (partition, offset, high_watermark) = position((key, place));
            (&*key.0, partition, offset, high_watermark)
        })
    }

    /// What has come, waiting up to `time` for the first of it. Empty: nothing came. The next
    /// Fetch is on its way when this returns, so that the leaders work while the caller does.
    pub fn poll(&mut self, time: Duration) -> Result<Vec<Chunk>> {
        if let Some(error) = self.late.take() {
            return Err(error);
        }
        let wait = self.cluster.options().wait(time);
        loop {
            self.ask()?;
            let ready = self.ready()?;
            let mut chunks = Vec::new();
            for node in ready {
                chunks.extend(self.take(node)?);
            }
            if !chunks.is_empty() {
                self.late = self.ask().err();
                return Ok(chunks);
            }
            if self.done() {
                return Ok(chunks);
            }
            match self.sleep(&wait) {
                Err(Error::Timeout { .. }) => return Ok(Vec::new()),
                other => other?,
            }
        }
    }

    /// Reads nothing more and ends its connections. The leaders are told, so that they keep no
    /// session (KIP-227), as far as that needs no waiting.
    pub fn close(&mut self) {
        let now = self.cluster.options().wait(Duration::ZERO);
        for (node, session) in std::mem::take(&mut self.sessions) {
            let Some(said) = session.end() else { continue };
            let Some(connection) = self.cluster.open_connection(node) else { continue };
            let Ok(version) = connection.version(FETCH, newest(FETCH)) else { continue };
            let encode = |writer: &mut Writer| self.config.request(&said).encode(writer, version);
            drop(connection.send_only(&Call { key: FETCH, version, encode: &encode }, &now));
        }
        self.cluster.close();
        self.places.clear();
        self.asked.clear();
    }

    /// Sends a Fetch to each leader that has none on its way. One that cannot be reached keeps
    /// nobody from reading of the others; where there is no other it is told.
    fn ask(&mut self) -> Result<()> {
        let wait = self.cluster.wait();
        let options = self.cluster.options();
        let answer = options.wait(options.request_timeout + self.config.max_wait);
        let mut by_node: BTreeMap<i32, Vec<(Key, Asked)>> = BTreeMap::new();
        for (key, place) in &mut self.places {
            if place.rests() || self.asked.contains_key(&place.leader) {
                continue;
            }
            let topic = self.cluster.topic_with(&key.0, key.1, &wait)?;
            let topic_id = topic.topic_id;
            if topic_id != TopicId::ZERO {
                self.ids.insert(topic_id, Arc::clone(&key.0));
            }
            let Some(partition) = topic.partition(key.1) else {
                return Err(Error::refused(3, format!("{}:{}", key.0, key.1)));
            };
            place.leader = partition.leader;
            if place.leader >= 0 && !self.asked.contains_key(&place.leader) {
                let asked = Asked { topic_id, offset: place.offset, max_bytes: place.max_bytes };
                by_node.entry(place.leader).or_default().push((key.clone(), asked));
            }
        }
        let mut unreachable = None;
        for (node, wanted) in by_node {
            match self.send(node, wanted, &wait) {
                Ok(()) => drop(self.asked.insert(node, answer.clone())),
                Err(error @ (Error::Closed { .. } | Error::Timeout { .. })) => {
                    self.lose(node, &error)?;
                }
                Err(error @ Error::Connect { .. }) => {
                    self.lose(node, &error)?;
                    unreachable = Some(error);
                }
                Err(error) => {
                    self.disconnect(node);
                    return Err(error);
                }
            }
        }
        match unreachable {
            Some(error) if self.asked.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    fn send(&mut self, node: i32, wanted: Vec<(Key, Asked)>, wait: &Wait) -> Result<()> {
        let named = wanted.iter().any(|(_, asked)| asked.topic_id == TopicId::ZERO);
        let connection = self.cluster.connection(Target::Broker(node), wait)?;
        let version = connection.version(FETCH, if named { BY_NAME } else { newest(FETCH) })?;
        let said = self.sessions.entry(node).or_default().say(wanted, version > BY_NAME);
        let encode = |writer: &mut Writer| self.config.request(&said).encode(writer, version);
        connection.send(&Call { key: FETCH, version, encode: &encode }, wait)
    }

    /// Nodes whose answer is here or late, or whose connection is gone.
    fn ready(&mut self) -> Result<Vec<i32>> {
        let mut ready = Vec::new();
        for (node, wait) in &self.asked {
            match self.cluster.open_connection(*node).map(Connection::ready) {
                Some(Ok(false)) if !wait.left().is_zero() => {}
                Some(Err(error @ Error::Protocol { .. })) => return Err(error),
                _ => ready.push(*node),
            }
        }
        Ok(ready)
    }

    fn sleep(&mut self, wait: &Wait) -> Result<()> {
        let streams: Vec<_> = self.asked.keys().filter_map(|n| self.cluster.peek(*n)).collect();
        if streams.is_empty() {
            return wait.pause(Duration::from_millis(20), &"fetch");
        }
        let mut fds: Vec<_> =
            streams.iter().map(|c| PollFd::new(c.socket(), PollFlags::IN)).collect();
        socket::await_any(&mut fds, wait)
    }

    fn take(&mut self, node: i32) -> Result<Vec<Chunk>> {
        let Some(wait) = self.asked.remove(&node) else { return Ok(Vec::new()) };
        let reply = match self.cluster.open_connection(node) {
            Some(connection) => connection.receive(&wait),
            None => Err(Error::Closed { address: format!("broker {node}") }),
        };
        match reply {
            Ok(reply) => self.read(node, &reply),
            Err(error @ (Error::Closed { .. } | Error::Timeout { .. })) => {
                self.lose(node, &error)?;
                Ok(Vec::new())
            }
            Err(error) => {
                self.disconnect(node);
                Err(error)
            }
        }
    }

    /// The connection to a leader is gone: ask for its partitions' leaders anew.
    fn lose(&mut self, node: i32, error: &Error) -> Result<()> {
        self.disconnect(node);
        for ((topic, _), _) in self.places.iter().filter(|(_, place)| place.leader == node) {
            self.cluster.forget(topic);
        }
        self.cluster.wait().pause(self.cluster.options().retry_backoff, error)
    }

    fn disconnect(&mut self, node: i32) {
        self.cluster.disconnect(Target::Broker(node));
        if let Some(session) = self.sessions.get_mut(&node) {
            session.begin_anew();
        }
    }

    fn read(&mut self, node: i32, reply: &Reply) -> Result<Vec<Chunk>> {
        let response = FetchResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| self.cluster.bad(Target::Broker(node), error))?;
        let session = self.sessions.entry(node).or_default();
        if response.error_code != 0 {
            if session.refused(response.error_code) {
                return Ok(Vec::new());
            }
            return Err(Error::refused(response.error_code, "Fetch"));
        }
        session.answered(response.session_id);
        let mut chunks = Vec::new();
        let mut stale = false;
        for topic in &response.responses {
            let name = match self.ids.get(&topic.topic_id) {
                Some(name) if reply.version > BY_NAME => Arc::clone(name),
                _ => Arc::from(topic.topic),
            };
            for data in &topic.partitions {
                let key = (Arc::clone(&name), data.partition_index);
                let asked = self.sessions.get(&node).and_then(|session| session.offset(&key));
                let Some(place) = self.places.get_mut(&key) else { continue };
                if asked != Some(place.offset) || place.paused {
                    continue;
                }
                match data.error_code {
                    OFFSET_OUT_OF_RANGE if self.config.tell_strayed => place.strayed = true,
                    0 => chunks.extend(self.advance(&key, data, reply)?),
                    code => {
                        let subject = format!("{}:{}", key.0, key.1);
                        let refused = Error::refused(code, subject);
                        if !refused.stale_metadata() {
                            return Err(refused);
                        }
                        self.cluster.forget(&key.0);
                        stale = true;
                    }
                }
            }
        }
        if stale {
            let wait = self.cluster.wait();
            wait.pause(self.cluster.options().retry_backoff, &"metadata")?;
        }
        Ok(chunks)
    }

    /// Moves a partition past what came, and makes it a chunk.
    fn advance(
        &mut self,
        key: &Key,
        data: &PartitionData<'_>,
        reply: &Reply,
    ) -> Result<Option<Chunk>> {
        let Some(place) = self.places.get_mut(key) else { return Ok(None) };
        place.high_watermark = data.high_watermark;
        let bytes = data.records.bytes().unwrap_or_default();
        if bytes.is_empty() {
            return Ok(None);
        }
        let magic = bytes.get(16).map_or(2, |magic| magic.cast_signed());
        let mut bytes = match magic {
            0 | 1 => super::legacy::upgrade(bytes, key)?.into(),
            _ => reply.part(bytes),
        };
        let (first, end) = (place.offset, place.end);
        let mut hidden = HashSet::new();
        let list = data.aborted_transactions.as_deref().unwrap_or_default();
        let mut aborted = Aborted::of(list.iter().map(|a| (a.first_offset, a.producer_id)));
        let mut whole = 0;
        for batch in batch::iter(&bytes) {
            let Ok(batch) = batch else { break };
            if self.config.read_committed && aborted.hides(&batch) {
                hidden.insert(batch.base_offset());
            }
            place.offset = place.offset.max(batch.last_offset() + 1);
            whole += batch.size();
        }
        if place.offset == first {
            // Before version 3 a broker cuts a batch that does not fit.
            place.max_bytes = place.max_bytes.saturating_mul(2).min(1 << 30);
            let is_whole = whole > 0 && whole == bytes.len();
            if is_whole || place.max_bytes == 1 << 30 {
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
        let parts = Parts { topic, partition, first, end, magic, bytes, hidden };
        Ok(Some(Chunk::new(parts, data.high_watermark)))
    }
}

impl Place {
    fn done(&self) -> bool {
        self.end.is_some_and(|end| self.offset >= end)
    }

    fn rests(&self) -> bool {
        self.done() || self.paused || self.strayed
    }
}

/// What a request names, by topic.
fn topics(said: &Said) -> Vec<FetchTopic<'_>> {
    let mut topics: BTreeMap<(&str, TopicId), Vec<FetchPartition>> = BTreeMap::new();
    for ((topic, partition), asked) in &said.named {
        topics.entry((topic, asked.topic_id)).or_default().push(FetchPartition {
            partition: *partition,
            fetch_offset: asked.offset,
            partition_max_bytes: asked.max_bytes,
            ..Default::default()
        });
    }
    let topic = |((topic, topic_id), partitions)| FetchTopic { topic, topic_id, partitions };
    topics.into_iter().map(topic).collect()
}

/// What a request has forgotten, by topic.
fn forgotten(said: &Said) -> Vec<ForgottenTopic<'_>> {
    let mut topics: BTreeMap<(&str, TopicId), Vec<i32>> = BTreeMap::new();
    for ((topic, partition), topic_id) in &said.forgotten {
        topics.entry((topic, *topic_id)).or_default().push(*partition);
    }
    let topic = |((topic, topic_id), partitions)| ForgottenTopic { topic, topic_id, partitions };
    topics.into_iter().map(topic).collect()
}
