//! The interface to the policy. The broker submits requests that the policy decides as events and
//! receives answers. Both are plain values with Kafka's field names in snake_case.
//!
//! A ticket identifies an event until it is answered. Four events are the broker's own:
//! `AutoCreate` (`{"topics": [name]}`, answered `{"topics": [{"name", "error_code"}]}`),
//! `AllocateProducerIds`, as Kafka's API 67, `AlterPartition`, as Kafka's API 56 without the
//! broker that asks (see `requests::alter_partition`), and `SelectReplicas` (see
//! `requests::select_replicas`). Events that need no answer have ticket 0:
//! of groups `SessionExpired`, `GroupsLoaded`, `GroupsUnloaded`, `OffsetsExpired`; of disks
//! `LogDirFailed` (`{"replicas": [{"topic", "partition"}]}`, all that are lost).
//! Tickets, slices of large requests and replies: see `requests::decisions`.
//! Limits: `krust.policy.request.memory.bytes` for a client's request as a [`Value`] and as Python
//!     objects; `krust.policy.response.max.bytes` for the answer to a request in slices. Both are
//!     leased from the broker's pool; the value until the event and its objects are dropped.
//!     `krust.policy.timeout.ms` for an answer, in addition to the timeout in the request. Then the
//!     ticket is closed: Metadata and FindCoordinator answer LEADER_NOT_AVAILABLE and
//!     COORDINATOR_NOT_AVAILABLE, any other request closes its connection.
//! Invariant: a ticket is answered at most once; a second answer is ignored.
//! Threads: events are submitted on network threads and answered on any.

use std::sync::Arc;

use crate::memory::Lease;
use crate::protocol::value::Value;

/// The policy. An implementation queues the event and returns at once.
pub trait Policy: Send + Sync {
    /// Takes an event; the answer comes by
    /// [`Broker::answer`](crate::broker::requests::broker::Broker::answer).
    fn submit(&self, event: Event);

    /// The next session expires earlier than
    /// [`Broker::session_due_ms`](crate::broker::requests::broker::Broker::session_due_ms) said.
    fn hurry(&self) {}
}

/// The id of an event until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An event: a request for a decision.
#[derive(Clone, Debug)]
pub struct Event {
    /// Returned with the answer.
    pub ticket: Ticket,
    /// The name of the API, as Kafka's message definitions have it.
    pub api: &'static str,
    /// The request's version.
    pub version: i16,
    /// The request.
    pub request: Value,
    /// The client.
    pub client: RequestClient,
    /// The memory of the request while it or its Python objects exist; `None` for the broker's own
    /// events, and for slices of a request that has a lease.
    pub lease: Option<Arc<Lease>>,
}

/// The client that sent a request.
#[derive(Clone, Debug, Default)]
pub struct RequestClient {
    /// The client id.
    pub id: Option<String>,
    /// The address it came from.
    pub host: String,
    /// The name of its principal; `ANONYMOUS` without a login and without a certificate.
    pub user: Arc<str>,
    /// How it proved that.
    pub proof: ClientProof,
    /// The name of the listener it came through.
    pub listener: Arc<str>,
    /// Its connection's number; never used twice; 0: none.
    pub connection: u64,
}

/// How a client proved who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientProof {
    /// Not at all.
    #[default]
    Nothing,
    /// By a certificate.
    Certificate,
    /// By a login.
    Login,
    /// By a delegation token.
    Token,
}

impl ClientProof {
    /// Its name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Certificate => "certificate",
            Self::Login => "login",
            Self::Token => "token",
        }
    }
}

impl Event {
    /// An event of the broker that needs no answer.
    pub(crate) fn internal(api: &'static str, request: Value) -> Self {
        let client = RequestClient::default();
        Self { ticket: Ticket(0), api, version: 0, request, client, lease: None }
    }
}
