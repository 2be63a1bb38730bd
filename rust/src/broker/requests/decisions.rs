//! Decisions that the policy has not made yet: which requests wait for them, and how the answers
//! become replies.
//!
//! A ticket identifies an event until it is answered. An answer to a client's request is encoded
//! with the request's version and fills the request's slot, through the mailbox of its thread.
//! A request with a long list of independent items (`LISTS`) is submitted in slices. The next slice
//! follows when the one before is answered. Other requests are decided in between, and only the
//! encoded answer is kept. An item that is named twice is asked for once.
//! Invariant: a ticket is answered at most once; a second answer is ignored.
//! Threads: tickets are opened on network threads and closed on any.

use crate::broker::policy::{Event, RequestClient, Ticket};
use crate::broker::requests::access::Access;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::waking::DelayedId;
use crate::memory::Lease;
use crate::protocol::value::{Value, ValueError, ValueProblem};
use crate::protocol::{
    Direction, ErrorCode, alter_client_quotas, consumer_group_describe, delete_groups,
    describe_configs, describe_groups, encode_any,
};
use crate::wire::{Reader, Sink};

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ahash::HashMap;
use parking_lot::Mutex;

/// What a ticket was opened for.
#[derive(Clone, Debug)]
pub(crate) enum TicketHolder {
    /// A client's request, delayed as `delayed` on `thread`.
    Request { thread: usize, delayed: DelayedId, question: Arc<PolicyRequest> },
    /// Topics that a Metadata or FindCoordinator request wants created. The request is delayed.
    AutoCreate { thread: usize, delayed: DelayedId },
    /// A block of producer ids for waiting requests.
    ProducerIds,
    /// In-sync sets that this broker's leaders propose.
    AlterPartition,
    /// Replicas for consumers to read.
    SelectReplicas,
}

/// A client's request that the policy decides.
#[derive(Debug)]
pub(crate) struct PolicyRequest {
    pub(crate) head: Head,
    /// Entries of the answer's list that were decided here; the policy did not receive their items.
    pub(crate) settled: Vec<Value>,
    /// The slices still to be submitted.
    pub(crate) slices: Option<Mutex<RequestSlices>>,
    /// Hides what the client may not know.
    pub(crate) filter: Option<AnswerFilter>,
}

/// Hides parts of an answer from a client that may not know them.
#[derive(Debug)]
pub(crate) struct AnswerFilter {
    pub(crate) access: Access,
    pub(crate) hide: fn(&Access, &mut Value),
}

/// An API whose request is a list of independent items.
#[derive(Debug)]
struct ListApi {
    key: i16,
    /// The names of the request's list and the answer's list.
    fields: (&'static str, &'static str),
    /// The number of items in a slice.
    slice: usize,
    /// An upper bound for the value and the objects of one entry of the answer, from measurements.
    entry_bytes: usize,
}

/// DescribeGroups, DescribeConfigs, DeleteGroups, AlterClientQuotas, ConsumerGroupDescribe. Groups
/// are deleted many at once: each slice waits for a commit.
const LISTS: [ListApi; 5] = [
    ListApi {
        key: describe_groups::KEY,
        fields: ("groups", "groups"),
        slice: 32,
        entry_bytes: 8 << 10,
    },
    ListApi {
        key: describe_configs::KEY,
        fields: ("resources", "results"),
        slice: 16,
        entry_bytes: 128 << 10,
    },
    ListApi {
        key: delete_groups::KEY,
        fields: ("groups_names", "results"),
        slice: 4096,
        entry_bytes: 512,
    },
    ListApi {
        key: alter_client_quotas::KEY,
        fields: ("entries", "entries"),
        slice: 200,
        entry_bytes: 4 << 10,
    },
    ListApi {
        key: consumer_group_describe::KEY,
        fields: ("group_ids", "groups"),
        slice: 32,
        entry_bytes: 8 << 10,
    },
];

/// The slices of one request.
#[derive(Debug)]
pub(crate) struct RequestSlices {
    list: &'static ListApi,
    /// The request without its list of items.
    frame: Value,
    client: RequestClient,
    /// Items not yet submitted.
    rest: VecDeque<Value>,
    answered: EncodedEntries,
    answer_max: usize,
    lease: Lease,
}

/// Encoded entries of an answer's list.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncodedEntries {
    count: usize,
    bytes: Vec<u8>,
}

/// A policy's answer, encoded.
#[derive(Debug)]
pub(crate) enum PolicyAnswer {
    /// The reply to the client.
    Whole(Output),
    /// A part of the reply; more slices follow.
    Slice(EncodedEntries),
}

/// Removes repeated items from a request's list and keeps its order.
pub(crate) fn deduplicate(key: i16, request: &mut Value) {
    let Some(list) = LISTS.iter().find(|list| list.key == key) else { return };
    let Some(entries) = request.items_mut(list.fields.0) else { return };
    let keys = RandomState::new();
    let mut seen = HashSet::new();
    entries.retain(|entry| {
        let mut hasher = keys.build_hasher();
        entry.hash_into(&mut hasher);
        seen.insert(std::hash::Hasher::finish(&hasher))
    });
}

impl RequestSlices {
    /// Splits a request into its first slice and the rest. A request that is not split is returned
    /// with its lease.
    pub(crate) fn of(
        (head, client): (Head, &RequestClient),
        mut request: Value,
        answer_max: usize,
        mut lease: Lease,
    ) -> Result<(Value, Self), (Value, Lease)> {
        let list = LISTS.iter().find(|list| list.key == head.api.key);
        let Some(list) = list else { return Err((request, lease)) };
        let entries = request.items_mut(list.fields.0).map(std::mem::take);
        let entries = entries.unwrap_or_default();
        let most = list.slice.min(entries.len()) * list.entry_bytes;
        if !lease.grow(most) {
            tracing::debug!(api = head.api.name, "the pool has no room for an answer yet");
        }
        let (client, rest) = (client.clone(), VecDeque::from(entries));
        let answered = EncodedEntries::default();
        let mut slices = Self { list, frame: request, client, rest, answered, answer_max, lease };
        Ok((slices.next(), slices))
    }

    /// The next slice, as a request.
    fn next(&mut self) -> Value {
        let count = self.list.slice.min(self.rest.len());
        let mut request = self.frame.clone();
        if let Some(entries) = request.items_mut(self.list.fields.0) {
            entries.extend(self.rest.drain(..count));
        }
        request
    }

    /// Whether the answer may grow by `more` bytes.
    fn may_hold(&mut self, more: usize) -> bool {
        self.answered.bytes.len() + more <= self.answer_max && self.lease.grow(more)
    }

    /// Answers for the items that were not submitted, because the answer may not grow further.
    fn refused(&mut self) -> Vec<Value> {
        let code = Value::Int(ErrorCode::InvalidRequest.code().into());
        let entry = |entry: Value| {
            let mut fields = match entry {
                Value::Map(mut fields) => {
                    fields.retain(|(name, _)| name.starts_with("resource_") || name == "entity");
                    let text = "the answer is larger than krust.policy.response.max.bytes: ask \
                                for fewer at once";
                    fields.push(("error_message".into(), Value::Str(text.into())));
                    fields
                }
                group_id => vec![("group_id".into(), group_id)],
            };
            fields.push(("error_code".into(), code.clone()));
            Value::Map(fields)
        };
        self.rest.drain(..).map(entry).collect()
    }
}

impl PolicyRequest {
    /// Encodes the policy's answer: the whole reply or a part of it.
    pub(crate) fn answered(&self, response: &Value) -> Result<PolicyAnswer, ValueError> {
        let mut response = Cow::Borrowed(response);
        if let Some(AnswerFilter { access, hide }) = &self.filter {
            hide(access, response.to_mut());
        }
        let Some(slices) = &self.slices else {
            return self.reply(response).map(PolicyAnswer::Whole);
        };
        let is_last = slices.lock().rest.is_empty();
        if is_last && !self.settled.is_empty() {
            self.settle(response.to_mut());
        }
        self.entries(&response).map(PolicyAnswer::Slice)
    }

    /// Adds a part of the reply. Returns the next slice to submit as `ticket`, or else the whole
    /// reply.
    pub(crate) fn proceed(
        &self,
        ticket: Ticket,
        part: EncodedEntries,
    ) -> Result<Box<Event>, Output> {
        let Some(slices) = &self.slices else { return Err(Output::default()) };
        let mut slices = slices.lock();
        let has_room = slices.may_hold(part.bytes.len());
        slices.answered.add(part);
        if !has_room && !slices.rest.is_empty() {
            let refused = slices.refused();
            let field = (slices.list.fields.1.into(), Value::List(refused));
            let mut refused = Value::Map(vec![field]);
            self.settle(&mut refused);
            if let Ok(part) = self.entries(&refused) {
                slices.answered.add(part);
            }
        }
        if slices.rest.is_empty() {
            return Err(self.whole(&slices.answered));
        }
        let (request, client) = (slices.next(), slices.client.clone());
        let Head { api, version, .. } = self.head;
        Ok(Box::new(Event { ticket, api: api.name, version, request, client, lease: None }))
    }

    /// The reply: the policy's entries, then those that were decided here.
    fn reply(&self, mut response: Cow<'_, Value>) -> Result<Output, ValueError> {
        let mut head = self.head;
        let Head { api, version, .. } = head;
        set_throttle_time(head, &mut response);
        if !self.settled.is_empty() {
            self.settle(response.to_mut());
        }
        let body = encode_any(api.key, version, Direction::Response, &response)?;
        if let Some(Value::Int(throttle_ms)) = response.field("throttle_time_ms") {
            let throttle_ms = i32::try_from(*throttle_ms).unwrap_or(i32::MAX);
            head.throttle_time_ms = head.throttle_time_ms.max(throttle_ms);
        }
        Ok(head.output(|writer, _| writer.raw(&body.buf)))
    }

    fn settle(&self, response: &mut Value) {
        let Value::Map(fields) = response else { return };
        for (_, value) in fields {
            if let Value::List(entries) = value {
                entries.extend_from_slice(&self.settled);
            }
        }
    }

    /// Encodes the entries of an answer. Apart from them the response has only its throttle time,
    /// their count, and the tags.
    fn entries(&self, response: &Value) -> Result<EncodedEntries, ValueError> {
        let Head { api, version, .. } = self.head;
        let body = encode_any(api.key, version, Direction::Response, response)?;
        let is_flexible = api.response_is_tagged(version);
        let mut reader = Reader::new(&body.buf);
        let mut read = || {
            if api.throttle_at(version).is_some() {
                reader.i32()?;
            }
            let count = reader.long_len(is_flexible)?.unwrap_or_default();
            let bytes = reader.take(reader.remaining() - usize::from(is_flexible))?.to_vec();
            Ok(EncodedEntries { count, bytes })
        };
        read().map_err(|_: crate::wire::DecodeError| ValueProblem::Unknown.into())
    }

    /// The reply made of all entries.
    fn whole(&self, entries: &EncodedEntries) -> Output {
        let Head { api, version, .. } = self.head;
        let is_flexible = api.response_is_tagged(version);
        self.head.output(|writer, _| {
            if api.throttle_at(version).is_some() {
                writer.i32(0);
            }
            writer.long_len(is_flexible, Some(entries.count));
            writer.raw(&entries.bytes);
            if is_flexible {
                writer.unsigned_varint(0);
            }
        })
    }
}

impl EncodedEntries {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.bytes.extend_from_slice(&more.bytes);
    }
}

/// All open tickets.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    state: Mutex<OpenDecision>,
}

#[derive(Debug, Default)]
struct OpenDecision {
    next: u64,
    asked: HashMap<u64, TicketHolder>,
}

/// The timeout in the request: how long the policy may wait for other members, or for the effect of
/// its decision.
pub(crate) fn waits_ms(request: &Value) -> i64 {
    let field = |name| match request.field(name) {
        Some(Value::Int(ms)) => i64::from(i32::try_from(*ms).unwrap_or(0).max(0)),
        _ => 0,
    };
    let of_group = field("rebalance_timeout_ms").max(field("session_timeout_ms"));
    of_group.saturating_add(field("timeout_ms"))
}

/// Sets the throttle time of a response that does not have it at a known position.
pub(crate) fn set_throttle_time(head: Head, response: &mut Cow<'_, Value>) {
    if head.throttle_time_ms > 0
        && head.api.throttle_at(head.version).is_none()
        && let Some(Value::Int(throttle_ms)) = response.to_mut().field_mut("throttle_time_ms")
    {
        *throttle_ms = (*throttle_ms).max(head.throttle_time_ms.into());
    }
}

/// The topics that an answer to `AutoCreate` refuses, and their errors.
pub(crate) fn refused_topics(answer: &Value) -> HashMap<String, ErrorCode> {
    let Some(Value::List(topics)) = answer.field("topics") else { return HashMap::default() };
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
    pub(crate) fn open(&self, asked: TicketHolder) -> Ticket {
        let mut state = self.state.lock();
        state.next += 1;
        let ticket = state.next;
        state.asked.insert(ticket, asked);
        Ticket(ticket)
    }

    /// The purpose of an open ticket.
    pub(crate) fn purpose(&self, ticket: Ticket) -> Option<TicketHolder> {
        self.state.lock().asked.get(&ticket.0).cloned()
    }

    /// Closes a ticket. Returns what it was opened for; `None` if it is not open.
    pub(crate) fn close(&self, ticket: Ticket) -> Option<TicketHolder> {
        self.state.lock().asked.remove(&ticket.0)
    }
}
