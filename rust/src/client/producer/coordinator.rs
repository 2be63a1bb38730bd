//! Requests of a transactional producer to coordinators: the one of its transactional id, and those
//! of the groups whose offsets it commits.
//!
//! A coordinator is looked up at the first request, and again when it moves, loads or does not
//! answer. A request is repeated until its time is over. The connections are separate from those of
//! the Produce requests, because a response is awaited at once here.

use std::collections::HashMap;
use std::time::Duration;

use crate::client::cluster::{Cluster, ClusterRequest, Target};
use crate::client::connection::ApiResponse;
use crate::client::options::{ClientOptions, Wait};
use crate::client::{Error, Result};
use crate::protocol::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use crate::protocol::{end_txn, txn_offset_commit};
use crate::wire::{DecodeError, Writer};

const FIND_COORDINATOR: i16 = 10;
/// The error of a transaction whose predecessor is still being ended.
pub(super) const CONCURRENT_TRANSACTIONS: i16 = 51;
/// The pause before a request that met the end of the previous transaction is repeated. That end
/// takes a few milliseconds.
pub(super) const CONCURRENT_BACKOFF: Duration = Duration::from_millis(10);

/// What a coordinator coordinates. The value is the key type of FindCoordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CoordinatorType {
    Group = 0,
    Transaction = 1,
}

/// A coordinator: its type, and the group or transactional id.
pub(super) type CoordinatorKey<'a> = (CoordinatorType, &'a str);

/// Reads a response: its error code, and what else the caller needs.
type Decode<'a, T> = dyn Fn(&ApiResponse) -> std::result::Result<(i16, T), DecodeError> + 'a;

/// A request to a coordinator.
pub(super) struct CoordinatorRequest<'a, T> {
    /// The API's name, for messages.
    pub(super) name: &'static str,
    pub(super) api: i16,
    /// The newest version to use.
    pub(super) last: i16,
    pub(super) encode: &'a dyn Fn(&mut Writer, i16),
    pub(super) decode: &'a Decode<'a, T>,
}

/// The coordinators that one producer talks to.
pub(super) struct Coordinators {
    cluster: Cluster,
    nodes: HashMap<(CoordinatorType, String), i32>,
}

impl Coordinators {
    pub(super) fn new(options: ClientOptions) -> Self {
        Self { cluster: Cluster::new(options), nodes: HashMap::new() }
    }

    /// Sends a request until a coordinator has accepted it, refused it for good, or the wait ends.
    pub(super) fn call<T>(
        &mut self,
        key: CoordinatorKey<'_>,
        request: &CoordinatorRequest<'_, T>,
        wait: &Wait,
    ) -> Result<T> {
        loop {
            let error = match self.try_call(key, request, wait) {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retriable() || error.code() == CONCURRENT_TRANSACTIONS => error,
                Err(error) => return Err(error),
            };
            let mut backoff = self.cluster.options().retry_backoff;
            if error.code() == CONCURRENT_TRANSACTIONS {
                backoff = backoff.min(CONCURRENT_BACKOFF);
            } else {
                self.nodes.remove(&(key.0, key.1.to_owned()));
            }
            wait.pause(backoff, &error)?;
        }
    }

    /// Whether the coordinator runs transactions version 2 (KIP-890): a new epoch for each
    /// transaction, and partitions that a Produce request adds.
    pub(super) fn has_version_2(&mut self, key: CoordinatorKey<'_>, wait: &Wait) -> Result<bool> {
        let node = self.node(key, wait)?;
        let connection = self.cluster.connection(Target::Broker(node), wait)?;
        let serves = |api: i16| connection.versions().pick(api, 5) == Some(5);
        Ok(connection.transaction_version() >= 2
            && serves(end_txn::KEY)
            && serves(txn_offset_commit::KEY))
    }

    fn try_call<T>(
        &mut self,
        key: CoordinatorKey<'_>,
        request: &CoordinatorRequest<'_, T>,
        wait: &Wait,
    ) -> Result<T> {
        let wait = wait.at_most(self.cluster.options().request_timeout);
        let target = Target::Broker(self.node(key, &wait)?);
        let ask =
            ClusterRequest { target, key: request.api, last: request.last, encode: request.encode };
        let reply = self.cluster.call(&ask, &wait)?;
        match (request.decode)(&reply).map_err(|error| self.cluster.bad(target, error))? {
            (0, answer) => Ok(answer),
            (code, _) => Err(Error::refused(code, request.name)),
        }
    }

    fn node(&mut self, key: CoordinatorKey<'_>, wait: &Wait) -> Result<i32> {
        let owned = (key.0, key.1.to_owned());
        if let Some(node) = self.nodes.get(&owned) {
            return Ok(*node);
        }
        let body = FindCoordinatorRequest {
            key: key.1,
            key_type: key.0 as i8,
            coordinator_keys: vec![key.1],
        };
        let encode = |writer: &mut Writer, version: i16| body.encode(writer, version);
        let ask = ClusterRequest::new(Target::Any, FIND_COORDINATOR, &encode);
        let reply = self.cluster.call(&ask, wait)?;
        let response = FindCoordinatorResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| self.cluster.bad(Target::Any, error))?;
        let (code, node) = match response.coordinators.first() {
            Some(found) => (found.error_code, found.node_id),
            None => (response.error_code, response.node_id),
        };
        if code != 0 {
            return Err(Error::refused(code, format!("the coordinator of {:?}", key.1)));
        }
        self.nodes.insert(owned, node);
        Ok(node)
    }
}
