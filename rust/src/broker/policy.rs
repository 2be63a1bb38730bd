//! The port to the room that decides: requests whose answer is a decision leave here as events and
//! come back as answers, both as plain values with Kafka's field names in snake_case.
//!
//! A ticket stands for one event until it is answered. For a client's request the answer is encoded
//! with the request's version and fills the request's slot, through the mailbox of its thread. Two
//! events are the broker's own: `AutoCreate` (`{"topics": [name]}`, answered
//! `{"topics": [{"name", "error_code"}]}`) and `AllocateProducerIds`, as Kafka's API 67. Ticket 0
//! is nobody's: events that want no answer have it (of groups `SessionExpired`, `GroupsLoaded`,
//! `GroupsUnloaded`, `OffsetsExpired`; of disks `LogDirFailed`: `{"replicas": [{"topic",
//! "partition"}]}`, all that are lost).
//! Invariant: a ticket is answered at most once; a second answer is ignored.
//! Threads: submitted from reactor threads, answered from any.
//! Not promised: a deadline; a request whose event is never answered keeps its connection waiting.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use parking_lot::Mutex;

use super::call::Head;
use super::image::FastHasher;
use super::{Output, ParkedId};
use crate::protocol::value::{Value, ValueError};
use crate::protocol::{Direction, ErrorCode, encode_any};
use crate::wire::Sink;

/// Decides. The implementation hands the event to whoever does, and returns at once.
pub trait Policy: Send + Sync {
    /// Takes an event; the answer comes by [`Broker::answer`](super::Broker::answer).
    fn submit(&self, event: Event);

    /// A member's time is up earlier than [`Broker::session_due_ms`](super::Broker::session_due_ms)
    /// said.
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
        Self { ticket: Ticket(0), api, version: 0, request, client: Client::default() }
    }
}

/// What an event was submitted for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// A client's request, parked as `parked` on `thread`.
    Request { thread: usize, parked: ParkedId, question: Question },
    /// Topics that a Metadata request wants created; it is parked likewise.
    AutoCreate { thread: usize, parked: ParkedId },
    /// A block of producer ids, for whoever waits.
    ProducerIds,
}

/// What a client asked of the policy.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) head: Head,
    /// Entries of the answer's list that were settled here; the policy did not hear of them.
    pub(crate) settled: Vec<Value>,
}

impl Question {
    /// The reply, with what was settled here behind what the policy answered.
    pub(crate) fn reply(&self, response: &Value) -> Result<Output, ValueError> {
        let mut head = self.head;
        let Head { api, version, .. } = head;
        let mut response = Cow::Borrowed(response);
        if !self.settled.is_empty()
            && let Value::Map(fields) = response.to_mut()
        {
            for (_, value) in fields {
                if let Value::List(entries) = value {
                    entries.extend_from_slice(&self.settled);
                }
            }
        }
        let body = encode_any(api.key, version, Direction::Response, &response)?;
        if let Some(Value::Int(told)) = response.field("throttle_time_ms") {
            let told = i32::try_from(*told).unwrap_or(i32::MAX);
            head.throttle_time_ms = head.throttle_time_ms.max(told);
        }
        Ok(head.output(|writer, _| writer.raw(&body.buf)))
    }
}

/// All tickets that are out.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    state: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    asked: HashMap<u64, Asked, BuildHasherDefault<FastHasher>>,
}

/// The topics that an answer to `AutoCreate` refuses, and why.
pub(crate) fn refused_topics(answer: &Value) -> Vec<(String, ErrorCode)> {
    let Some(Value::List(topics)) = answer.field("topics") else { return Vec::new() };
    let refused = topics.iter().filter_map(|topic| {
        let (Some(Value::Str(name)), Some(Value::Int(code))) =
            (topic.field("name"), topic.field("error_code"))
        else {
            return None;
        };
        let error = ErrorCode::from(i16::try_from(*code).unwrap_or(-1));
        (error != ErrorCode::None).then(|| (name.clone(), error))
    });
    refused.collect()
}

impl Tickets {
    /// Opens a ticket.
    pub(crate) fn open(&self, asked: Asked) -> Ticket {
        let mut state = self.state.lock();
        state.next += 1;
        let ticket = state.next;
        state.asked.insert(ticket, asked);
        Ticket(ticket)
    }

    /// What an open ticket is for.
    pub(crate) fn look(&self, ticket: Ticket) -> Option<Asked> {
        self.state.lock().asked.get(&ticket.0).cloned()
    }

    /// Closes a ticket: what it was for, or `None` where it is not open.
    pub(crate) fn close(&self, ticket: Ticket) -> Option<Asked> {
        self.state.lock().asked.remove(&ticket.0)
    }
}
