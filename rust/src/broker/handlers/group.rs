//! Checks a group request before it reaches the policy. The checks refuse what Kafka refuses
//! without reading the group.
//!
//! Behaviour: while a group's partition is being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS
//!     (14); if another broker leads it, NOT_COORDINATOR (16). An empty group id is
//!     INVALID_GROUP_ID (24) from a member of a classic group and INVALID_REQUEST (42) from a
//!     member of a consumer group. If a request names many groups, refused ones are answered here
//!     and the others are passed on. ListGroups is refused while any partition is being loaded.
//!     JoinGroup, SyncGroup and ConsumerGroupHeartbeat extend a member's session.
//! Version notes: OffsetCommit and OffsetFetch v0 are passed on, because their offsets are in
//!     ZooKeeper.

use crate::broker::handlers::permission::{Admission, group_refusal, member_refusal, of_list};
use crate::broker::requests::call::Call;
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::groups::published::MemberIdentity;
use crate::protocol::value::Value;
use crate::protocol::{
    ErrorCode, consumer_group_describe, consumer_group_heartbeat, delete_groups, describe_groups,
    join_group, leave_group, list_groups, sync_group,
};

/// Checks whether a request may be passed to the policy. A request that concerns no group may.
/// `settled`: entries for the answer's list that were decided before.
pub(crate) fn admit(call: &mut Call<'_, '_>, request: Value, settled: Vec<Value>) -> Admission {
    match call.request.head.api.key {
        join_group::KEY | leave_group::KEY | sync_group::KEY | consumer_group_heartbeat::KEY => {
            of_member(call, request)
        }
        consumer_group_describe::KEY => of_many(call, request, ("group_ids", "groups"), settled),
        describe_groups::KEY => of_many(call, request, ("groups", "groups"), settled),
        delete_groups::KEY => of_many(call, request, ("groups_names", "results"), settled),
        list_groups::KEY if call.broker.groups_loading() => {
            Admission::Answer(refusal(ErrorCode::CoordinatorLoadInProgress))
        }
        _ => Admission::Ask { request, settled },
    }
}

/// Whether this broker coordinates a group now.
pub(crate) fn coordinates(call: &Call<'_, '_>, group_id: &str) -> Result<(), ErrorCode> {
    match call.broker.coordinator_state(group_id) {
        CoordinatorState::Ready => Ok(()),
        CoordinatorState::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
        CoordinatorState::NotHere => Err(ErrorCode::NotCoordinator),
    }
}

fn of_member(call: &mut Call<'_, '_>, request: Value) -> Admission {
    let (group_id, member_id) = (request.text("group_id"), request.text("member_id"));
    let key = call.request.head.api.key;
    let refused = match group_id {
        "" if key == consumer_group_heartbeat::KEY => Err(ErrorCode::InvalidRequest),
        "" => Err(ErrorCode::InvalidGroupId),
        _ => coordinates(call, group_id),
    };
    if let Err(error) = refused {
        return Admission::Answer(member_refusal((key, error), call.version(), &request));
    }
    if key != leave_group::KEY {
        call.note_group_member();
        let (snapshots, connection) = (&call.broker.groups.snapshots, call.connection.number);
        let identity = MemberIdentity { group_id, member_id, ..MemberIdentity::default() };
        snapshots.refresh_member_of(&identity, connection, call.broker.clock.monotonic_ms());
    }
    Admission::Ask { request, settled: Vec::new() }
}

fn of_many(
    call: &Call<'_, '_>,
    request: Value,
    (asked, answered): (&'static str, &'static str),
    settled: Vec<Value>,
) -> Admission {
    of_list(request, (&[asked], answered), settled, |group| {
        let Value::Str(group_id) = group else { return None };
        let error = coordinates(call, group_id).err()?;
        Some(group_refusal(group_id, error))
    })
}

fn refusal(error: ErrorCode) -> Value {
    Value::Map(vec![("error_code".into(), Value::Int(error.code().into()))])
}
