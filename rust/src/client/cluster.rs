//! The brokers of one cluster: a connection to each broker that is needed, and cached metadata.
//!
//! A request names a [`Target`]. The cluster finds the broker, connects and agrees on the version.
//! Metadata is requested when it is missing or stale, from any broker that answers (`seed`). A
//! topic's metadata is cached until [`Cluster::forget`].
//! Threads: one at a time. What has to go on while a broker does not answer runs on threads of its
//! own (`in_background`).

mod in_background;
mod request;
mod seed;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use in_background::AnyBrokerCall;
use in_background::MetadataLookup;
pub use request::{ClusterRequest, Target};
use seed::{MetadataQuery, Seed};

use super::background::BackgroundCall;
use super::connection::{ApiRequest, ApiResponse, BrokerConnection};
use super::error::{Error, Result};
use super::metadata::{Metadata, TopicMetadata};
use super::options::{Address, ClientOptions, Wait};
use crate::ids::TopicId;
use crate::protocol;
use crate::wire::Writer;

/// Metadata of this age are new: if they lead to an error, the seed may lack newer ones.
const NEW: Duration = Duration::from_secs(1);
/// How long to wait after a failure for metadata that are newer. Then those at hand have to do.
const NEWER_WAIT: Duration = Duration::from_secs(1);

/// A client's view of one cluster.
pub struct Cluster {
    options: ClientOptions,
    seed: Seed,
    brokers: HashMap<i32, Address>,
    connections: HashMap<i32, BrokerConnection>,
    opening: HashMap<i32, BackgroundCall<Result<BrokerConnection>>>,
    lookup: MetadataLookup,
    controller_id: i32,
    topics: HashMap<Arc<str>, CachedTopic>,
}

/// A topic's metadata, and when it was requested and arrived.
#[derive(Clone, Debug)]
pub(super) struct CachedTopic {
    pub(super) topic: Arc<TopicMetadata>,
    pub(super) requested_at: Instant,
    arrived_at: Instant,
}

impl Cluster {
    /// A view that has not connected yet.
    pub fn new(options: ClientOptions) -> Self {
        Self {
            options,
            seed: Seed::default(),
            brokers: HashMap::new(),
            connections: HashMap::new(),
            opening: HashMap::new(),
            lookup: MetadataLookup::default(),
            controller_id: -1,
            topics: HashMap::new(),
        }
    }

    /// Its options.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// A wait that ends after `request.timeout.ms`.
    pub fn wait(&self) -> Wait {
        self.options.wait(self.options.request_timeout)
    }

    /// The connection to a broker, opened when there is none.
    pub fn connection(&mut self, target: Target, wait: &Wait) -> Result<&mut BrokerConnection> {
        match target {
            Target::Broker(node) => self.node(node, wait),
            Target::Controller if self.controller_id >= 0 => self.node(self.controller_id, wait),
            Target::Any | Target::Controller => {
                let addresses = self.addresses();
                self.seed.connect(&addresses, &self.options, wait)
            }
        }
    }

    /// The connection to a node if it is open.
    pub fn open_connection(&mut self, node: i32) -> Option<&mut BrokerConnection> {
        self.connections.get_mut(&node)
    }

    /// The connection to a node if it is open, read-only.
    pub(super) fn peek(&self, node: i32) -> Option<&BrokerConnection> {
        self.connections.get(&node)
    }

    /// Drops a connection after a failure. Its outstanding responses are lost.
    pub fn disconnect(&mut self, target: Target) {
        match target {
            Target::Broker(node) => drop(self.connections.remove(&node)),
            Target::Controller => drop(self.connections.remove(&self.controller_id)),
            Target::Any => self.seed.fail(),
        }
    }

    /// Closes every connection. Outstanding responses are lost.
    pub fn close(&mut self) {
        self.seed.close();
        self.connections.clear();
        self.opening.clear();
        self.lookup = MetadataLookup::default();
    }

    /// Sends a request and waits for its response. A connection that fails is dropped.
    pub fn call(&mut self, ask: &ClusterRequest<'_>, wait: &Wait) -> Result<ApiResponse> {
        let connection = self.connection(ask.target, wait)?;
        let version = connection.version(ask.key, ask.last)?;
        let body = |writer: &mut Writer| (ask.encode)(writer, version);
        let reply = connection.call(&ApiRequest { key: ask.key, version, encode: &body }, wait);
        if reply.is_err() {
            self.disconnect(ask.target);
        }
        reply
    }

    /// Requests the metadata of `topics`, or of all topics if that is `None`. Caches the brokers
    /// and the topics without an error.
    pub fn metadata(
        &mut self,
        topics: Option<&[&str]>,
        create: bool,
        wait: &Wait,
    ) -> Result<Metadata> {
        let requested_at = Instant::now();
        let query = MetadataQuery { topics, create };
        let addresses = self.addresses();
        let metadata = self.seed.metadata(&query, (&addresses, &self.options), wait)?;
        self.apply_metadata(&metadata, requested_at);
        Ok(metadata)
    }

    /// A topic's metadata. While the cluster still creates the topic, it is requested again until
    /// the wait ends. A partition may be without a leader; then the next call after the back-off
    /// requests it again.
    pub fn topic(&mut self, name: &str, create: bool, wait: &Wait) -> Result<Arc<TopicMetadata>> {
        let backoff = self.options.retry_backoff;
        if let Some(cached) = self.topics.get(name).filter(|cached| cached.is_fresh(backoff)) {
            return Ok(Arc::clone(&cached.topic));
        }
        loop {
            let metadata = self.metadata(Some(&[name]), create, wait)?;
            let Some(refusal) = metadata.refusal(name) else {
                let found = metadata.topics.into_iter().find(|topic| &*topic.name == name);
                return found.ok_or_else(|| Error::refused(3, format!("topic {name:?}")));
            };
            let unknown = refusal.code() == 3 && !create;
            if unknown || !refusal.retriable() {
                return Err(refusal);
            }
            wait.pause(self.options.retry_backoff, &name).map_err(|error| match error {
                Error::Timeout { .. } => refusal,
                other => other,
            })?;
        }
    }

    /// A topic's metadata with this partition. The topic is not created. If the cached metadata
    /// lacks the partition, it is requested again, because the topic may have grown.
    pub fn topic_with(
        &mut self,
        name: &str,
        partition: i32,
        wait: &Wait,
    ) -> Result<Arc<TopicMetadata>> {
        let cached = self.topics.contains_key(name);
        let topic = self.topic(name, false, wait)?;
        if topic.partition(partition).is_some() || !cached {
            return Ok(topic);
        }
        self.forget(name);
        self.topic(name, false, wait)
    }

    /// The id of a topic whose metadata is cached; zero if it is unknown.
    pub fn topic_id(&self, topic: &str) -> TopicId {
        self.topics.get(topic).map_or(TopicId::ZERO, |cached| cached.topic.topic_id)
    }

    /// The cached metadata of a topic.
    pub(super) fn cached_topic(&self, topic: &str) -> Option<&TopicMetadata> {
        self.topics.get(topic).map(|cached| &*cached.topic)
    }

    /// Whether the latest metadata lists this broker.
    pub(super) fn knows(&self, node: i32) -> bool {
        self.brokers.contains_key(&node)
    }

    /// Removes a topic from the cache, so that its metadata is requested again.
    pub fn forget(&mut self, topic: &str) {
        self.doubt(topic);
        self.topics.remove(topic);
    }

    /// A topic's metadata led to an error. If they are new, another broker is asked next time.
    pub(super) fn doubt(&mut self, topic: &str) {
        if self.topics.get(topic).is_some_and(|cached| cached.arrived_at.elapsed() < NEW) {
            self.seed.doubt();
        }
    }

    /// The error for an answer of `target` that cannot be read; the connection is dropped.
    pub fn bad(&mut self, target: Target, reason: impl ToString) -> Error {
        let address = match target {
            Target::Broker(node) => self.connections.get(&node),
            Target::Controller => self.connections.get(&self.controller_id),
            Target::Any => self.seed.connection(),
        };
        let address =
            address.map_or_else(String::new, |connection| connection.address().to_string());
        self.disconnect(target);
        Error::Protocol { address, reason: reason.to_string() }
    }

    /// Sends a request for the controller. Any broker gets it first, and in a KRaft cluster
    /// forwards it. If `refused` finds NOT_CONTROLLER (41) in the answer, the controller is looked
    /// up and gets the request.
    pub fn call_controller(
        &mut self,
        ask: &ClusterRequest<'_>,
        refused: &dyn Fn(&ApiResponse) -> bool,
        wait: &Wait,
    ) -> Result<ApiResponse> {
        let mut reply = self.call(&ClusterRequest { target: Target::Any, ..*ask }, wait)?;
        while refused(&reply) {
            self.metadata(Some(&[]), false, wait)?;
            if self.controller_id >= 0 {
                reply = self.call(&ClusterRequest { target: Target::Controller, ..*ask }, wait)?;
            }
            if refused(&reply) {
                wait.pause(self.options.retry_backoff, &"the controller")?;
            }
        }
        Ok(reply)
    }

    fn apply_metadata(&mut self, metadata: &Metadata, requested_at: Instant) {
        self.controller_id = metadata.controller_id;
        let known = metadata.brokers.iter().map(|b| (b.node_id, b.address.clone())).collect();
        let before = std::mem::replace(&mut self.brokers, known);
        for (node, address) in before {
            if self.brokers.get(&node).is_some_and(|now| *now != address) {
                self.connections.remove(&node);
                self.opening.remove(&node);
            }
        }
        let arrived_at = Instant::now();
        for topic in &metadata.topics {
            if topic.exists() {
                let cached = CachedTopic { topic: Arc::clone(topic), requested_at, arrived_at };
                self.topics.insert(Arc::clone(&topic.name), cached);
            } else {
                self.topics.remove(&topic.name);
            }
        }
    }

    /// Where a broker may answer: the bootstrap list, then the other brokers of the cluster.
    fn addresses(&self) -> Vec<Address> {
        let mut addresses = self.options.bootstrap.clone();
        for address in self.brokers.values() {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    fn node(&mut self, node: i32, wait: &Wait) -> Result<&mut BrokerConnection> {
        if !self.brokers.contains_key(&node) {
            self.metadata(Some(&[]), false, wait)?;
        }
        let address = self
            .brokers
            .get(&node)
            .cloned()
            .ok_or_else(|| Error::refused(8, format!("broker {node}")))?;
        if !self.connections.contains_key(&node) {
            let opened = match self.opening.remove(&node).and_then(BackgroundCall::result) {
                Some(opened) => opened,
                None => BrokerConnection::open_noted(&address, &self.options, wait),
            };
            let opened = opened.map_err(|e| match e {
                Error::Connect { address, reason, .. } => {
                    Error::Connect { address, reason, advertised: true }
                }
                other => other,
            })?;
            self.connections.insert(node, opened);
        }
        self.connections.get_mut(&node).ok_or_else(|| Error::refused(8, format!("broker {node}")))
    }
}

impl CachedTopic {
    /// Whether it may be used after a failure at `since`: it was requested later, or there is
    /// nothing newer for a while.
    pub(super) fn serves(&self, since: Option<Instant>) -> bool {
        since.is_none_or(|at| self.requested_at >= at || at.elapsed() >= NEWER_WAIT)
    }

    /// Whether every partition has a leader, or the metadata is younger than `backoff`.
    fn is_fresh(&self, backoff: Duration) -> bool {
        self.topic.partitions.iter().all(|partition| partition.leader >= 0)
            || self.arrived_at.elapsed() < backoff
    }
}

/// The API with this name, in any case and with or without `_`.
pub fn api_by_name(name: &str) -> Option<&'static protocol::ApiSchema> {
    let bare: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    protocol::APIS.iter().copied().find(|api| api.name.eq_ignore_ascii_case(&bare))
}
