//! The APIs that the policy decides. A request is passed to the policy, and its decision is encoded
//! in the request's version.
//!
//! ```text
//! CreateTopics (19) v0-7             DeleteTopics (20) v0-6          CreatePartitions (37) v0-3
//! DescribeConfigs (32) v0-4          AlterConfigs (33) v0-2          ElectLeaders (43) v0-2
//! AlterReplicaLogDirs (34) v0-2
//! IncrementalAlterConfigs (44) v0-1  AlterPartitionReassignments (45) v0-1
//! ListPartitionReassignments (46) v0
//! DescribeClientQuotas (48) v0-1     AlterClientQuotas (49) v0-1
//! DescribeUserScramCredentials (50) v0  AlterUserScramCredentials (51) v0
//! CreateDelegationToken (38) v0-3    RenewDelegationToken (39) v0-2
//! ExpireDelegationToken (40) v0-2    DescribeDelegationToken (41) v0-3
//! DescribeAcls (29) v0-3             CreateAcls (30) v0-3            DeleteAcls (31) v0-3
//! ListConfigResources (74) v0-1      UpdateFeatures (57) v0-2
//! JoinGroup (11) v0-9                SyncGroup (14) v0-5             LeaveGroup (13) v0-5
//! DescribeGroups (15) v0-6           ListGroups (16) v0-5            DeleteGroups (42) v0-2
//! ConsumerGroupDescribe (69) v0-1
//! LeaderAndIsr (4) v0-7              StopReplica (5) v0-4            UpdateMetadata (6) v0-8
//! ControlledShutdown (7) v0-3        AlterPartition (56) v0-3        AllocateProducerIds (67) v0
//! ```
//! The last six are served between brokers only. The policy also decides ConsumerGroupHeartbeat
//! (68) v0-1 when something changed, and v0 of OffsetCommit (8) and OffsetFetch (9), whose offsets
//! are in ZooKeeper.
//! Behaviour: the connection is not read until the answer arrives, so a client's decisions keep its
//!     order. If the policy returns no valid response of the API, the connection is closed.
//!     Every request passes the checks in `permission` first, and one on groups those in `group`.
//!     The memory that a request takes as Python objects is computed before they are made. A
//!     client's request may take `krust.policy.request.memory.bytes`, or four times its size; a
//!     larger one closes the connection, and a log line says why. If the broker's pool has too few
//!     bytes left, the request is retried a little later.
//!     Bytes after the request are passed over, as by Kafka: librdkafka appends one to
//!     AlterUserScramCredentials.
//! Version notes: the policy sees only the fields of the request's version. Fields of its answer
//!     that the version lacks are left out.
//! Not done: deadlines. The policy applies `timeout_ms`.

use std::borrow::Cow;

use crate::broker::handlers::group;
use crate::broker::handlers::permission::{self, Admission};
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::connection::FollowingFrames;
use crate::broker::requests::decisions;
use crate::broker::requests::service::Flow;
use crate::protocol::{Direction, decode_any, encode_any, message_size, value_cost};
use crate::wire::Sink;

/// A request may always take this many times its own size: names and assignments exist once as a
/// [`Value`] and once as Python's objects.
const FACTOR: usize = 4;
/// After this time a request that got no lease is retried.
const AGAIN_MS: i32 = 20;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let head = call.request.head;
    let (key, version) = (head.api.key, head.version);
    let body = call.request.body;
    let length = message_size(key, version, Direction::Request, body)?;
    let body = body.get(..length).unwrap_or(body);
    let cost = value_cost(key, version, Direction::Request, body)?;
    let most = call.broker.settings.load().policy_request_bytes;
    let most = most.max(body.len().saturating_mul(FACTOR));
    if cost > most && !head.api.is_between_brokers() {
        let client = call.connection.peer.remote;
        call.broker.too_large.warn(call.broker.clock.monotonic_ms(), |more| {
            tracing::warn!(
                api = head.api.name,
                %client,
                bytes = body.len(),
                cost,
                limit = most,
                more,
                "a request has too many parts: its connection is closed. Send fewer at once, or \
                 raise krust.policy.request.memory.bytes"
            );
        });
        return Ok(Flow::Close);
    }
    let Some(lease) = call.broker.memory.lease(cost) else {
        call.connection.following_frames = FollowingFrames::WaitForRetry;
        call.replies.mute(AGAIN_MS);
        return Ok(Flow::Go);
    };
    let mut request = decode_any(key, version, Direction::Request, body)?;
    decisions::deduplicate(key, &mut request);
    let admission = match permission::admit(call, request) {
        Admission::Ask { request, settled } => group::admit(call, request, settled),
        refused => refused,
    };
    match admission {
        Admission::Ask { request, settled } => {
            call.ask_policy(request, (settled, permission::answer_filter(call)), lease);
            Ok(Flow::Hold)
        }
        Admission::Answer(response) => {
            let mut response = Cow::Owned(response);
            decisions::set_throttle_time(call.request.head, &mut response);
            match encode_any(key, version, Direction::Response, &response) {
                Ok(body) => call.reply(|writer, _| writer.raw(&body.buf)),
                Err(error) => {
                    tracing::error!(api = head.api.name, %error, "no answer of ours");
                    return Ok(Flow::Close);
                }
            }
            Ok(Flow::Go)
        }
    }
}
