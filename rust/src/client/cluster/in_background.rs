//! Connections and metadata that arrive while the caller does other work.
//!
//! A producer calls this: a broker that does not answer must not delay the batches for the others.
//! One Metadata request is under way at a time, on the connection of the seed; topics that are
//! needed meanwhile are all in the next one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::request::{ClusterRequest, Target};
use super::seed::{MetadataQuery, Seed};
use super::{CachedTopic, Cluster};
use crate::client::background::BackgroundCall;
use crate::client::connection::{ApiResponse, BrokerConnection};
use crate::client::error::{Error, Result};
use crate::client::metadata::Metadata;
use crate::wire::Writer;

/// How long a caller waits for a call that it has begun: most brokers answer within that.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long the first attempt of a request to any broker may take, and each further one twice as
/// long: a broker that does not answer is left soon, and one that is slow gets more time.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);

/// The Metadata request that is under way, and what is known of the topics it could not find.
#[derive(Default)]
pub(super) struct MetadataLookup {
    current: Option<CurrentLookup>,
    /// The topics of the next one.
    wanted: BTreeSet<Arc<str>>,
    /// The topics that the last one did not find, until somebody asks.
    failures: HashMap<Arc<str>, Error>,
    /// How many have failed one after the other.
    failed: u32,
    /// None begins before.
    retry_at: Option<Instant>,
}

/// A request to any broker that is under way.
pub(in crate::client) struct AnyBrokerCall(BackgroundCall<(Seed, Result<ApiResponse>)>);

struct CurrentLookup {
    topics: Vec<Arc<str>>,
    began: Instant,
    call: BackgroundCall<(Seed, Result<Metadata>)>,
}

impl Cluster {
    /// Whether [`Cluster::connection`] to this node returns at once, with the connection or with
    /// the reason why there is none. If there is none yet, it is opened in the background.
    pub(in crate::client) fn prepare_connection(&mut self, node: i32) -> bool {
        if self.connections.contains_key(&node) {
            return true;
        }
        if let Some(opening) = self.opening.get_mut(&node) {
            return opening.has_ended(Duration::ZERO);
        }
        let Some(address) = self.brokers.get(&node).cloned() else { return true };
        let options = self.options.clone();
        let begun = BackgroundCall::begin(options.request_timeout, move |wait| {
            BrokerConnection::open_noted(&address, &options, wait)
        });
        let Ok(mut opening) = begun else { return true };
        let has_ended = opening.has_ended(PATIENCE);
        self.opening.insert(node, opening);
        has_ended
    }

    /// Sends a request to any broker, and waits a moment for its answer. `failed`: how many such
    /// requests have failed one after the other.
    pub(in crate::client) fn begin_call(
        &mut self,
        key: i16,
        encode: impl Fn(&mut Writer, i16) + Send + 'static,
        failed: u32,
    ) -> Result<AnyBrokerCall> {
        let (addresses, options) = (self.addresses(), self.options.clone());
        let mut seed = std::mem::take(&mut self.seed);
        BackgroundCall::begin(options.request_timeout.min(attempt_time(failed)), move |wait| {
            let request = ClusterRequest::new(Target::Any, key, &encode);
            let answer = seed.call(&request, (&addresses, &options), wait);
            (seed, answer)
        })
        .map(|mut call| {
            call.has_ended(PATIENCE);
            AnyBrokerCall(call)
        })
    }

    /// Takes the answer of a call. `None`: it has not arrived yet.
    pub(in crate::client) fn end_call(
        &mut self,
        call: &mut Option<AnyBrokerCall>,
    ) -> Option<Result<ApiResponse>> {
        let AnyBrokerCall(ended) = call.take_if(|call| call.0.has_ended(Duration::ZERO))?;
        let (seed, answer) = ended.result().unwrap_or_else(lost_call);
        if self.seed.connection().is_none() {
            self.seed = seed;
        }
        Some(answer)
    }

    /// What is known of a topic. Metadata are requested if none are known, if they were requested
    /// before `since`, or if a partition has no leader. `None`: they have not arrived yet. The
    /// error of a request is returned once, if there is nothing newer than `since`.
    pub(in crate::client) fn topic_in_background(
        &mut self,
        name: &str,
        create: bool,
        since: Option<Instant>,
    ) -> Result<Option<CachedTopic>> {
        self.end_lookup(Duration::ZERO);
        let backoff = self.options.retry_backoff;
        let is_due = self.topics.get(name).is_none_or(|cached| {
            since.is_some_and(|since| cached.requested_at < since) || !cached.is_fresh(backoff)
        });
        if is_due && self.begin_lookup(name, create) {
            self.end_lookup(PATIENCE);
        }
        let cached = self.topics.get(name);
        let is_new = cached.is_some_and(|it| since.is_none_or(|since| it.requested_at >= since));
        match self.lookup.failures.remove(name) {
            Some(error) if !is_new => Err(error),
            _ => Ok(cached.cloned()),
        }
    }

    /// Begins a Metadata request for this topic and all that are wanted, if none is under way and
    /// the pause after a failure is over; returns whether it did.
    fn begin_lookup(&mut self, name: &str, create: bool) -> bool {
        let busy = self.lookup.current.as_ref();
        if busy.is_some_and(|current| current.topics.iter().any(|topic| &**topic == name)) {
            return false;
        }
        if !self.lookup.wanted.contains(name) {
            self.lookup.wanted.insert(Arc::from(name));
        }
        let began = Instant::now();
        if busy.is_some() || self.lookup.retry_at.is_some_and(|at| began < at) {
            return false;
        }
        let topics: Vec<Arc<str>> = std::mem::take(&mut self.lookup.wanted).into_iter().collect();
        let (named, addresses, options) = (topics.clone(), self.addresses(), self.options.clone());
        let most = attempt_time(self.lookup.failed);
        let mut seed = std::mem::take(&mut self.seed);
        let call = BackgroundCall::begin(options.request_timeout.min(most), move |wait| {
            let names: Vec<&str> = named.iter().map(|topic| &**topic).collect();
            let query = MetadataQuery { topics: Some(&names), create };
            let metadata = seed.metadata(&query, (&addresses, &options), wait);
            (seed, metadata)
        });
        match call {
            Ok(call) => self.lookup.current = Some(CurrentLookup { topics, began, call }),
            Err(error) => self.finish_lookup(&topics, began, Err(error)),
        }
        true
    }

    /// Takes the answer of the Metadata request under way; waits for it, `patience` at most.
    fn end_lookup(&mut self, patience: Duration) {
        let ended = self.lookup.current.take_if(|current| current.call.has_ended(patience));
        let Some(CurrentLookup { topics, began, call }) = ended else { return };
        let (seed, metadata) = call.result().unwrap_or_else(lost_call);
        if self.seed.connection().is_none() {
            self.seed = seed;
        }
        self.finish_lookup(&topics, began, metadata);
    }

    fn finish_lookup(&mut self, topics: &[Arc<str>], began: Instant, answer: Result<Metadata>) {
        self.lookup.failed = if answer.is_ok() { 0 } else { self.lookup.failed.saturating_add(1) };
        self.lookup.retry_at = None;
        if let Ok(metadata) = &answer {
            self.apply_metadata(metadata, began);
        }
        for name in topics {
            let error = match &answer {
                Ok(metadata) => metadata.refusal(name),
                Err(error) => Some(error.clone()),
            };
            match error {
                Some(error) => {
                    self.lookup.failures.insert(Arc::clone(name), error);
                    self.lookup.retry_at = Some(Instant::now() + self.options.retry_backoff);
                }
                None => drop(self.lookup.failures.remove(name)),
            }
        }
    }
}

fn attempt_time(failed: u32) -> Duration {
    ATTEMPT_MIN.saturating_mul(1 << failed.min(10))
}

fn lost_call<T>() -> (Seed, Result<T>) {
    (Seed::default(), Err(Error::Invalid("a thread has failed".to_owned())))
}
