//! The port to the policy: requests whose answer is a decision leave here as events and
//! come back as answers, both as plain values with Kafka's field names in snake_case.
//!
//! A ticket stands for one event until it is answered. For a client's request the answer is encoded
//! with the request's version and fills the request's slot, through the mailbox of its thread. Two
//! events are the broker's own: `AutoCreate` (`{"topics": [name]}`, answered
//! `{"topics": [{"name", "error_code"}]}`) and `AllocateProducerIds`, as Kafka's API 67. Ticket 0
//! is nobody's: events that want no answer have it (of groups `SessionExpired`, `GroupsLoaded`,
//! `GroupsUnloaded`, `OffsetsExpired`; of disks `LogDirFailed`: `{"replicas": [{"topic",
//! "partition"}]}`, all that are lost).
//! A request that names many things which are decided one by one (`LISTS`) is submitted in slices,
//! the next one when the one before is answered: others are decided in between, and only the
//! answer's bytes on the wire are kept. What is named twice is asked for once.
//! Limits: `krust.policy.request.memory.bytes` for the tree and the objects of a client's request,
//!     `krust.policy.response.max.bytes` for the answer of one that is sliced. Both are leased from
//!     the broker's pool, the tree for as long as the event or the objects made of it exist.
//! Invariant: a ticket is answered at most once; a second answer is ignored.
//! Threads: submitted from reactor threads, answered from any.
//! Limits: `krust.policy.timeout.ms` for an answer, on top of the time that the request itself
//!     gives. When it is over the ticket is closed: topics that Metadata or FindCoordinator wait
//!     for are LEADER_NOT_AVAILABLE and COORDINATOR_NOT_AVAILABLE, any other request closes its
//!     connection.

use std::sync::Arc;

use crate::memory::Lease;
use crate::protocol::value::Value;

/// Decides. The implementation hands the event to whoever does, and returns at once.
pub trait Policy: Send + Sync {
    /// Takes an event; the answer comes by
    /// [`Broker::answer`](crate::broker::requests::broker::Broker::answer).
    fn submit(&self, event: Event);

    /// A member's time is up earlier than
    /// [`Broker::session_due_ms`](crate::broker::requests::broker::Broker::session_due_ms) said.
    fn hurry(&self) {}
}

/// Stands for an event until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A request for a decision.
#[derive(Clone, Debug)]
pub struct Event {
    /// To be given back with the answer.
    pub ticket: Ticket,
    /// The name of the API, as Kafka's message definitions have it.
    pub api: &'static str,
    /// The request's version.
    pub version: i16,
    /// The request.
    pub request: Value,
    /// Who asks.
    pub client: Client,
    /// Pays for the request while it, or what was made of it, exists; `None`: it is the broker's
    /// own, or a slice of one that is paid for as a whole.
    pub lease: Option<Arc<Lease>>,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// What the client calls itself.
    pub id: Option<String>,
    /// The address it came from.
    pub host: String,
    /// The name of the listener it came through.
    pub listener: Arc<str>,
    /// Its connection's number; never used twice, 0 is none.
    pub connection: u64,
}

impl Event {
    /// An event of the broker's own that wants no answer.
    pub(crate) fn internal(api: &'static str, request: Value) -> Self {
        let client = Client::default();
        Self { ticket: Ticket(0), api, version: 0, request, client, lease: None }
    }
}
