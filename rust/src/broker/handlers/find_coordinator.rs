//! FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.
//! Behaviour: a group (key type 0) is coordinated by the leader of its partition of
//!     `__consumer_offsets`. The first use creates that topic: the policy is asked (`AutoCreate`),
//!     the request parked, then answered; if the topic is not there even then, or the partition has
//!     no leader, COORDINATOR_NOT_AVAILABLE (15). A transactional id (key type 1) is
//!     TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), which clients report at once, with the reason.
//!     Any other key type is INVALID_REQUEST (42). Closes while Metadata does.
//! Version notes: v0 knows groups only; v1 adds the key type and an error message; v4 asks for many
//!     keys at once and answers each; v6 adds share groups (key type 2), refused here.
//! Not done: transactions, share groups.

use super::super::apis::Outcome;
use super::super::call::{Call, Head};
use super::super::groups::{TOPIC, partition_for};
use super::super::image::ClusterImage;
use super::super::parked::Wait;
use super::super::policy::{Asked, Event};
use super::super::service::{Flow, Peer};
use super::super::{Output, ThreadState};
use super::metadata::advertised;
use crate::protocol::ErrorCode;
use crate::protocol::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use crate::protocol::value::Value;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// The first version that asks for many keys.
const KEYS_FROM: i16 = 4;

/// A request that waits for the topic of groups.
#[derive(Debug)]
pub(crate) struct Waiting {
    keys: Vec<String>,
    here: i32,
    peer: Peer,
}

/// Where a coordinator is: node, host, port; or why it is nowhere.
type Place = Result<(i32, String, i32), ErrorCode>;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let version = call.version();
    let request = FindCoordinatorRequest::decode(&mut call.reader(), version)?;
    let keys = if version < KEYS_FROM { vec![request.key] } else { request.coordinator_keys };
    let image = call.image();
    if image.waits {
        return Ok(Flow::Close);
    }
    if request.key_type == GROUP && image.topic(TOPIC).is_none() && !keys.is_empty() {
        let keys = keys.into_iter().map(str::to_owned).collect();
        let here = call.broker.settings.load().node_id;
        create(call, Waiting { keys, here, peer: call.session.peer.clone() });
        return Ok(Flow::Hold);
    }
    let (here, peer) = (call.broker.settings.load().node_id, &call.session.peer);
    let place = |key: &str| match request.key_type {
        GROUP => place(&image, (here, peer), key),
        TRANSACTION => Err(ErrorCode::TransactionalIdAuthorizationFailed),
        _ => Err(ErrorCode::InvalidRequest),
    };
    let found: Vec<(&str, Place)> = keys.into_iter().map(|key| (key, place(key))).collect();
    call.reply(|writer, version| respond(&found, version).encode(writer, version));
    Ok(Flow::Go)
}

/// The reply to a request that waited: the policy has created the topic, or has not.
pub(crate) fn resume(thread: &ThreadState, head: Head, waiting: &Waiting) -> Output {
    let (image, keys) = (&thread.image, waiting.keys.iter());
    let place = |key: &str| place(image, (waiting.here, &waiting.peer), key);
    let found: Vec<(&str, Place)> = keys.map(|key| (key.as_str(), place(key))).collect();
    head.output(|writer, version| respond(&found, version).encode(writer, version))
}

fn create(call: &mut Call<'_, '_>, waiting: Waiting) {
    let thread = call.thread.index;
    let parked = call.park(None, Wait::Coordinator(Box::new(waiting)));
    let ticket = call.broker.tickets.open(Asked::AutoCreate { thread, parked });
    let names = Value::List(vec![Value::Str(TOPIC.into())]);
    let request = Value::Map(vec![("topics".into(), names)]);
    let client = call.client();
    call.submit(Event { ticket, api: "AutoCreate", version: 0, request, client, lease: None });
}

/// The node that leads the partition of a group.
fn leader(image: &ClusterImage, group_id: &str) -> Option<i32> {
    let partitions = &image.topic(TOPIC)?.partitions;
    let partition = partitions.get(partition_for(group_id, partitions.len()))?;
    Some(partition.state.leader).filter(|leader| *leader >= 0)
}

fn place(image: &ClusterImage, (here, peer): (i32, &Peer), group_id: &str) -> Place {
    let node = leader(image, group_id).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let address = advertised(image, (node, here), peer);
    let (host, port) = address.ok_or(ErrorCode::CoordinatorNotAvailable)?;
    Ok((node, host, port))
}

fn respond<'a>(found: &'a [(&'a str, Place)], version: i16) -> FindCoordinatorResponse<'a> {
    let coordinators = found.iter().map(|(key, place)| {
        let (node_id, host, port) = match place {
            Ok((node, host, port)) => (*node, host.as_str(), *port),
            Err(_) => (-1, "", -1),
        };
        let error = place.as_ref().err().copied().unwrap_or(ErrorCode::None);
        let error_message = match error {
            ErrorCode::None => None,
            ErrorCode::TransactionalIdAuthorizationFailed => {
                Some("there are no transactions here yet; produce without transactional.id")
            }
            ErrorCode::InvalidRequest => Some("only groups have coordinators here"),
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
