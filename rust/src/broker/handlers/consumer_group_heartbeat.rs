//! ConsumerGroupHeartbeat (68), v0-1: a member of a consumer group (KIP-848) reports that it is
//! alive and what changed. The reply holds its new assignment.
//! Behaviour: the group's snapshot answers a heartbeat if nothing changed: the member exists, its
//!     epoch is current, and it has no new assignment. The policy decides all other heartbeats,
//!     such as joining and leaving. `group` has already refused requests that belong to another
//!     broker.
//! Authorization: Read on the group, else GROUP_AUTHORIZATION_FAILED (30); Describe on the topics
//!     that the member subscribes by name, else TOPIC_AUTHORIZATION_FAILED (29).
//! Version notes: v1 adds a regular expression of topics. From v1 on, members choose their own ids.
//! Not done: a member that repeats an unchanged subscription is still passed to the policy.

use crate::broker::handlers::policy;
use crate::broker::requests::access::Access;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::{Describe, Read};
use crate::broker::state::acls::ResourceType::{Group, Topic};
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::groups::published::MemberIdentity;
use crate::protocol::ErrorCode;
use crate::protocol::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let mut reader = call.reader();
    let request = ConsumerGroupHeartbeatRequest::decode(&mut reader, call.version())?;
    reader.finish()?;
    if let Some(refused) = refused(&call.access(), &request) {
        let response =
            ConsumerGroupHeartbeatResponse { error_code: refused.code(), ..Default::default() };
        call.reply(|writer, version| response.encode(writer, version));
        return Ok(Flow::Go);
    }
    let Some(heartbeat_interval_ms) = answered(call, &request) else { return policy::handle(call) };
    let response = ConsumerGroupHeartbeatResponse {
        member_id: Some(request.member_id),
        member_epoch: request.member_epoch,
        heartbeat_interval_ms,
        ..Default::default()
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

fn refused(access: &Access, request: &ConsumerGroupHeartbeatRequest<'_>) -> Option<ErrorCode> {
    if !access.check(Read, Group, request.group_id) {
        return Some(ErrorCode::GroupAuthorizationFailed);
    }
    let mut topics = request.subscribed_topic_names.iter().flatten();
    let is_seen = topics.all(|topic| access.check(Describe, Topic, topic));
    (!is_seen).then_some(ErrorCode::TopicAuthorizationFailed)
}

/// The heartbeat interval of the reply, if the snapshot can answer the heartbeat.
fn answered(call: &mut Call<'_, '_>, request: &ConsumerGroupHeartbeatRequest<'_>) -> Option<i32> {
    let group_id = request.group_id;
    if changes_anything(request)
        || call.broker.coordinator_state(group_id) != CoordinatorState::Ready
    {
        return None;
    }
    let identity = MemberIdentity {
        group_id,
        member_id: request.member_id,
        instance_id: request.instance_id,
        generation: request.member_epoch,
    };
    call.note_group_member();
    let now_ms = call.broker.clock.monotonic_ms();
    call.broker.groups.snapshots.check_unchanged(&identity, call.connection.number, now_ms)
}

fn changes_anything(request: &ConsumerGroupHeartbeatRequest<'_>) -> bool {
    request.topic_partitions.is_some()
        || request.subscribed_topic_names.is_some()
        || request.subscribed_topic_regex.is_some()
        || request.server_assignor.is_some()
        || request.rebalance_timeout_ms != -1
}
