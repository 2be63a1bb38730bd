//! FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.
//! Behaviour: the leader of a group's partition of `__consumer_offsets` coordinates the group (key
//!     type 0), that of a transactional id's partition of `__transaction_state` the id (key type
//!     1). The first request creates the topic: the policy is asked (`AutoCreate`) and the request
//!     is delayed. If the topic still does not exist, or the partition has no leader, the answer is
//!     COORDINATOR_NOT_AVAILABLE (15). Other key types, and an empty transactional id, are
//!     INVALID_REQUEST (42). The connection closes in the same cases as for Metadata. A key that is
//!     named twice is answered once.
//! Authorization: Describe on the group, else GROUP_AUTHORIZATION_FAILED (30), or on the
//!     transactional id, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53).
//! Version notes: v0 has groups only. v1 adds the key type and an error message. v4 asks for many
//!     keys and answers each. v6 adds share groups (key type 2), which are refused.
//! Not done: share groups.

use ahash::HashMap;

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::handlers::metadata::advertised_brokers;
use crate::broker::policy::{Event, Ticket};
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::decisions::TicketHolder;
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress};
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::{Flow, Peer};
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::acls::ResourceType;
use crate::broker::state::coordinator::shards::partition_for;
use crate::broker::state::groups;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::transactions;
use crate::broker::state::waking::DelayedId;
use crate::protocol::ErrorCode;
use crate::protocol::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use crate::protocol::value::Value;
use crate::wire::Reader;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// The first version that asks for many keys.
const KEYS_FROM: i16 = 4;

/// A request that waits for the coordinator's topic.
#[derive(Debug)]
struct DelayedLookup {
    access: Access,
    /// The request.
    body: Box<[u8]>,
    here: i32,
    peer: Peer,
    /// The policy's answer is not there yet.
    ticket: Ticket,
}

/// The node id of the coordinator, or the error.
type CoordinatorId = Result<i32, ErrorCode>;
/// Host and port of nodes.
type Addresses = HashMap<i32, (String, i32)>;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    let request = FindCoordinatorRequest::decode(&mut call.reader(), version)?;
    let key_type = request.key_type;
    let keys = keys(request, version);
    let image = call.image();
    if image.waits {
        return Ok(Flow::Close);
    }
    let here = call.broker.settings.load().node_id;
    let access = call.access();
    let may_find = |key: &str| refused(&access, (key_type, key)).is_none();
    if let Some(topic) = topic_of(key_type)
        && image.topic(topic).is_none()
        && keys.iter().any(|key| may_find(key))
    {
        create(call, topic, here);
        return Ok(Flow::Hold);
    }
    let addresses = addresses(&image, (here, &call.connection.peer));
    let find = |key: &str| coordinator_of((&image, &access), &addresses, (key_type, key));
    let found: Vec<(&str, CoordinatorId)> = keys.into_iter().map(|key| (key, find(key))).collect();
    call.reply(|writer, version| respond(&found, &addresses, version).encode(writer, version));
    Ok(Flow::Go)
}

/// The requested keys without repetitions.
fn keys<'f>(request: FindCoordinatorRequest<'f>, version: i16) -> Vec<&'f str> {
    if version < KEYS_FROM {
        return vec![request.key];
    }
    let (mut keys, mut first) = (request.coordinator_keys, FirstOnly::default());
    keys.retain(|key| first.passes(*key));
    keys
}

impl DelayedLookup {
    /// The reply, after the policy has created the topic or refused to.
    fn reply(&self, at: &DelayedContext<'_>) -> Output {
        let mut reader = Reader::new(&self.body);
        let request =
            FindCoordinatorRequest::decode(&mut reader, at.head.version).unwrap_or_default();
        let addresses = addresses(&at.thread.image, (self.here, &self.peer));
        let key_type = request.key_type;
        let keys = keys(request, at.head.version).into_iter();
        let seen = (&*at.thread.image, &self.access);
        let find = |key: &str| coordinator_of(seen, &addresses, (key_type, key));
        let found: Vec<(&str, CoordinatorId)> = keys.map(|key| (key, find(key))).collect();
        at.head
            .output(|writer, version| respond(&found, &addresses, version).encode(writer, version))
    }
}

impl DelayedOperation for DelayedLookup {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if !is_late {
            return OperationProgress::Waits(self);
        }
        at.broker.give_up(self.ticket, at.head);
        OperationProgress::Answered(self.reply(at))
    }

    fn topics_created(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        _: HashMap<String, ErrorCode>,
    ) -> Option<Output> {
        Some(self.reply(at))
    }

    fn cancel(&self, broker: &Broker, _: usize, _: DelayedId) {
        broker.tickets.close(self.ticket);
    }
}

/// The topic of the coordinators of a key type.
fn topic_of(key_type: i8) -> Option<&'static str> {
    match key_type {
        GROUP => Some(groups::shard::TOPIC),
        TRANSACTION => Some(transactions::shard::TOPIC),
        _ => None,
    }
}

/// Has a topic created. Nobody waits for it: the client asks again.
pub(crate) fn request_topic(call: &mut Call<'_, '_>, topic: &str) {
    let thread = call.thread.index;
    let delayed = call.thread.delayed.name();
    let ticket = call.broker.tickets.open(TicketHolder::AutoCreate { thread, delayed });
    let (request, client) = (creation_of(topic), call.client());
    let event = Event { ticket, api: "AutoCreate", version: 0, request, client, lease: None };
    call.broker.policy.submit(event);
}

fn creation_of(topic: &str) -> Value {
    let names = Value::List(vec![Value::Str(topic.into())]);
    Value::Map(vec![("topics".into(), names)])
}

fn create(call: &mut Call<'_, '_>, topic: &str, here: i32) {
    let thread = call.thread.index;
    let delayed = call.thread.delayed.name();
    let ticket = call.broker.tickets.open(TicketHolder::AutoCreate { thread, delayed });
    let (body, peer) = (call.request.body.into(), call.connection.peer.clone());
    let access = call.access();
    let waiting = Box::new(DelayedLookup { access, body, here, peer, ticket });
    let deadline_ms = call.decision_deadline_ms(0);
    call.delay_as(delayed, Some(deadline_ms), waiting);
    let (request, client) = (creation_of(topic), call.client());
    call.submit(Event { ticket, api: "AutoCreate", version: 0, request, client, lease: None });
}

/// The addresses of the brokers for clients.
fn addresses(image: &ClusterImage, (here, peer): (i32, &Peer)) -> Addresses {
    let brokers = advertised_brokers(image, here, peer).into_iter();
    brokers.map(|broker| (broker.node_id, (broker.host, broker.port))).collect()
}

/// The node that leads the partition of a key.
fn leader(image: &ClusterImage, topic: &str, key: &str) -> Option<i32> {
    let partitions = &image.topic(topic)?.partitions;
    let partition = partitions.get(partition_for(key, partitions.len()))?;
    Some(partition.state.leader).filter(|leader| *leader >= 0)
}

/// The error of a key that the client may not look up.
fn refused(access: &Access, (key_type, key): (i8, &str)) -> Option<ErrorCode> {
    let (of, error) = match key_type {
        TRANSACTION => {
            (ResourceType::TransactionalId, ErrorCode::TransactionalIdAuthorizationFailed)
        }
        _ => (ResourceType::Group, ErrorCode::GroupAuthorizationFailed),
    };
    (!access.check(Describe, of, key)).then_some(error)
}

fn coordinator_of(
    (image, access): (&ClusterImage, &Access),
    addresses: &Addresses,
    (key_type, key): (i8, &str),
) -> CoordinatorId {
    if let Some(error) = refused(access, (key_type, key)) {
        return Err(error);
    }
    let is_empty_id = key_type == TRANSACTION && key.is_empty();
    let topic = topic_of(key_type).filter(|_| !is_empty_id).ok_or(ErrorCode::InvalidRequest)?;
    let node = leader(image, topic, key).filter(|node| addresses.contains_key(node));
    node.ok_or(ErrorCode::CoordinatorNotAvailable)
}

fn respond<'a>(
    found: &'a [(&'a str, CoordinatorId)],
    addresses: &'a Addresses,
    version: i16,
) -> FindCoordinatorResponse<'a> {
    let coordinators = found.iter().map(|(key, coordinator)| {
        let address = coordinator.ok().and_then(|node| Some((node, addresses.get(&node)?)));
        let (node_id, host, port) = match address {
            Some((node, (host, port))) => (node, host.as_str(), *port),
            None => (-1, "", -1),
        };
        let error = coordinator.as_ref().err().copied().unwrap_or(ErrorCode::None);
        let error_message = match error {
            ErrorCode::None => None,
            ErrorCode::InvalidRequest => {
                Some("only groups and transactional ids that are not empty have coordinators here")
            }
            ErrorCode::GroupAuthorizationFailed | ErrorCode::TransactionalIdAuthorizationFailed => {
                Some("you may not describe it")
            }
            _ => Some("the coordinator is not available yet"),
        };
        Coordinator { key, node_id, host, port, error_code: error.code(), error_message }
    });
    if version >= KEYS_FROM {
        let coordinators = coordinators.collect();
        return FindCoordinatorResponse { coordinators, ..Default::default() };
    }
    let mut coordinators = coordinators;
    let Some(first) = coordinators.next() else { return FindCoordinatorResponse::default() };
    let Coordinator { node_id, host, port, error_code, error_message, .. } = first;
    FindCoordinatorResponse { error_code, error_message, node_id, host, port, ..Default::default() }
}
