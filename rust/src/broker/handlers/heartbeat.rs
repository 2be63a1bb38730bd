//! Heartbeat (12), v0-4: a member of a classic group reports that it is alive and learns of
//! rebalances.
//! Behaviour: answered from the group's snapshot; the policy is not asked. REBALANCE_IN_PROGRESS
//!     (27) while members are joining, ILLEGAL_GENERATION (22), UNKNOWN_MEMBER_ID (25) or
//!     FENCED_INSTANCE_ID (82); an empty group id is INVALID_GROUP_ID (24). While the group's
//!     partition is being loaded every heartbeat succeeds, as in Kafka: otherwise the member would
//!     leave.
//! Authorization: Read on the group, else GROUP_AUTHORIZATION_FAILED (30).
//! Version notes: v3 adds the instance id of static members.

use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Read;
use crate::broker::state::acls::ResourceType::Group;
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::groups::published::MemberIdentity;
use crate::protocol::ErrorCode;
use crate::protocol::heartbeat::{HeartbeatRequest, HeartbeatResponse};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = HeartbeatRequest::decode(&mut call.reader(), call.version())?;
    let identity = MemberIdentity {
        group_id: request.group_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        generation: request.generation_id,
    };
    let error = check_member(call, &identity);
    let response = HeartbeatResponse { error_code: error.code(), ..Default::default() };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

fn check_member(call: &mut Call<'_, '_>, identity: &MemberIdentity<'_>) -> ErrorCode {
    if !call.access().check(Read, Group, identity.group_id) {
        return ErrorCode::GroupAuthorizationFailed;
    }
    if identity.group_id.is_empty() {
        return ErrorCode::InvalidGroupId;
    }
    match call.broker.coordinator_state(identity.group_id) {
        CoordinatorState::Loading => ErrorCode::None,
        CoordinatorState::NotHere => ErrorCode::NotCoordinator,
        CoordinatorState::Ready => {
            call.note_group_member();
            let now_ms = call.broker.clock.monotonic_ms();
            let snapshots = &call.broker.groups.snapshots;
            snapshots.check_heartbeat(identity, call.connection.number, now_ms)
        }
    }
}
