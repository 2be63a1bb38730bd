//! ConsumerGroupHeartbeat (68), v0-1: a member of a consumer group (KIP-848) says that it is alive,
//! and what changed; it hears what it is to own.
//! Behaviour: where nothing changed, on neither side, the group's fence row answers: the member is
//!     known, has the epoch that it says, and there is nothing to tell it. All else the policy
//!     decides, as joining and leaving; `group` has refused before what is not for this broker.
//! Version notes: v1 has a regular expression of topics; member ids are the client's own from then.
//! Not done: a member that says again what it said before is not quiet here.

use crate::broker::handlers::policy;
use crate::broker::requests::call::{Call, Outcome};
use crate::broker::requests::service::Flow;
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::groups::snapshots::MemberIdentity;
use crate::protocol::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let mut reader = call.reader();
    let request = ConsumerGroupHeartbeatRequest::decode(&mut reader, call.version())?;
    reader.finish()?;
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

/// The interval to answer with, where the policy need not hear of it.
fn answered(call: &mut Call<'_, '_>, request: &ConsumerGroupHeartbeatRequest<'_>) -> Option<i32> {
    let group_id = request.group_id;
    if has_news(request) || call.broker.coordinator_state(group_id) != CoordinatorState::Ready {
        return None;
    }
    let identity = MemberIdentity {
        group_id,
        member_id: request.member_id,
        instance_id: request.instance_id,
        generation: request.member_epoch,
    };
    call.session.is_speaker = true;
    let now_ms = call.broker.clock.monotonic_ms();
    call.broker.groups.snapshots.check_quiet(&identity, call.session.connection, now_ms)
}

fn has_news(request: &ConsumerGroupHeartbeatRequest<'_>) -> bool {
    request.topic_partitions.is_some()
        || request.subscribed_topic_names.is_some()
        || request.subscribed_topic_regex.is_some()
        || request.server_assignor.is_some()
        || request.rebalance_timeout_ms != -1
}
