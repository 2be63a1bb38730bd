//! Metadata (3), v0-13: the brokers, the controller, and topics with their partitions and leaders.
//! Behaviour: answered from the cluster image. A missing topic is created first if the broker
//!     allows it and (from v4) the request does: the policy is asked (`AutoCreate`) and the request
//!     is delayed. If the topic still does not exist, the answer is the policy's error or
//!     LEADER_NOT_AVAILABLE (5). An invalid name is INVALID_TOPIC_EXCEPTION (17). A replica on a
//!     failed disk is listed as offline and has no leader. Brokers without the client's listener
//!     are omitted. Until the controller has sent this broker its first metadata, the connection is
//!     closed: an empty reply would say that no topic exists. This broker's address is the
//!     advertised one of the listener, or the one that the client connected to. A topic that is
//!     named twice is answered once. The memory of a delayed request is leased from the broker's
//!     pool first.
//! Version notes: in v0 an empty list means all topics; from v1 on null means all and empty means
//!     none. v4 may forbid creation. v5 adds offline replicas. v8-v10 have cluster operations, v8
//!     topic operations. v10 adds topic ids to replies, v12 to requests (unknown: UNKNOWN_TOPIC_ID,
//!     100). v13 adds an error for the whole reply.
//! Authorization: a topic that the client names and may not describe is TOPIC_AUTHORIZATION_FAILED
//!     (29), whether or not it exists; one that it may not create, too. A list of all topics has
//!     those that it may describe.

use std::sync::Arc;

use ahash::HashMap;

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::policy::{Event, Ticket};
use crate::broker::requests::access::{Access, OPERATIONS_NOT_ASKED};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::connection::FollowingFrames;
use crate::broker::requests::decisions::TicketHolder;
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::{Flow, Peer};
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::acls::ResourceType::Topic;
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::broker::state::waking::DelayedId;
use crate::ids::TopicId;
use crate::memory::Lease;
use crate::protocol::ErrorCode;
use crate::protocol::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use crate::protocol::value::Value;

/// The most topics that one request creates; its client asks again for the others.
const CREATED_MAX: usize = 1000;
/// The memory of a topic while it is created, without its name: in the delayed request, as a
/// `Value`, and as Python's objects.
const CREATION_BYTES: usize = 1024;
/// The memory of a topic in a waiting request, without its name.
const WAITING_BYTES: usize = 64;
/// After this time a request that got no lease is retried.
const AGAIN_MS: i32 = 20;
/// The longest name of a topic.
const NAME_MAX: usize = 249;

/// A request that waits for topics to be created.
#[derive(Debug)]
struct DelayedMetadata {
    asked: Vec<RequestedTopic>,
    access: Access,
    node: i32,
    peer: Peer,
    cluster_operations: bool,
    topic_operations: bool,
    /// The topics that were not created, and why.
    refused: HashMap<String, ErrorCode>,
    /// The policy's answer is not there yet.
    ticket: Ticket,
}

/// A requested topic.
#[derive(Clone, Debug)]
enum RequestedTopic {
    Name(String),
    Id(TopicId),
}

/// The inputs of a reply.
struct MetadataReply<'a> {
    image: &'a ClusterImage,
    access: &'a Access,
    node: i32,
    peer: &'a Peer,
    cluster_operations: bool,
    topic_operations: bool,
    /// The error of a missing topic that was named.
    absent: ErrorCode,
    /// The errors of topics that were not created.
    refused: &'a HashMap<String, ErrorCode>,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    let request = MetadataRequest::decode(&mut call.reader(), version)?;
    let image = call.image();
    if image.waits {
        return Ok(Flow::Close);
    }
    let by_id = |id: TopicId| (id != TopicId::ZERO).then_some(RequestedTopic::Id(id));
    let asked: Option<Vec<RequestedTopic>> =
        request.topics.filter(|topics| version > 0 || !topics.is_empty()).map(|topics| {
            let mut first = FirstOnly::default();
            // An id beside a name is ignored.
            let key = |name: Option<_>, id| (name, name.is_none().then_some(id));
            let once = topics.iter().filter(|topic| first.passes(key(topic.name, topic.topic_id)));
            let asked = once.filter_map(|topic| match topic.name {
                Some(name) => Some(RequestedTopic::Name(name.to_owned())),
                None => by_id(topic.topic_id),
            });
            asked.collect()
        });
    let settings = call.broker.settings.load();
    let may_create =
        settings.auto_create_topics && (version < 4 || request.allow_auto_topic_creation);
    let access = call.access();
    let mut refused = HashMap::default();
    let absent = match may_create {
        true => absent((&image, &access), asked.as_deref(), &mut refused),
        false => Vec::new(),
    };
    if !absent.is_empty() {
        let named = asked.as_ref().map_or(0, Vec::len);
        let cost =
            call.request.body.len() * 2 + named * WAITING_BYTES + absent.len() * CREATION_BYTES;
        let Some(lease) = call.broker.memory.lease(cost) else {
            call.connection.following_frames = FollowingFrames::WaitForRetry;
            call.replies.mute(AGAIN_MS);
            return Ok(Flow::Go);
        };
        let waiting = DelayedMetadata {
            asked: asked.unwrap_or_default(),
            access,
            node: settings.node_id,
            peer: call.connection.peer.clone(),
            cluster_operations: request.include_cluster_authorized_operations,
            topic_operations: request.include_topic_authorized_operations,
            refused,
            ticket: Ticket(0),
        };
        create(call, (absent, lease), waiting);
        return Ok(Flow::Hold);
    }
    let answer = MetadataReply {
        image: &image,
        access: &access,
        node: settings.node_id,
        peer: &call.connection.peer.clone(),
        cluster_operations: request.include_cluster_authorized_operations,
        topic_operations: request.include_topic_authorized_operations,
        absent: ErrorCode::UnknownTopicOrPartition,
        refused: &refused,
    };
    let output = call.replies.ready();
    answer.write(call.request.head, output, asked.as_deref());
    Ok(Flow::Go)
}

/// Missing topics that were named and may be created. `refused` gets those that the client may
/// describe, but not create.
fn absent(
    (image, access): (&ClusterImage, &Access),
    asked: Option<&[RequestedTopic]>,
    refused: &mut HashMap<String, ErrorCode>,
) -> Vec<Value> {
    let missing = asked.into_iter().flatten().filter_map(|asking| match asking {
        RequestedTopic::Name(name) if image.topic(name).is_none() && is_legal(name) => {
            if !access.sees(Describe, Topic, name) {
                return None;
            }
            if !access.may_create(name) {
                refused.insert(name.clone(), ErrorCode::TopicAuthorizationFailed);
                return None;
            }
            Some(Value::Str(name.clone()))
        }
        _ => None,
    });
    missing.take(CREATED_MAX).collect()
}

impl DelayedMetadata {
    /// The reply after the policy's decision.
    fn reply(&self, at: &DelayedContext<'_>) -> Output {
        let answer = MetadataReply {
            image: &at.thread.image,
            access: &self.access,
            node: self.node,
            peer: &self.peer,
            cluster_operations: self.cluster_operations,
            topic_operations: self.topic_operations,
            absent: ErrorCode::LeaderNotAvailable,
            refused: &self.refused,
        };
        let mut output = Output::default();
        answer.write(at.head, &mut output, Some(&self.asked));
        output
    }
}

impl DelayedOperation for DelayedMetadata {
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
        mut self: Box<Self>,
        at: &mut DelayedContext<'_>,
        refused: HashMap<String, ErrorCode>,
    ) -> Option<Output> {
        self.refused.extend(refused);
        Some(self.reply(at))
    }

    fn cancel(&self, broker: &Broker, _: usize, _: DelayedId) {
        broker.tickets.close(self.ticket);
    }
}

fn create(
    call: &mut Call<'_, '_>,
    (names, lease): (Vec<Value>, Lease),
    mut waiting: DelayedMetadata,
) {
    let thread = call.thread.index;
    let delayed = call.thread.delayed.name();
    let ticket = call.broker.tickets.open(TicketHolder::AutoCreate { thread, delayed });
    waiting.ticket = ticket;
    let deadline_ms = call.decision_deadline_ms(0);
    call.delay_as(delayed, Some(deadline_ms), Box::new(waiting));
    let client = call.client();
    call.submit(Event {
        ticket,
        api: "AutoCreate",
        version: 0,
        request: Value::Map(vec![("topics".into(), Value::List(names))]),
        client,
        lease: Some(Arc::new(lease)),
    });
}

/// The address of a broker for clients of a listener; `None` if it has no such listener. For this
/// broker (`here`) it is the address the client connected to, unless one is advertised.
pub(crate) fn advertised(
    image: &ClusterImage,
    (node, here): (i32, i32),
    peer: &Peer,
) -> Option<(String, i32)> {
    let endpoints = &image.broker(node)?.endpoints;
    match endpoints.iter().find(|endpoint| endpoint.listener == peer.listener) {
        Some(endpoint) => Some((endpoint.host.to_string(), i32::from(endpoint.port))),
        None if node != here => None,
        None => Some((peer.local.ip().to_canonical().to_string(), i32::from(peer.local.port()))),
    }
}

/// Whether this is a legal topic name.
pub(crate) fn is_legal(name: &str) -> bool {
    let is_legal_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.as_bytes().iter().all(is_legal_byte)
}

/// A broker as a reply lists it.
pub(crate) struct AdvertisedBroker<'a> {
    pub(crate) node_id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<&'a str>,
}

/// The brokers that clients of `peer`'s listener can reach. `here` is this broker's node id.
pub(crate) fn advertised_brokers<'a>(
    image: &'a ClusterImage,
    here: i32,
    peer: &Peer,
) -> Vec<AdvertisedBroker<'a>> {
    let brokers = image.brokers.iter().filter_map(|broker| {
        let (host, port) = advertised(image, (broker.id, here), peer)?;
        Some(AdvertisedBroker { node_id: broker.id, host, port, rack: broker.rack.as_deref() })
    });
    brokers.collect()
}

impl MetadataReply<'_> {
    fn write(&self, head: Head, output: &mut Output, asked: Option<&[RequestedTopic]>) {
        let advertised = advertised_brokers(self.image, self.node, self.peer);
        let brokers = advertised.iter().map(|broker| MetadataResponseBroker {
            node_id: broker.node_id,
            host: &broker.host,
            port: broker.port,
            rack: broker.rack,
        });
        let topics = match asked {
            None => {
                let topics = self.image.topics();
                let seen = topics.filter(|topic| self.access.sees(Describe, Topic, &topic.name));
                seen.map(|topic| self.topic(topic)).collect()
            }
            Some(asked) => asked.iter().map(|asking| self.asked(asking)).collect(),
        };
        let response = MetadataResponse {
            brokers: brokers.collect(),
            cluster_id: Some(&self.image.cluster_id),
            controller_id: self.image.controller_id,
            topics,
            cluster_authorized_operations: operations(self.cluster_operations, || {
                self.access.cluster_operations()
            }),
            ..Default::default()
        };
        head.reply(output, |writer, version| response.encode(writer, version));
    }

    fn asked<'b>(&'b self, asking: &'b RequestedTopic) -> MetadataResponseTopic<'b> {
        let (found, error, name, topic_id) = match asking {
            RequestedTopic::Name(name) => {
                let error = match self.refused.get(name) {
                    Some(error) => *error,
                    None if is_legal(name) => self.absent,
                    None => ErrorCode::InvalidTopicException,
                };
                (self.image.topic(name), error, Some(name.as_str()), TopicId::ZERO)
            }
            RequestedTopic::Id(id) => {
                (self.image.topic_by_id(*id), ErrorCode::UnknownTopicId, None, *id)
            }
        };
        let known_as = name.or(found.map(|topic| &*topic.name));
        let is_hidden = known_as.is_some_and(|name| !self.access.check(Describe, Topic, name));
        let error = if is_hidden { ErrorCode::TopicAuthorizationFailed } else { error };
        match found {
            Some(topic) if !is_hidden => self.topic(topic),
            _ => MetadataResponseTopic {
                error_code: error.code(),
                name,
                topic_id,
                topic_authorized_operations: OPERATIONS_NOT_ASKED,
                ..Default::default()
            },
        }
    }

    fn topic<'b>(&self, topic: &'b TopicImage) -> MetadataResponseTopic<'b> {
        let partitions = (0..).zip(&topic.partitions).map(|(partition_index, partition)| {
            let state = &partition.state;
            let broken = partition.local.as_ref().is_none_or(|p| p.log.is_offline());
            let alive =
                |node: &i32| self.image.broker(*node).is_some() && !(*node == self.node && broken);
            let has_leader = state.leader >= 0 && alive(&state.leader);
            let error = if has_leader { ErrorCode::None } else { ErrorCode::LeaderNotAvailable };
            MetadataResponsePartition {
                error_code: error.code(),
                partition_index,
                leader_id: if has_leader { state.leader } else { -1 },
                leader_epoch: state.leader_epoch.0,
                replica_nodes: state.replicas.clone(),
                isr_nodes: state.isr.clone(),
                offline_replicas: state.replicas.iter().copied().filter(|n| !alive(n)).collect(),
            }
        });
        MetadataResponseTopic {
            error_code: 0,
            name: Some(&topic.name),
            topic_id: topic.id,
            is_internal: topic.internal,
            partitions: partitions.collect(),
            topic_authorized_operations: operations(self.topic_operations, || {
                self.access.topic_operations(&topic.name)
            }),
        }
    }
}

/// The allowed operations if the request asks for them.
pub(crate) fn operations(asked: bool, allowed: impl FnOnce() -> i32) -> i32 {
    if asked { allowed() } else { OPERATIONS_NOT_ASKED }
}
