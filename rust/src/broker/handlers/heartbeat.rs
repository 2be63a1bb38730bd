//! Heartbeat (12), v0-4: a member of a classic group says that it is alive, and hears whether a
//! rebalance is under way.
//! Behaviour: judged by the group's fence row alone; the policy does not hear of it. REBALANCE_IN_
//!     PROGRESS (27) while members are joining, else nothing, ILLEGAL_GENERATION (22),
//!     UNKNOWN_MEMBER_ID (25) or FENCED_INSTANCE_ID (82). An empty group id is INVALID_GROUP_ID
//!     (24). While the group's partition is being read every heartbeat is taken, as by Kafka:
//!     a member that was told otherwise would leave.
//! Version notes: v3 brings the instance id of static members.

use crate::broker::requests::call::{Call, Outcome};
use crate::broker::requests::service::Flow;
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::groups::snapshots::MemberIdentity;
use crate::protocol::ErrorCode;
use crate::protocol::heartbeat::{HeartbeatRequest, HeartbeatResponse};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let request = HeartbeatRequest::decode(&mut call.reader(), call.version())?;
    let identity = MemberIdentity {
        group_id: request.group_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        generation: request.generation_id,
    };
    let error = judge(call, &identity);
    let response = HeartbeatResponse { error_code: error.code(), ..Default::default() };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

fn judge(call: &mut Call<'_, '_>, identity: &MemberIdentity<'_>) -> ErrorCode {
    if identity.group_id.is_empty() {
        return ErrorCode::InvalidGroupId;
    }
    match call.broker.coordinator_state(identity.group_id) {
        CoordinatorState::Loading => ErrorCode::None,
        CoordinatorState::NotHere => ErrorCode::NotCoordinator,
        CoordinatorState::Ready => {
            call.session.is_speaker = true;
            let now_ms = call.broker.clock.monotonic_ms();
            let fences = &call.broker.groups.snapshots;
            fences.check_heartbeat(identity, call.session.connection, now_ms)
        }
    }
}
